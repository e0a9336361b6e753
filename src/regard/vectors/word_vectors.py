"""Words and their vectors: look up, compare, find neighbors, solve analogies, save and load.

Similarity is the cosine of the angle between two vectors; an all-zero vector is similar to
nothing (0). Analogies are solved by vector offsets (3CosAdd): Mikolov, Yih and Zweig, "Linguistic
Regularities in Continuous Space Word Representations" (NAACL 2013).
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from regard.errors import DataError, OptionError, ShapeError
from regard.vectors import formats
from regard.vectors.count_file import read_counts, write_counts
from regard.vectors.formats._files import check_place
from regard.vectors.formats._format import Reading, Table, check_words
from regard.vectors.gensim_names import GensimNames
from regard.vectors.search import keep_best
from regard.vectors.subwords import Subwords

if TYPE_CHECKING:
    import torch

_BLOCK = 1 << 22
_SPELLINGS = 100_000
_SCANS = 50


class Neighbor(NamedTuple):
    """A word and its similarity to what was asked, from -1 to 1."""

    token: str
    similarity: float


class UnknownWordError(DataError, KeyError):
    """A word that the table does not hold; the message names near spellings."""

    __str__ = Exception.__str__


class WordVectors(GensimNames):
    """A table of `tokens`, each once, and their vectors `matrix` (V, D).

    `counts` (V,) says how often each token occurred, `extra` holds named arrays and plain values
    that are saved along, `subwords` gives tokens outside the table a vector. The matrix is neither
    copied nor written to: it may be memory-mapped and larger than memory. Change vectors with
    `update` or ``vectors["词"] = …``.

    >>> import numpy as np
    >>> vectors = WordVectors(["cat", "dog", "car"], np.array([[1, 0.2], [0.9, 0.3], [0, 1]]))
    >>> vectors.nearest("cat", top=1)[0].token
    'dog'
    """

    def __init__(
        self,
        tokens: Sequence[str] | pa.LargeStringArray,
        matrix: np.ndarray | Sequence[Sequence[float]],
        counts: np.ndarray | Sequence[int] | None = None,
        extra: dict[str, Any] | None = None,
        *,
        subwords: Subwords | None = None,
    ):
        if not isinstance(matrix, np.ndarray):
            matrix = _as_matrix(matrix)
        counts = None if counts is None else np.asarray(counts)
        if matrix.ndim != 2 or len(matrix) != len(tokens):
            raise ShapeError(
                f"the matrix of {len(tokens)} words must be of shape ({len(tokens)}, size); "
                f"it is of shape {matrix.shape}"
            )
        if not np.issubdtype(matrix.dtype, np.floating):
            raise ShapeError(f"the matrix must hold floating-point numbers, not {matrix.dtype}")
        if counts is not None and np.shape(counts) != (len(tokens),):
            raise ShapeError(
                f"counts must be one number for each of {len(tokens)} words; their shape is "
                f"{np.shape(counts)}"
            )
        if not isinstance(tokens, pa.LargeStringArray):
            _check_once(tokens)
        self._tokens = tokens
        self._matrix = matrix
        self.counts = counts
        self.extra = extra or {}
        self.subwords = subwords
        self._rows_by_token: dict[str, int] | None = None
        self._norms: np.ndarray | None = None
        self._scans = 0

    # Files

    @classmethod
    def load(
        cls,
        path: str | Path,
        *,
        format: str | None = None,
        limit: int | None = None,
        errors: str = "strict",
        dtype: str | np.dtype | type | None = None,
        counts: str | Path | None = None,
    ) -> WordVectors:
        """The word vectors in the file `path`, whose format its content tells.

        `limit` reads the first rows only; `dtype` converts (float16, float32 or float64; text is
        read as float32 unless told otherwise). ``errors="strict"`` refuses a damaged file with a
        `DataError` that names the line; ``"replace"`` and ``"ignore"`` leave damaged rows out with
        a warning. `counts` names a file of ``word count`` lines.
        """
        path = Path(path)
        if limit is not None and (not isinstance(limit, int | np.integer) or limit < 0):
            raise OptionError(f"limit must be a whole number, 0 or more, not {limit!r}")
        if errors not in ("strict", "replace", "ignore"):
            raise OptionError(f"errors must be 'strict', 'replace' or 'ignore', not {errors!r}")
        reading = Reading(limit, errors, _float_type(dtype))
        recognized = formats.recognize(path) if format is None else formats.create(format)
        table = recognized.read(path, reading)
        vectors = cls(
            table.tokens, table.matrix, table.counts, table.extra, subwords=table.subwords
        )
        if counts is not None:
            known = read_counts(counts, errors)
            missing = [token for token in vectors.tokens if token not in known]
            if missing and errors == "strict":
                raise DataError(
                    f"{counts} has no count for {len(missing)} of the {len(vectors)} words, such "
                    f"as {missing[0]!r}; load with errors='replace' to count them as 0"
                )
            vectors.counts = np.array([known.get(token, 0) for token in vectors.tokens], np.int64)
        return vectors

    def save(
        self,
        path: str | Path,
        *,
        format: str | None = None,
        dtype: str | np.dtype | type | None = None,
        counts: str | Path | None = None,
    ) -> None:
        """Write the table to `path`, whole or not at all, in the format that its suffix asks for.

        `.safetensors` keeps everything; the others keep words and numbers (word2vec's binary as
        float32 unless `dtype` says otherwise). `counts` names a file for ``word count`` lines.
        """
        path = Path(path)
        if counts is not None and self.counts is None:
            raise OptionError(f"no counts to write to {counts}: this table has none")
        target = formats.for_writing(path, format)
        kind = _float_type(dtype)
        if kind is not None and hasattr(target, "dtype"):
            target = formats.create("word2vec_binary", dtype=kind.name)
        matrix = self._matrix if kind is None else self._matrix.astype(kind, copy=False)
        table = Table(self._tokens, matrix, self.counts, self.extra, self.subwords)
        if counts is not None:
            check_words(table, Path(counts))
            check_place(Path(counts))
        target.write(table, path)
        if counts is not None and self.counts is not None:
            write_counts(counts, self.tokens, self.counts)

    # Words and rows

    @property
    def tokens(self) -> list[str]:
        """The words, in the order of the rows."""
        if not isinstance(self._tokens, list):
            lazy: Any = self._tokens
            self._tokens = list(lazy.to_pylist() if isinstance(lazy, pa.Array) else lazy)
        return self._tokens

    @property
    def matrix(self) -> np.ndarray:
        """The vectors (V, D), read-only: change them with `update`."""
        view = self._matrix.view()
        view.flags.writeable = False
        return view

    @property
    def size(self) -> int:
        """D, the length of a vector."""
        return self._matrix.shape[1]

    @property
    def rows(self) -> dict[str, int]:
        """The row of each word; of a repeated word, the first."""
        if self._rows_by_token is None:
            tokens = self.tokens
            last = len(tokens) - 1
            pairs = zip(reversed(tokens), range(last, -1, -1), strict=True)
            self._rows_by_token = dict(pairs)
            if len(self._rows_by_token) < len(tokens):
                warnings.warn(
                    f"{len(tokens) - len(self._rows_by_token)} of {len(tokens)} rows repeat a "
                    "word; a word means the first row that bears it",
                    stacklevel=2,
                )
        return self._rows_by_token

    def row(self, token: str) -> int | None:
        """The row of `token`, None if the table does not hold it.

        Words that are mapped from a file are looked through a few times before they are all
        numbered, which takes as long as some hundred looks: a table of millions answers at once.
        """
        mapped = self._tokens
        if not isinstance(mapped, pa.LargeStringArray) or self._scans >= _SCANS:
            return self.rows.get(token)
        self._scans += 1
        try:
            row = pc.index(mapped, pa.scalar(token, pa.large_string())).as_py()
        except UnicodeEncodeError:
            return None
        return None if row < 0 else row

    @property
    def norms(self) -> np.ndarray:
        """The length of each vector (V,), computed block by block and kept until an update."""
        if self._norms is None:
            norms = np.empty(len(self), self._compute_dtype)
            for start, block in self.blocks():
                norms[start : start + len(block)] = np.sqrt(np.einsum("ij,ij->i", block, block))
            self._norms = norms
        return self._norms

    def __len__(self) -> int:
        return len(self._matrix)

    def __contains__(self, token: object) -> bool:
        return isinstance(token, str) and self.row(token) is not None

    def __iter__(self) -> Iterator[str]:
        return iter(self.tokens)

    def __repr__(self) -> str:
        with_subwords = " with subwords" if self.subwords else ""
        return f"WordVectors({len(self)} words x {self.size}, {self._matrix.dtype}{with_subwords})"

    def __getitem__(self, token: str | list[str]) -> np.ndarray:
        """The vector of a word (D,), or of a list of words (N, D).

        A word outside the table gets the vector of its n-grams if there are `subwords`; otherwise
        `UnknownWordError`.
        """
        if isinstance(token, str):
            return self._vectors([token])[0]
        return self._vectors(token)

    def get(self, token: str, default: np.ndarray | None = None) -> np.ndarray | None:
        """The vector of `token`, or `default` if it has none."""
        return self[token] if token in self or self.subwords else default

    def _vectors(self, tokens: Sequence[str]) -> np.ndarray:
        if not self.subwords:
            self._require(tokens)
        vectors = np.empty((len(tokens), self.size), self._matrix.dtype)
        for at, token in enumerate(tokens):
            row = self.row(token)
            if row is not None:
                vectors[at] = self._matrix[row]
            elif self.subwords:
                vectors[at] = self.subwords.vector(token)
        return vectors

    def _require(self, tokens: Sequence[str]) -> None:
        unknown = [token for token in dict.fromkeys(tokens) if self.row(token) is None]
        if unknown:
            raise UnknownWordError(
                "; ".join(self._unknown(token) for token in unknown[:5])
                + (f"; and {len(unknown) - 5} more" if len(unknown) > 5 else "")
            )

    def _unknown(self, token: str) -> str:
        """What to say of a word that is not in the table, near spellings named."""
        variants = {token.casefold(), token.strip().casefold()}
        letters = set(token.casefold())
        near: list[str] = []
        alike: list[str] = []
        for known in self.tokens[:_SPELLINGS]:
            folded = known.casefold()
            if folded in variants:
                near.append(known)
            elif abs(len(known) - len(token)) <= 2 and not letters.isdisjoint(folded):
                alike.append(known)
        near += get_close_matches(token, alike, n=3, cutoff=0.6)
        hint = f"; near spellings: {', '.join(near[:3])}" if near else ""
        return f"no vector for {token!r} among {len(self)} words{hint}"

    # Updates

    def update(self, tokens: str | Sequence[str], matrix: np.ndarray) -> None:
        """Set the vectors of `tokens` to the rows of `matrix` (N, D), adding unknown words.

        New words are put at the end, with a count of 0 if there are counts. The norms are computed
        anew when next needed. A memory-mapped or read-only table is first copied into memory; so
        is any table that grows: add many words at once.
        """
        tokens = [tokens] if isinstance(tokens, str) else list(tokens)
        values = np.atleast_2d(matrix)
        if values.shape != (len(tokens), self.size):
            raise ShapeError(
                f"the vectors of {len(tokens)} words must be of shape ({len(tokens)}, "
                f"{self.size}); they are of shape {np.shape(matrix)}"
            )
        rows = self.rows
        new = [token for token in dict.fromkeys(tokens) if token not in rows]
        if new:
            room = np.zeros((len(new), self.size), self._matrix.dtype)
            self._matrix = np.concatenate([self._matrix, room])
            if self.counts is not None:
                self.counts = np.concatenate([self.counts, np.zeros(len(new), self.counts.dtype)])
            rows |= zip(new, range(len(self.tokens), len(self._matrix)), strict=True)
            self._tokens = [*self.tokens, *new]
        elif not self._matrix.flags.writeable:
            self._matrix = np.array(self._matrix)
        for token, value in zip(tokens, values, strict=True):
            self._matrix[rows[token]] = value
        self.refresh()

    def __setitem__(self, token: str | list[str], vector: np.ndarray) -> None:
        """Set or add the vector of one word, or the vectors of a list of words."""
        self.update(token, vector)

    def refresh(self) -> None:
        """Forget the norms. Needed after the caller's own array, given as `matrix`, was changed."""
        self._norms = None

    # Comparing

    def similarity(
        self, a: str | np.ndarray | Sequence[str], b: str | np.ndarray | Sequence[str]
    ) -> float | np.ndarray:
        """The cosine of two words or vectors; of two lists of one length, pair by pair (N,)."""
        left, _ = self.unit(a)
        right, _ = self.unit(b)
        if len(left) != len(right):
            raise ShapeError(
                f"similarity compares pairs: {len(left)} words on one side, {len(right)} on the "
                "other"
            )
        cosines = np.einsum("ij,ij->i", left, right)
        return float(cosines[0]) if _is_single(a) and _is_single(b) else cosines

    def nearest(
        self,
        query: str | np.ndarray | Sequence[str],
        top: int = 10,
        *,
        restrict: int | np.integer | Sequence[str] | None = None,
    ) -> list[Neighbor] | list[list[Neighbor]]:
        """The `top` words most similar to a word or to a vector (D,), the word itself left out.

        A list of words, or vectors (N, D), gives a list for each. `restrict` looks among the first
        so many rows (the most frequent words), or among the words given.
        """
        units, known = self.unit(query)
        found = self._search(units, top, restrict, known)
        return found[0] if _is_single(query) else found

    def analogy(
        self,
        a: str | None = None,
        b: str | None = None,
        c: str | None = None,
        top: int = 10,
        *,
        positive: Sequence[str | np.ndarray] = (),
        negative: Sequence[str | np.ndarray] = (),
        restrict: int | np.integer | Sequence[str] | None = None,
    ) -> list[Neighbor]:
        """`a` is to `b` as `c` is to …: the words nearest to b - a + c, of unit vectors.

        Or the words nearest to the sum of `positive` less that of `negative`. The words given are
        left out.
        """
        if a is not None and b is not None and c is not None and not positive and not negative:
            positive, negative = [b, c], [a]
        elif a is not None or b is not None or c is not None or not (positive or negative):
            raise OptionError(
                "an analogy takes three words (a is to b as c is to …), or positive=… and "
                "negative=…"
            )
        total = np.zeros(self.size, self._compute_dtype)
        used: list[int] = []
        for sign, items in ((1, positive), (-1, negative)):
            for item in items:
                units, known = self.unit(item)
                total += sign * units[0]
                used += known[0]
        return self._search(_normalized(total[None]), top, restrict, [used])[0]

    def odd_one_out(self, tokens: Sequence[str]) -> str:
        """The word farthest from the mean direction of `tokens`."""
        if len(tokens) == 0:
            raise OptionError("odd_one_out needs words; none were given")
        units, _ = self.unit(list(tokens))
        mean = _normalized(units.mean(0, keepdims=True))[0]
        return tokens[int(np.argmin(units @ mean))]

    def to_embedding(
        self,
        vocabulary: Any | Sequence[str] | None = None,
        *,
        missing: str = "normal",
        freeze: bool = False,
        seed: int = 0,
    ) -> torch.nn.Embedding:
        """A `torch.nn.Embedding` whose row i is the vector of token i of `vocabulary`.

        `vocabulary` is a `regard.text.Vocabulary` or a list of tokens; None takes the table's own
        words. Tokens without a vector get, by `missing`: ``"normal"`` random numbers with the mean
        and spread that each dimension has in the table (the same for the same `seed`), ``"zeros"``,
        or ``"mean"`` the mean vector. The padding token, if the vocabulary has one, is all zeros
        and stays so. The numbers are copied, as float32.
        """
        from regard.vectors.embedding import embedding

        return embedding(self, vocabulary, missing, freeze, seed)

    # Search

    @property
    def _compute_dtype(self) -> np.dtype:
        return np.dtype(np.float64 if self._matrix.dtype == np.float64 else np.float32)

    def blocks(
        self, rows: np.ndarray | None = None, width: int = 1
    ) -> Iterator[tuple[int, np.ndarray]]:
        """The vectors at `rows` (ascending; None: all), some at a time, as float32 or float64.

        Each comes with the place in `rows` where its block begins. `width` says how many numbers
        the caller keeps for each row, so that the blocks can be small enough.
        """
        rows = np.arange(len(self)) if rows is None else rows
        step = max(1, _BLOCK // max(self.size, width, 1))
        straight = len(rows) == 0 or bool(rows[-1] - rows[0] == len(rows) - 1)
        for start in range(0, len(rows), step):
            some = rows[start : start + step]
            block = self._matrix[some[0] : some[-1] + 1] if straight else self._matrix[some]
            yield start, np.asarray(block, self._compute_dtype)

    def unit(self, query: str | np.ndarray | Sequence[str]) -> tuple[np.ndarray, list[list[int]]]:
        """Unit vectors (N, D) of words or vectors, and the rows of each that are in the table."""
        if isinstance(query, np.ndarray):
            with np.errstate(over="ignore"):
                vectors = np.atleast_2d(query).astype(self._compute_dtype)
            if vectors.ndim != 2 or vectors.shape[1] != self.size:
                raise ShapeError(
                    f"a vector of this table has {self.size} numbers; what was given is of shape "
                    f"{query.shape}"
                )
            known: list[list[int]] = [[] for _ in vectors]
            tokens: list[str] = []
        else:
            tokens = [query] if isinstance(query, str) else list(query)
            vectors = self._vectors(tokens).astype(self._compute_dtype)
            rows = [self.row(token) for token in tokens]
            known = [[] if row is None else [row] for row in rows]
        finite = np.isfinite(vectors).all(axis=1)
        if not finite.all():
            wrong = int(np.argmin(finite))
            whose = f"of {tokens[wrong]!r}" if tokens else "asked for"
            raise DataError(
                f"the vector {whose} holds a number that is not finite in {vectors.dtype}; "
                "nothing can be compared with it"
            )
        return _normalized(vectors), known

    def _candidates(self, restrict: int | np.integer | Sequence[str] | None) -> np.ndarray:
        if restrict is None:
            return np.arange(len(self))
        if isinstance(restrict, int | np.integer):
            if restrict < 1:
                raise OptionError(f"restrict must be 1 or more, not {restrict}")
            return np.arange(min(restrict, len(self)))
        self._require(restrict)
        return np.unique(np.array([self.rows[token] for token in restrict], np.int64))

    def _search(
        self,
        queries: np.ndarray,
        top: int,
        restrict: int | np.integer | Sequence[str] | None,
        excluded: list[list[int]],
    ) -> list[list[Neighbor]]:
        """The `top` words for each unit vector of `queries` (N, D), but its `excluded` rows."""
        rows, similarities = self.best_rows(queries, top, self._candidates(restrict), excluded)
        tokens = self._tokens
        names = {row: str(tokens[row]) for row in np.unique(rows[rows >= 0]).tolist()}
        return [
            [
                Neighbor(names[row], similarity)
                for row, similarity in zip(some, values, strict=True)
                if row >= 0
            ]
            for some, values in zip(rows.tolist(), similarities.tolist(), strict=True)
        ]

    def cosines(
        self, queries: np.ndarray, candidates: np.ndarray
    ) -> Iterator[tuple[int, np.ndarray]]:
        """Cosines (N, block) of unit `queries` and the rows `candidates`, block by block."""
        norms = self.norms
        for start, block in self.blocks(candidates, len(queries)):
            lengths = norms[candidates[start : start + len(block)]]
            cosines = queries @ block.T
            cosines /= np.where(lengths > 0, lengths, 1)
            yield start, cosines

    def best_rows(
        self, queries: np.ndarray, top: int, candidates: np.ndarray, excluded: list[list[int]]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Rows and cosines, each (N, top), best first; row -1 where there are fewer candidates.

        `excluded` lists rows to leave out for each query. One block of vectors is in use at a time.
        """
        if top < 1:
            raise OptionError(f"top must be 1 or more, not {top}")
        shape = len(queries), max(1, min(top, len(candidates)))
        best_rows = np.full(shape, -1, np.int64)
        best = np.full(shape, -np.inf, self._compute_dtype)
        left_out = np.full((len(queries), max(map(len, excluded), default=0)), -1, np.int64)
        for query, rows in enumerate(excluded):
            left_out[query, : len(rows)] = rows
        for start, cosines in self.cosines(queries, candidates):
            some = candidates[start : start + cosines.shape[1]]
            keep_best(cosines, some, left_out, best, best_rows)
        return best_rows, best


def _is_single(query: str | np.ndarray | Sequence[str]) -> bool:
    return isinstance(query, str) or (isinstance(query, np.ndarray) and query.ndim == 1)


def _normalized(vectors: np.ndarray) -> np.ndarray:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.where(lengths > 0, lengths, 1)


def _as_matrix(rows: Any) -> np.ndarray:
    try:
        return np.array(rows, np.float64)
    except (TypeError, ValueError):
        raise ShapeError(
            "the matrix must be an array (V, D), or a list of V lists of D numbers"
        ) from None


def _check_once(tokens: Sequence[str]) -> None:
    """Refuse words that stand in the table more than once."""
    words = set(tokens)
    if len(words) < len(tokens):
        again = next(token for token in tokens if token not in words or words.remove(token))
        raise DataError(
            f"{len(tokens) - len(set(tokens))} rows repeat a word, such as {again!r}; "
            "keep one row of each word"
        )


def _float_type(dtype: str | np.dtype | type | None) -> np.dtype | None:
    if dtype is None:
        return None
    try:
        kind = np.dtype(dtype)
    except TypeError:
        kind = None
    if kind not in (np.float16, np.float32, np.float64):
        raise OptionError(f"dtype must be float16, float32 or float64, not {dtype!r}")
    return kind
