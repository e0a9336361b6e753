"""The strongest links are those of a full sort, found without the matrix."""

import subprocess
import sys

import pytest
import torch

from regard.errors import OptionError
from regard.inspection.atlas import Grid, head_of, strongest
from regard.inspection.atlas.head import BLOCK

HEAD = 1


def by_sorting(head, n, exclude_diagonal=False, exclude_columns=()):
    weights = head.weights(slice(0, head.queries), slice(0, head.keys))
    if exclude_diagonal:
        weights[torch.arange(head.queries), torch.arange(head.queries) + head.shift] = 0
    weights[:, list(exclude_columns)] = 0
    values, places = weights.flatten().sort(descending=True, stable=True)
    some = values[:n] > 0
    rows, cols = places[:n][some] // head.keys, places[:n][some] % head.keys
    return values[:n][some], list(zip(rows.tolist(), cols.tolist(), strict=True))


@pytest.mark.parametrize("settings", [{}, {"exclude_diagonal": True, "exclude_columns": (0, 7)}])
@pytest.mark.parametrize("which", ["causal", "plain", "window"])
def test_equals_a_full_sort_at_2048(record_of, which, settings):
    head = head_of(record_of(which, 2048, 2048), HEAD)
    values, places = by_sorting(head, 500, **settings)
    for grid in (None, Grid.build(head)):
        links = strongest(head, 500, grid=grid, **settings)
        # Blocks of other sizes round otherwise: 2⁻²³ of a score below 16.
        torch.testing.assert_close(
            torch.tensor([link.weight for link in links]), values, atol=2e-6, rtol=0
        )
        # Links that differ are ties up to that rounding, at the end of the list.
        assert len({link[:2] for link in links} ^ set(places)) <= 4


def test_equal_weights_come_in_reading_order(record_of):
    record = record_of("causal", 300, 300)
    record.call.query.zero_()
    links = strongest(head_of(record, HEAD), 6)
    assert [link[:2] for link in links] == [(0, 0), (1, 0), (1, 1), (2, 0), (2, 1), (2, 2)]
    assert [link.weight for link in links] == pytest.approx([1, 1 / 2, 1 / 2, 1 / 3, 1 / 3, 1 / 3])


def test_masked_weights_are_no_links(record_of):
    links = strongest(head_of(record_of("window", 50, 50), HEAD), 10**6)
    assert len(links) == sum(min(i + 1, 37) for i in range(50))


def test_every_kind(record_of, kind):
    head = head_of(record_of(kind, 70, 110), HEAD)
    values, places = by_sorting(head, 20, exclude_diagonal=True)
    links = strongest(head, 20, exclude_diagonal=True)
    assert [link[:2] for link in links] == places
    assert [link.weight for link in links] == pytest.approx(values.tolist(), abs=1e-6)


def test_a_grid_leaves_most_blocks_out(record_of):
    record = record_of("plain", 2048, 4096)
    record.call.query[0, HEAD, 1500] *= 30
    head = head_of(record, HEAD)
    grid = Grid.build(head)
    looked_at = []
    weights = head.weights
    head.weights = lambda rows, cols: looked_at.append((rows, cols)) or weights(rows, cols)
    assert strongest(head, 1, grid=grid)[0].row == 1500
    assert len(looked_at) == 1 < 2048 // BLOCK["cpu"][0]


def test_n_below_one(record_of):
    with pytest.raises(OptionError, match="n=0; n is at least 1"):
        strongest(head_of(record_of("plain", 3, 5), HEAD), 0)


MEMORY = """
import resource, torch
torch.set_num_threads(1)
from regard.attention import make_call
from regard.attention.masks import Causal
from regard.inspection.record import AttentionRecord
from regard.inspection.atlas import Grid, head_of, preview, strongest, tile
def run(tokens):
    x = torch.randn(1, 1, tokens, 16)
    call = make_call(x, x, x, mask=Causal())
    head = head_of(AttentionRecord(name="a", layer=0, call=call), 0)
    preview(head, 32, 0, 0)
    grid = Grid.build(head)
    tile(head, 16, 0, 0), grid.tile(32, 0, 0)
    strongest(head, 100, exclude_diagonal=True, grid=grid)
run(300)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
run(8192)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def test_memory_grows_with_tokens_not_with_their_square():
    """The matrix of 8192 tokens is 268 MB; q, k, the grid and blocks are a few."""
    done = subprocess.run([sys.executable, "-c", MEMORY], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 40_000  # kilobytes
