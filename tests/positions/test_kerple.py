import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard import positions
from regard.errors import OptionError


@given(
    log_r1=st.floats(-3, 3),
    raw_r2=st.floats(-3, 3),
    distance=st.integers(0, 100_000),
    variant=st.sampled_from(["log", "power"]),
)
def test_every_number_by_the_formula(log_r1, raw_r2, distance, variant):
    kerple = positions.create("kerple", heads=2, variant=variant).double()
    with torch.no_grad():
        kerple.log_r1[1], kerple.raw_r2[1] = log_r1, raw_r2
    r1 = math.exp(log_r1)
    if variant == "log":
        expected = -r1 * math.log(1 + math.exp(raw_r2) * distance)
    else:
        expected = -r1 * distance ** (2 / (1 + math.exp(-raw_r2)))
    for sign in (-1, 1):
        bias = kerple.bias(torch.tensor([7]), torch.tensor([7 + sign * distance]))
        # a power of 100000 multiplies the rounding of its exponent by the logarithm, 11.5
        assert bias.table[1, 0].item() == pytest.approx(expected, rel=64 * 2**-52, abs=1e-300)


@pytest.mark.parametrize("variant", ["log", "power"])
def test_it_is_a_kernel_of_the_positions(variant):
    # Conditionally positive definite: no direction orthogonal to the ones has a negative value.
    kerple = positions.create("kerple", heads=3, variant=variant).double()
    places = torch.arange(9)
    bias = kerple.bias(places, places)
    matrix = bias.table[:, places[None, :] - places[:, None] - bias.lowest]
    centered = torch.eye(9, dtype=torch.float64) - 1 / 9
    assert torch.linalg.eigvalsh(centered @ matrix @ centered).min() > -1e-12


def test_bfloat16_parameters_give_a_float32_table():
    kerple = positions.create("kerple", heads=2).bfloat16()
    places = torch.arange(1000)
    bias = kerple.bias(places, places)
    assert bias.table.dtype == torch.float32
    # 998 and 999 are the same number in bfloat16
    assert bias.table[1, 0] < bias.table[1, 1]


def test_heads_begin_at_different_paces():
    bias = positions.create("kerple", heads=4).bias(torch.tensor([0]), torch.tensor([1]))
    expected = -math.log(2) * torch.tensor([0.25, 0.5, 0.75, 1.0])
    torch.testing.assert_close(bias.table[:, 0], expected)


def test_an_unknown_variant_is_refused():
    with pytest.raises(OptionError, match=r"unknown kerple variant 'powers'; did you mean 'power'"):
        positions.create("kerple", heads=2, variant="powers")
