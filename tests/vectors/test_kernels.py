"""The compiled kernels against plain NumPy in float64, number by number, for the same draws."""

import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.vectors.kernels.state import (
    CLIP,
    DONE,
    EXAMPLES,
    PIECE,
    POSITION,
    Corpus,
    Noise,
    Rules,
    Tables,
    Tree,
    aligned,
    make_worker,
)
from regard.vectors.kernels.training import train_words
from regard.vectors.reference import Reference
from regard.vectors.sampling import alias_table, huffman_tree, keep_thresholds

EPSILON = float(np.finfo(np.float32).eps)


def problem(words=53, size=19, lines=60, seed=0, sample=0.05, longest=40):
    random = np.random.default_rng(seed)
    share = 1 / np.arange(1, words + 1)
    offsets = np.concatenate([[0], np.cumsum(random.integers(0, longest, lines))])
    ids = random.choice(words, offsets[-1], p=share / share.sum()).astype(np.int32)
    counts = np.bincount(ids, minlength=words)
    width = -(-size // 16) * 16
    tables = Tables(
        *(aligned((rows, width)) for rows in (words, words, words - 1)),
    )
    for table in tables:
        table[:, :size] = random.normal(size=(len(table), size)) / 2
    corpus = Corpus(
        ids, offsets.astype(np.int64), np.zeros(0, np.int32), keep_thresholds(counts, sample)
    )
    for array in corpus:
        array.flags.writeable = False
    return corpus, tables, Noise(alias_table(counts)), Tree(*huffman_tree(counts))


def rules(corpus, **settings):
    chosen = {
        "cbow": 0, "window": 3, "shrink_window": 1, "negatives": 5, "tree": 0, "shared": 1,
        "mean": 1, "divide": 0, "alpha": 0.05, "min_alpha": 0.001,
        "total": float(len(corpus.ids)),
    }  # fmt: skip
    return Rules(**(chosen | settings))


def run_kernel(rules, corpus, tables, noise, tree, seed=12345, ends=None):
    worker = make_worker(tables.input.shape[1], rules.window, rules.negatives, seed)
    done, halt = np.zeros((1, 8)), np.zeros(1, np.int64)
    for end in ends or [len(corpus.ids)]:
        train_words(rules, corpus, tables, noise, tree, worker, done, 0, end, halt)
    return worker


def plain(tables, size):
    return Tables(*(table[:, :size].astype(np.float64) for table in tables))


def bound(corpus, expected, rate):
    """How far float32 may stray over one pass.

    A row changes at most (2 · window + 1) · (1 + path) times an occurrence. Each change rounds the
    row once, and its step is off by the exponential's 2e-5 of rate / 4 times the other row. Errors
    add up as a random walk.
    """
    largest = max(float(np.abs(table).max()) for table in expected if table.size)
    changes = 7 * 16 * np.bincount(corpus.ids).max()
    return np.sqrt(changes) * largest * (EPSILON + rate / 4 * 2e-5)


COMBINATIONS = [
    pytest.param(cbow, negatives, tree, shared, id=f"{mode}-{loss}-{sharing}")
    for cbow, mode in ((0, "skipgram"), (1, "cbow"))
    for negatives, tree, loss in ((5, 0, "negatives"), (0, 1, "tree"), (7, 1, "both"))
    for shared, sharing in ((1, "shared"), (0, "own"))
]


@pytest.mark.parametrize(("cbow", "negatives", "tree", "shared"), COMBINATIONS)
@pytest.mark.parametrize(("mean", "divide"), [(1, 0), (0, 1)])
def test_kernel_computes_what_the_reference_does(cbow, negatives, tree, shared, mean, divide):
    corpus, tables, noise, paths = problem()
    chosen = rules(
        corpus, cbow=cbow, negatives=negatives, tree=tree, shared=shared, mean=mean, divide=divide
    )
    reference = Reference(chosen, corpus, plain(tables, 19), noise, paths, 12345)
    before = plain(tables, 19)
    worker = run_kernel(chosen, corpus, tables, noise, paths)
    reference.train(0, len(corpus.ids))
    limit = bound(corpus, reference.tables, chosen.alpha)
    for name, mine, expected, old in zip(
        Tables._fields, tables, reference.tables, before, strict=True
    ):
        assert np.abs(mine[:, :19] - expected).max() < limit, name
        assert not mine[:, 19:].any()
        used = {"input": True, "output": negatives > 0, "inner": tree > 0}[name]
        assert (np.abs(expected - old).max() > 100 * limit) == used
    assert worker.counts[EXAMPLES] == reference.examples > 1000
    assert int(worker.random[0]) == reference.draws.state
    # A chance is off by 2e-5 of itself at most, its logarithm by 2e-5, at 13 rows an example.
    np.testing.assert_allclose(
        worker.numbers[1:], reference.losses, atol=13 * 2e-5 * reference.examples
    )


@given(
    size=st.integers(1, 70),
    window=st.integers(1, 9),
    negatives=st.integers(1, 14),
    cbow=st.integers(0, 1),
    shared=st.integers(0, 1),
    shrink=st.integers(0, 1),
    seed=st.integers(1, 2**63),
)
def test_kernel_follows_the_reference_at_any_size(
    size, window, negatives, cbow, shared, shrink, seed
):
    corpus, tables, noise, tree = problem(words=23, size=size, lines=5, seed=seed % 1000)
    chosen = rules(
        corpus,
        window=window,
        negatives=negatives,
        cbow=cbow,
        shared=shared,
        shrink_window=shrink,
        tree=1,
    )
    reference = Reference(chosen, corpus, plain(tables, size), noise, tree, seed)
    run_kernel(chosen, corpus, tables, noise, tree, seed=seed)
    reference.train(0, len(corpus.ids))
    limit = bound(corpus, reference.tables, chosen.alpha) * np.sqrt(window * size)
    for mine, expected in zip(tables, reference.tables, strict=True):
        assert np.abs(mine[:, :size] - expected).max() < limit


def test_stopping_anywhere_changes_nothing():
    results = []
    for ends in (None, [1, 2, 17, 18, 400]):
        corpus, tables, noise, tree = problem()
        ends = ends and [*ends, len(corpus.ids)]
        chosen = rules(corpus, negatives=4, total=3.0 * len(corpus.ids))
        if ends is None:
            cuts = problem()[0].offsets
            ends = [int(end) for end in cuts if end]
        else:
            ends = [int(corpus.offsets[np.searchsorted(corpus.offsets, end)]) for end in ends]
        run_kernel(chosen, corpus, tables, noise, tree, ends=ends)
        results.append([table.copy() for table in tables])
    for first, second in zip(*results, strict=True):
        np.testing.assert_array_equal(first, second)


def test_a_long_line_is_one_line():
    """Every word is learned, and pieces of a line see across their ends."""
    words = 2 * PIECE + 100
    ids = (np.arange(words) % 11).astype(np.int32)
    corpus = Corpus(
        ids, np.array([0, words], np.int64), np.zeros(0, np.int32), np.zeros(0, np.uint32)
    )
    for array in corpus:
        array.flags.writeable = False
    counts = np.bincount(ids)
    tables = Tables(*(aligned((rows, 16)) for rows in (11, 11, 10)))
    noise, tree = Noise(alias_table(counts)), Tree(*huffman_tree(counts))
    chosen = rules(corpus, window=2, shrink_window=0)
    worker = run_kernel(chosen, corpus, tables, noise, tree)
    assert worker.counts[DONE] == worker.counts[POSITION] == words
    # Four contexts a word, but for 2 + 1 that are missing at each end of the whole line.
    assert worker.counts[EXAMPLES] == 4 * words - 6


def test_words_without_a_row_are_passed_over():
    corpus, tables, noise, tree = problem(sample=0.0)
    rows = np.arange(53, dtype=np.int32)
    rows[7] = -1
    without = corpus._replace(rows=rows)
    before = [table.copy() for table in tables]
    chosen = rules(corpus, window=2, negatives=0, tree=1)
    reference = Reference(chosen, without, plain(tables, 19), noise, tree, 5)
    rows.flags.writeable = False
    run_kernel(chosen, without, tables, noise, tree, seed=5)
    reference.train(0, len(corpus.ids))
    np.testing.assert_array_equal(tables.input[7], before[0][7])
    assert np.abs(tables.input[:, :19] - reference.tables.input).max() < 1e-4


def test_large_scores_are_clipped_not_skipped():
    corpus, tables, noise, tree = problem(lines=10)
    for table in tables:
        table *= 40
    chosen = rules(corpus)
    reference = Reference(chosen, corpus, plain(tables, 19), noise, tree, 3)
    worker = run_kernel(chosen, corpus, tables, noise, tree, seed=3)
    reference.train(0, len(corpus.ids))
    assert reference.losses[0] / reference.examples > 1.5 * CLIP
    np.testing.assert_allclose(worker.numbers[1], reference.losses[0], rtol=1e-4)


@pytest.mark.skipif("NUMBA_DISABLE_JIT" in os.environ, reason="is the run without the compiler")
def test_kernels_run_without_the_compiler():
    script = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "import numpy as np, test_kernels as t\n"
        "for cbow in (0, 1):\n"
        "  for shared in (0, 1):\n"
        "    corpus, tables, noise, tree = t.problem(lines=4, longest=9)\n"
        "    chosen = t.rules(corpus, cbow=cbow, shared=shared, tree=1)\n"
        "    reference = t.Reference(chosen, corpus, t.plain(tables, 19), noise, tree, 9)\n"
        "    t.run_kernel(chosen, corpus, tables, noise, tree, seed=9)\n"
        "    reference.train(0, len(corpus.ids))\n"
        "    for mine, expected in zip(tables, reference.tables):\n"
        "      assert abs(mine[:, :19] - expected).max() < 1e-5\n"
        "print('same')\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script, os.path.dirname(__file__)],
        env=os.environ | {"NUMBA_DISABLE_JIT": "1"},
        capture_output=True,
        text=True,
    )
    assert done.stdout == "same\n", done.stderr
