"""Tiles join to the whole matrix, pooled, for every kind of attention."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.errors import OptionError
from regard.inspection.atlas import head_of, preview, tile
from regard.inspection.atlas.pooling import pool

HEAD = 2
# A weight is exp(score − lse), both float32 sums of 5 products of size ≤ |q||k|·scale < 32: each
# term rounds by 2⁻²⁴ of it, so the exponent is off by less than 8 · 32 · 2⁻²⁴ ≈ 1.5e-5, and so is a
# weight (≤ 1) at the worst; a usual one far less. Negative and larger weights: relative.
ATOL = 1.5e-5


def close(got, expected):
    scale = expected.abs().clamp(min=1)
    assert got.shape == expected.shape
    assert ((got.double() - expected).abs() / scale).max() <= ATOL


def joined(head, s, stat):
    high, wide = -(-head.queries // (256 * s)), -(-head.keys // (256 * s))
    return torch.cat(
        [torch.cat([tile(head, s, i, j, stat).values for j in range(wide)], 1) for i in range(high)]
    )


@pytest.mark.parametrize("stat", ["max", "mean", "sum"])
@pytest.mark.parametrize("s", [1, 2])
def test_tiles_join_to_the_matrix(record_of, truth_of, kind, s, stat):
    record = record_of(kind, 300, 551)
    whole = truth_of(record, HEAD)
    close(joined(head_of(record, HEAD), s, stat), pool(whole, s, stat))


@given(
    queries=st.integers(1, 90),
    more=st.integers(0, 50),
    s=st.sampled_from([1, 2, 4, 8, 16]),
    stat=st.sampled_from(["max", "mean", "sum"]),
    which=st.sampled_from(["causal", "window", "table", "softcap", "sigmoid"]),
)
def test_any_length_and_any_pool(record_of, truth_of, queries, more, s, stat, which):
    record = record_of(which, queries, queries + more)
    close(joined(head_of(record, HEAD), s, stat), pool(truth_of(record, HEAD), s, stat))


def test_blocks_that_do_not_start_at_zero_are_exact(record_of, truth_of):
    """Several blocks of rows and columns, s = 16, in a tile that is not the first."""
    record = record_of("window", 4500, 4500)
    head = head_of(record, HEAD)
    rows = slice(4096, 4500)
    whole = truth_of(record, HEAD, rows)
    close(tile(head, 16, 1, 1).values, pool(whole, 16, "max")[:, 256:])
    close(tile(head, 16, 1, 0).values, pool(whole, 16, "max")[:, :256])


def test_above_the_diagonal_is_exactly_zero(record_of):
    for kind in ("causal", "table", "softcap", "sinks"):
        values = tile(head_of(record_of(kind, 200, 200), HEAD), 1, 0, 0).values
        assert (values.triu(1) == 0).all()
        assert (values.diagonal() > 0).all()


def test_window_edges_are_exact(record_of):
    values = tile(head_of(record_of("window", 200, 200), HEAD), 1, 0, 0).values
    i, j = torch.meshgrid(torch.arange(200), torch.arange(200), indexing="ij")
    assert torch.equal(values > 0, (j <= i) & (j > i - 37))


def test_a_row_that_may_attend_nowhere_is_zero(record_of):
    record = record_of("documents", 50, 60)
    record.mask.query[0, 7] = 9
    values = tile(head_of(record, HEAD), 1, 0, 0).values
    assert (values[7] == 0).all()
    assert values.isfinite().all()


def test_a_preview_shows_sampled_rows_and_says_so(record_of, truth_of, kind):
    record = record_of(kind, 83, 131)
    got = preview(head_of(record, HEAD), 8, 0, 0, "mean")
    assert not got.exact
    assert got.note == "11 of 83 rows"
    # The last pixel has rows 80, 81 and 82: every pixel shows the third of its rows.
    picked = [*range(2, 83, 8)]
    expected = pool(truth_of(record, HEAD)[picked].repeat_interleave(8, 0), 8, "mean")
    close(got.values, expected)


def test_a_preview_of_a_sum_stands_for_all_rows(record_of):
    head = head_of(record_of("plain", 83, 131), HEAD)
    total = preview(head, 8, 0, 0, "sum").values.sum()
    assert abs(total - 83) < 1e-3


def test_a_preview_without_pooling_is_exact(record_of):
    head = head_of(record_of("causal", 83, 131), HEAD)
    got = preview(head, 1, 0, 0)
    assert got.exact
    close(got.values, tile(head, 1, 0, 0).values.double())


def test_sixteen_bit_queries_are_multiplied_in_thirty_two(record_of, truth_of):
    record = record_of("causal", 83, 83)
    half = {name: getattr(record.call, name).bfloat16() for name in ("query", "key", "value")}
    record = replace(record, call=replace(record.call, **half))
    close(tile(head_of(record, HEAD), 1, 0, 0).values, truth_of(record, HEAD))


def test_a_tile_that_is_not_there(record_of):
    head = head_of(record_of("plain", 300, 551), HEAD)
    with pytest.raises(
        OptionError,
        match=r"no tile \(row 2, col 0\) at pool 1: 300 × 551 weights have tile rows 0 … 1 and "
        r"cols 0 … 2",
    ):
        tile(head, 1, 2, 0)
    with pytest.raises(OptionError, match=r"pool must be a power of two .* not 3"):
        tile(head, 3, 0, 0)
    with pytest.raises(OptionError, match="up to pool 16, and pool 32 is asked for"):
        tile(head, 32, 0, 0)
    with pytest.raises(OptionError, match=r"unknown stat 'median'.*known: max, mean, sum"):
        tile(head, 1, 0, 0, "median")
    with pytest.raises(OptionError, match="head 4 is asked for; attention has heads 0 … 3"):
        head_of(record_of("plain", 3, 5), 4)
