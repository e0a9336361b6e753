"""The exponential, compiled, against NumPy in float64."""

import numpy as np
import pytest

from regard.attention.kernels.exponential import exponential, total_of

EPS = np.finfo(np.float32).eps


def test_exponential_is_right_to_the_last_bits():
    x = np.linspace(-87.2, 0, 100_001).astype(np.float32)
    found = x.copy()
    exponential(found, np.empty(x.size, np.int32))
    truth = np.exp(x.astype(np.float64))
    # A rounding of the polynomial's last sum, and ln 2's, |x| / ln 2 times.
    loss = np.abs(np.float32(np.log(2)) / np.log(2) - 1)
    assert np.all(np.abs(found / truth - 1) <= EPS + loss * np.abs(x))
    assert total_of(found) == pytest.approx(truth.sum(), rel=1e-5)


def test_exponential_at_the_ends():
    x = np.array([-0.0, 0, -87.5, -200, -3e38, -np.inf, np.nan], np.float32)
    exponential(x, np.empty(x.size, np.int32))
    assert x[:6].tolist() == [1, 1, 0, 0, 0, 0]
    assert np.isnan(x[6])
