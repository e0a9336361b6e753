"""Random choices: xorshift (Marsaglia 2003, "Xorshift RNGs"), alias sampling (Walker 1977).

Two generators a worker, each of 64 bits: the first for subsampling and windows, the second for
negatives, which are drawn long before they are taken, so that their rows are on the way. Only
shifts and exclusive ors, which mean the same to Numba and to NumPy.
"""

from typing import no_type_check

import numpy as np

from regard.vectors.kernels.compiled import compiled
from regard.vectors.kernels.simd import prefetch
from regard.vectors.kernels.state import AHEAD, DRAWN, DRAWS, TAKEN

_LOW = np.uint64(0xFFFFFFFF)
_S7, _S13, _S17, _S32 = np.uint64(7), np.uint64(13), np.uint64(17), np.uint64(32)


@compiled
@no_type_check
def bits(random, which):
    """The next 64 bits of a generator."""
    x = random[which]
    x ^= x << _S13
    x ^= x >> _S7
    x ^= x << _S17
    random[which] = x
    return x


@compiled
@no_type_check
def bits32(random):
    """The next 32 bits of the first generator, as int64."""
    return np.int64(bits(random, 0) >> _S32)


@compiled
@no_type_check
def below(random, bound):
    """An integer from 0 to ``bound - 1``; `bound` under 2³¹."""
    return (bits32(random) * bound) >> 32


@compiled
@no_type_check
def draw_window(rules, worker, kept, center):
    """The first and the end of the window of a center in ``worker.kept``."""
    reach = rules.window
    if rules.shrink_window:
        reach -= below(worker.random, rules.window)
    return max(0, center - reach), min(kept, center + reach + 1)


@compiled
@no_type_check
def draw_ahead(worker, alias):
    """Draw `DRAWS` more words by the noise distribution."""
    drawn = worker.counts[DRAWN]
    for place in range(drawn & (2 * DRAWS - 1), (drawn & (2 * DRAWS - 1)) + DRAWS):
        x = bits(worker.random, 1)
        word = (np.int64(x >> _S32) * alias.shape[0]) >> 32
        other = np.int64(alias[word, 1])
        worker.drawn[place] = word if np.int64(x & _LOW) <= np.int64(alias[word, 0]) else other
    worker.counts[DRAWN] = drawn + DRAWS


@compiled
@no_type_check
def take_negatives(worker, alias, table, negatives, word):
    """Put `word` and then `negatives` drawn words into ``worker.rows``; repeats are dropped.

    Returns how many there are. Rows of `table` are asked for when `AHEAD` words will be taken
    before theirs.
    """
    rows = worker.rows
    rows[0] = word
    count = 1
    for _ in range(negatives):
        taken = worker.counts[TAKEN]
        if taken + AHEAD >= worker.counts[DRAWN]:
            draw_ahead(worker, alias)
        prefetch(table, worker.drawn[(taken + AHEAD) & (2 * DRAWS - 1)])
        word = worker.drawn[taken & (2 * DRAWS - 1)]
        worker.counts[TAKEN] = taken + 1
        known = False
        for j in range(count):
            known |= rows[j] == word
        if not known:
            rows[count] = word
            count += 1
    return count
