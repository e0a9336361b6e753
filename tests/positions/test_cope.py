import math
import warnings

import pytest
import torch

from regard import positions

with warnings.catch_warnings():
    # its torch.jit.script is deprecated
    warnings.simplefilter("ignore", DeprecationWarning)
    from x_transformers.x_transformers import CoPE

HEADS, HEAD_WIDTH, LAST = 3, 4, 3


def made(dtype=torch.float64):
    torch.manual_seed(2)
    cope = positions.create("cope", head_width=HEAD_WIDTH, max_position=LAST).to(dtype)
    torch.nn.init.normal_(cope.vectors)
    return cope.requires_grad_(False)


def by_hand(cope, q, k, i, j, allowed):
    """q · e[p] / √d of one query and key, keys numbered by position."""
    d = len(q[i])
    p = sum(
        1 / (1 + math.exp(-float(q[i] @ k[n]) / math.sqrt(d)))
        for n in range(j, i + 1)
        if allowed is None or allowed[i, n]
    )
    p = min(p, LAST)
    below = min(math.floor(p), LAST - 1)
    met = [float(q[i] @ vector) / math.sqrt(d) for vector in cope.vectors]
    return met[below] * (1 - (p - below)) + met[below + 1] * (p - below)


@pytest.mark.parametrize("masked", [False, True])
def test_every_number_by_the_formula(masked):
    cope = made()
    q, k = torch.randn(2, 2, HEADS, 7, HEAD_WIDTH, dtype=torch.float64)
    allowed = torch.rand(2, HEADS, 7, 7) < 0.6 if masked else None
    places = torch.arange(7)
    values = cope.bias(places, places)(q, k, places, places, allowed)
    for b in range(2):
        for h in range(HEADS):
            for i in range(7):
                for j in range(7):
                    may = None if allowed is None else allowed[b, h]
                    expected = by_hand(cope, q[b, h], k[b, h], i, j, may)
                    assert math.isclose(values[b, h, i, j].item(), expected, abs_tol=1e-13)


def test_the_bias_of_x_transformers():
    cope = made(torch.float32)
    theirs = CoPE(HEAD_WIDTH, HEADS, LAST + 1)
    with torch.no_grad():
        theirs.pos_emb.copy_(cope.vectors)
    q, k = torch.randn(2, 2, HEADS, 7, HEAD_WIDTH)
    places = torch.arange(7)
    causal = torch.ones(7, 7).tril().bool()
    logits = (q @ k.mT / math.sqrt(HEAD_WIDTH)).masked_fill(~causal, -torch.inf)
    # Theirs is not divided by √d: the scores that it is added to are not yet.
    expected = theirs(q, logits) / math.sqrt(HEAD_WIDTH)
    torch.testing.assert_close(cope.bias(places, places)(q, k, places, places), expected)


def test_open_gates_count_tokens():
    cope = made()
    q = torch.full((1, 1, 3, HEAD_WIDTH), 100.0, dtype=torch.float64)
    places = torch.arange(3)
    values = cope.bias(places, places)(q, q, places, places)[0, 0, 2]
    met = cope.vectors.sum(-1) * 100 / math.sqrt(HEAD_WIDTH)
    torch.testing.assert_close(values, met[[3, 2, 1]])


def test_a_masked_key_is_a_removed_one():
    cope = made()
    q, k = torch.randn(2, 1, HEADS, 6, HEAD_WIDTH, dtype=torch.float64)
    places = torch.arange(6)
    kept = torch.tensor([0, 1, 3, 4, 5])
    allowed = torch.ones(6, dtype=torch.bool).index_fill(0, torch.tensor(2), False)
    masked = cope.bias(places, places)(q, k, places, places, allowed[None, None, None])
    removed = cope.bias(places, kept)(q, k[:, :, kept], places, kept)
    torch.testing.assert_close(masked[..., kept], removed)


def test_gates_are_summed_in_float32_for_bfloat16():
    tokens = 600
    cope = positions.create("cope", head_width=HEAD_WIDTH, max_position=tokens).bfloat16()
    torch.nn.init.normal_(cope.vectors)
    x = torch.zeros(1, 1, tokens, HEAD_WIDTH, dtype=torch.bfloat16)
    x[..., 0] = 8
    places = torch.arange(tokens)
    low = cope.bias(places, places)(x, x, places, places)
    assert low.dtype == torch.float32
    exact = cope.double().bias(places, places)(x.double(), x.double(), places, places)
    # Query times vector is rounded once, to 2^-9 of it; the sum of 600 gates, in bfloat16, would
    # stop at 256.
    size = 8 * cope.vectors.abs().max() / math.sqrt(HEAD_WIDTH)
    assert (low - exact).abs().max() < size * 2**-8


def test_query_heads_share_key_heads_in_turn():
    # head h reads key head h // 2
    cope = made()
    q, k = torch.randn(1, 2 * HEADS, 5, HEAD_WIDTH).double(), torch.randn(1, HEADS, 5, HEAD_WIDTH)
    places = torch.arange(5)
    grouped = cope.bias(places, places)(q, k.double(), places, places)
    for head in range(2 * HEADS):
        one, its_key = q[:, head : head + 1], k[:, head // 2 : head // 2 + 1].double()
        alone = cope.bias(places, places)(one, its_key, places, places)
        torch.testing.assert_close(grouped[:, head], alone[:, 0])
