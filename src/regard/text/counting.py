"""Distinct tokens: numbered, counted, in memory that grows with them only.

Most tokens are short, and whole numbers are hashed several times as fast as strings: a token of at
most seven UTF-8 bytes is packed into one uint64, its bytes below and their number in the top byte.
"""

import ctypes
import sys
from typing import NamedTuple

import numpy as np
import pyarrow as pa

SHORT = 7
SHARDS = 32
MERGE_AT = 1 << 20
_BELOW = np.array([(1 << (8 * width)) - 1 for width in range(SHORT + 1)], np.uint64)
_MIX = np.uint64(0x9E3779B97F4A7C15)


def give_back() -> None:
    """Hand freed memory back to the system, which Arrow and the C library would rather keep."""
    pa.default_memory_pool().release_unused()
    if sys.platform == "linux" and (trim := getattr(ctypes.CDLL(None), "malloc_trim", None)):
        trim(0)


class Dictionary(NamedTuple):
    """Tokens in two arrays: packed ones (uint64), then those of 8 bytes or more (large strings)."""

    short: pa.Array
    long: pa.Array

    @classmethod
    def of(cls, strings: pa.Array) -> "tuple[Dictionary, np.ndarray]":
        """The dictionary of an array of strings, and which entry each string is."""
        strings = strings.cast(pa.large_string())
        bounds = np.frombuffer(strings.buffers()[1], np.int64)[strings.offset :][: len(strings) + 1]
        widths, is_short = np.diff(bounds), np.diff(bounds) <= SHORT
        data = (strings.buffers()[2] or pa.py_buffer(b"")).to_pybytes() + bytes(8)
        short = pa.array(pack(data, bounds[:-1][is_short], widths[is_short]))
        places = np.where(is_short, np.cumsum(is_short), len(short) + np.cumsum(~is_short)) - 1
        return cls(short, strings.filter(pa.array(~is_short))), places

    def tokens(self) -> pa.Array:
        """All tokens as strings, the short ones first."""
        return pa.concat_arrays([unpack(self.short), self.long])


def pack(data: bytes, starts: np.ndarray, widths: np.ndarray) -> np.ndarray:
    """The tokens ``data[starts[i]:starts[i] + widths[i]]``, of at most 7 bytes, as uint64.

    `data` must go on for 8 bytes behind each start.
    """
    keys = _windows(data)[starts] & _BELOW[widths]
    return keys | (widths.astype(np.uint64) << np.uint64(56))


def unpack(short: pa.Array) -> pa.Array:
    """Packed tokens as strings."""
    letters = np.asarray(short, "<u8").view(np.uint8).reshape(-1, 8)
    widths = letters[:, SHORT]
    data = letters[:, :SHORT][np.arange(SHORT) < widths[:, None]]
    bounds = np.concatenate([[0], np.cumsum(widths, dtype=np.int64)])
    return pa.LargeStringArray.from_buffers(len(short), pa.py_buffer(bounds), pa.py_buffer(data))


