"""A table over offsets on tiles, and the sums of its gradient, against indexing by offsets."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.attention.call import make_call
from regard.attention.kernels.scratch import scratch
from regard.attention.kernels.table import Table
from regard.errors import ShapeError

EPS = torch.finfo(torch.float32).eps


@st.composite
def cases(draw):
    """Sizes, the first query's position by sequence, and the slices of a rectangle."""
    sizes = draw(st.permutations([1, 2, 3, 5, 7]).map(lambda p: p[:4]))
    first = draw(st.lists(st.integers(0, 9), min_size=sizes[0], max_size=sizes[0]))
    slices = []
    for size in (sizes[0], *sizes[2:]):
        start = draw(st.integers(0, size - 1))
        slices.append(slice(start, draw(st.integers(start + 1, size))))
    return sizes, first if draw(st.booleans()) else first[:1], slices


@given(cases())
def test_rows_and_sums(case):
    (batch, heads, queries, keys), first, (sequences, rows, cols) = case
    torch.manual_seed(0)
    q, k = torch.zeros(batch, heads, queries, 2), torch.zeros(batch, heads, keys, 2)
    call = make_call(
        q,
        k,
        k,
        query_positions=torch.tensor(first)[:, None] + torch.arange(queries),
        key_positions=4 + torch.arange(keys),
    )
    rectangle = call.rectangle(rows, cols, sequences)
    # Heads last in memory, as a bias by buckets comes.
    table = torch.randn(40, heads).T
    lowest = -17
    batch = rectangle.batch.stop - rectangle.batch.start
    columns = (rectangle.offsets - lowest).flip(1).expand(batch, -1, -1)
    scores = torch.randn(batch, table.shape[0], *columns.shape[1:])
    found, lines = scores.clone(), Table(call, table, lowest, 3.0)
    lines.add_to(found, rectangle, 2.0)
    expected = 2 * scores.double() + 3 * table[:, columns].transpose(0, 1).double()
    assert (found - expected).abs().max() <= 4 * EPS * expected.abs().max().clamp(min=9)
    for _ in range(2):
        lines.absorb(scores, rectangle)
    truth = torch.zeros(table.shape, dtype=torch.float64)
    for b in range(batch):
        truth.index_add_(1, columns[b].flatten(), 2 * scores[b].double().flatten(1))
    # At most 3 · 7 float32 numbers of a few units in a sum.
    assert (lines.gradient() - truth).abs().max() <= 21 * EPS * scores.abs().max().clamp(min=1) * 8


@pytest.mark.parametrize(("columns", "lowest"), [(3, -1), (8, -4), (8, -3)])
def test_a_table_that_is_too_short_is_never_read_past_its_ends(columns, lowest):
    # A compiled model does not look at offsets before it calls. Needed are −4 … 4, 9 columns.
    q = torch.zeros(1, 2, 5, 3)
    call = make_call(q, q, q)
    with pytest.raises(ShapeError, match=r"covers offsets .*, but the positions need -4 … 4"):
        Table(call, torch.zeros(2, columns), lowest, 1.0)


def test_room_is_used_again_and_can_be_written_after_inference_mode():
    with torch.inference_mode():
        room = scratch("a test", 6)
    room.fill_(7)
    assert scratch("a test", 4).tolist() == [7.0] * 4
    assert scratch("a test", 8).shape == (8,)
