import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.autograd import Variable

from regard import positions
from regard.errors import OptionError, ShapeError
from regard.positions.sinusoidal import PositionalEncoding


def by_hand(position, dimension, width, base=10000.0):
    phase = position / base ** (2 * (dimension // 2) / width)
    return math.sin(phase) if dimension % 2 == 0 else math.cos(phase)


@given(width=st.integers(1, 23), start=st.integers(-3, 100_000), tokens=st.integers(1, 5))
def test_every_number_by_the_formula(width, start, tokens):
    encode = positions.create("sinusoidal", width=width)
    places = torch.arange(start, start + tokens)
    encoded = encode(torch.zeros(2, tokens, width, dtype=torch.float64), places)
    expected = torch.tensor(
        [[by_hand(int(p), d, width) for d in range(width)] for p in places], dtype=torch.float64
    )
    # Powers computed in another order differ by a few units in the last place (2^-52) of the
    # frequency, and the phase is the frequency times the position.
    bound = 8 * 2**-52 * (abs(start) + tokens + 1)
    for row in encoded:
        torch.testing.assert_close(row, expected, rtol=0, atol=bound)


def test_the_base_is_a_setting():
    encoded = positions.create("sinusoidal", width=4, base=100)(torch.zeros(1, 3, 4))
    assert encoded[0, 2, 2].item() == pytest.approx(by_hand(2, 2, 4, 100), abs=2**-24)


def test_a_width_that_differs_says_what_to_do():
    message = r"made for width 4, and \(1, 3, 5\) has width 5; make it with width=5"
    with pytest.raises(ShapeError, match=message):
        positions.create("sinusoidal", width=4)(torch.zeros(1, 3, 5))


def test_a_width_of_zero_is_refused():
    with pytest.raises(OptionError, match="width must be 1 or more, got 0"):
        positions.create("sinusoidal", width=0)


def test_the_snippet_of_the_notes():
    pe = PositionalEncoding(20, 0)
    y = pe(Variable(torch.zeros(1, 100, 20)))
    curves = y[0, :, 4:8].data.numpy()
    assert curves.shape == (100, 4)
    for position in (0, 1, 50, 99):
        for dimension in (4, 5, 6, 7):
            # Rounded once, from float64 to float32.
            assert abs(curves[position, dimension - 4] - by_hand(position, dimension, 20)) <= 2**-24


def test_lengths_past_max_len_and_odd_widths():
    long = PositionalEncoding(7, max_len=5)(torch.zeros(1, 9, 7))
    assert long[0, 8, 6].item() == pytest.approx(by_hand(8, 6, 7), abs=2**-24)


def test_dropout_follows_the_addition_and_is_off_in_eval():
    pe = PositionalEncoding(8, 0.5)
    x = torch.ones(1, 400, 8)
    plain = pe.eval()(x)
    assert torch.equal(plain, positions.create("sinusoidal", width=8)(x))
    dropped = pe.train()(x)
    kept = dropped != 0
    assert torch.equal(dropped[kept], 2 * plain[kept])
    # 3200 coins: 0.5 within five standard deviations of 0.5 / sqrt(3200).
    assert abs(kept.float().mean().item() - 0.5) < 5 * 0.5 / math.sqrt(3200)


def test_dropout_is_a_probability():
    with pytest.raises(OptionError, match=r"dropout must be from 0 to 1, got 1\.5"):
        PositionalEncoding(8, 1.5)
