"""Pearson's and Spearman's correlation, with two-sided p-values.

Sources: Pearson (1895); Spearman (1904), with the mean rank for ties. The p-value is that of
Student's t with n - 2 degrees of freedom, I(1 - r²; n/2 - 1, 1/2) in the regularized incomplete
beta function, by its continued fraction (NIST Digital Library of Mathematical Functions, 8.17.22).
"""

from math import exp, lgamma, log

import numpy as np

_TINY = 1e-300


def pearson(x: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """Correlation of `x` (N,) and `y` (N,), and its p-value; NaN where one of them is constant.

    >>> r, p = pearson(np.array([1.0, 2, 3, 4]), np.array([1.0, 3, 2, 4]))
    >>> round(r, 6), round(p, 6)
    (0.8, 0.2)
    """
    x = np.asarray(x, np.float64) - np.mean(x)
    y = np.asarray(y, np.float64) - np.mean(y)
    lengths = np.sqrt((x @ x) * (y @ y))
    if len(x) < 2 or lengths == 0:
        return float("nan"), float("nan")
    r = float(np.clip(x @ y / lengths, -1, 1))
    return r, _p_value(r, len(x))


def spearman(x: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """Correlation of the ranks of `x` (N,) and `y` (N,), and its p-value.

    >>> spearman(np.array([1, 2, 3]), np.array([10, 100, 1000]))[0]
    1.0
    """
    return pearson(ranks(x), ranks(y))


def ranks(x: np.ndarray) -> np.ndarray:
    """The rank of each number (N,) from 1; equal numbers share the mean of their ranks.

    >>> ranks(np.array([30, 10, 30])).tolist()
    [2.5, 1.0, 2.5]
    """
    _, place, counts = np.unique(x, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return (last - (counts - 1) / 2)[place]


def _p_value(r: float, n: int) -> float:
    if n < 3:
        return 1.0
    return _incomplete_beta(n / 2 - 1, 0.5, 1 - r * r)


def _incomplete_beta(a: float, b: float, x: float) -> float:
    """I(x; a, b), the regularized incomplete beta function."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):
        return 1 - _incomplete_beta(b, a, 1 - x)
    front = exp(lgamma(a + b) - lgamma(a) - lgamma(b) + a * log(x) + b * log(1 - x)) / a
    c, d, total, m = 1.0, 1 / _away(1 - (a + b) * x / (a + 1)), 0.0, 0
    total = d
    while m < 1000:
        m += 1
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            d = 1 / _away(1 + term * d)
            c = _away(1 + term / c)
            total *= c * d
        if abs(c * d - 1) < 1e-15:
            break
    return front * total


def _away(x: float) -> float:
    return x if abs(x) > _TINY else _TINY
