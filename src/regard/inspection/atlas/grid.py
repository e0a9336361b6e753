"""The grid: a whole head in pixels of 32×32 weights, and 2×2 pools of it above.

One pass over the matrix, a strip of rows at a time, gives the log-sum-exp of every row and the
maximum and sum of every pixel; the mean is the sum by the pixel's real size. A grid costs 8 bytes
a pixel: 1/128 of a byte a weight.

>>> from regard.attention import make_call
>>> from regard.inspection.record import AttentionRecord
>>> from regard.inspection.atlas.head import head_of
>>> x = torch.randn(1, 1, 300, 8)
>>> record = AttentionRecord(name="attention", layer=0, call=make_call(x, x, x))
>>> Grid.build(head_of(record, 0)).tile(64, row=0, col=0, stat="mean").values.shape
torch.Size([5, 5])
"""

import os
from pathlib import Path

import torch
from jaxtyping import Float
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from regard.errors import OptionError, StorageError
from regard.inspection.atlas.head import Head
from regard.inspection.atlas.pooling import check_stat, counts, pool_along
from regard.inspection.atlas.tiles import SIDE, Tile, place

BASE = 32
"""s of the grid's smallest pixels."""


class Grid:
    """Maximum and sum of each pixel at s = 32, 64, 128 … of a head of (queries, keys) weights.

    `lse`: each row's log-sum-exp in base 2, nan where the normalizer has none.
    """

    def __init__(self, queries: int, keys: int, largest: Tensor, sums: Tensor, lse: Tensor):
        self.queries, self.keys, self.lse = queries, keys, lse
        self.levels = [(largest, sums)]
        while max(self.levels[-1][0].shape) > 1:
            above, below = self.levels[-1]
            self.levels.append((_halve(above, "max"), _halve(below, "sum")))

    @classmethod
    def build(cls, head: Head) -> "Grid":
        """The head's grid, at once; `GridBuild` does it strip by strip."""
        build = GridBuild(head)
        while not build.done:
            build.step()
        return build.grid()

    @property
    def nbytes(self) -> int:
        """Bytes of all levels."""
        return sum(x.nbytes for level in self.levels for x in level) + self.lse.nbytes

    def tile(self, s: int, row: int, col: int, stat: str = "max") -> Tile:
        """The exact tile, for s ≥ 32."""
        check_stat(stat)
        rows, cols = place(self.queries, self.keys, s, row, col)
        if s < BASE:
            raise OptionError(f"a grid has pools of {BASE} and more; pool {s} is asked for")
        level = (s // BASE).bit_length() - 1
        # A pool wider than the whole matrix is one pixel of everything.
        largest, sums = self.levels[min(level, len(self.levels) - 1)]
        at = slice(row * SIDE, (row + 1) * SIDE), slice(col * SIDE, (col + 1) * SIDE)
        values = (largest if stat == "max" else sums)[at].clone()
        if stat == "mean":
            values /= counts(rows.stop - rows.start, cols.stop - cols.start, s).to(values.device)
        return Tile(values, s, row, col, stat, rows, cols)

    def save(self, path: str | Path, mark: str = "") -> None:
        """The smallest pixels as safetensors; the levels above are pooled again when loaded.

        `mark` tells whose grid it is, for `load`.
        """
        path = Path(path)
        beside = path.with_name(f"{path.name}.{os.getpid()}.partial")
        largest, sums = self.levels[0]
        saved = {"max": largest, "sum": sums, "lse": self.lse}
        saved = {name: x.cpu() for name, x in saved.items()}
        saved["sizes"] = torch.tensor([self.queries, self.keys])
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            save_file(saved, beside, {"mark": mark})
            with open(beside, "rb") as file:
                os.fsync(file.fileno())
            beside.replace(path)
        except OSError as error:
            beside.unlink(missing_ok=True)
            raise StorageError(f"the grid cannot be written to {path}: {error}") from error

    @classmethod
    def load(cls, path: str | Path, mark: str = "") -> "Grid | None":
        """A saved grid, or None if it bears another mark; `StorageError` if the file is none."""
        try:
            with safe_open(path, "pt") as file:
                if (file.metadata() or {}).get("mark") != mark:
                    return None
                queries, keys = file.get_tensor("sizes").tolist()
                saved = [file.get_tensor(name) for name in ("max", "sum", "lse")]
        except (OSError, SafetensorError, ValueError) as error:
            raise StorageError(f"{path} is not a saved grid: {error}") from error
        return cls(queries, keys, *saved)


class GridBuild:
    """A grid in the making: one strip of rows a `step`, so that it can be put off or dropped."""

    def __init__(self, head: Head):
        self.head, self.next = head, 0
        self.sizes = head.queries, head.keys
        pixels = -(-head.queries // BASE), -(-head.keys // BASE)
        self.largest = torch.zeros(pixels, device=head.device)
        self.sums = torch.zeros(pixels, device=head.device)

    @property
    def done(self) -> bool:
        """Whether every row has been gone through."""
        return self.next >= self.head.queries

    @property
    def progress(self) -> float:
        """The share of rows done, 0 … 1."""
        return min(self.next / max(self.head.queries, 1), 1.0)

    def step(self) -> None:
        """Go through the next strip."""
        rows = slice(self.next, min(self.next + self.head.block[0], self.head.queries))
        largest, sums = self.head.sweep(rows, BASE)
        pixels = slice(rows.start // BASE, -(-rows.stop // BASE))
        self.largest[pixels] = pool_along(largest, BASE, 0, "max")
        self.sums[pixels] = pool_along(sums, BASE, 0, "sum")
        self.next = rows.stop

    def grid(self) -> Grid:
        """The finished grid."""
        assert self.done, "the grid has rows left to go through"
        return Grid(*self.sizes, self.largest, self.sums, self.head.lse)


def _halve(x: Float[Tensor, "rows cols"], stat: str) -> Float[Tensor, "high wide"]:
    return pool_along(pool_along(x, 2, 0, stat), 2, 1, stat)
