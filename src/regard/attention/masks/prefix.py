"""Prefix: the first positions are open to everybody; ``Causal() | Prefix(n)`` is the prefix model.

Raffel et al., "Exploring the Limits of Transfer Learning" (2020), section 3.2.1, "prefix LM".
"""

from typing import ClassVar

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from regard.attention.masks._mask import Mask, Rectangle
from regard.errors import OptionError, ShapeError


class Prefix(Mask):
    """Key position < length: one length for all, or (B,) integers.

    >>> import torch
    >>> from regard.attention.masks import Causal
    >>> (Causal() | Prefix(2)).dense(torch.arange(3), torch.arange(3)).int()
    tensor([[[[1, 1, 0],
              [1, 1, 0],
              [1, 1, 1]]]], dtype=torch.int32)
    """

    positional: ClassVar[bool] = True

    def __init__(self, length: int | Int[Tensor, " batch"] | Tensor):
        if isinstance(length, Tensor):
            if length.dtype.is_floating_point or length.dtype == torch.bool:
                raise OptionError(f"prefix lengths must be integers, but they are {length.dtype}")
            if length.ndim != 1:
                raise ShapeError(
                    f"prefix lengths are one number a sequence, (batch,); got {tuple(length.shape)}"
                )
        elif length < 0:
            raise OptionError(f"a prefix has a length of 0 or more, not {length}")
        self.length = length

    def allows(self, rectangle: Rectangle) -> Bool[Tensor, "_ _ _ _"]:
        """Keys before the prefix ends, whatever the query."""
        length = self.length
        if isinstance(length, Tensor):
            length = length[rectangle.batch if len(length) > 1 else slice(0, 1)][:, None]
        return (rectangle.key_positions < length)[:, None, None]

    def check(self, batch: int, heads: int, q_tokens: int, k_tokens: int) -> None:
        """One length, or one a sequence."""
        if isinstance(self.length, Tensor) and len(self.length) not in (1, batch):
            raise ShapeError(f"Prefix has {len(self.length)} lengths, but the batch is {batch}")

    @property
    def batch_size(self) -> int:
        """One length a sequence, if a tensor."""
        return len(self.length) if isinstance(self.length, Tensor) else 1

    def __repr__(self) -> str:
        return f"Prefix({self.length if isinstance(self.length, int) else len(self.length)})"
