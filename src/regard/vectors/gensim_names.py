"""The names and argument conventions of gensim's KeyedVectors, for code that moves over.

Checked against gensim 4.4. `nearest`, `analogy`, `odd_one_out` and `regard.vectors.evaluation` are
regard's own names for the same work.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from regard.errors import OptionError

if TYPE_CHECKING:
    from regard.vectors.word_vectors import WordVectors


class GensimNames:
    """What `WordVectors` answers to besides its own names."""

    def most_similar(
        self,
        positive: Any = None,
        negative: Any = None,
        topn: int | None = 10,
        clip_start: int = 0,
        clip_end: int | None = None,
        restrict_vocab: int | None = None,
    ) -> list[tuple[str, float]] | np.ndarray:
        """The words nearest to the mean of `positive` less `negative`.

        Each is a word, a row number, a vector, or a list of these, which may be paired with
        weights. ``topn=None`` gives the similarity of every row in range, (V,).
        """
        vectors = cast("WordVectors", self)
        total = np.zeros(vectors.size, np.float64)
        used: list[int] = []
        items = [(item, 1.0) for item in _listed(positive)]
        items += [(item, -1.0) for item in _listed(negative)]
        if not items:
            raise OptionError("most_similar needs words; none were given")
        for item, weight in items:
            if isinstance(item, tuple):
                item, weight = item
            if isinstance(item, (int, np.integer)):
                if not -len(vectors) <= item < len(vectors):
                    raise OptionError(f"no row {item} in a table of {len(vectors)} words")
                item = vectors.tokens[int(item)]
            if isinstance(item, np.ndarray):
                vectors.unit(item)  # refuses what is no vector of this table
                total += weight * item
            else:
                units, known = vectors.unit(item)
                total += weight * units[0]
                used += known[0]
        if topn is not None and topn < 1:
            return []
        start, end = (0, restrict_vocab) if restrict_vocab else (clip_start, clip_end)
        candidates = np.arange(len(vectors))[start:end]
        length = np.linalg.norm(total)
        query = (total / (length or 1)).astype(vectors.norms.dtype)[None]
        if topn is None:
            blocks = [cosines[0] for _, cosines in vectors.cosines(query, candidates)]
            return np.concatenate(blocks) if blocks else np.empty(0, query.dtype)
        rows, similarities = vectors.best_rows(query, topn, candidates, [used])
        return [
            (vectors.tokens[row], similarity)
            for row, similarity in zip(rows[0].tolist(), similarities[0].tolist(), strict=True)
            if row >= 0
        ]

    def doesnt_match(self, words: Sequence[str]) -> str:
        """As `odd_one_out`; unknown words are left out with a warning."""
        vectors = cast("WordVectors", self)
        known = [word for word in words if word in vectors]
        if len(known) < len(words):
            unknown = [word for word in words if word not in vectors]
            warnings.warn(f"words without a vector left out: {', '.join(unknown)}", stacklevel=2)
        return vectors.odd_one_out(known)

    def evaluate_word_pairs(
        self,
        pairs: str | Path,
        delimiter: str = "\t",
        encoding: str = "utf8",
        restrict_vocab: int | None = 300_000,
        case_insensitive: bool = True,
        dummy4unknown: bool = False,
    ) -> tuple[tuple[float, float], tuple[float, float], float]:
        """Pearson and Spearman correlation, each with its p-value, and the percentage unknown."""
        from regard.vectors.evaluation import evaluate_similarity

        result = evaluate_similarity(
            cast("WordVectors", self),
            pairs,
            delimiter=delimiter,
            encoding=encoding,
            restrict=restrict_vocab,
            ignore_case=case_insensitive,
            unknown="zero" if dummy4unknown else "skip",
            malformed="skip",
        )
        return (
            (result.pearson, result.pearson_p),
            (result.spearman, result.spearman_p),
            100 * result.unknown_share,
        )

    def evaluate_word_analogies(
        self,
        analogies: str | Path,
        restrict_vocab: int | None = 300_000,
        case_insensitive: bool = True,
        dummy4unknown: bool = False,
    ) -> tuple[float, list[dict[str, Any]]]:
        """The share of analogies solved, and for each section those solved and those not."""
        from regard.vectors.evaluation import evaluate_analogies

        result = evaluate_analogies(
            cast("WordVectors", self),
            analogies,
            restrict=restrict_vocab,
            ignore_case=case_insensitive,
            unknown="wrong" if dummy4unknown else "skip",
            malformed="skip",
        )
        sections = [
            {"section": s.name, "correct": s.correct, "incorrect": s.wrong} for s in result.sections
        ]
        sections.append(
            {
                "section": "Total accuracy",
                "correct": [q for s in result.sections for q in s.correct],
                "incorrect": [q for s in result.sections for q in s.wrong],
            }
        )
        return result.accuracy, sections


def _listed(items: Any) -> list[Any]:
    if items is None:
        return []
    if isinstance(items, (str, int, np.integer)):
        return [items]
    if isinstance(items, np.ndarray):
        return list(items) if items.ndim == 2 else [items]
    return list(items)
