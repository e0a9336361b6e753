"""Subsampling, negatives and the tree, against their definitions."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.vectors.sampling import alias_table, huffman_tree, keep_thresholds

some_counts = st.lists(st.integers(1, 10**6), min_size=2, max_size=80).map(np.array)


@given(some_counts)
def test_alias_table_draws_by_the_power_of_counts(counts):
    table = alias_table(counts)
    chance = (table[:, 0].astype(float) + 1) / 2**32
    share = np.zeros(len(counts))
    np.add.at(share, np.arange(len(counts)), chance)
    np.add.at(share, table[:, 1], 1 - chance)
    expected = counts**0.75 / (counts**0.75).sum()
    # Each of V columns is cut to 32 bits.
    np.testing.assert_allclose(share / len(counts), expected, atol=1e-9)


def test_words_without_a_count_are_never_drawn():
    table = alias_table(np.array([4, 0, 9]))
    assert table[1, 0] == 0
    assert 1 not in table[:, 1]


def test_keep_thresholds_follow_word2vecs_code():
    counts = np.array([900, 99, 1])
    kept = keep_thresholds(counts, 1e-2) / (2**32 - 1)
    frequency = counts / 1000
    expected = np.minimum(1, (np.sqrt(frequency / 1e-2) + 1) * 1e-2 / frequency)
    np.testing.assert_allclose(kept, expected, atol=1e-9)
    assert len(keep_thresholds(counts, 0.0)) == 0


@given(some_counts)
def test_tree_is_optimal_and_told_apart_by_its_signs(counts):
    starts, points, signs = huffman_tree(counts)
    paths = [
        tuple(zip(points[a:b].tolist(), signs[a:b].tolist(), strict=True))
        for a, b in pairwise(starts)
    ]
    assert len(set(paths)) == len(counts)
    assert sum(2.0 ** -len(path) for path in paths) == 1  # Kraft: no room is wasted
    assert all(path[0][0] == len(counts) - 2 for path in paths)
    lengths = np.diff(starts)
    share = counts / counts.sum()
    entropy = -(share * np.log2(share)).sum()
    assert entropy <= (share * lengths).sum() + 1e-9 < entropy + 1 + 1e-6
    for first in range(len(counts)):
        for second in range(len(counts)):
            if counts[first] > counts[second]:
                assert lengths[first] <= lengths[second]


@pytest.mark.parametrize("size", [0, 1])
def test_tree_of_almost_nothing(size):
    starts, points, signs = huffman_tree(np.ones(size, np.int64))
    assert starts.tolist() == [0] * (size + 1)
    assert len(points) == len(signs) == 0
