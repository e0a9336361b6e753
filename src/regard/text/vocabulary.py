"""The tokens a model knows, each with its id: special tokens first, then the most frequent."""

# pyright: reportAttributeAccessIssue=false
# pyarrow.compute makes its functions when it is imported.

import hashlib
import json
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from typing import IO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import ArrayLike

from regard.errors import DataError, OptionError, ShapeError, StorageError
from regard.text.counting import Census, Dictionary
from regard.text.segmenters._segmenter import to_arrow
from regard.text.storage import new_file

PADDING = "<pad>"
UNKNOWN = "<unk>"
SPECIALS = (PADDING, UNKNOWN)
_SLICE = 1 << 16


class Vocabulary:
    """Tokens and ids, one to one: token i is ``tokens[i]``.

    `specials` stand first. ``<unk>`` among them makes every other token known by that id;
    without it, unknown tokens are dropped when encoding.

    >>> vocabulary = Vocabulary.count([["to", "be", "or"], ["not", "to", "be"]], min_count=2)
    >>> vocabulary.tokens
    ['<pad>', '<unk>', 'be', 'to']
    >>> vocabulary.encode(["be", "here"])
    array([2, 1], dtype=int32)
    """

    def __init__(
        self,
        tokens: Sequence[str] | pa.Array,
        counts: ArrayLike | None = None,
        specials: Sequence[str] = (),
    ) -> None:
        """`tokens` without the specials; `counts` of the specials and the tokens, int64."""
        if isinstance(specials, str):
            raise OptionError(f"specials= takes a list of tokens; it got the string {specials!r}")
        array = to_arrow(list(tokens)) if isinstance(tokens, Sequence) else tokens
        self._hold(array.cast(pa.large_string()), counts, specials)
        if len(self._array.unique()) < len(self):
            repeated = pc.filter(t := self._array.value_counts(), pc.greater(t.field("counts"), 1))
            raise DataError(f"token {repeated[0]['values'].as_py()!r} stands twice in a vocabulary")

    def _hold(self, array: pa.Array, counts: ArrayLike | None, specials: Sequence[str]) -> None:
        self.specials = tuple(specials)
        self._array = pa.concat_arrays([pa.array(self.specials, pa.large_string()), array])
        size = len(self._array)
        self.counts = np.asarray(np.zeros(size) if counts is None else counts, np.int64)
        if self.counts.shape != (size,):
            raise OptionError(f"{size} tokens (with specials) and {len(self.counts)} counts")

    @classmethod
    def count(
        cls,
        texts: Iterable[Iterable[str]],
        min_count: int = 1,
        max_size: int | None = None,
        specials: Sequence[str] = SPECIALS,
    ) -> "Vocabulary":
        """The vocabulary of tokenized texts, read once and never held together.

        Tokens seen less than `min_count` times are left out; `max_size` limits the length, special
        tokens included. Order: special tokens, then by count, then by token.
        """
        stream = chain.from_iterable(texts)
        census = Census()
        while part := list(islice(stream, 1 << 20)):
            coded = to_arrow(part).dictionary_encode()
            dictionary, places = Dictionary.of(coded.dictionary)
            counts = np.zeros(len(places), np.int64)
            counts[places] = np.bincount(coded.indices)
            census.add(dictionary, counts)
        census.finish()
        tokens, counts, _ = census.total()
        return cls.from_counts(tokens, counts, min_count, max_size, specials)[0]

    @classmethod
    def from_counts(
        cls,
        tokens: pa.Array,
        counts: np.ndarray,
        min_count: int,
        max_size: int | None,
        specials: Sequence[str],
    ) -> "tuple[Vocabulary, np.ndarray]":
        """The vocabulary of distinct tokens counted before, and the id of each (−1: none).

        ``<unk>`` gets the count of all that are left out.
        """
        check_limits(min_count, max_size, specials)
        names = pa.array(specials, pa.large_string())
        special = np.flatnonzero(pc.is_in(tokens, value_set=names))
        wanted = counts >= min_count
        wanted[special] = False
        rows = np.flatnonzero(wanted)
        table = pa.table({"token": tokens.take(pa.array(rows)), "count": counts[rows]})
        order = pc.sort_indices(table, [("count", "descending"), ("token", "ascending")])
        del table
        rows = rows[order][: None if max_size is None else max_size - len(specials)]
        unknown = list(specials).index(UNKNOWN) if UNKNOWN in specials else -1
        ids = np.full(len(tokens), unknown, np.int32)
        ids[rows] = np.arange(len(specials), len(specials) + len(rows))
        for row in special.tolist():
            ids[row] = list(specials).index(tokens[row].as_py())
        all_counts = np.bincount(ids[ids >= 0], counts[ids >= 0], len(specials) + len(rows))
        # Distinct as they are, the tokens are spared the check, whose hash table would take more
        # memory than all the rest.
        made = cls.__new__(cls)
        made._hold(tokens.take(pa.array(rows)), all_counts, specials)
        return made, ids

    @cached_property
    def tokens(self) -> list[str]:
        """All tokens, in the order of their ids."""
        return self._array.to_pylist()

    @cached_property
    def _index(self) -> "_Index":
        index = _Index(zip(self.tokens, range(len(self)), strict=True))
        index.missing = -1 if self.unknown is None else self.unknown
        return index

    @property
    def unknown(self) -> int | None:
        """The id of ``<unk>``, or None."""
        return self._special(UNKNOWN)

    @property
    def padding(self) -> int | None:
        """The id of ``<pad>``, or None."""
        return self._special(PADDING)

    def _special(self, token: str) -> int | None:
        return self.specials.index(token) if token in self.specials else None

    def __len__(self) -> int:
        return len(self._array)

    def __contains__(self, token: object) -> bool:
        return token in self._index

    def __getitem__(self, token: str) -> int:
        """The id of `token`; that of ``<unk>`` for any other, `DataError` where there is none."""
        found = self._index[token]
        if found < 0:
            raise DataError(f"token {token!r} is not in the vocabulary of {len(self)} tokens")
        return found

    def encode(self, tokens: Iterable[str]) -> np.ndarray:
        """The ids (int32) of `tokens`; unknown ones become ``<unk>`` or, without it, go."""
        ids = np.fromiter(map(self._index.__getitem__, tokens), np.int32)
        return ids if self.unknown is not None else ids[ids >= 0]

    def encode_array(self, tokens: pa.Array) -> np.ndarray:
        """The ids (int32) of an Arrow array of tokens: −1 for those that `encode` drops."""
        found = pc.index_in(tokens.cast(pa.large_string()), value_set=self._array)
        return found.fill_null(-1 if self.unknown is None else self.unknown).to_numpy()

    def decode(self, ids: ArrayLike) -> list[str]:
        """The tokens of `ids`."""
        ids = np.asarray(ids, None if np.size(ids) else np.int64)
        if ids.ndim != 1 or ids.dtype.kind not in "iu":
            raise ShapeError(
                f"decode takes a row of whole numbers; it got {ids.dtype} of shape {ids.shape}"
            )
        if ids.size and (ids.min() < 0 or ids.max() >= len(self)):
            wrong = ids[(ids < 0) | (ids >= len(self))].flat[0]
            raise OptionError(f"id {wrong} is not in the vocabulary of {len(self)} tokens")
        tokens = self.tokens
        return [tokens[i] for i in ids.tolist()]

    def save(self, path: str | Path) -> None:
        """Write the vocabulary to `path` as JSON; the file appears whole or not at all."""
        with new_file(path) as new, open(new, "w", encoding="utf-8") as file:
            self.write(file)

    def write(self, file: IO[str]) -> None:
        """Write the JSON to an open file, some tokens at a time."""
        file.write('{"specials": ' + json.dumps(self.specials, ensure_ascii=False))
        file.write(',\n"tokens": [')
        body = self._array[len(self.specials) :]
        for start in range(0, len(body), _SLICE):
            part = json.dumps(body[start : start + _SLICE].to_pylist(), ensure_ascii=False)
            file.write((", " if start else "") + part[1:-1])
        file.write('],\n"counts": [')
        for start in range(0, len(self), _SLICE):
            part = json.dumps(self.counts[start : start + _SLICE].tolist())
            file.write((", " if start else "") + part[1:-1])
        file.write("]}\n")

    @classmethod
    def load(cls, path: str | Path) -> "Vocabulary":
        """Read a vocabulary that `save` wrote; `DataError` for any other file."""
        try:
            found = json.loads(Path(path).read_bytes())
            return cls(found["tokens"], found["counts"], found["specials"])
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise StorageError(f"cannot read {path}: {reason}") from None
        except (ValueError, TypeError, KeyError, pa.ArrowException) as error:
            raise DataError(f"{path} is not a vocabulary of regard: {error}") from None

    def fingerprint(self) -> str:
        """A hash of the tokens and their order."""
        digest = hashlib.sha256(json.dumps(self.specials).encode())
        for start in range(0, len(self), _SLICE):
            digest.update(json.dumps(self._array[start : start + _SLICE].to_pylist()).encode())
        return digest.hexdigest()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Vocabulary):
            return NotImplemented
        same = self.specials == other.specials and self._array.equals(other._array)
        return same and np.array_equal(self.counts, other.counts)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        shown = ", ".join(map(repr, self._array[:6].to_pylist()))
        return f"Vocabulary({len(self)} tokens: {shown}{', …' if len(self) > 6 else ''})"


class _Index(dict[str, int]):
    missing = -1

    def __missing__(self, token: str) -> int:
        return self.missing


def check_limits(min_count: int, max_size: int | None, specials: Sequence[str]) -> None:
    """`OptionError` for limits that no vocabulary can meet."""
    if min_count < 1:
        raise OptionError(f"min_count must be at least 1; it is {min_count}")
    if len(set(specials)) < len(specials):
        raise OptionError(f"specials= names a token twice: {', '.join(specials)}")
    if max_size is not None and max_size <= len(specials):
        raise OptionError(
            f"max_size must be more than the {len(specials)} special tokens; it is {max_size}"
        )
