"""The walk over the words of a corpus, the one kernel that Python calls."""

from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import no_type_check

import numpy as np
from numba import njit

from regard.vectors.kernels.cbow import learn_cbow
from regard.vectors.kernels.compiled import OPTIONS, compiled
from regard.vectors.kernels.draws import bits32
from regard.vectors.kernels.skipgram import learn_skipgram
from regard.vectors.kernels.state import DONE, PIECE, POSITION, RATE, RATE_AT, RATE_EVERY


@compiled
@no_type_check
def take(corpus, random, place):
    """The row of the word at `place`; -1 if it is passed over, by its row or by subsampling."""
    word = np.int64(corpus.ids[place])
    if corpus.rows.size:
        word = np.int64(corpus.rows[word])
    if word >= 0 and corpus.keep.size and bits32(random) > np.int64(corpus.keep[word]):
        return np.int64(-1)
    return word


@compiled
@no_type_check
def keep_words(rules, corpus, worker, begin, end, line_begin, line_end):
    """Subsample the words ``begin`` to ``end - 1`` of a line into ``worker.kept``.

    Where the line goes on to either side, up to a window of kept words from there comes along as
    context. Returns the number of words kept and the first and the end of the centers among them.
    """
    kept = 0
    place = begin - 1
    while place >= line_begin and kept < rules.window:
        word = take(corpus, worker.random, place)
        if word >= 0:
            worker.kept[kept] = word
            kept += 1
        place -= 1
    for i in range(kept // 2):
        j = kept - 1 - i
        worker.kept[i], worker.kept[j] = worker.kept[j], worker.kept[i]
    first = kept
    for place in range(begin, end):
        word = take(corpus, worker.random, place)
        if word >= 0:
            worker.kept[kept] = word
            kept += 1
    last = kept
    place = end
    while place < line_end and kept < last + rules.window:
        word = take(corpus, worker.random, place)
        if word >= 0:
            worker.kept[kept] = word
            kept += 1
        place += 1
    return kept, first, last


@compiled
@no_type_check
def set_rate(rules, worker, progress):
    """The rate falls linearly with the words that all workers have done."""
    done = 0.0
    for i in range(progress.shape[0]):
        done += progress[i, 0]
    rate = rules.alpha - (rules.alpha - rules.min_alpha) * done / rules.total
    worker.numbers[RATE] = max(rules.min_alpha, rate)
    worker.counts[RATE_AT] = worker.counts[DONE] + RATE_EVERY


@no_type_check
def _compile(digest: str) -> Callable:
    """The kernel; Numba's cache tells it by what it closes over, `digest` among it."""

    @njit(cache=True, **OPTIONS)
    def train_words(rules, corpus, tables, noise, tree, worker, progress, index, end, halt):
        if len(digest) == 0:
            return
        counts = worker.counts
        line = np.searchsorted(corpus.offsets, counts[POSITION], side="right") - 1
        while counts[POSITION] < end and halt[0] == 0:
            begin = counts[POSITION]
            while corpus.offsets[line + 1] <= begin:
                line += 1
            line_end = corpus.offsets[line + 1]
            stop = min(line_end, end, begin + PIECE)
            if counts[DONE] >= counts[RATE_AT]:
                set_rate(rules, worker, progress)
            kept, first, last = keep_words(
                rules, corpus, worker, begin, stop, corpus.offsets[line], line_end
            )
            if rules.cbow:
                learn_cbow(rules, tables, noise, tree, worker, kept, first, last)
            else:
                learn_skipgram(rules, tables, noise, tree, worker, kept, first, last)
            counts[POSITION] = stop
            counts[DONE] += stop - begin
            progress[index, 0] = counts[DONE]

    return train_words


def _digest() -> str:
    sources = sorted(Path(__file__).parent.glob("*.py"))
    return sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()


train_words = _compile(_digest())
