"""One pass over a block of scores: each pixel's maximum, and its sum of powers of two.

Scores lie with a key's queries side by side, so that maximum and sum run over vectors of queries
and nothing is summed across one. ``2ˣ = 2ⁿ·2ᶠ``, n the integer nearest to x, |f| ≤ ½, 2ᶠ by a
polynomial (relative error below 2⁻²⁵), and 2ⁿ by its exponent bits; below 2⁻¹²⁶ the power is 0.
"""

from typing import no_type_check

import numpy as np
import torch
from jaxtyping import Float
from numpy.polynomial import Chebyshev, Polynomial
from torch import Tensor

from regard.attention.kernels.compiled import vectorized

_C0, _C1, _C2, _C3, _C4, _C5, _C6 = (
    Chebyshev.interpolate(np.exp2, 6, domain=[-0.5, 0.5])
    .convert(kind=Polynomial)
    .coef.astype(np.float32)
)
_ZERO, _HALF = np.float32(0), np.float32(0.5)
_NONE, _LOWEST_TOP = np.float32(-np.inf), np.float32(-1e30)
_LOWEST = np.float32(-126)
_BIAS, _MANTISSA_BITS = np.int32(127), np.int32(23)


def pool_scores(
    scores: Float[Tensor, "rows cols"],
    s: int,
    most: Float[Tensor, "wide rows"],
    sums: Float[Tensor, "wide rows"],
) -> Float[Tensor, " rows"]:
    """Write each row's maximum of every `s` scores, and Σ 2^(score − top); gives top, the row's.

    top is −1e30 for a row without any key. Float32, on a CPU; the scores are written over.
    """
    top = torch.empty(scores.shape[0])
    _pool(scores.T.contiguous().numpy(), s, most.numpy(), sums.numpy(), top.numpy())
    return top


@vectorized
@no_type_check
def _pool(block, s, most, sums, top):
    """`block`: (cols, rows); `most`, `sums`: (wide, rows); `top`: (rows,)."""
    cols, rows = block.shape
    powers = np.empty(rows, np.float32)
    bits = powers.view(np.int32)
    top[:] = _LOWEST_TOP
    for pixel in range(most.shape[0]):
        out = most[pixel]
        out[:] = _NONE
        for j in range(pixel * s, min((pixel + 1) * s, cols)):
            row = block[j]
            for r in range(rows):
                out[r] = row[r] if row[r] > out[r] else out[r]
        for r in range(rows):
            top[r] = out[r] if out[r] > top[r] else top[r]
    for pixel in range(most.shape[0]):
        out = sums[pixel]
        out[:] = _ZERO
        for j in range(pixel * s, min((pixel + 1) * s, cols)):
            row = block[j]
            for r in range(rows):
                x = row[r] - top[r]
                inside = not (x < _LOWEST)
                x = x if inside else _LOWEST
                n = np.floor(x + _HALF)
                f = x - n
                row[r] = (((((_C6 * f + _C5) * f + _C4) * f + _C3) * f + _C2) * f + _C1) * f + _C0
                bits[r] = (np.int32(n) + _BIAS) << _MANTISSA_BITS if inside else np.int32(0)
            for r in range(rows):
                out[r] += row[r] * powers[r]
