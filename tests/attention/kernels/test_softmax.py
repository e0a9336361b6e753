"""Softmax rows and their gradient, compiled, against NumPy in float64."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.attention.kernels.softmax import ROWS_A_TASK, exponential, slope, tasks, weigh

EPS = np.finfo(np.float32).eps
NOTHING = np.zeros((0, 0, 0, 0), bool)
NO_TABLE = np.zeros((0, 0), np.float32)


def softmax_truth(scores):
    scores = scores.astype(np.float64)
    with np.errstate(invalid="ignore"):
        powers = np.exp(scores - scores.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


@st.composite
def blocks(draw):
    batch, heads = draw(st.sampled_from([(1, 1), (2, 3), (3, 2)]))
    rows = draw(st.sampled_from([1, 5, ROWS_A_TASK, ROWS_A_TASK + 7]))
    keys = draw(st.sampled_from([1, 4, 127, 128, 129, 300]))
    rng = np.random.default_rng(draw(st.integers(0, 999)))
    spread = draw(st.sampled_from([0.1, 3.0, 60.0]))
    return rng, rng.normal(size=(batch, heads, rows, keys)).astype(np.float32) * np.float32(spread)


def test_exponential_is_right_to_the_last_bits():
    x = np.linspace(-87.2, 0, 100_001).astype(np.float32)
    found = x.copy()
    total = exponential(found, np.float32(0), np.empty(x.size, np.int32))
    truth = np.exp(x.astype(np.float64))
    # A rounding of the polynomial's last sum, and ln 2's, |x| / ln 2 times.
    loss = np.abs(np.float32(np.log(2)) / np.log(2) - 1)
    assert np.all(np.abs(found / truth - 1) <= EPS + loss * np.abs(x))
    assert total == pytest.approx(truth.sum(), rel=1e-5)


def test_exponential_at_the_ends():
    x = np.array([3, 0, -87.5, -200, -3e38, -np.inf, np.nan], np.float32)
    exponential(x, np.float32(0), np.empty(x.size, np.int32))
    assert x[:6].tolist() == [1, 1, 0, 0, 0, 0]
    assert np.isnan(x[6])


@given(blocks())
def test_weights_and_the_same_again(block):
    _, scores = block
    weights, sums = scores.copy(), np.empty((2, *scores.shape[:3]), np.float32)
    starts = np.zeros((1, scores.shape[2]), np.int64)
    weigh(weights, *sums, NOTHING, NO_TABLE, starts, False, 0, tasks(scores))
    # The difference to the maximum is rounded, then the power, the sum of n terms, the quotient.
    reach = float(scores.max() - scores.min()) + 1
    bound = EPS * (reach + np.sqrt(scores.shape[3]) + 4)
    assert np.abs(weights - softmax_truth(scores)).max() <= bound
    assert np.array_equal(sums[0], scores.max(-1))
    again = scores.copy()
    weigh(again, *sums, NOTHING, NO_TABLE, starts, True, 0, tasks(scores))
    assert np.array_equal(again, weights)


@given(blocks())
def test_mask_and_table(block):
    rng, scores = block
    batch, heads, rows, keys = scores.shape
    seen = rng.random((batch, 1, rows, keys)) < 0.5
    seen[0, 0, 0] = False
    lowest = 3
    table = rng.normal(size=(heads, rows + keys + lowest)).astype(np.float32)
    starts = (lowest + rows - 1 - np.arange(rows))[None]
    weights, sums = scores.copy(), np.empty((2, *scores.shape[:3]), np.float32)
    weigh(weights, *sums, seen, table, starts, False, 0, tasks(scores))
    columns = starts[0][:, None] + np.arange(keys)
    biased = scores.astype(np.float64) + table[:, columns]
    biased[~np.broadcast_to(seen, scores.shape)] = -np.inf
    truth = softmax_truth(biased)
    alive = seen.any(-1, keepdims=True)
    truth = np.where(alive, truth, 0)
    reach = float(np.abs(scores).max() + np.abs(table).max()) * 2 + 1
    assert np.abs(weights - truth).max() <= EPS * (reach + np.sqrt(keys) + 4)
    assert np.all(weights[~np.broadcast_to(seen, scores.shape)] == 0)


@given(blocks())
def test_slope_is_the_gradient_of_softmax_and_of_the_table(block):
    rng, scores = block
    batch, heads, rows, keys = scores.shape
    weights = softmax_truth(scores)
    upstream = rng.normal(size=scores.shape)
    starts = (rows - 1 - np.arange(rows))[None]
    parts = -(-rows // ROWS_A_TASK)
    table_slopes = np.zeros((batch, parts, heads, rows + keys - 1), np.float32)
    slopes = upstream.astype(np.float32)
    slope(
        weights.astype(np.float32),
        slopes,
        table_slopes,
        starts,
        0,
        tasks(scores),
    )
    truth = weights * (upstream - (weights * upstream).sum(-1, keepdims=True))
    assert np.abs(slopes - truth).max() <= 8 * EPS * np.abs(upstream).max()
    table_truth = np.zeros((heads, rows + keys - 1))
    for i in range(rows):
        table_truth[:, starts[0, i] : starts[0, i] + keys] += truth[:, :, i].sum(0)
    bound = EPS * (8 + batch * rows) * np.abs(upstream).max()
    assert np.abs(table_slopes.sum((0, 1)) - table_truth).max() <= bound


def test_nan_is_not_hidden():
    scores = np.zeros((1, 1, 2, 200), np.float32)
    scores[0, 0, 1, 7] = np.nan
    sums = np.empty((2, 1, 1, 2), np.float32)
    weigh(scores, *sums, NOTHING, NO_TABLE, np.zeros((1, 2), np.int64), False, 0, 1)
    assert np.all(scores[0, 0, 0] == np.float32(1 / 200))
    assert np.isnan(scores[0, 0, 1]).all()
