"""Tiles: a map of the matrix in squares of 256×256 pixels, each pixel pooling s×s weights.

Tile (row, col) at pool s covers the matrix rows from ``256·s·row`` and columns from ``256·s·col``,
256·s of each or up to the matrix's end. Up to s = 16 a tile is computed on demand: at most
4096×4096 weights, whatever the length of the text. Above, a grid holds all pixels of a head; until
it is ready, a preview looks at one row in s, and says so.

>>> from regard.attention import make_call
>>> from regard.inspection.record import AttentionRecord
>>> from regard.inspection.atlas.head import head_of
>>> x = torch.randn(1, 1, 300, 8)
>>> record = AttentionRecord(name="attention", layer=0, call=make_call(x, x, x))
>>> tile(head_of(record, 0), 2, row=0, col=0, stat="max").values.shape
torch.Size([150, 150])
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from regard.errors import OptionError
from regard.inspection.atlas.head import Head
from regard.inspection.atlas.pooling import check_stat, counts, pool_along

SIDE = 256
"""Pixels on a tile's side."""

LARGEST_ON_DEMAND = 16
"""The largest s for which a tile is computed from q and k directly."""


@dataclass(frozen=True, eq=False)
class Tile:
    """Pixels, at most 256×256, float32; where they lie, and how they came about.

    `rows`, `cols`: the matrix rows and columns covered. `exact`: whether every weight was looked
    at; `note`: if not, what was, as in "256 of 131,072 rows".
    """

    values: Float[Tensor, "high wide"]
    pool: int
    row: int
    col: int
    stat: str
    rows: slice
    cols: slice
    exact: bool = True
    note: str = ""

    @property
    def nbytes(self) -> int:
        """Bytes of the pixels."""
        return self.values.nbytes


def place(queries: int, keys: int, s: int, row: int, col: int) -> tuple[slice, slice]:
    """Matrix rows and columns of tile (row, col); `OptionError` if there is no such tile."""
    if s < 1 or s & (s - 1):
        raise OptionError(f"pool must be a power of two (1, 2, 4, …), not {s}")
    width = SIDE * s
    high, wide = -(-queries // width), -(-keys // width)
    if not (0 <= row < high and 0 <= col < wide):
        raise OptionError(
            f"there is no tile (row {row}, col {col}) at pool {s}: {queries:,} × {keys:,} weights "
            f"have tile rows 0 … {high - 1} and cols 0 … {wide - 1}"
        )
    return (
        slice(row * width, min((row + 1) * width, queries)),
        slice(col * width, min((col + 1) * width, keys)),
    )


def tile(head: Head, s: int, row: int, col: int, stat: str = "max") -> Tile:
    """The exact tile for s ≤ 16."""
    check_stat(stat)
    if s > LARGEST_ON_DEMAND:
        raise OptionError(
            f"a tile is computed on demand up to pool {LARGEST_ON_DEMAND}, and pool {s} is asked "
            "for; build the head's grid first: Grid.build(head).tile(…)"
        )
    rows, cols = place(head.queries, head.keys, s, row, col)
    high, wide = -(-(rows.stop - rows.start) // s), -(-(cols.stop - cols.start) // s)
    values = torch.zeros(high, wide, device=head.device)
    block = head.block
    for i in range(rows.start, rows.stop, block[0]):
        block_rows = slice(i, min(i + block[0], rows.stop))
        span = head.span(block_rows)
        for j in range(cols.start, cols.stop, block[1]):
            block_cols = slice(j, min(j + block[1], cols.stop))
            if block_cols.stop > span.start and block_cols.start < span.stop:
                top, left = (i - rows.start) // s, (j - cols.start) // s
                pixels = head.pooled(block_rows, block_cols, s, stat)
                values[top : top + pixels.shape[0], left : left + pixels.shape[1]] = pixels
    return Tile(values, s, row, col, stat, rows, cols)


def preview(head: Head, s: int, row: int, col: int, stat: str = "max") -> Tile:
    """The tile as one row of every s shows it: not exact for s > 1, and its note says so.

    It is the middle row of its pixel, or an earlier one if the last pixel has none there. A mean is
    the row's own, a sum the row's times the pixel's rows.
    """
    check_stat(stat)
    rows, cols = place(head.queries, head.keys, s, row, col)
    last = (rows.stop - rows.start - 1) % s
    sampled = slice(rows.start + min(s // 2, last), rows.stop, s)
    fine = min(s, head.block[1])
    largest, sums = head.sweep(sampled, fine)
    values = pool_along(largest if stat == "max" else sums, s // fine, 1, stat)
    values = values[:, cols.start // s : -(-cols.stop // s)]
    if stat == "mean":
        values = values / counts(1, cols.stop - cols.start, s).to(values.device)
    if stat == "sum":
        high = pool_along(torch.ones(rows.stop - rows.start, 1), s, 0, "sum")
        values = values * high.to(values.device)
    note = "" if s == 1 else f"{values.shape[0]:,} of {rows.stop - rows.start:,} rows"
    return Tile(values.clone(), s, row, col, stat, rows, cols, exact=s == 1, note=note)
