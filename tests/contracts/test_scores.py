"""Every score function against its formula, one number at a time, and what they all promise."""

from copy import deepcopy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.attention import scores
from regard.attention.scores.additive import Additive
from regard.attention.scores.concat import Concat
from regard.errors import OptionError

B, H, TQ, TK, D = 2, 3, 5, 7, 4


def make(name, **settings):
    torch.manual_seed(0)
    score = scores.create(name, heads=H, head_width=D, **settings)
    for parameter in score.parameters():
        torch.nn.init.normal_(parameter)
    return score.double()


def rows(q_tokens=TQ, k_tokens=TK):
    generator = torch.Generator().manual_seed(1)
    q = torch.randn(B, H, q_tokens, D, generator=generator, dtype=torch.float64)
    k = torch.randn(B, H, k_tokens, D, generator=generator, dtype=torch.float64)
    return q.requires_grad_(), k.requires_grad_()


def rows_for(name):
    return rows(TK, TK) if name == "location" else rows()


def formula(score, name, h, q, k, own_key, j):
    """The score of one query and one key of head h, as the paper writes it."""
    if name == "dot":
        return q @ k
    if name == "scaled_dot":
        return q @ k / 2  # √4
    if name == "cosine":
        return score.log_scale[h].exp() * (q @ k) / (q.norm() * k.norm())
    if name == "bilinear":
        return q @ score.weight[h] @ k
    if name == "additive":
        inner = q @ score.query_weight[h] + k @ score.key_weight[h] + score.bias[h]
        return score.weight[h] @ inner.tanh()
    if name == "concat":
        return score.weight[h] @ (torch.cat([q, k]) @ score.pair_weight[h]).tanh()
    if name == "location":
        return score.weight[h, j] @ torch.cat([q, own_key]) + score.bias[h, j]
    raise AssertionError(f"write the formula of {name} here")


@pytest.mark.parametrize("name", scores.names())
def test_the_formula(name):
    score = make(name)
    q, k = rows_for(name)
    found = score(q, k)
    for b, h, i, j in torch.ones_like(found).nonzero().tolist():
        own_key = k[b, h, i] if name == "location" else None
        expected = formula(score, name, h, q[b, h, i], k[b, h, j], own_key, j)
        torch.testing.assert_close(found[b, h, i, j], expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", scores.names())
def test_gradients(name):
    score = make(name, **({"max_length": 3} if name == "location" else {}))
    parameters = list(score.parameters())
    generator = torch.Generator().manual_seed(1)
    q = torch.randn(1, H, 3, D, generator=generator, dtype=torch.float64, requires_grad=True)
    k = torch.randn(1, H, 3, D, generator=generator, dtype=torch.float64, requires_grad=True)

    def run(q, k, *_):
        return score(q, k)

    assert torch.autograd.gradcheck(run, (q, k, *parameters))
    assert torch.autograd.gradgradcheck(run, (q, k, *parameters))


@pytest.mark.parametrize("name", scores.names())
def test_a_reduction_gives_the_same_scores(name):
    score = make(name)
    q, k = rows_for(name)
    dot, tanh = score.as_dot(q, k), score.as_tanh(q, k)
    assert (dot is not None) == score.dot_like
    assert (tanh is not None) == score.tanh_like
    assert score.dot_like != score.tanh_like
    if dot is not None:
        reduced = dot.scale * dot.query @ dot.key.transpose(-1, -2)
    else:
        pairs = (tanh.query[..., :, None, :] + tanh.key[..., None, :, :]).tanh()
        reduced = torch.einsum("bhije,he->bhij", pairs, tanh.weight)
    torch.testing.assert_close(reduced, score(q, k), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", scores.names())
@given(data=st.data())
@settings(max_examples=5)
def test_any_rows_and_columns_join_to_the_whole(name, data):
    score = make(name)
    q, k = rows_for(name)
    whole = score(q, k)
    row = data.draw(st.integers(0, q.shape[2]))
    col = data.draw(st.integers(0, k.shape[2]))
    q, k = score.project(q, k)
    joined = torch.cat(
        [
            torch.cat(
                [
                    score.rule(a, b, *score.rule_parameters())
                    for b in k.split_with_sizes([col, k.shape[2] - col], 2)
                ],
                -1,
            )
            for a in q.split_with_sizes([row, q.shape[2] - row], 2)
        ],
        -2,
    )
    torch.testing.assert_close(joined, whole, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", scores.names())
def test_state_dict_deepcopy_and_type(name):
    score, other = make(name), scores.create(name, heads=H, head_width=D).double()
    other.load_state_dict(score.state_dict())
    q, k = rows_for(name)
    assert torch.equal(other(q, k), score(q, k))
    assert torch.equal(deepcopy(score)(q, k), score(q, k))
    half = score.to(torch.bfloat16)
    assert half(q.bfloat16(), k.bfloat16()).dtype == torch.bfloat16


@pytest.mark.parametrize("name", scores.names())
def test_what_needs_creating(name):
    if scores.family.get(name).learned:
        with pytest.raises(OptionError, match=rf"score '{name}' has parameters to learn"):
            scores.resolve(name)
        with pytest.raises(OptionError, match=rf"score '{name}' needs: heads, head_width"):
            scores.create(name)
        with pytest.raises(OptionError, match=r"heads=0.*at least 1"):
            scores.create(name, heads=0, head_width=4)
    else:
        assert not list(scores.resolve(name).parameters())


def test_concat_is_additive_without_offset():
    concat = make("concat")
    additive = Additive(H, D).double()
    first, second = concat.pair_weight.detach().chunk(2, dim=1)
    with torch.no_grad():
        additive.query_weight.copy_(first)
        additive.key_weight.copy_(second)
        additive.bias.zero_()
        additive.weight.copy_(concat.weight)
    assert isinstance(concat, Concat)
    torch.testing.assert_close(concat(*rows()), additive(*rows()), rtol=1e-12, atol=1e-12)


def test_bilinear_starts_as_scaled_dot():
    bilinear = scores.create("bilinear", heads=H, head_width=D).double()
    torch.testing.assert_close(bilinear(*rows()), scores.create("scaled_dot")(*rows()))


def test_cosine_of_a_zero_vector_is_zero_with_finite_gradients():
    score = make("cosine")
    q, k = rows()
    with torch.no_grad():
        q[0, 0, 0] = 0
    found = score(q, k)
    assert not found[0, 0, 0].any()
    assert all(g.isfinite().all() for g in torch.autograd.grad(found.sum(), (q, k)))
    with pytest.raises(OptionError, match=r"scale of cosine scores must be above 0, not -1"):
        scores.create("cosine", heads=1, head_width=2, scale=-1)


def test_hidden_width_may_differ():
    for name in ("additive", "concat"):
        score = make(name, hidden_width=6)
        assert score.weight.shape == (H, 6)
        assert score(*rows()).shape == (B, H, TQ, TK)


def test_what_is_no_score():
    with pytest.raises(OptionError, match=r"score must be a name or a Score, not int; known"):
        scores.resolve(3)  # pyright: ignore
