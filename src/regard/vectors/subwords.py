"""Vectors for unknown words, from the character n-grams that fastText learned.

Source: Bojanowski, Grave, Joulin and Mikolov, "Enriching Word Vectors with Subword Information",
TACL 5 (2017). An n-gram's row is found by the 32-bit FNV-1a hash of its UTF-8 bytes; fastText
extends each byte with its sign before mixing it in, so bytes of 128 and more set the upper bits
too, and a reader has to do the same.
"""

from dataclasses import dataclass
from typing import no_type_check

import numpy as np
from numba import njit


@njit(cache=True, nogil=True, error_model="numpy")
@no_type_check
def _add_ngrams(text, offsets, shortest, longest, buckets, sums, counts):
    """Add the rows of all n-grams of each word text[offsets[w]:offsets[w + 1]] to sums[w]."""
    for word in range(len(offsets) - 1):
        begin, end = offsets[word], offsets[word + 1]
        for start in range(begin, end):
            if text[start] & 0xC0 == 0x80:
                continue
            code = 2166136261
            stop = start
            length = 0
            while stop < end and length < longest:
                length += 1
                more = True
                while more:
                    byte = np.int64(text[stop])
                    signed = byte if byte < 128 else byte | 0xFFFFFF00
                    code = (code ^ signed) * 16777619 & 0xFFFFFFFF
                    stop += 1
                    more = stop < end and text[stop] & 0xC0 == 0x80
                lone_edge = length == 1 and (start == begin or stop == end)
                if length >= shortest and not lone_edge:
                    row = code % len(buckets)
                    for d in range(buckets.shape[1]):
                        sums[word, d] += buckets[row, d]
                    counts[word] += 1


@dataclass(frozen=True)
class Subwords:
    """The n-gram rows of a fastText model.

    `buckets` (N, D) holds the rows; n-grams are of `shortest` to `longest` characters, the marks
    ``<`` and ``>`` around a word counted.
    """

    buckets: np.ndarray
    shortest: int
    longest: int

    def sums(self, words: list[bytes]) -> tuple[np.ndarray, np.ndarray]:
        """The sums of the n-gram rows of each word (W, D), and how many n-grams each has (W,)."""
        marked = [b"<" + word + b">" for word in words]
        text = np.frombuffer(b"".join(marked), np.uint8)
        offsets = np.cumsum([0, *map(len, marked)], dtype=np.int64)
        sums = np.zeros((len(words), self.buckets.shape[1]), np.float32)
        counts = np.zeros(len(words), np.int64)
        _add_ngrams(text, offsets, self.shortest, self.longest, self.buckets, sums, counts)
        return sums, counts

    def vector(self, word: str) -> np.ndarray:
        """The mean of the rows of the n-grams of `word` (D,); zeros for a word too short for any.

        >>> import numpy as np
        >>> Subwords(np.ones((5, 2), np.float32), shortest=3, longest=4).vector("ab").tolist()
        [1.0, 1.0]
        """
        sums, counts = self.sums([word.encode()])
        return sums[0] / max(int(counts[0]), 1)