class Census:
    """Numbers distinct tokens and counts them.

    Tokens come in batches, each with its dictionary. Dictionaries wait until there are `merge_at`
    entries and half as many as distinct tokens so far; then they are merged in one go, so each
    entry is touched a few times in all. The tokens are kept in `SHARDS` parts by their bytes, the
    short ones in the even, and the parts are merged one by one: a hash table takes many times the
    memory of what it holds. Token i of part p has the number ``i * SHARDS + p`` for ever.
    """

    def __init__(self, merge_at: int = MERGE_AT) -> None:
        self._clear()
        self._merge_at = merge_at
        self._waiting: list[tuple[Dictionary, np.ndarray]] = []
        self._entries = 0

    def __len__(self) -> int:
        return sum(map(len, self._shards))

    def add(self, dictionary: Dictionary, counts: np.ndarray) -> list[np.ndarray]:
        """Counts entry i ``counts[i]`` times; gives the numbers of entries known by now.

        These belong to the dictionaries in the order of adding: none while they wait, several
        arrays once they are merged. `finish` gives the last.
        """
        self._waiting.append((dictionary, counts))
        self._entries += len(counts)
        if self._entries > max(self._merge_at, len(self) // 2):
            return self.finish()
        return []

    def finish(self) -> list[np.ndarray]:
        """Merges what waits; gives the numbers that `add` has not given yet."""
        if not self._waiting:
            return []
        numbers = [np.empty(len(counts), np.int32) for _, counts in self._waiting]
        for kind in (0, 1):
            give_back()
            self._merge(kind, numbers)
        self._waiting, self._entries = [], 0
        return numbers

    @property
    def seen(self) -> int:
        """How many tokens were counted, equal ones too."""
        return sum(int(counts.sum()) for counts in self._counts)

    def total(self) -> tuple[pa.Array, np.ndarray, np.ndarray]:
        """All tokens, how often each occurs, and its number; the census is empty afterwards."""
        order = [*range(0, SHARDS, 2), *range(1, SHARDS, 2)]
        counts = np.concatenate([self._counts[part] for part in order])
        sizes = [len(self._shards[part]) for part in order]
        numbers = [
            np.arange(size, dtype=np.int32) * SHARDS + part
            for size, part in zip(sizes, order, strict=True)
        ]
        short, long = self._shards[0::2], self._shards[1::2]
        self._clear()
        tokens = Dictionary(pa.concat_arrays(short), pa.concat_arrays(long)).tokens()
        return tokens, counts, np.concatenate(numbers)

    def _clear(self) -> None:
        kinds = [pa.uint64(), pa.large_string()] * (SHARDS // 2)
        self._shards = [pa.array([], kind) for kind in kinds]
        self._counts = [np.zeros(0, np.int64) for _ in kinds]

    def _merge(self, kind: int, numbers: list[np.ndarray]) -> None:
        """Merges all short (`kind` 0) or long (1) entries; fills in their `numbers`."""
        entries = pa.concat_arrays([dictionary[kind] for dictionary, _ in self._waiting])
        cuts = [len(dictionary.short) for dictionary, _ in self._waiting]
        mine = [slice(cut, None) if kind else slice(cut) for cut in cuts]
        counts = np.concatenate([c[own] for (_, c), own in zip(self._waiting, mine, strict=True)])
        parts = 2 * (_spread(entries) % np.uint64(SHARDS // 2)) + np.uint64(kind)
        found = np.empty(len(entries), np.int32)
        for part in range(kind, SHARDS, 2):
            rows = np.flatnonzero(parts == part)
            old = self._shards[part]
            coded = pa.concat_arrays([old, entries.take(pa.array(rows))]).dictionary_encode()
            places = coded.indices.to_numpy()
            # Sums in float64 are exact: no count comes near 2**53.
            weights = np.concatenate([self._counts[part], counts[rows]])
            sums = np.bincount(places, weights, len(coded.dictionary))
            self._shards[part], self._counts[part] = coded.dictionary, sums.astype(np.int64)
            found[rows] = places[len(old) :] * SHARDS + part
        ends = np.cumsum([len(dictionary[kind]) for dictionary, _ in self._waiting])
        for array, own, piece in zip(numbers, mine, np.split(found, ends[:-1]), strict=True):
            array[own] = piece


def _spread(entries: pa.Array) -> np.ndarray:
    """A number for each entry, equal for equal entries and else as if drawn (uint64)."""
    if entries.type == pa.uint64():
        keys = entries.to_numpy()
    else:
        bounds = np.frombuffer(entries.buffers()[1], np.int64)[entries.offset :][: len(entries) + 1]
        if not len(entries):
            return np.zeros(0, np.uint64)
        windows = _windows(entries.buffers()[2])
        keys = windows[bounds[:-1]] + _MIX * windows[bounds[1:] - 8]
    return ((keys ^ (keys >> np.uint64(29))) * _MIX) >> np.uint64(60)


def _windows(data: bytes | pa.Buffer) -> np.ndarray:
    """The 8 bytes from each place on, as one uint64."""
    return np.ndarray((len(data) - 7,), "<u8", data, strides=(1,))
