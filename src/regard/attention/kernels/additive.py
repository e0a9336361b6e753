"""Additive scores of a block, ``Σₑ wₑ·tanh(aₑ + bₑ)``, and their gradients, in Numba.

With A = exp(2a) and B = exp(2b), computed once a token, ``tanh(a + b) = 1 − 2r``,
``r = 1 / (1 + A·B)``: a pair and dimension cost a few multiplications and a reciprocal. Keys lie
along the last axis, so that the inner loop runs along them.

Forward, the weight moves into the denominator, ``w·r = 1 / (1/w + (A/w)·B) = 1 / x``, and two
dimensions share one reciprocal, ``1/x + 1/y = (x + y) / (x·y)``. Backward needs r and r(1 − r),
half the slope of r. What could leave the range of float32, in a tile of keys, takes the exact
form instead: r from exp(−2|a + b|).
"""

from typing import no_type_check

import numpy as np
import torch
from torch import Tensor

from regard.attention.kernels.compiled import vectorized, vectorized_finite
from regard.attention.kernels.exponential import exponential, total_of
from regard.attention.kernels.threads import Threads
from regard.attention.masks import Rectangle

TILE = 1024
"""Keys of a tile, for which one form, the fast or the exact, is chosen."""

# What one task takes: rows of a batch and head forward, dimensions of a tile backward.
_ROWS_A_TASK, _WIDTH_A_TASK = 16, 16

_ZERO, _ONE, _TWO = np.float32(0), np.float32(1), np.float32(2)
# A weight below this share of the largest counts as this much: far below float32's resolution.
_SMALLEST_SHARE = 1e-9
# |a|, |b| above this, or a product of two denominators above exp of that, take the exact form.
_LARGEST_FEATURE, _LARGEST_LOG = 30.0, 87.0


@vectorized
@no_type_check
def _exact_r(a, b, r, powers):
    """``r = 1 / (1 + exp(2(a + b)))`` for one a and many b, whatever their size."""
    for j in range(b.size):
        r[j] = -_TWO * abs(a + b[j])
    exponential(r, powers)
    for j in range(b.size):
        r[j] = (_ONE if a + b[j] < _ZERO else r[j]) / (_ONE + r[j])


@vectorized_finite
@no_type_check
def _fast_scores(row, A, B, inverse_weight, start):
    """Σₑ wₑ·rₑ of one query against the keys of `row`, four dimensions a pass."""
    end = start + row.size
    row[:] = _ZERO
    for e in range(0, A.size, 4):
        w0, w1 = inverse_weight[e], inverse_weight[e + 1]
        w2, w3 = inverse_weight[e + 2], inverse_weight[e + 3]
        a0, a1, a2, a3 = A[e] * w0, A[e + 1] * w1, A[e + 2] * w2, A[e + 3] * w3
        b0, b1 = B[e, start:end], B[e + 1, start:end]
        b2, b3 = B[e + 2, start:end], B[e + 3, start:end]
        for j in range(row.size):
            x0, x1 = w0 + a0 * b0[j], w1 + a1 * b1[j]
            x2, x3 = w2 + a2 * b2[j], w3 + a3 * b3[j]
            row[j] += (x0 + x1) / (x0 * x1) + (x2 + x3) / (x2 * x3)


@vectorized
@no_type_check
def _exact_scores(row, a, b, inverse_weight, start, r, powers):
    """As `_fast_scores`, from the features themselves."""
    row[:] = _ZERO
    r, powers = r[: row.size], powers[: row.size]
    for e in range(a.size):
        _exact_r(a[e], b[e, start : start + row.size], r, powers)
        w = _ONE / inverse_weight[e]
        for j in range(row.size):
            row[j] += w * r[j]


@vectorized
@no_type_check
def score_rows(
    scores, a, A, b, B, inverse_weight, total, scale, exact, first_batch, first, begin, end
):
    """Fill `scores` (batch, heads, rows, keys); a task is 16 rows of one batch and head.

    `a`, `A`: (batch, heads, rows, width), of the block. `b`, `B`: (batch, heads, width, keys), of
    everything; the block begins at `first_batch` and key `first`. `inverse_weight`: (heads, width).
    `total`, `scale`: (heads,), the score is total − scale·Σ. `exact`: (batch, heads, tiles).
    """
    _, heads, rows, keys = scores.shape
    tasks_a_head = (rows + _ROWS_A_TASK - 1) // _ROWS_A_TASK
    r, powers = np.empty(TILE, np.float32), np.empty(TILE, np.int32)
    for task in range(begin, end):
        unit, part = task // tasks_a_head, task % tasks_a_head
        n, h = unit // heads, unit % heads
        w = inverse_weight[h]
        for tile in range(exact.shape[2]):
            low, high = tile * TILE, min(keys, (tile + 1) * TILE)
            for i in range(part * _ROWS_A_TASK, min(rows, (part + 1) * _ROWS_A_TASK)):
                row = scores[n, h, i, low:high]
                if exact[n, h, tile]:
                    _exact_scores(row, a[n, h, i], b[first_batch + n, h], w, first + low, r, powers)
                else:
                    _fast_scores(row, A[n, h, i], B[first_batch + n, h], w, first + low)
                for j in range(row.size):
                    row[j] = total[h] - scale[h] * row[j]


