"""Additive scores and their gradients, compiled, against NumPy in float64."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.attention.kernels.additive import TILE, AdditiveScores
from regard.attention.kernels.threads import Threads
from regard.attention.masks import Rectangle

EPS = float(np.finfo(np.float32).eps)


def rectangle(batch, rows, cols):
    nowhere = torch.zeros(1, 0, dtype=torch.int64)
    return Rectangle(slice(*batch), slice(*rows), slice(*cols), nowhere, nowhere)


@st.composite
def features(draw):
    batch, heads, width = draw(st.sampled_from([(1, 1, 1), (2, 3, 5), (3, 2, 8)]))
    queries = draw(st.sampled_from([1, 4, 6, 7, 19]))
    keys = draw(st.sampled_from([1, 3, 17, TILE - 1, TILE + 30]))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 999)))
    query = torch.randn(batch, heads, queries, width, generator=generator)
    key = torch.randn(batch, heads, keys, width, generator=generator)
    weight = torch.randn(heads, width, generator=generator)
    # Some queries and keys so far out that exponentials of them leave float32.
    far = draw(st.sampled_from([1.0, 1.0, 25.0, 1e3]))
    query[:, :, :: draw(st.integers(1, 4))] *= far
    key[:, :, :: draw(st.integers(1, 9))] *= far
    weight[:, :: draw(st.integers(2, 9))] *= draw(st.sampled_from([1.0, 0.0, -1e-20]))
    return query, key, weight


def truth_of(query, key, weight):
    q, k, w = (x.double() for x in (query, key, weight))
    angle = q[:, :, :, None] + k[:, :, None]
    return angle.tanh(), w[:, None, None]


@given(features())
def test_scores(case):
    query, key, weight = case
    batch, heads, queries, width = query.shape
    keys = key.shape[2]
    where = rectangle((batch // 2, batch), (queries // 3, queries), (keys // 2, keys))
    shape = (batch - batch // 2, heads, queries - queries // 3, keys - keys // 2)
    found = torch.empty(shape)
    with Threads() as threads:
        AdditiveScores(query, key, weight).fill(threads, found, where)
    tanh, w = truth_of(query, key, weight)
    truth = (tanh * w).sum(-1)[where.batch, :, where.rows, where.cols].flip(2)
    # A weight's share below 1e-9 is taken for 1e-9. Each term is rounded a few times, and a + b in
    # float32 is off by as much as a rounding of the larger of both.
    size = float(weight.abs().max())
    slope = float((weight.abs()[:, None, None].double() * (1 - tanh**2)).max())
    far = float(max(query.abs().max(), key.abs().max()))
    bound = width * (size * (8 * EPS + 4e-9) + slope * far * EPS)
    assert (found - truth).abs().max() <= bound


@given(features())
def test_gradients(case):
    query, key, weight = case
    batch, heads, queries, _ = query.shape
    keys = key.shape[2]
    upstream = torch.randn(batch, heads, queries, keys)
    scores = AdditiveScores(query, key, weight)
    scores.start_gradients()
    half_queries, half_keys = queries // 2, keys // 2
    with Threads() as threads:
        for rows in ((0, half_queries), (half_queries, queries)):
            for cols in ((0, half_keys), (half_keys, keys)):
                if rows[0] < rows[1] and cols[0] < cols[1]:
                    where = rectangle((0, batch), rows, cols)
                    part = upstream[:, :, where.rows, where.cols].flip(2)
                    scores.absorb(threads, part, where)
    found = scores.gradients()
    tanh, w = truth_of(query, key, weight)
    each = upstream.double()[..., None] * (1 - tanh**2) * w
    tanh_terms = upstream.double()[..., None] * tanh
    far = float(max(query.abs().max(), key.abs().max()))
    for name, got, terms, dims in (
        ("query", found[0], each, 3),
        ("key", found[1], each, 2),
        ("weight", found[2], tanh_terms, (0, 2, 3)),
    ):
        truth = terms.sum(dims)
        # r is off by a few roundings, and by its slope times a rounding of a + b; r(1 − r) by as
        # much; a sum of n terms adds at most sqrt(n) roundings in the mean.
        size = (upstream.abs().double()[..., None] * w.abs().clamp(min=1e-9)).expand_as(each)
        loss = torch.where((1 - tanh**2) > 1e-9, 8 + far, 8) * EPS
        if name == "weight":
            size = upstream.abs().double()[..., None].expand_as(each)
        bound = (size * loss).sum(dims) + EPS * size.sum(dims) + 1e-30
        assert bool(((got - truth).abs() <= bound).all()), name


def test_far_features_take_the_exact_form_and_near_ones_do_not():
    near = torch.randn(1, 2, 5, 4), torch.randn(1, 2, TILE + 9, 4), torch.ones(2, 4)
    assert AdditiveScores(*near).tame
    key = near[1].clone()
    key[0, 1, TILE + 3, 2] = 60
    scores = AdditiveScores(near[0], key, near[2])
    assert not scores.tame
    where = rectangle((0, 1), (0, 5), (0, TILE + 9))
    assert scores._exact_tiles(scores.a, where).tolist() == [[[False, False], [False, True]]]
    # A rectangle's tiles count from its first key, so the far one is in the first of these.
    where = rectangle((0, 1), (0, 5), (20, TILE + 9))
    assert scores._exact_tiles(scores.a, where).tolist() == [[[False], [True]]]


@pytest.mark.parametrize("place", ["query", "key", "weight"])
def test_nan_is_not_hidden(place):
    query, key, weight = torch.zeros(1, 1, 3, 4), torch.zeros(1, 1, 5, 4), torch.ones(1, 4)
    {"query": query[0, 0, 1], "key": key[0, 0, 2], "weight": weight[0]}[place][0] = torch.nan
    found = torch.empty(1, 1, 3, 5)
    with Threads() as threads:
        AdditiveScores(query, key, weight).fill(threads, found, rectangle((0, 1), (0, 3), (0, 5)))
    expected = torch.zeros(3, 5, dtype=torch.bool)
    expected[{"query": (1,), "key": (slice(None), 2), "weight": ()}[place]] = True
    assert torch.equal(found[0, 0].isnan(), expected)
