"""Scaled dot product scores of a block, and their gradients: matrix products."""

import torch
from torch import Tensor

from regard.attention.kernels.threads import Threads
from regard.attention.masks import Rectangle


class DotScores:
    """The scores ``scale · query keyᵀ``, block by block.

    `query`, `key`: (batch, heads, tokens, width), float32; `scale`: (), float32.
    """

    def __init__(self, query: Tensor, key: Tensor, scale: Tensor):
        self.query, self.key = query.detach().contiguous(), key.detach().contiguous()
        self.scale = float(scale)

    def fill(self, threads: Threads, scores: Tensor, rectangle: Rectangle) -> None:
        """Write the rectangle's scores, (batch, heads, rows, keys)."""
        query, key = _cut(self.query, self.key, rectangle)
        torch.baddbmm(
            scores.flatten(0, 1),
            query,
            key.transpose(1, 2),
            beta=0,
            alpha=self.scale,
            out=scores.flatten(0, 1),
        )

    def start_gradients(self) -> None:
        """Make room for the gradients."""
        self.query_slopes = torch.zeros_like(self.query)
        self.key_slopes = torch.zeros_like(self.key)

    def absorb(self, threads: Threads, slopes: Tensor, rectangle: Rectangle) -> None:
        """Add what the gradients `slopes` of the rectangle's scores give."""
        query, key = _cut(self.query, self.key, rectangle)
        query_slopes, key_slopes = _cut(self.query_slopes, self.key_slopes, rectangle)
        slopes = slopes.flatten(0, 1)
        query_slopes.baddbmm_(slopes, key, alpha=self.scale)
        key_slopes.baddbmm_(slopes.transpose(1, 2), query, alpha=self.scale)

    def gradients(self) -> tuple[Tensor, Tensor, None]:
        """Of query and key; the scale is a constant."""
        return self.query_slopes, self.key_slopes, None


def _cut(query: Tensor, key: Tensor, rectangle: Rectangle) -> tuple[Tensor, Tensor]:
    """The rectangle's query rows and keys, batch and heads in one axis."""
    return (
        query[rectangle.batch].flatten(0, 1)[:, rectangle.rows],
        key[rectangle.batch].flatten(0, 1)[:, rectangle.cols],
    )
