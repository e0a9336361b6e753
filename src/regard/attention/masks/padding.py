"""Padding: real tokens may be attended to, padding may not."""

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from regard.attention.masks._mask import Mask, Rectangle, require_boolean
from regard.errors import OptionError, ShapeError


class Padding(Mask):
    """From (B, Tk) Booleans over the keys, True = a real token.

    >>> import torch
    >>> Padding.from_lengths(torch.tensor([1, 3]), 3).real.int()
    tensor([[1, 0, 0],
            [1, 1, 1]], dtype=torch.int32)
    """

    def __init__(self, real: Bool[Tensor, "batch k_tokens"] | Tensor):
        require_boolean("Padding", real)
        if real.ndim != 2:
            raise ShapeError(f"Padding takes (batch, keys), but got shape {tuple(real.shape)}")
        self.real = real

    @classmethod
    def from_torch(cls, key_padding_mask: Bool[Tensor, "batch k_tokens"] | Tensor) -> "Padding":
        """From PyTorch's `key_padding_mask`, (B, Tk), where True = padding."""
        require_boolean("key_padding_mask", key_padding_mask)
        return cls(~key_padding_mask)

    @classmethod
    def from_lengths(cls, lengths: Int[Tensor, " batch"] | Tensor, tokens: int) -> "Padding":
        """From each sequence's number of real tokens, (B,), padded on the right to `tokens`."""
        if lengths.dtype.is_floating_point:
            raise OptionError(f"lengths must be integers, but they are {lengths.dtype}")
        return cls(torch.arange(tokens, device=lengths.device) < lengths[:, None])

    def allows(self, rectangle: Rectangle) -> Bool[Tensor, "_ _ _ _"]:
        """The real keys of the rectangle's columns."""
        batch = rectangle.batch if self.real.shape[0] > 1 else slice(0, 1)
        return self.real[batch, rectangle.cols][:, None, None]

    def check(self, batch: int, heads: int, q_tokens: int, k_tokens: int) -> None:
        """One row of Booleans a sequence, one Boolean a key."""
        if self.real.shape[0] not in (1, batch) or self.real.shape[1] != k_tokens:
            raise ShapeError(
                f"Padding was made for (batch, keys) {tuple(self.real.shape)}, but the keys are "
                f"({batch}, {k_tokens}); with a cache, it covers the cached keys too"
            )

    @property
    def batch_size(self) -> int:
        """One row a sequence."""
        return self.real.shape[0]

    def __repr__(self) -> str:
        return f"Padding({self.real.shape[0]}×{self.real.shape[1]})"
