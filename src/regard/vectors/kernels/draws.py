"""Random choices: xorshift (Marsaglia 2003, "Xorshift RNGs"), alias sampling (Walker 1977).

One generator a worker, 64 bits of state. Only shifts and exclusive ors, which mean the same to
Numba and to NumPy.
"""

from typing import no_type_check

import numpy as np

from regard.vectors.kernels.compiled import compiled

_LOW = np.uint64(0xFFFFFFFF)
_S7, _S13, _S17, _S32 = np.uint64(7), np.uint64(13), np.uint64(17), np.uint64(32)


@compiled
@no_type_check
def bits(random):
    """The next 64 bits."""
    x = random[0]
    x ^= x << _S13
    x ^= x >> _S7
    x ^= x << _S17
    random[0] = x
    return x


@compiled
@no_type_check
def bits32(random):
    """The next 32 bits, as int64."""
    return np.int64(bits(random) >> _S32)


@compiled
@no_type_check
def below(random, bound):
    """An integer from 0 to ``bound - 1``; `bound` under 2³¹."""
    return (bits32(random) * bound) >> 32


@compiled
@no_type_check
def draw_word(random, alias):
    """A word by the noise distribution."""
    x = bits(random)
    word = (np.int64(x >> _S32) * alias.shape[0]) >> 32
    if np.int64(x & _LOW) <= np.int64(alias[word, 0]):
        return word
    return np.int64(alias[word, 1])


@compiled
@no_type_check
def draw_words(random, alias, negatives, rows, start, count):
    """Draw `negatives` words behind the `count` that ``rows[start:]`` holds; repeats are dropped.

    Returns how many there are then.
    """
    for _ in range(negatives):
        word = draw_word(random, alias)
        known = False
        for j in range(start, start + count):
            known |= rows[j] == word
        if not known:
            rows[start + count] = word
            count += 1
    return count
