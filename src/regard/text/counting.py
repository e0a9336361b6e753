"""How often each token occurs, in memory that grows with the distinct tokens only."""

import numpy as np
import pyarrow as pa

MERGE_AT = 1 << 20


class Counts:
    """Adds up counts of tokens that come in batches.

    Batches are kept until there are as many rows as distinct tokens so far (and `MERGE_AT`), then
    merged: each row is touched a few times in all.
    """

    def __init__(self) -> None:
        self._merged = _table(pa.array([], pa.large_string()), np.zeros(0, np.int64))
        self._waiting: list[pa.Table] = []
        self._rows = 0

    def add(self, tokens: pa.Array, counts: np.ndarray) -> None:
        """Count each of `tokens`, all different, as many times as `counts` says."""
        self._waiting.append(_table(tokens.cast(pa.large_string()), counts))
        self._rows += len(tokens)
        if self._rows > max(MERGE_AT, len(self._merged)):
            self._merge()

    def total(self) -> pa.Table:
        """Columns `token` and `count`, most frequent first, equal counts by token."""
        self._merge()
        order = [("count", "descending"), ("token", "ascending")]
        return self._merged.sort_by(order)

    def _merge(self) -> None:
        table = pa.concat_tables([self._merged, *self._waiting]).combine_chunks()
        self._waiting, self._rows = [], 0
        coded = table["token"].combine_chunks().dictionary_encode()
        # Sums in float64 are exact: no count comes near 2**53.
        summed = np.bincount(coded.indices, table["count"], len(coded.dictionary))
        self._merged = _table(coded.dictionary, summed.astype(np.int64))


def _table(tokens: pa.Array, counts: np.ndarray) -> pa.Table:
    return pa.table({"token": tokens, "count": pa.array(counts, pa.int64())})
