"""Softmax of a block of rows, and its gradient, on one pass through the cache.

The exponential is written out so that it runs on vectors of keys; a library's would be called once
an element. ``exp(x) = 2ⁿ·exp(f)``, n the integer nearest to x / ln 2, |f| ≤ ln 2 / 2, exp(f) by a
polynomial, and 2ⁿ by adding n to the exponent bits. The relative error is one rounding, and |x|
times that of ln 2, 3e-9: less than what rounding x itself costs.
"""

from typing import no_type_check

import numpy as np
from numpy.polynomial import Chebyshev, Polynomial

from regard.attention.kernels.compiled import vectorized

HIDDEN = np.float32(-3e38)
"""The score of a key that may not be attended to."""

_LOG2_E = np.float32(1 / np.log(2))
_LN2 = np.float32(np.log(2))
# (exp(f) − 1 − f) / f²
_P0, _P1, _P2, _P3, _P4, _P5 = (
    Chebyshev.interpolate(
        lambda f: (np.expm1(f) - f) / f**2, 5, domain=[-np.log(2) / 2, np.log(2) / 2]
    )
    .convert(kind=Polynomial)
    .coef.astype(np.float32)
)
_ZERO, _HALF, _ONE = np.float32(0), np.float32(0.5), np.float32(1)
# exp of this is the smallest normal number; below it the result is 0.
_LOWEST = np.float32(-87.3)
_MANTISSA_BITS = np.int32(23)
_LANES = 128

ROWS_A_TASK = 16
"""Rows that one task takes, of one batch and head."""


def tasks(scores):
    """How many tasks a block of scores, (batch, heads, rows, keys), makes."""
    return scores.shape[0] * scores.shape[1] * -(-scores.shape[2] // ROWS_A_TASK)


@vectorized
@no_type_check
def total_of(row):
    """The sum of `row`; its own would add one element at a time."""
    total = _ZERO
    for j in range(row.size):
        total += row[j]
    return total


@vectorized
@no_type_check
def exponential(row, shift, powers):
    """Replace each x of `row` by exp(x − shift), at most 1; returns the sum. `powers`: scratch."""
    for j in range(row.size):
        x = row[j] - shift
        if x > _ZERO:
            x = _ZERO
        inside = not (x < _LOWEST)
        n = np.floor(x * _LOG2_E + _HALF)
        x -= n * _LN2
        rest = ((((_P5 * x + _P4) * x + _P3) * x + _P2) * x + _P1) * x + _P0
        row[j] = (rest * x * x + x) + _ONE if inside else _ZERO
        powers[j] = np.int32(n) if inside else np.int32(0)
    bits = row.view(np.int32)
    for j in range(row.size):
        bits[j] += powers[j] << _MANTISSA_BITS
    return total_of(row)


@vectorized
@no_type_check
def _largest(row, lanes):
    """The largest element: many running maxima side by side, for one alone does not vectorize."""
    for lane in range(_LANES):
        lanes[lane] = HIDDEN
    whole = row.size // _LANES * _LANES
    for j in range(0, whole, _LANES):
        part = row[j : j + _LANES]
        for lane in range(_LANES):
            if part[lane] > lanes[lane]:
                lanes[lane] = part[lane]
    largest = HIDDEN
    for lane in range(_LANES):
        largest = max(largest, lanes[lane])
    for j in range(whole, row.size):
        largest = max(largest, row[j])
    return largest


@vectorized
@no_type_check
def _add(row, other):
    for j in range(row.size):
        row[j] += other[j]


@vectorized
@no_type_check
def _hide(row, seen):
    """Hide what is not `seen`; returns whether anything is."""
    for j in range(row.size):
        row[j] = row[j] if seen[j] else HIDDEN
    return seen.any()


@vectorized
@no_type_check
def weigh(scores, largest, total, seen, table, starts, known, begin, end):
    """Scores to weights, in place: ``exp(score − largest) / total``.

    `scores`: (batch, heads, rows, keys). `largest`, `total`: (batch, heads, rows); read if `known`,
    else written. `seen`: Booleans that broadcast over all but keys, or empty. `table`: (heads,
    offsets) or empty, row i reads it from `starts` (1 or batch, rows)[i] on.
    """
    _, heads, rows, keys = scores.shape
    tasks_a_head = (rows + ROWS_A_TASK - 1) // ROWS_A_TASK
    powers = np.empty(keys, np.int32)
    lanes = np.empty(_LANES, np.float32)
    for task in range(begin, end):
        unit, part = task // tasks_a_head, task % tasks_a_head
        b, h = unit // heads, unit % heads
        for i in range(part * ROWS_A_TASK, min(rows, (part + 1) * ROWS_A_TASK)):
            row = scores[b, h, i]
            if table.size:
                start = starts[b % starts.shape[0], i]
                _add(row, table[h, start : start + keys])
            if seen.size and not _hide(
                row, seen[b % seen.shape[0], h % seen.shape[1], i % seen.shape[2]]
            ):
                row[:] = _ZERO
                largest[b, h, i] = HIDDEN
                total[b, h, i] = _ZERO
                continue
            if not known:
                largest[b, h, i] = _largest(row, lanes)
            powers_sum = exponential(row, largest[b, h, i], powers)
            if not known:
                total[b, h, i] = powers_sum
            factor = _ONE / total[b, h, i]
            for j in range(keys):
                row[j] *= factor


@vectorized
@no_type_check
def slope(weights, slopes, table_slopes, starts, begin, end):
    """Gradients of the weights to gradients of the scores, in place in `slopes`.

    `table_slopes`: (batch, tasks a head, heads, offsets) or empty: the table's, added to.
    """
    _, heads, rows, keys = weights.shape
    tasks_a_head = (rows + ROWS_A_TASK - 1) // ROWS_A_TASK
    for task in range(begin, end):
        unit, part = task // tasks_a_head, task % tasks_a_head
        b, h = unit // heads, unit % heads
        for i in range(part * ROWS_A_TASK, min(rows, (part + 1) * ROWS_A_TASK)):
            row, out = weights[b, h, i], slopes[b, h, i]
            balance = _ZERO
            for j in range(keys):
                balance += row[j] * out[j]
            for j in range(keys):
                out[j] = row[j] * (out[j] - balance)
            if table_slopes.size:
                start = starts[b % starts.shape[0], i]
                _add(table_slopes[b, part, h, start : start + keys], out)
