import math

import torch
from hypothesis import given
from hypothesis import strategies as st

from regard import positions


def by_hand(fire, i, j, head):
    """f(ψ(|i − j|) / ψ(max(L, i))) in Python's own numbers."""
    c = abs(fire.c.item())
    threshold = abs(fire.threshold_scale.item() * fire.threshold)
    share = math.log(c * abs(i - j) + 1) / (math.log(c * max(threshold, i) + 1) + 1e-6)
    total = fire.into_heads.bias[head].item()
    for n in range(fire.into_hidden.out_features):
        hidden = share * fire.into_hidden.weight[n, 0].item() + fire.into_hidden.bias[n].item()
        total += fire.into_heads.weight[head, n].item() * max(hidden, 0.0)
    return total


@given(
    i=st.integers(0, 5000),
    j=st.integers(0, 5000),
    c=st.floats(-2, 2),
    scale=st.floats(-2, 2),
)
def test_every_number_by_the_formula(i, j, c, scale):
    torch.manual_seed(3)
    fire = positions.create("fire", heads=2, hidden=3, threshold=100).double()
    with torch.no_grad():
        fire.c.fill_(c)
        fire.threshold_scale.fill_(scale)
    at, to = torch.tensor([i]), torch.tensor([j])
    x = torch.zeros(1, 2, 1, 5, dtype=torch.float64)
    values = fire.bias(at, to)(x, x, at, to).flatten().tolist()
    for head in range(2):
        # ln(1 + cx) loses what 1 + cx has rounded away; by hand it is not taken by log1p.
        assert math.isclose(values[head], by_hand(fire, i, j, head), rel_tol=1e-9, abs_tol=1e-9)


def test_past_the_threshold_a_text_twice_as_long_looks_the_same():
    # With ψ nearly logarithmic the shares of i and j meet those of 2i and 2j only at the ends:
    # the first key is always 1, the query itself always 0.
    fire = positions.create("fire", heads=2, threshold=10)
    x = torch.zeros(1, 2, 1, 5)
    for i in (20, 40, 4000):
        at, to = torch.tensor([i]), torch.tensor([0, i])
        first, itself = fire.bias(at, to)(x, x.expand(1, 2, 2, 5), at, to)[0, :, 0].unbind(-1)
        ends = torch.tensor([[1.0], [0.0]])
        expected = fire.into_heads(torch.relu(fire.into_hidden(ends)))
        torch.testing.assert_close(torch.stack((first, itself)), expected, rtol=0, atol=1e-5)


def test_bfloat16_parameters_tell_far_positions_apart():
    fire = positions.create("fire", heads=1, threshold=2000)
    fire.bfloat16()
    at, to = torch.tensor([1500]), torch.tensor([1, 2, 3])
    x = torch.zeros(1, 1, 3, 5, dtype=torch.bfloat16)
    values = fire.bias(at, to)(x[:, :, :1], x, at, to)
    assert values.dtype == torch.float32
    assert len(set(values.flatten().tolist())) == 3
