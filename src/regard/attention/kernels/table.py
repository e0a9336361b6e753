"""A table over offsets, laid out over tiles of rows and keys, and the sums of its gradient.

Where positions are consecutive, a row of a tile is a piece of the table, and the next row the piece
that begins one column before. So with rows in reverse a tile is a view of the table, each row one
number on; and the diagonals of its gradient are the columns of a view of it with a margin of zeros.
"""

import torch
from torch import Tensor

from regard.attention.bias import RelativeBias
from regard.attention.call import Call
from regard.attention.kernels.scratch import scratch
from regard.attention.masks import Rectangle


class Table:
    """`table`: (heads, offsets), float32, its first column for the offset `lowest`, times `factor`.

    `call` has consecutive query positions and consecutive key positions. `ShapeError` if the table
    does not cover their offsets: a compiled model cannot look before it calls.
    """

    def __init__(self, call: Call, table: Tensor, lowest: int, factor: float):
        self.table = table.detach().contiguous() * factor
        # Where key 0 of query 0 stands in the table, for each sequence or for all.
        starts = call.key_positions[:, 0] - call.query_positions[:, 0] - lowest
        self.starts: list[int] = starts.tolist()
        *_, q_tokens, k_tokens = call.sizes
        RelativeBias(table, lowest).check_offsets(
            lowest + min(self.starts) - q_tokens + 1, lowest + max(self.starts) + k_tokens - 1
        )
        self.slopes = torch.zeros(table.shape, dtype=torch.float64)

    def add_to(self, scores: Tensor, rectangle: Rectangle, factor: float) -> None:
        """Scores times `factor` plus the table, in place: (batch, heads, rows reversed, keys)."""
        _, heads, height, width = scores.shape
        shape, strides = (heads, height, width), (self.table.shape[1], 1, 1)
        starts = self._starts(rectangle)
        for sequence, start in enumerate(starts):
            lines = self.table.as_strided(shape, strides, start)
            part = scores if len(starts) == 1 else scores[sequence]
            torch.add(lines, part, alpha=factor, out=part)

    def absorb(self, slopes: Tensor, rectangle: Rectangle) -> None:
        """Add what the gradients `slopes` of the rectangle's scores, rows reversed, give."""
        batch, heads, height, width = slopes.shape
        wide = height + width
        room = scratch("table", batch * heads * height * wide).view(batch, heads, height, wide)
        room[..., :width] = slopes
        room[..., width:] = 0
        diagonals = room.as_strided(
            (batch, heads, height, wide - 1), (heads * height * wide, height * wide, wide - 1, 1)
        ).sum(2)
        starts = self._starts(rectangle)
        if len(starts) == 1:
            diagonals = diagonals.sum(0, keepdim=True)
        for start, sums in zip(starts, diagonals, strict=True):
            self.slopes[:, start : start + wide - 1] += sums

    def gradient(self) -> Tensor:
        """Of the table, before `factor`."""
        return self.slopes.float()

    def _starts(self, rectangle: Rectangle) -> list[int]:
        """Where the first key of the rectangle's last row stands, by sequence or for all."""
        starts = self.starts if len(self.starts) == 1 else self.starts[rectangle.batch]
        return [start + rectangle.cols.start - rectangle.rows.stop + 1 for start in starts]
