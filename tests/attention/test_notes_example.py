"""Self-attention over four vectors with two heads, worked by hand.

a¹ … a⁴ of width 2. Head 1: W^q = W^k = W^v = the first coordinate; head 2: the second coordinate.
Scores are plain dot products, so that with scores 0 and ln 2 the weights are fractions.
"""

from fractions import Fraction as F
from math import log

import torch

from regard.attention import MultiHeadAttention, attend, masks

LN2 = log(2)
A = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [0.0, 0.0]], dtype=torch.float64)

# Head 1 sees 1, 0, 1, 0 as q and as k · ln 2: scores of a query 1 are ln 2, 0, ln 2, 0, whose
# exponentials 2, 1, 2, 1 sum to 6; of a query 0 all are 0. Values 1, 0, 1, 0.
# b of a query 1 is (2 + 2) / 6, of a query 0 it is (1 + 1) / 4.
HEAD_1 = [F(2, 3), F(1, 2), F(2, 3), F(1, 2)]
# Head 2 sees 0, 1, 1, 0 in the same way.
HEAD_2 = [F(1, 2), F(2, 3), F(2, 3), F(1, 2)]


def heads(coordinates):
    # (B=1, H=2, T=4, d=1): head h sees coordinate h.
    return coordinates.T[None, :, :, None]


def test_two_heads_by_hand():
    q, k, v = heads(A), heads(A * LN2), heads(A)
    expected = torch.tensor([[float(x) for x in h] for h in (HEAD_1, HEAD_2)], dtype=torch.float64)
    for path in ("reference", "sdpa", "blockwise"):
        found = attend(q, k, v, score="dot", path=path)
        torch.testing.assert_close(found[0, :, :, 0], expected, rtol=1e-14, atol=0)


def test_two_heads_concatenated_and_mapped_by_hand():
    # W^O swaps the heads and doubles the first: output = (2 · head 2, head 1).
    layer = MultiHeadAttention(2, 2, score="dot", bias=False).double()
    with torch.no_grad():
        layer.query.weight.copy_(torch.eye(2))
        layer.key.weight.copy_(torch.eye(2) * LN2)
        layer.value.weight.copy_(torch.eye(2))
        layer.output.weight.copy_(torch.tensor([[0.0, 2.0], [1.0, 0.0]]))
    expected = [[float(2 * b2), float(b1)] for b1, b2 in zip(HEAD_1, HEAD_2, strict=True)]
    found = layer(A[None])[0]
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64))


def test_causal_by_hand():
    # Head 1, query 3 (of value 1) sees keys 1, 2, 3: exponentials 2, 1, 2, so b = (2 + 2) / 5;
    # query 1 sees itself alone, query 2 sees two scores of 0.
    q, k, v = heads(A), heads(A * LN2), heads(A)
    found = attend(q, k, v, score="dot", mask=masks.Causal())[0, 0, :, 0]
    expected = torch.tensor([1, 1 / 2, 4 / 5, 1 / 2], dtype=torch.float64)
    torch.testing.assert_close(found, expected, rtol=1e-14, atol=0)


def test_the_better_a_key_matches_the_closer_b_comes_to_its_value():
    generator = torch.Generator().manual_seed(0)
    q, k, v = torch.randn(3, 1, 1, 4, 6, generator=generator, dtype=torch.float64)
    target = v[0, 0, 2]
    distances = []
    for strength in (0.0, 1.0, 4.0, 16.0):
        pull = torch.zeros(1, 1, 4, 4, dtype=torch.float64)
        pull[..., 2] = strength
        b = attend(q, k, v, bias=pull)[0, 0, 0]
        distances.append((b - target).norm().item())
    assert distances == sorted(distances, reverse=True)
    assert distances[-1] < 1e-5
