"""A grid holds what pooling the whole matrix gives."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.errors import OptionError, StorageError
from regard.inspection.atlas import Grid, GridBuild, head_of, tile
from regard.inspection.atlas.pooling import pool

HEAD = 2


def close(got, expected, s, stat):
    """1e-6 as the largest difference of a weight; sums of up to s rows that sum to one, times s."""
    assert got.shape == expected.shape
    bound = 1e-6 * expected.abs().clamp(min=1)
    # Scores here are below 8 in size, so that a weight's exponent is off by some 8 · 2⁻²³ ≈ 1e-6.
    assert ((got.double() - expected).abs() <= bound * (s if stat == "sum" else 1)).all()


def check(record, whole, sizes=(32, 64, 256)):
    grid = Grid.build(head_of(record, HEAD))
    for s in sizes:
        for stat in ("max", "mean", "sum"):
            close(grid.tile(s, 0, 0, stat).values, pool(whole, s, stat), s, stat)


def test_grid_equals_pooling_of_the_matrix(record_of, truth_of, kind):
    record = record_of(kind, 600, 1400)
    check(record, truth_of(record, HEAD))


@settings(max_examples=10)
@given(queries=st.integers(1, 400), more=st.integers(0, 1200))
def test_any_length(record_of, truth_of, queries, more):
    record = record_of("causal", queries, queries + more)
    check(record, truth_of(record, HEAD))


def test_tiles_of_a_grid_join(record_of, truth_of):
    """More than one tile a side: 8192 weights."""
    record = record_of("window", 700, 8300)
    grid = Grid.build(head_of(record, HEAD))
    whole = pool(truth_of(record, HEAD), 32, "max")
    got = torch.cat([grid.tile(32, 0, j).values for j in range(2)], 1)
    close(got, whole, 32, "max")


def test_the_pass_gives_the_log_sum_exp(record_of):
    for kind in ("causal", "softcap", "sinks", "table"):
        record = record_of(kind, 300, 300)
        expected = replace(record, known_log_sum_exp={}).head_log_sum_exp(HEAD).double()
        assert HEAD not in record.known_log_sum_exp
        Grid.build(head_of(record, HEAD))
        torch.testing.assert_close(
            record.known_log_sum_exp[HEAD].double(), expected, atol=1e-5, rtol=1e-6
        )


def test_grid_and_tiles_agree(record_of):
    """Rows whose log-sum-exp the grid found and rows whose tile found it give the same weights."""
    record = record_of("causal", 512, 512)
    before = tile(head_of(record, HEAD), 16, 0, 0).values
    head = head_of(record, HEAD)
    grid = Grid.build(head)
    after = tile(head, 16, 0, 0).values
    torch.testing.assert_close(before, after, atol=1e-6, rtol=0)
    torch.testing.assert_close(pool(after, 2, "max"), grid.tile(32, 0, 0).values, atol=1e-6, rtol=0)


def test_large_scores_do_not_overflow(record_of):
    record = record_of("causal", 300, 300)
    record = replace(record, call=replace(record.call, query=record.call.query * 200))
    values = Grid.build(head_of(record, HEAD)).tile(512, 0, 0, "sum").values
    assert abs(values.item() - 300) < 1e-2


def test_a_grid_is_built_strip_by_strip(record_of):
    build = GridBuild(head_of(record_of("causal", 600, 600), HEAD))
    seen = []
    while not build.done:
        seen.append(build.progress)
        build.step()
    assert seen == [0.0, 256 / 600, 512 / 600]
    assert build.progress == 1.0


def test_saved_and_loaded(record_of, tmp_path):
    grid = Grid.build(head_of(record_of("causal", 600, 800), HEAD))
    grid.save(tmp_path / "folder" / "head.safetensors")
    again = Grid.load(tmp_path / "folder" / "head.safetensors")
    assert [p.name for p in (tmp_path / "folder").iterdir()] == ["head.safetensors"]
    assert again.nbytes == grid.nbytes
    for s in (32, 128):
        for stat in ("max", "mean"):
            assert torch.equal(again.tile(s, 0, 0, stat).values, grid.tile(s, 0, 0, stat).values)


def test_a_file_that_is_no_grid(tmp_path):
    path = tmp_path / "grid.safetensors"
    path.write_bytes(b"no tensors here")
    with pytest.raises(StorageError, match="is not a saved grid"):
        Grid.load(path)


def test_pools_below_the_base(record_of):
    grid = Grid.build(head_of(record_of("plain", 40, 40), HEAD))
    with pytest.raises(OptionError, match="pools of 32 and more; pool 16 is asked for"):
        grid.tile(16, 0, 0)


def test_a_grid_costs_a_fraction_of_the_matrix(record_of):
    grid = Grid.build(head_of(record_of("plain", 1024, 2048), HEAD))
    # 8 bytes a pixel of 32×32, a third of that above, and 4 bytes a row.
    assert grid.nbytes < (1024 * 2048 / 32**2 * 8 * 4 / 3 + 4 * 1024) * 1.01
