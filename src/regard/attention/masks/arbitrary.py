"""Arbitrary: any Boolean tensor, by index."""

from jaxtyping import Bool
from torch import Tensor

from regard.attention.masks._mask import Mask, Rectangle, require_boolean
from regard.errors import ShapeError


class Arbitrary(Mask):
    """From Booleans (Tq, Tk), or (B or 1, H or 1, Tq, Tk), True = may attend.

    >>> import torch
    >>> Arbitrary(torch.eye(3, dtype=torch.bool))
    Arbitrary(1×1×3×3)
    """

    def __init__(self, allowed: Bool[Tensor, "..."] | Tensor):
        require_boolean("mask", allowed)
        if allowed.ndim == 2:
            allowed = allowed[None, None]
        if allowed.ndim != 4:
            raise ShapeError(
                "a Boolean mask is (queries, keys) or (batch, heads, queries, keys), where batch "
                f"and heads may be 1; got shape {tuple(allowed.shape)}; "
                "(batch, keys) of real tokens goes in Padding"
            )
        self.allowed = allowed

    def allows(self, rectangle: Rectangle) -> Bool[Tensor, "_ _ _ _"]:
        """The rectangle's cut."""
        batch, _, queries, keys = self.allowed.shape
        return self.allowed[
            rectangle.batch if batch > 1 else slice(0, 1),
            :,
            rectangle.rows if queries > 1 else slice(0, 1),
            rectangle.cols if keys > 1 else slice(0, 1),
        ]

    def check(self, batch: int, heads: int, q_tokens: int, k_tokens: int) -> None:
        """Each axis is 1 or the call's."""
        sizes = (batch, heads, q_tokens, k_tokens)
        if any(a not in (1, b) for a, b in zip(self.allowed.shape, sizes, strict=True)):
            raise ShapeError(
                f"the Boolean mask has shape {tuple(self.allowed.shape)}, but (batch, heads, "
                f"queries, keys) are {sizes}; each axis must agree or be 1"
            )

    @property
    def batch_size(self) -> int:
        """One rectangle a sequence."""
        return self.allowed.shape[0]

    def __repr__(self) -> str:
        return f"Arbitrary({'×'.join(map(str, self.allowed.shape))})"
