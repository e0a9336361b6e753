"""Every normalizer: its formula, exact gradients, and what all promise about masked keys."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from regard.attention import normalizers
from regard.errors import OptionError

H = 3
VARIANTS = {
    **{name: (name, {}) for name in normalizers.names()},
    "softmax with softcap": ("softmax", {"softcap": 2.0}),
    "softmax with sinks": ("softmax", {"sinks": True, "heads": H}),
    "sigmoid without offset": ("sigmoid", {"by_length": False}),
}
SIMPLEX = ["softmax", "softmax with softcap", "sparsemax", "entmax15"]


def make(variant):
    name, options = VARIANTS[variant]
    normalizer = normalizers.create(name, **options)
    torch.manual_seed(2)
    for parameter in normalizer.parameters():
        torch.nn.init.normal_(parameter)
    return normalizer.double()


def some_scores(queries=5, keys=7, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return 2 * torch.randn(2, H, queries, keys, generator=generator, dtype=torch.float64)


def some_mask(queries=5, keys=7):
    allowed = torch.rand(2, 1, queries, keys, generator=torch.Generator().manual_seed(1)) < 0.6
    allowed[:, :, 0] = False
    allowed[:, :, 1] = True
    return allowed


real_rows = arrays.arrays(
    "float64",
    st.tuples(st.just(1), st.just(H), st.integers(1, 4), st.integers(1, 9)),
    elements=st.floats(-30, 30, width=32),
).map(torch.from_numpy)


@pytest.mark.parametrize("variant", SIMPLEX)
@given(real_rows)
def test_rows_on_the_simplex_sum_to_one(variant, scores):
    weights = make(variant)(scores)
    assert (weights >= 0).all()
    torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights[..., 0]))
    torch.testing.assert_close(make(variant)(scores + 5), weights) if variant != (
        "softmax with softcap"
    ) else None


@pytest.mark.parametrize("name", ["sparsemax", "entmax15"])
@given(real_rows)
def test_the_threshold_against_bisection(name, scores):
    z = scores if name == "sparsemax" else scores / 2
    power = 1 if name == "sparsemax" else 2
    low, high = z.amax(-1, keepdim=True) - 1, z.amax(-1, keepdim=True)
    for _ in range(60):
        middle = (low + high) / 2
        above = ((z - middle).clamp(min=0) ** power).sum(-1, keepdim=True) > 1
        low, high = torch.where(above, middle, low), torch.where(above, high, middle)
    expected = (z - low).clamp(min=0) ** power
    torch.testing.assert_close(make(name)(scores), expected, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("variant", VARIANTS)
def test_gradients(variant, masked):
    normalizer = make(variant)
    scores = some_scores(3, 4)[:1].requires_grad_()
    allowed = some_mask(3, 4)[:1] if masked else None
    parameters = list(normalizer.parameters())

    def run(scores, *_):
        return normalizer(scores, allowed)

    assert torch.autograd.gradcheck(run, (scores, *parameters), eps=1e-7)
    assert torch.autograd.gradgradcheck(run, (scores, *parameters), eps=1e-7, atol=1e-4)


@pytest.mark.parametrize("variant", VARIANTS)
def test_masking_a_key_is_removing_it(variant):
    normalizer, scores = make(variant), some_scores()
    kept = torch.tensor([True, False, True, True, False, True, True])
    masked = normalizer(scores, kept.expand(1, 1, 5, 7))
    assert not masked[..., ~kept].any()
    torch.testing.assert_close(masked[..., kept], normalizer(scores[..., kept]))


@pytest.mark.parametrize("variant", VARIANTS)
def test_what_is_masked_may_be_anything(variant):
    normalizer, scores, allowed = make(variant), some_scores(), some_mask()
    expected = normalizer(scores, allowed)
    for anything in (1e30, -1e30):
        found = normalizer(scores.masked_fill(~allowed, anything), allowed)
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("variant", SIMPLEX)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_key_may_be_as_far_below_as_numbers_reach(variant, dtype):
    scores = some_scores().to(dtype)
    low = scores.index_fill(-1, torch.tensor([2]), torch.finfo(dtype).min / 8).requires_grad_()
    weights = make(variant).to(dtype)(low)
    (gradient,) = torch.autograd.grad(weights.sin().sum(), low)
    assert gradient.isfinite().all()
    if variant != "softmax with softcap":
        assert not weights[..., 2].any()
    torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights[..., 0]))


def test_sigmoid_counts_keys_as_precisely_as_scores_are():
    scores = some_scores()
    allowed = torch.arange(scores.shape[-1]) < 3
    expected = 1 / (1 + 3 * (-scores[..., :3]).exp())
    found = make("sigmoid")(scores, allowed.expand(1, 1, *scores.shape[-2:]))[..., :3]
    torch.testing.assert_close(found, expected, rtol=1e-14, atol=0)


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_row_without_keys_is_zeros_with_zero_gradients(variant):
    normalizer, scores = make(variant), some_scores().requires_grad_()
    weights = normalizer(scores, some_mask())
    assert not weights[:, :, 0].any()
    (gradient,) = torch.autograd.grad(weights.sin().sum(), scores)
    assert not gradient[:, :, 0].any()
    assert gradient.isfinite().all()


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_order_of_keys_does_not_matter(variant):
    normalizer, scores, allowed = make(variant), some_scores(), some_mask()
    order = torch.tensor([3, 1, 6, 0, 2, 5, 4])
    torch.testing.assert_close(
        normalizer(scores[..., order], allowed[..., order]),
        normalizer(scores, allowed)[..., order],
    )


@pytest.mark.parametrize("variant", VARIANTS)
def test_16_bit_scores_are_normalized_in_32(variant):
    normalizer = make(variant).float()
    scores = some_scores().bfloat16()
    assert torch.equal(normalizer(scores), normalizer(scores.float()))


def test_ties_share():
    tied = torch.tensor([1.0, 1.0, -9.0, 1.0], dtype=torch.float64).expand(1, 1, 1, 4)
    for name in ("softmax", "sparsemax", "entmax15"):
        weights = make(name)(tied)[0, 0, 0]
        torch.testing.assert_close(
            weights[[0, 1, 3]], torch.full((3,), 1 / 3).double(), atol=1e-4, rtol=0
        )


def test_formulas():
    scores = torch.tensor([[[[0.5, -1.0, 2.0]]]], dtype=torch.float64)
    s = scores[0, 0, 0]
    for name, expected in {
        "softmax": s.exp() / s.exp().sum(),
        "sigmoid": 1 / (1 + 3 * (-s).exp()),
        "relu": torch.tensor([0.5, 0.0, 2.0]).double() / 3,
        "identity": s,
        # 2 − τ = 1 alone is in the support, since 0.5 < 2 − 1.
        "sparsemax": torch.tensor([0.0, 0.0, 1.0]).double(),
    }.items():
        torch.testing.assert_close(make(name)(scores)[0, 0, 0], expected)
    # 1.5-entmax of (a, 0): √p₁ − √p₂ = a/2 and p₁ + p₂ = 1, so √p₂ = (√(2 − a²/4) − a/2) / 2.
    a = 0.8
    root = ((2 - a * a / 4) ** 0.5 - a / 2) / 2
    two = make("entmax15")(torch.tensor([[[[a, 0.0]]]], dtype=torch.float64))[0, 0, 0]
    torch.testing.assert_close(two, torch.tensor([1 - root**2, root**2], dtype=torch.float64))


def test_messages():
    with pytest.raises(OptionError, match=r"softcap must be above 0, not -1"):
        normalizers.create("softmax", softcap=-1)
    with pytest.raises(OptionError, match=r"learns one logit a head: pass heads="):
        normalizers.create("softmax", sinks=True)
    with pytest.raises(OptionError, match=r"unknown normalizer 'softmaxx'; did you mean 'softmax'"):
        normalizers.resolve("softmaxx")
    with pytest.raises(OptionError, match=r"must be a name or a Normalizer, not float"):
        normalizers.resolve(1.0)  # pyright: ignore
