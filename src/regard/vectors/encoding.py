"""Texts as ids, and which row of the tables each word has."""

from array import array
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from regard.errors import DataError
from regard.vectors.word_vectors import WordVectors


class Encoded(NamedTuple):
    """Text i is ``ids[offsets[i]:offsets[i + 1]]``; `counts` says how often each token occurs."""

    ids: np.ndarray
    offsets: np.ndarray
    tokens: list[str]
    counts: np.ndarray


class Words(NamedTuple):
    """The words that are trained.

    `rows` (int32) is the row of each id of the corpus, -1 for a word that is left out, or empty
    when ids are rows; `fresh` counts the new text alone, `counts` what went before as well.
    """

    tokens: list[str]
    counts: np.ndarray
    fresh: np.ndarray
    rows: np.ndarray


def encode_lists(texts: Iterable[Sequence[str]]) -> Encoded:
    """Number the tokens of `texts`, which are read once; the most frequent come first."""
    known: dict[str, int] = {}
    ids, offsets = array("i"), array("q", [0])
    for place, tokens in enumerate(texts):
        if isinstance(tokens, str):
            raise DataError(
                f"item {place} is the string {tokens[:40]!r}, not a list of tokens; split it first "
                "(a path as str or Path trains on a file)"
            )
        if isinstance(tokens, bytes) or not isinstance(tokens, Iterable):
            raise DataError(f"item {place} is {tokens!r:.40}, not a list of tokens")
        try:
            ids.extend([known.setdefault(token, len(known)) for token in tokens])
        except TypeError as error:
            raise DataError(f"item {place} is no list of strings: {error}") from error
        offsets.append(len(ids))
    wrong = next((token for token in known if not isinstance(token, str)), "")
    if not isinstance(wrong, str):
        raise DataError(
            f"a text holds {wrong!r:.40}, a token that is no string but {type(wrong).__name__}; "
            "turn tokens into strings first"
        )
    counts = np.bincount(np.frombuffer(ids, np.int32), minlength=len(known)) if ids else []
    counts = np.asarray(counts, np.int64)
    tokens = list(known)
    order = np.array(sorted(range(len(tokens)), key=lambda i: (-counts[i], tokens[i])), np.int64)
    new = np.empty(len(tokens), np.int32)
    new[order] = np.arange(len(tokens), dtype=np.int32)
    numbered = new[np.frombuffer(ids, np.int32)] if ids else np.zeros(0, np.int32)
    return Encoded(numbered, np.array(offsets, np.int64), [tokens[i] for i in order], counts[order])


def merge_words(corpus: Encoded, min_count: int, vectors: WordVectors | None) -> Words:
    """The words of `vectors`, then those of the corpus that occur `min_count` times."""
    if vectors is None and len(corpus.counts) and corpus.counts.min() >= min_count:
        counts = corpus.counts.astype(np.int64)
        return Words(list(corpus.tokens), counts, counts, np.zeros(0, np.int32))
    tokens = [] if vectors is None else list(vectors.tokens)
    row_of = {token: row for row, token in enumerate(tokens)}
    rows = np.full(len(corpus.tokens), -1, np.int32)
    for place, (token, count) in enumerate(zip(corpus.tokens, corpus.counts, strict=True)):
        if token in row_of:
            rows[place] = row_of[token]
        elif count >= min_count:
            rows[place] = row_of[token] = len(tokens)
            tokens.append(token)
    if not (rows >= 0).any():
        most = int(corpus.counts.max()) if len(corpus.counts) else 0
        raise DataError(
            f"no word occurs min_count={min_count} times (the most frequent of "
            f"{len(corpus.tokens)} occurs {most} times); lower min_count or give more text"
        )
    fresh = np.zeros(len(tokens), np.int64)
    fresh[rows[rows >= 0]] = corpus.counts[rows >= 0]
    counts = fresh.copy()
    if vectors is not None and vectors.counts is not None:
        counts[: len(vectors.counts)] += np.asarray(vectors.counts, np.int64)
    return Words(tokens, counts, fresh, rows)
