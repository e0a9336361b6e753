"""The definition itself: against plain Python, one number at a time; and its tiles."""

from math import exp, sqrt

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.attention import RelativeBias, masks, rows, scores
from regard.attention.call import make_call
from regard.attention.paths.reference import Reference

B, H, KV, TQ, TK, D, DV = 2, 4, 2, 3, 5, 6, 7
AT_Q, AT_K = [4, 1, 0], [0, 1, 2, 3, 4]


def a_call(**options):
    generator = torch.Generator().manual_seed(0)

    def random(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    table = random(H, 9)
    return make_call(
        random(B, H, TQ, D),
        random(B, KV, TK, D),
        random(B, KV, TK, DV),
        **{
            "mask": masks.Causal() & masks.Padding(torch.arange(TK) < torch.tensor([[5], [2]])),
            "bias": RelativeBias(table, -4),
            "query_positions": torch.tensor(AT_Q),
            "key_positions": torch.tensor(AT_K),
        }
        | options,
    )


def test_against_plain_python():
    call = a_call()
    q, k, v = (x.tolist() for x in (call.query, call.key, call.value))
    table = call.biases[0].tensors[0].tolist()
    found, weights = Reference().run(call), rows.weights(call)
    for b in range(B):
        for h in range(H):
            shared = h // (H // KV)
            for i in range(TQ):
                seen = [j for j in range(TK) if AT_K[j] <= AT_Q[i] and j < (5, 2)[b]]
                powers = {
                    j: exp(
                        sum(x * y for x, y in zip(q[b][h][i], k[b][shared][j], strict=True))
                        / sqrt(D)
                        + table[h][AT_K[j] - AT_Q[i] + 4]
                    )
                    for j in seen
                }
                total = sum(powers.values())
                for j in range(TK):
                    expected = powers.get(j, 0) / total
                    assert weights[b, h, i, j].item() == pytest.approx(expected, rel=1e-12)
                for c in range(DV):
                    expected = sum(powers[j] / total * v[b][shared][j][c] for j in seen)
                    assert found[b, h, i, c].item() == pytest.approx(expected, rel=1e-10)


@given(st.integers(0, TQ), st.integers(0, TK), st.sampled_from(["scaled_dot", "additive"]))
def test_tiles_join_to_the_whole(row, col, name):
    torch.manual_seed(0)
    score = scores.create(name, heads=H, head_width=D).double()
    call = a_call(score=score)
    for whole_of in (rows.weights, rows.scores):
        tiles = [
            torch.cat([whole_of(call, r, c) for c in (slice(0, col), slice(col, TK))], -1)
            for r in (slice(0, row), slice(row, TQ))
        ]
        torch.testing.assert_close(torch.cat(tiles, -2), whole_of(call), rtol=1e-12, atol=1e-12)


def test_scores_are_minus_infinity_where_masked():
    found = rows.scores(a_call())
    assert (found == -torch.inf).any()
    assert torch.equal(found == -torch.inf, rows.weights(a_call()) == 0)


def test_without_positions_the_order_of_keys_does_not_matter():
    order = torch.tensor([3, 0, 4, 1, 2])
    call = a_call(mask=None, bias=None)
    other = make_call(call.query, call.key[:, :, order], call.value[:, :, order])
    torch.testing.assert_close(Reference().run(other), Reference().run(call))


def test_traced_equals_untraced():
    seen = []

    def watch(x):
        seen.append(x)
        return x

    watched = a_call(observe_scores=watch, observe_weights=watch)
    assert torch.equal(Reference().run(watched), Reference().run(a_call()))
    assert torch.equal(seen[1], rows.weights(a_call()))