@vectorized_finite
@no_type_check
def _fast_slopes(slopes, low, a, b, b_slope, a_slopes):
    """One dimension, four queries a pass; returns the sum of slope times r."""
    rows = slopes.shape[0]
    total = _ZERO
    nothing = np.zeros(b.size, np.float32)
    high = low + b.size
    for i in range(0, rows, 4):
        d0 = slopes[i, low:high]
        d1 = slopes[i + 1, low:high] if i + 1 < rows else nothing
        d2 = slopes[i + 2, low:high] if i + 2 < rows else nothing
        d3 = slopes[i + 3, low:high] if i + 3 < rows else nothing
        a0 = a[i]
        a1 = a[i + 1] if i + 1 < rows else _ZERO
        a2 = a[i + 2] if i + 2 < rows else _ZERO
        a3 = a[i + 3] if i + 3 < rows else _ZERO
        s0, s1, s2, s3 = _ZERO, _ZERO, _ZERO, _ZERO
        for j in range(b.size):
            r0, r1 = _ONE / (_ONE + a0 * b[j]), _ONE / (_ONE + a1 * b[j])
            r2, r3 = _ONE / (_ONE + a2 * b[j]), _ONE / (_ONE + a3 * b[j])
            u0, u1, u2, u3 = d0[j] * r0, d1[j] * r1, d2[j] * r2, d3[j] * r3
            total += (u0 + u1) + (u2 + u3)
            g0, g1, g2, g3 = u0 - u0 * r0, u1 - u1 * r1, u2 - u2 * r2, u3 - u3 * r3
            s0 += g0
            s1 += g1
            s2 += g2
            s3 += g3
            b_slope[j] += (g0 + g1) + (g2 + g3)
        a_slopes[i] = s0
        if i + 1 < rows:
            a_slopes[i + 1] = s1
        if i + 2 < rows:
            a_slopes[i + 2] = s2
        if i + 3 < rows:
            a_slopes[i + 3] = s3
    return total


@vectorized
@no_type_check
def _exact_slopes(slopes, low, a, b, b_slope, a_slopes, r, powers):
    """As `_fast_slopes`, from the features themselves."""
    total = _ZERO
    r, powers = r[: b.size], powers[: b.size]
    for i in range(slopes.shape[0]):
        d = slopes[i, low : low + b.size]
        _exact_r(a[i], b, r, powers)
        s = _ZERO
        for j in range(b.size):
            u = d[j] * r[j]
            g = u - u * r[j]
            total += u
            s += g
            b_slope[j] += g
        a_slopes[i] = s
    return total


@vectorized
@no_type_check
def slope_tiles(
    slopes, a, A, b, B, a_slopes, b_slopes, w_slopes, exact, first_batch, first, begin, end
):
    """From the scores' gradients `slopes`, Σ slope·r(1−r) for a and b, Σ slope·(1−2r) for w.

    A task is 16 dimensions of a tile of one batch and head. As for `score_rows`, but `a` and `A`
    are (batch, heads, width, rows). `b_slopes`: (batch, heads, width, keys) of everything, added
    to. Written are `a_slopes`, (batch, heads, tiles, width, rows), and `w_slopes`, (batch, heads,
    tiles, width).
    """
    _, heads, _, keys = slopes.shape
    tiles, width = exact.shape[2], a.shape[2]
    parts = (width + _WIDTH_A_TASK - 1) // _WIDTH_A_TASK
    r, powers = np.empty(TILE, np.float32), np.empty(TILE, np.int32)
    for task in range(begin, end):
        part, tile, unit = task % parts, task // parts % tiles, task // parts // tiles
        n, h = unit // heads, unit % heads
        low, high = tile * TILE, min(keys, (tile + 1) * TILE)
        all_n, here, there = first_batch + n, first + low, first + high
        total = _ZERO
        for i in range(slopes.shape[2]):
            total += total_of(slopes[n, h, i, low:high])
        for e in range(part * _WIDTH_A_TASK, min(width, (part + 1) * _WIDTH_A_TASK)):
            b_slope, a_slope = b_slopes[all_n, h, e, here:there], a_slopes[n, h, tile, e]
            if exact[n, h, tile]:
                r_slope = _exact_slopes(
                    slopes[n, h], low, a[n, h, e], b[all_n, h, e, here:there],
                    b_slope, a_slope, r, powers,
                )  # fmt: skip
            else:
                r_slope = _fast_slopes(
                    slopes[n, h], low, A[n, h, e], B[all_n, h, e, here:there], b_slope, a_slope
                )
            w_slopes[n, h, tile, e] = total - _TWO * r_slope


