"""Causal: a query attends to keys at its own position and before.

Vaswani et al., "Attention Is All You Need" (2017), section 3.2.3.
"""

from typing import ClassVar

from jaxtyping import Bool
from torch import Tensor

from regard.attention.masks._mask import Mask, Rectangle


class Causal(Mask):
    """Key position ≤ query position.

    >>> import torch
    >>> Causal().dense(torch.arange(2, 4), torch.arange(4)).int()
    tensor([[[[1, 1, 1, 0],
              [1, 1, 1, 1]]]], dtype=torch.int32)
    """

    positional: ClassVar[bool] = True

    def allows(self, rectangle: Rectangle) -> Bool[Tensor, "_ _ _ _"]:
        """Offsets at most 0."""
        return (rectangle.offsets <= 0)[:, None]

    def span(self, rows: slice, tokens: int) -> slice:
        """Columns up to the last row."""
        return slice(0, min(rows.stop, tokens))

    def __repr__(self) -> str:
        return "Causal()"
