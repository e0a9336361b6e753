"""Numbers for distinct tokens, and how often each occurs, in memory that grows with them only."""

import numpy as np
import pyarrow as pa

MERGE_AT = 1 << 20


class Census:
    """Numbers the distinct tokens in the order in which they first come, and counts them.

    Tokens come in batches, each with its own dictionary. Dictionaries wait until there are
    `merge_at` entries and as many as distinct tokens so far; then they are merged in one go, so
    each entry is touched a few times in all.
    """

    def __init__(self, known: pa.Array | None = None, merge_at: int = MERGE_AT) -> None:
        """`known` tokens, all different, have the first numbers."""
        self.tokens = pa.array([], pa.large_string()) if known is None else known
        self.counts = np.zeros(len(self.tokens), np.int64)
        self._merge_at = merge_at
        self._waiting: list[tuple[pa.Array, np.ndarray]] = []
        self._entries = 0

    def add(self, dictionary: pa.Array, counts: np.ndarray) -> list[np.ndarray]:
        """Counts ``dictionary[i]`` ``counts[i]`` times; gives the numbers known by now.

        These are the numbers of the entries of the next dictionaries in the order of adding: none
        while dictionaries wait, several arrays once they are merged. `finish` gives the last.
        """
        self._waiting.append((dictionary.cast(pa.large_string()), counts))
        self._entries += len(dictionary)
        if self._entries > max(self._merge_at, len(self.tokens)):
            return self.finish()
        return []

    def finish(self) -> list[np.ndarray]:
        """Merges what waits; gives the numbers that `add` has not given yet."""
        if not self._waiting:
            return []
        dictionaries, counts = zip(*self._waiting, strict=True)
        coded = pa.concat_arrays([self.tokens, *dictionaries]).dictionary_encode()
        self.tokens = coded.dictionary
        numbers = coded.indices.to_numpy()
        # Sums in float64 are exact: no count comes near 2**53.
        sums = np.bincount(numbers, np.concatenate([self.counts, *counts]), len(self.tokens))
        self.counts = sums.astype(np.int64)
        self._waiting, self._entries = [], 0
        ends = np.cumsum([len(dictionary) for dictionary in dictionaries])
        return np.split(numbers[len(numbers) - ends[-1] :], ends[:-1])
