"""Word similarity: do the vectors rank pairs of words as people do?

Sets of this form: WordSim-353 (Finkelstein et al., 2002), SimLex-999 (Hill, Reichart and Korhonen,
2015), the Chinese wordsim-240, wordsim-297 and PKU-500.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from regard.errors import DataError
from regard.vectors.evaluation._words import check_choice, known_words, lines
from regard.vectors.evaluation.correlation import pearson, spearman
from regard.vectors.word_vectors import WordVectors


@dataclass(frozen=True)
class SimilarityResult:
    """How the cosines of word pairs go with people's judgments.

    `spearman` and `pearson` are NaN where every cosine, or every judgment, is the same. `pairs` is
    the number of pairs in the set, `unknown` how many of them hold a word without a vector.
    """

    name: str
    spearman: float
    spearman_p: float
    pearson: float
    pearson_p: float
    pairs: int
    unknown: int

    @property
    def unknown_share(self) -> float:
        """The share of the pairs that hold a word without a vector, from 0 to 1."""
        return self.unknown / self.pairs


def evaluate_similarity(
    vectors: WordVectors,
    path: str | Path,
    *,
    delimiter: str | None = None,
    encoding: str = "utf-8",
    restrict: int | None = 300_000,
    ignore_case: bool = True,
    unknown: str = "skip",
    malformed: str = "error",
) -> SimilarityResult:
    """Compare `vectors` with the judged pairs in the file `path`.

    A line holds two words and, as the first number after them, the judgment; parted by tabs,
    commas or blanks, which the file tells unless `delimiter` does; a header line and lines that
    start with ``#`` are passed over. Only the first `restrict` words of the table count as known.
    Pairs with an unknown word are skipped, or given the cosine 0 with ``unknown="zero"``. A line of
    another form is a `DataError`, or skipped.
    """
    check_choice("unknown", unknown, ("skip", "zero"))
    check_choice("malformed", malformed, ("error", "skip"))
    path = Path(path)
    known = known_words(vectors, restrict, ignore_case)
    pairs = _read_pairs(path, delimiter, encoding, malformed == "error")
    judged: list[float] = []
    rows: list[tuple[int, int]] = []
    for a, b, judgment in pairs:
        if ignore_case:
            a, b = a.upper(), b.upper()
        both = a in known and b in known
        if both or unknown == "zero":
            judged.append(judgment)
            rows.append((known[a], known[b]) if both else (-1, -1))
    missing = len(pairs) - sum(row >= 0 for row, _ in rows)
    if not judged:
        raise DataError(
            f"{path}: not one of its {len(pairs)} pairs has two words with vectors; is it a set of "
            "another language, or are the words split in another way?"
        )
    cosines = _cosines(vectors, np.array(rows, np.int64))
    gold = np.array(judged)
    return SimilarityResult(
        path.name, *spearman(gold, cosines), *pearson(gold, cosines), len(pairs), missing
    )


def _cosines(vectors: WordVectors, rows: np.ndarray) -> np.ndarray:
    cosines = np.zeros(len(rows))
    here = np.flatnonzero(rows[:, 0] >= 0)
    left, right = (np.asarray(vectors.matrix[rows[here, side]], np.float64) for side in (0, 1))
    lengths = np.linalg.norm(left, axis=1) * np.linalg.norm(right, axis=1)
    cosines[here] = np.einsum("ij,ij->i", left, right) / np.where(lengths > 0, lengths, 1)
    return cosines


def _read_pairs(
    path: Path, delimiter: str | None, encoding: str, strict: bool
) -> list[tuple[str, str, float]]:
    numbered = list(lines(path, encoding))
    if delimiter is None and numbered:
        delimiter = _delimiter([line for _, line in numbered])
    pairs: list[tuple[str, str, float]] = []
    for position, (number, line) in enumerate(numbered):
        fields = [field.strip() for field in line.split(delimiter)]
        judgment = next(filter(lambda x: x is not None, map(_number, fields[2:])), None)
        if judgment is not None and fields[0] and fields[1]:
            pairs.append((fields[0], fields[1], judgment))
        elif position > 0 and strict:
            raise DataError(
                f"{path}, line {number}: {line!r} where two words and a number are expected"
            )
    if not pairs:
        raise DataError(
            f"{path} holds no pair: two words and a number a line, parted by tabs, commas or blanks"
        )
    return pairs


def _delimiter(rows: list[str]) -> str | None:
    """What parts the fields of most lines: a tab, else a comma, else blanks (None)."""
    for mark in ("\t", ","):
        if sum(row.count(mark) >= 2 for row in rows) * 2 > len(rows):
            return mark
    return None


def _number(field: str) -> float | None:
    try:
        return float(field)
    except ValueError:
        return None
