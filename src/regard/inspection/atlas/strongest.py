"""The strongest links: the n largest weights of a whole matrix, without forming it.

The matrix is gone through in blocks, keeping the n largest so far. Where the head's grid is known,
the blocks come in the order of their largest weight, and those that cannot hold one of the n
are left out.

>>> from regard.attention import make_call
>>> from regard.inspection.record import AttentionRecord
>>> from regard.inspection.atlas.head import head_of
>>> x = torch.eye(3)[None, None]
>>> record = AttentionRecord(name="attention", layer=0, call=make_call(x, x, x, score="dot"))
>>> strongest(head_of(record, 0), 1)
[Link(row=0, col=0, weight=0.57...)]
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from regard.errors import OptionError
from regard.inspection.atlas.grid import BASE, Grid
from regard.inspection.atlas.head import Head
from regard.inspection.atlas.pooling import pool_along

SLACK = 1e-4
"""A block is left out only if its grid's maximum is below the n-th weight by more than this share:
grid and block round differently."""


class Link(NamedTuple):
    """One weight: the query's row, the key's column, how much."""

    row: int
    col: int
    weight: float


def strongest(
    head: Head,
    n: int,
    *,
    exclude_diagonal: bool = False,
    exclude_columns: Sequence[int] = (),
    grid: Grid | None = None,
) -> list[Link]:
    """The n largest weights above 0, largest first; equal ones in reading order.

    `exclude_diagonal`: leave out each token's weight on itself. `exclude_columns`: leave out these
    keys, for instance attention sinks. `grid`: of the same head, to go faster.
    """
    if n < 1:
        raise OptionError(f"the n strongest links are asked for with n={n}; n is at least 1")
    best = (np.empty(0), np.empty(0, np.int64), np.empty(0, np.int64))
    for bound, rows, cols in _blocks(head, grid):
        least = best[0][n - 1] if len(best[0]) >= n else 0.0
        if bound * (1 + SLACK) < least:
            break
        weights = head.weights(rows, cols)
        if exclude_diagonal:
            weights.masked_fill_(_diagonal(head, rows, cols), 0)
        for column in exclude_columns:
            if cols.start <= column < cols.stop:
                weights[:, column - cols.start] = 0
        best = _merge(best, weights, rows, cols, n, least)
    return [Link(int(i), int(j), float(w)) for w, i, j in zip(*best, strict=True)]


def _merge(
    best: tuple[np.ndarray, np.ndarray, np.ndarray],
    weights: Tensor,
    rows: slice,
    cols: slice,
    n: int,
    least: float,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The n largest of those so far and a block's."""
    if weights.numel() > n:
        least = max(least, float(weights.flatten().topk(n).values[-1]))
    i, j = ((weights >= least) & (weights > 0)).nonzero(as_tuple=True)
    values = weights[i, j].double().cpu().numpy()
    found = values, i.cpu().numpy() + rows.start, j.cpu().numpy() + cols.start
    w, i, j = (np.concatenate(pair) for pair in zip(best, found, strict=True))
    order = np.lexsort((j, i, -w))[:n]
    return w[order], i[order], j[order]


def _blocks(head: Head, grid: Grid | None) -> Iterator[tuple[float, slice, slice]]:
    """Blocks of the matrix, with a bound on their weights: the largest first, if known."""
    high, wide = head.block
    shape = -(-head.queries // high), -(-head.keys // wide)
    bounds = torch.full(shape, torch.inf)
    if grid is not None:
        largest = pool_along(grid.levels[0][0], high // BASE, 0, "max")
        bounds = pool_along(largest, wide // BASE, 1, "max").cpu()
    order = bounds.flatten().argsort(descending=True, stable=True)
    for at in order.tolist():
        i, j = divmod(at, shape[1])
        rows = slice(i * high, min((i + 1) * high, head.queries))
        cols = slice(j * wide, min((j + 1) * wide, head.keys))
        span = head.span(rows)
        if cols.stop > span.start and cols.start < span.stop:
            yield float(bounds[i, j]), rows, cols


def _diagonal(head: Head, rows: slice, cols: slice) -> Tensor:
    call = head.record.call
    return call.query_positions[0, rows, None] == call.key_positions[0, None, cols]
