"""The compiled pass over a block of scores against the same written in PyTorch, in float64."""

import os
import subprocess
import sys

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.inspection.atlas.sweep import pool_scores


def by_torch(scores, s):
    top = scores.amax(1).clamp(min=-1e30).double()
    scores = scores.double()
    powers = (scores - top[:, None]).exp2()
    most, sums = [], []
    for start in range(0, scores.shape[1], s):
        most.append(scores[:, start : start + s].amax(1))
        sums.append(powers[:, start : start + s].sum(1))
    return torch.stack(most), torch.stack(sums), top


def run(scores, s):
    most, sums = (torch.empty(-(-scores.shape[1] // s), scores.shape[0]) for _ in "ms")
    top = pool_scores(scores.clone(), s, most, sums)
    return most, sums, top


def check(scores, s):
    most, sums, top = run(scores, s)
    expected = by_torch(scores, s)
    assert torch.equal(most.double(), expected[0])
    assert torch.equal(top.double(), expected[2])
    # x = score − top is rounded by 2⁻²⁴·|x| ≤ 2⁻²⁴·128, each power by that times ln 2 and 2⁻²³;
    # the sum of at most 64 by as many roundings. Relative, but for powers below 2⁻¹²⁶, which are 0.
    bound = expected[1] * (128 * 0.7 + 2 + 64) * 2**-24 + 64 * 2.0**-126
    assert ((sums - expected[1]).abs() <= bound).all()


@given(
    rows=st.integers(1, 13),
    cols=st.integers(1, 90),
    s=st.sampled_from([1, 2, 32, 64]),
    size=st.sampled_from([1e-3, 1.0, 40.0]),
    hidden=st.sampled_from([0.0, 0.3, 1.0]),
)
def test_equals_the_plain_pass(rows, cols, s, size, hidden):
    generator = torch.Generator().manual_seed(rows * 97 + cols)
    scores = size * torch.randn(rows, cols, generator=generator)
    scores[torch.rand(rows, cols, generator=generator) < hidden] = -torch.inf
    check(scores, s)


def test_what_is_hidden_adds_nothing():
    most, sums, top = run(torch.tensor([[-torch.inf, 0.0, -torch.inf, -torch.inf]] * 3), 2)
    assert torch.equal(sums, torch.tensor([[1.0] * 3, [0.0] * 3]))
    assert torch.equal(most[1], torch.full((3,), -torch.inf))
    assert torch.equal(top, torch.zeros(3))


def test_what_is_no_number_comes_out():
    sums = run(torch.tensor([[1.0, torch.nan, 2.0]] * 2), 1)[1]
    assert sums[1].isnan().all()


@pytest.mark.skipif("NUMBA_DISABLE_JIT" in os.environ, reason="is the run without the compiler")
def test_without_the_compiler():
    code = (
        "import torch; from regard.inspection.atlas.sweep import pool_scores; "
        "most, sums = torch.empty(2, 3), torch.empty(2, 3); "
        "pool_scores(torch.zeros(3, 5), 4, most, sums); print(sums.tolist())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env=os.environ | {"NUMBA_DISABLE_JIT": "1"},
    )
    assert done.stdout == "[[4.0, 4.0, 4.0], [1.0, 1.0, 1.0]]\n", done.stderr
