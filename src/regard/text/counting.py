"""Distinct tokens: numbered, counted, in memory that grows with them only.

Most tokens are short, and whole numbers are hashed several times as fast as strings: a token of at
most seven UTF-8 bytes is packed into one uint64, its bytes below and their number in the top byte.
"""

from typing import NamedTuple

import numpy as np
import pyarrow as pa

MERGE_AT = 1 << 20
SHORT = 7
NONE_SHORT = pa.array([], pa.uint64())


class Dictionary(NamedTuple):
    """Tokens in two arrays: the packed ones (uint64), then the others (strings)."""

    short: pa.Array
    long: pa.Array

    def __len__(self) -> int:  # type: ignore[override]
        return len(self.short) + len(self.long)

    def tokens(self) -> pa.Array:
        """All tokens as strings, the short ones first."""
        return pa.concat_arrays([unpack(self.short), self.long.cast(pa.large_string())])


def pack(data: bytes, starts: np.ndarray, widths: np.ndarray) -> np.ndarray:
    """The tokens ``data[starts[i]:starts[i] + widths[i]]``, of at most 7 bytes, as uint64.

    `data` must go on for 8 bytes behind each start.
    """
    windows = np.ndarray((len(data) - 7,), "<u8", data, strides=(1,))
    keys = windows[starts] & _BELOW[widths]
    return keys | (widths.astype(np.uint64) << np.uint64(56))


def unpack(short: pa.Array) -> pa.Array:
    """Packed tokens as strings."""
    keys = np.asarray(short, "<u8")
    letters = keys.view(np.uint8).reshape(-1, 8)
    widths = letters[:, 7]
    data = letters[:, :SHORT][np.arange(SHORT) < widths[:, None]]
    bounds = np.concatenate([[0], np.cumsum(widths, dtype=np.int64)])
    return pa.LargeStringArray.from_buffers(len(keys), pa.py_buffer(bounds), pa.py_buffer(data))


_BELOW = np.array([(1 << (8 * width)) - 1 for width in range(SHORT + 1)], np.uint64)


class Census:
    """Numbers distinct values in the order in which they first come, and counts them.

    Values come in batches, each batch as a dictionary. Dictionaries wait until there are
    `merge_at` entries and as many as distinct values so far; then they are merged in one go, so
    each entry is touched a few times in all.
    """

    def __init__(self, kind: pa.DataType, merge_at: int = MERGE_AT) -> None:
        self.values = pa.array([], kind)
        self.counts = np.zeros(0, np.int64)
        self._merge_at = merge_at
        self._waiting: list[tuple[pa.Array, np.ndarray]] = []
        self._entries = 0

    def add(self, dictionary: pa.Array, counts: np.ndarray) -> list[np.ndarray]:
        """Counts ``dictionary[i]`` ``counts[i]`` times; gives the numbers known by now.

        These are the numbers of the entries of the next dictionaries in the order of adding: none
        while dictionaries wait, several arrays once they are merged. `finish` gives the last.
        """
        self._waiting.append((dictionary.cast(self.values.type), counts))
        self._entries += len(dictionary)
        if self._entries > max(self._merge_at, len(self.values)):
            return self.finish()
        return []

    def finish(self) -> list[np.ndarray]:
        """Merges what waits; gives the numbers that `add` has not given yet."""
        if not self._waiting:
            return []
        dictionaries, counts = zip(*self._waiting, strict=True)
        coded = pa.concat_arrays([self.values, *dictionaries]).dictionary_encode()
        self.values = coded.dictionary
        numbers = coded.indices.to_numpy()
        # Sums in float64 are exact: no count comes near 2**53.
        sums = np.bincount(numbers, np.concatenate([self.counts, *counts]), len(self.values))
        self.counts = sums.astype(np.int64)
        self._waiting, self._entries = [], 0
        ends = np.cumsum([len(dictionary) for dictionary in dictionaries])
        return np.split(numbers[len(numbers) - ends[-1] :], ends[:-1])