class AdditiveScores:
    """The scores ``Σₑ weight[h, e]·tanh(query[i, e] + key[j, e])``, block by block.

    `query`, `key`: (batch, heads, tokens, width); `weight`: (heads, width); all float32.
    """

    def __init__(self, query: Tensor, key: Tensor, weight: Tensor):
        self.weight = weight
        odd = -query.shape[-1] % 4
        query, key, weight = (torch.nn.functional.pad(x, (0, odd)) for x in (query, key, weight))
        self.a = query
        self.b = key.transpose(2, 3).contiguous()
        self.B = torch.exp(2 * self.b)
        largest = weight.abs().amax(1, keepdim=True)
        share = weight / torch.where(largest > 0, largest, 1)
        share = torch.where(weight < 0, -1, 1) * share.abs().clamp(min=_SMALLEST_SHARE)
        self.inverse_weight = 1 / share
        self.total, self.scale = weight.sum(1), 2 * largest[:, 0]
        self.b_peaks = torch.stack([_peak(part, 3) for part in self.b.split(TILE, dim=3)], -1)
        self.tame = not self._leaves_range(self.a, self.b_peaks.amax(3, keepdim=True)).any()

    def _leaves_range(self, a: Tensor, b_peaks: Tensor) -> Tensor:
        """Whether the fast form of these queries against keys of such peaks could leave float32."""
        # log x ≤ log |1/w| + log 2 + max(0, 2(a + b)), for two x that share a reciprocal
        logs = 2 * (_peak(a, 2)[..., None] + b_peaks).clamp(min=0)
        logs = logs + (2 * self.inverse_weight.abs()).log()[None, :, :, None]
        return (logs.unflatten(2, (-1, 2)).sum(3) > _LARGEST_LOG).any(2)

    def _exact_tiles(self, a: Tensor, rectangle: Rectangle) -> Tensor:
        """Which tiles, (batch, heads, tiles), take the exact form."""
        starts = torch.arange(rectangle.cols.start, rectangle.cols.stop, TILE)
        if self.tame:
            return torch.zeros(*a.shape[:2], len(starts), dtype=torch.bool)
        last = self.b_peaks.shape[-1] - 1
        b_peaks = self.b_peaks[rectangle.batch]
        b_peaks = torch.maximum(
            b_peaks[..., starts // TILE],
            b_peaks[..., ((starts + TILE - 1) // TILE).clamp(max=last)],
        )
        return self._leaves_range(a, b_peaks)

    def tile(self) -> tuple[int, int]:
        """Large, for the threads that compute it are others than those that go on with it."""
        return 2**21, 2 * TILE

    def fill(self, threads: Threads, scores: Tensor, rectangle: Rectangle) -> None:
        """Write the rectangle's scores, (batch, heads, rows backward, keys)."""
        a = self.a[rectangle.batch, :, rectangle.rows].flip(2)
        exact = self._exact_tiles(a, rectangle)
        arrays = (scores, a, torch.exp(2 * a), self.b, self.B, self.inverse_weight, self.total)
        threads.share(
            score_rows,
            scores.shape[0] * scores.shape[1] * -(-scores.shape[2] // _ROWS_A_TASK),
            *(each.numpy() for each in (*arrays, self.scale, exact)),
            rectangle.batch.start,
            rectangle.cols.start,
        )

    def start_gradients(self) -> None:
        """Make room for the gradients."""
        self.a_slopes = torch.zeros_like(self.a)
        self.b_slopes = torch.zeros_like(self.b)
        self.w_slopes = torch.zeros(self.inverse_weight.shape, dtype=torch.float64)

    def absorb(self, threads: Threads, slopes: Tensor, rectangle: Rectangle) -> None:
        """Add what the gradients `slopes` of those scores give."""
        a = self.a[rectangle.batch, :, rectangle.rows].flip(2)
        exact = self._exact_tiles(a, rectangle)
        a = a.transpose(2, 3).contiguous()
        a_slopes = torch.empty(*exact.shape, *a.shape[2:])
        w_slopes = torch.empty(*exact.shape, a.shape[2])
        arrays = (slopes, a, torch.exp(2 * a), self.b, self.B, a_slopes, self.b_slopes, w_slopes)
        threads.share(
            slope_tiles,
            exact.numel() * -(-a.shape[2] // _WIDTH_A_TASK),
            *(each.numpy() for each in (*arrays, exact)),
            rectangle.batch.start,
            rectangle.cols.start,
        )
        self.a_slopes[rectangle.batch, :, rectangle.rows] += a_slopes.sum(2).transpose(2, 3).flip(2)
        self.w_slopes += w_slopes.double().sum((0, 2))

    def gradients(self) -> tuple[Tensor, Tensor, Tensor]:
        """Of query, key and weight."""
        width = self.weight.shape[1]
        factor = 4 * self.weight
        return (
            self.a_slopes[..., :width] * factor[:, None],
            (self.b_slopes[:, :, :width] * factor[..., None]).transpose(2, 3),
            self.w_slopes[:, :width].to(self.weight.dtype),
        )


def _peak(features: Tensor, dim: int) -> Tensor:
    """The largest feature along `dim`, infinite where one is too large either way."""
    peak = features.amax(dim)
    return torch.where(features.abs().amax(dim) > _LARGEST_FEATURE, torch.inf, peak)
