"""The atlas keeps, builds, persists and drops tiles and grids."""

import subprocess
import sys
import threading

import pytest
import torch

from regard.errors import OptionError
from regard.inspection.atlas import Atlas, Grid, GridBuild, GridQueue, Store, head_of, strongest


def test_the_store_drops_the_least_recently_used():
    store = Store(budget=10)
    store.put("a", 1, 4)
    store.put("b", 2, 4)
    assert store.get("a") == 1
    store.put("c", 3, 4)
    assert store.get("b") is None
    assert (store.get("a"), store.get("c"), store.nbytes, len(store)) == (1, 3, 8, 2)
    store.put("a", 5, 1)
    assert (store.get("a"), store.nbytes) == (5, 5)
    store.put("huge", 6, 11)
    assert store.get("huge") is None
    assert store.nbytes == 5


def test_a_budget_below_zero():
    with pytest.raises(OptionError, match="at least 0, not -1"):
        Store(-1)


def test_the_atlas_stays_within_its_budget(record_of):
    atlas = Atlas([record_of("causal", 600, 600)], budget=600_000)
    for stat in ("max", "mean", "sum"):
        for row in range(3):
            for head in range(4):
                atlas.tile(0, head, 1, row, 0, stat)
                assert atlas.store.nbytes <= 600_000
    assert len(atlas.store) > 1


def test_a_tile_is_computed_once(record_of):
    atlas = Atlas([record_of("causal", 600, 600)])
    assert atlas.tile(0, 1, 2, 0, 0) is atlas.tile(0, 1, 2, 0, 0)
    assert atlas.grid(0, 1) is atlas.grid(0, 1)


def test_preview_first_then_the_grid(record_of):
    record = record_of("causal", 700, 700)
    atlas = Atlas([record])
    early = atlas.tile(0, 1, 32, 0, 0, wait=False)
    exact = atlas.tile(0, 1, 32, 0, 0)
    assert (early.exact, early.note) == (False, "22 of 700 rows")
    assert exact.exact
    assert exact.note == ""
    assert atlas.ready(0, 1) == 1.0
    expected = Grid.build(head_of(record, 1)).tile(32, 0, 0).values
    torch.testing.assert_close(exact.values, expected, atol=1e-6, rtol=0)
    assert torch.equal(atlas.tile(0, 1, 32, 0, 0, wait=False).values, exact.values)


def test_grids_persist_beside_a_trace(record_of, tmp_path):
    record = record_of("causal", 700, 700)
    first = Atlas([record], folder=tmp_path).tile(0, 1, 64, 0, 0)
    assert [p.name for p in tmp_path.iterdir()] == ["layer00-head01.safetensors"]
    again = Atlas([record_of("causal", 700, 700)], folder=tmp_path)
    assert again.ready(0, 1) == 1.0
    assert torch.equal(again.tile(0, 1, 64, 0, 0, wait=False).values, first.values)
    # The log-sum-exp came with it.
    assert not again.head(0, 1).lse.isnan().any()


def test_a_grid_of_another_text_is_not_taken(record_of, tmp_path):
    record = record_of("causal", 70, 70)
    first = Atlas([record], folder=tmp_path).grid(0, 1)
    record = record_of("causal", 70, 70)
    record.call.query[0, 1, 50, 0] += 1
    other = Atlas([record], folder=tmp_path)
    assert other.ready(0, 1) == 0.0
    assert not torch.equal(other.grid(0, 1).levels[0][1], first.levels[0][1])
    assert Atlas([record], folder=tmp_path).ready(0, 1) == 1.0


def test_strongest_leaves_sinks_out(record_of):
    record = record_of("causal", 90, 90)
    atlas = Atlas([record], sinks=(0, 4))
    links = atlas.strongest(0, 1, 9, exclude_diagonal=True, exclude_sinks=True)
    assert links == strongest(head_of(record, 1), 9, exclude_diagonal=True, exclude_columns=(0, 4))
    assert not {link.col for link in links} & {0, 4}


def test_out_of_range(record_of):
    atlas = Atlas([record_of("causal", 9, 9)])
    with pytest.raises(OptionError, match=r"layer 1 is asked for; the run has layers 0 … 0"):
        atlas.tile(1, 0, 1, 0, 0)
    with pytest.raises(OptionError, match=r"head 4 is asked for; attention has heads 0 … 3"):
        atlas.tile(0, 4, 1, 0, 0)
    with pytest.raises(OptionError, match="unknown stat 'least'"):
        atlas.tile(0, 0, 64, 0, 0, "least", wait=False)


class Gate:
    """Lets a queue's builds go on strip by strip, and notes whose turn it was."""

    def __init__(self, record):
        self.record, self.turns, self.ready = record, [], {}
        self.begun, self.go = threading.Semaphore(0), threading.Semaphore(0)
        self.queue = GridQueue(self.start, self.ready.__setitem__)

    def start(self, key):
        build = GridBuild(head_of(self.record, key))
        step = build.step

        def gated():
            self.turns.append(key)
            self.begun.release()
            assert self.go.acquire(timeout=60)
            step()

        build.step = gated
        return build

    def let_through(self, strips):
        for _ in range(strips):
            assert self.begun.acquire(timeout=60)
            self.go.release()

    def drain(self):
        self.go.release(100)
        thread = self.queue._thread
        if thread is not None:
            thread.join(60)


def test_what_is_visible_goes_first_and_the_rest_is_resumed(record_of):
    gate = Gate(record_of("causal", 700, 700))  # three strips a grid
    gate.queue.want([0])
    assert gate.begun.acquire(timeout=60)
    gate.queue.want([2, 1])
    assert gate.queue.pending == [2, 1, 0]
    gate.drain()
    assert gate.turns == [0, 2, 2, 2, 1, 1, 1, 0, 0]
    assert set(gate.ready) == {0, 1, 2}
    assert gate.queue.pending == []


def test_a_grid_can_be_cancelled(record_of):
    gate = Gate(record_of("causal", 700, 700))
    gate.queue.want([0, 1])
    assert gate.begun.acquire(timeout=60)
    gate.queue.cancel([0])
    gate.drain()
    assert gate.turns == [0, 1, 1, 1]
    assert set(gate.ready) == {1}


def test_progress_and_taking_over(record_of):
    gate = Gate(record_of("causal", 700, 700))
    gate.queue.want([3])
    gate.let_through(1)
    assert gate.begun.acquire(timeout=60)
    assert gate.queue.progress(3) == pytest.approx(256 / 700)
    gate.go.release(100)
    build = gate.queue.take(3)
    while not build.done:
        build.step()
    assert build.grid().queries == 700
    assert gate.queue.pending == []


LEAVES = """
import torch
from regard.attention import make_call
from regard.inspection.atlas import Atlas
from regard.inspection.record import AttentionRecord
x = torch.randn(1, 1, 60_000, 8)
atlas = Atlas([AttentionRecord(name="head", layer=0, call=make_call(x, x, x))])
print(atlas.tile(0, 0, 256, 0, 0, wait=False).note)
"""


def test_a_program_may_end_while_a_grid_is_built():
    """The grid of 60,000 tokens would take some ten seconds; the program ends well at once."""
    done = subprocess.run([sys.executable, "-c", LEAVES], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "235 of 60,000 rows\n"), done.stderr


def test_an_error_in_the_background_is_told(record_of):
    def start(key):
        raise OptionError("no such head")

    queue = GridQueue(start, lambda key, grid: None)
    queue.want([0])
    if queue._thread is not None:
        queue._thread.join(60)
    with pytest.raises(OptionError, match="no such head"):
        queue.progress(0)
