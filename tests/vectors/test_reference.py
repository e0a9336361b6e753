"""The reference against the objective itself: its updates are the gradient of its loss."""

import numpy as np
import pytest
from scipy.special import expit

from regard.vectors.kernels.state import Corpus, Noise, Rules, Tables, Tree
from regard.vectors.reference import Draws, Reference, loss_of, slope_of
from regard.vectors.sampling import alias_table, huffman_tree

WORDS, SIZE = 7, 3
IDS = np.array([0, 3, 1, 2, 0, 5, 4, 6, 1], np.int32)
CENTER = 4


def one_center(tables, alpha, **settings):
    chosen = {
        "cbow": 0, "window": 3, "shrink_window": 0, "negatives": 4, "tree": 0, "shared": 1,
        "mean": 1, "divide": 1, "alpha": alpha, "min_alpha": alpha, "total": 1.0,
    }  # fmt: skip
    nothing = np.zeros(0, np.int32), np.zeros(0, np.uint32)
    corpus = Corpus(IDS, np.array([0, len(IDS)], np.int64), *nothing)
    counts = np.bincount(IDS)
    tables = Tables(*(table.copy() for table in tables))
    noise, tree = Noise(alias_table(counts)), Tree(*huffman_tree(counts))
    reference = Reference(Rules(**(chosen | settings)), corpus, tables, noise, tree, 77)
    reference.train(CENTER, CENTER + 1)
    return reference


@pytest.mark.parametrize("shared", [0, 1])
@pytest.mark.parametrize(("negatives", "tree"), [(4, 0), (0, 1), (4, 1)])
@pytest.mark.parametrize(
    ("cbow", "mean", "divide"), [(0, 1, 1), (1, 1, 1), (1, 0, 0)], ids=["skipgram", "mean", "sum"]
)
def test_updates_are_the_gradient(cbow, mean, divide, negatives, tree, shared):
    settings = {
        "cbow": cbow,
        "mean": mean,
        "divide": divide,
        "negatives": negatives,
        "tree": tree,
        "shared": shared,
    }
    random = np.random.default_rng(3)
    tables = Tables(*(random.normal(size=(rows, SIZE)) for rows in (WORDS, WORDS, WORDS - 1)))
    # So small a rate that the order of updates within the center plays no part.
    rate, shift = 1e-7, 1e-5
    moved = one_center(tables, rate, **settings).tables
    for which, table in enumerate(tables):
        slope = np.zeros_like(table)
        for place in np.ndindex(table.shape):
            for sign in (1, -1):
                table[place] += sign * shift
                slope[place] += sign * one_center(tables, 1e-30, **settings).losses.sum()
                table[place] -= sign * shift
        slope /= 2 * shift
        # Central differences are off by shift² and 1e-16 / shift; moving along by rate.
        np.testing.assert_allclose((table - moved[which]) / rate, slope, atol=1e-5, rtol=1e-5)


def test_word2vecs_own_cbow_gives_each_context_the_whole_gradient():
    random = np.random.default_rng(4)
    tables = Tables(*(random.normal(size=(rows, SIZE)) for rows in (WORDS, WORDS, WORDS - 1)))
    whole = one_center(tables, 0.01, cbow=1, divide=0).tables.input - tables.input
    shared_out = one_center(tables, 0.01, cbow=1, divide=1).tables.input - tables.input
    np.testing.assert_allclose(whole, 6 * shared_out, rtol=1e-9)


def test_loss_and_slope():
    scores, signs = np.array([0.3, -2.0, 5.0, 40.0]), np.array([1.0, -1.0, 0.0, -1.0])
    expected = [-np.log(expit(0.3)), -np.log(expit(2.0)), 0, 16 + np.log1p(np.exp(-16))]
    np.testing.assert_allclose(loss_of(scores, signs), expected)
    np.testing.assert_allclose(slope_of(scores, signs)[:2], [1 - expit(0.3), -expit(-2.0)])


def test_draws_are_marsaglias_xorshift():
    """The first number after state 1: 1, then 1 << 13 | 1, then its shifts."""
    x = (1 << 13) | 1
    x ^= x >> 7
    assert Draws(1).bits() == x ^ (x << 17)
