"""Scaled dot product scores of a tile, and their gradients: matrix products."""

import torch
from torch import Tensor

from regard.attention.kernels.threads import Threads
from regard.attention.masks import Rectangle

TILE, TILE_KEYS = 2**19, 512


class DotScores:
    """The scores ``scale · query keyᵀ``, tile by tile.

    `query`, `key`: (batch, heads, tokens, width), float32; `scale`: (), float32.
    """

    def __init__(self, query: Tensor, key: Tensor, scale: Tensor):
        self.query, self.key = query.contiguous(), key.contiguous()
        self.scale = float(scale)

    def tile(self) -> tuple[int, int]:
        """As much as a core's cache holds of a head."""
        return TILE, TILE_KEYS

    def fill(self, threads: Threads, scores: Tensor, rectangle: Rectangle) -> None:
        """Write the rectangle's scores, (batch, heads, rows backward, keys)."""
        query, key = self._cut(rectangle)
        scores = scores.flatten(0, 1)
        torch.baddbmm(scores, query, key.transpose(1, 2), beta=0, alpha=self.scale, out=scores)

    def start_gradients(self) -> None:
        """Make room for the gradients."""
        self.query_slopes = torch.zeros_like(self.query)
        self.key_slopes = torch.zeros_like(self.key)

    def absorb(self, threads: Threads, slopes: Tensor, rectangle: Rectangle) -> None:
        """Add what the gradients `slopes` of those scores give."""
        query, key = self._cut(rectangle)
        slopes = slopes.flatten(0, 1)
        query_slopes = self.query_slopes[rectangle.batch].flatten(0, 1)[:, rectangle.rows]
        query_slopes.add_(torch.bmm(slopes, key).flip(1), alpha=self.scale)
        key_slopes = self.key_slopes[rectangle.batch].flatten(0, 1)[:, rectangle.cols]
        key_slopes.add_(torch.bmm(slopes.transpose(1, 2), query), alpha=self.scale)

    def gradients(self) -> tuple[Tensor, Tensor, None]:
        """Of query and key; the scale is a constant."""
        return self.query_slopes, self.key_slopes, None

    def _cut(self, rectangle: Rectangle) -> tuple[Tensor, Tensor]:
        """The rectangle's query rows, backward, and keys, batch and heads in one axis."""
        return (
            self.query[rectangle.batch].flatten(0, 1)[:, rectangle.rows].flip(1),
            self.key[rectangle.batch].flatten(0, 1)[:, rectangle.cols],
        )
