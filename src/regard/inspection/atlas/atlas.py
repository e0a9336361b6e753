"""The atlas of a run: every tile of every head, from what is kept, computed or built.

>>> from regard.attention import make_call
>>> from regard.inspection.record import AttentionRecord
>>> x = torch.randn(1, 1, 300, 8)
>>> record = AttentionRecord(name="attention", layer=0, call=make_call(x, x, x))
>>> Atlas([record]).tile(0, 0, 4, 0, 0, "mean").values.shape
torch.Size([75, 75])
"""

from collections.abc import Hashable, Sequence
from hashlib import blake2b
from pathlib import Path

import torch

from regard.errors import OptionError
from regard.inspection.atlas.grid import Grid, GridBuild
from regard.inspection.atlas.head import Head, head_of
from regard.inspection.atlas.pooling import check_stat
from regard.inspection.atlas.queue import GridQueue
from regard.inspection.atlas.store import Store
from regard.inspection.atlas.strongest import Link, strongest
from regard.inspection.atlas.tiles import LARGEST_ON_DEMAND, Tile, place, preview, tile
from regard.inspection.record import AttentionRecord

BUDGET = 2**30
"""Bytes of heads, tiles and grids that an atlas keeps unless told otherwise: 1 GiB."""


class Atlas:
    """Tiles, grids and strongest links of the layers of one run.

    `records`: one a layer, in order. `sinks`: columns that `exclude_sinks` leaves out. `budget`:
    bytes to keep in memory; grids in the making, heads in use come on top. `folder`: where grids
    are kept on disk, beside a saved trace, and found again.
    """

    def __init__(
        self,
        records: Sequence[AttentionRecord],
        *,
        sinks: Sequence[int] = (0,),
        budget: int = BUDGET,
        folder: str | Path | None = None,
    ):
        self.records, self.sinks = list(records), tuple(sinks)
        self.folder = None if folder is None else Path(folder)
        self.store = Store(budget)
        self.queue = GridQueue(self._start, self._finish)

    def head(self, layer: int, head: int) -> Head:
        """The head, from which any rectangle of its weights is computed."""
        key = "head", layer, head
        kept = self.store.get(key)
        if kept is None:
            kept = head_of(self._record(layer), head)
            self.store.put(key, kept, kept.nbytes)
        return kept

    def tile(
        self,
        layer: int,
        head: int,
        pool: int,
        row: int,
        col: int,
        stat: str = "max",
        *,
        wait: bool = True,
    ) -> Tile:
        """One tile: up to pool 16 on demand, above from the head's grid.

        Where the grid is not ready: `wait` for it, or have it built in the background and get a
        preview, whose note says what it shows.
        """
        key = "tile", layer, head, pool, row, col, stat
        kept = self.store.get(key)
        if kept is not None:
            return kept
        check_stat(stat)
        record = self._record(layer)
        place(record.q_tokens, record.k_tokens, pool, row, col)
        if pool > LARGEST_ON_DEMAND:
            if wait or self._known(layer, head) is not None:
                return self.grid(layer, head).tile(pool, row, col, stat)
            self.want([(layer, head)])
            return preview(self.head(layer, head), pool, row, col, stat)
        made = tile(self.head(layer, head), pool, row, col, stat)
        self.store.put(key, made, made.nbytes)
        return made

    def grid(self, layer: int, head: int) -> Grid:
        """The head's grid: kept, found on disk, or built now."""
        known = self._known(layer, head)
        if known is not None:
            return known
        build = self.queue.take((layer, head))
        while not build.done:
            build.step()
        built = build.grid()
        self._finish((layer, head), built)
        return built

    def want(self, heads: Sequence[tuple[int, int]]) -> None:
        """Have the grids of these (layer, head) built in the background, before all others."""
        for layer, head in heads:
            self.head(layer, head)
        self.queue.want([key for key in heads if self._known(*key) is None])

    def ready(self, layer: int, head: int) -> float:
        """How much of a head's grid is built: 0 … 1."""
        known = self._known(layer, head)
        return self.queue.progress((layer, head)) if known is None else 1.0

    def strongest(
        self,
        layer: int,
        head: int,
        n: int,
        *,
        exclude_diagonal: bool = False,
        exclude_sinks: bool = False,
    ) -> list[Link]:
        """The n largest weights of the whole matrix, exact; see `strongest`."""
        return strongest(
            self.head(layer, head),
            n,
            exclude_diagonal=exclude_diagonal,
            exclude_columns=self.sinks if exclude_sinks else (),
            grid=self._known(layer, head),
        )

    def close(self) -> None:
        """Drop what is being built."""
        self.queue.cancel()

    def _record(self, layer: int) -> AttentionRecord:
        if not 0 <= layer < len(self.records):
            raise OptionError(
                f"layer {layer} is asked for; the run has layers 0 … {len(self.records) - 1}"
            )
        return self.records[layer]

    def _known(self, layer: int, head: int) -> Grid | None:
        kept = self.store.get(("grid", layer, head))
        path = self._path(layer, head)
        if kept is not None or path is None or not path.exists():
            return kept
        grid = Grid.load(path, self._mark(layer, head))
        if grid is None:
            return None
        self.head(layer, head).learn(grid.lse)
        self.store.put(("grid", layer, head), grid, grid.nbytes)
        return grid

    def _path(self, layer: int, head: int) -> Path | None:
        return self.folder and self.folder / f"layer{layer:02d}-head{head:02d}.safetensors"

    def _mark(self, layer: int, head: int) -> str:
        """Differs where a head's numbers do, so that no grid is taken for that of another run."""
        record = self._record(layer)
        call = record.call
        mark = blake2b(digest_size=16)
        mark.update(repr((call.score, call.normalizer, call.mask, call.biases)).encode())
        biases = [tensor for bias in call.biases for tensor in bias.tensors]
        for tensor in (record.q[head], record.k[record.kv_head(head)], *biases):
            mark.update(tensor.detach().cpu().contiguous().view(torch.uint8).numpy().data)
        return mark.hexdigest()

    def _start(self, key: Hashable) -> GridBuild:
        return GridBuild(self.head(*key))  # pyright: ignore[reportGeneralTypeIssues]

    def _finish(self, key: Hashable, grid: Grid) -> None:
        layer, head = key  # pyright: ignore[reportGeneralTypeIssues]
        path = self._path(layer, head)
        if path is not None:
            grid.save(path, self._mark(layer, head))
        self.store.put(("grid", layer, head), grid, grid.nbytes)
