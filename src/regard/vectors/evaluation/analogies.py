"""Analogies: a is to b as c is to …, solved by vector offsets.

Source: Mikolov, Chen, Corrado and Dean, "Efficient Estimation of Word Representations in Vector
Space" (2013), whose set ``questions-words.txt`` gave the form its name.
"""

from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path

import numpy as np

from regard.errors import DataError
from regard.vectors.evaluation._words import check_choice, known_words, lines
from regard.vectors.word_vectors import WordVectors

Question = tuple[str, str, str, str]
_BATCH = 512
_LOOKED_AT = 5


@dataclass(frozen=True)
class AnalogySection:
    """One section: the questions solved, those not, and how many held an unknown word."""

    name: str
    correct: list[Question] = field(default_factory=list)
    wrong: list[Question] = field(default_factory=list)
    unknown: int = 0

    @property
    def accuracy(self) -> float:
        """The share of the answered questions that were solved; 0 if none was answered."""
        return len(self.correct) / max(len(self.correct) + len(self.wrong), 1)


@dataclass(frozen=True)
class AnalogyResult:
    """The sections of a set, in its order; `questions` in all, `unknown` with an unknown word."""

    name: str
    sections: list[AnalogySection]
    questions: int

    @property
    def unknown(self) -> int:
        """How many questions hold a word without a vector."""
        return sum(section.unknown for section in self.sections)

    @property
    def unknown_share(self) -> float:
        """The share of the questions that hold a word without a vector, from 0 to 1."""
        return self.unknown / self.questions

    @property
    def accuracy(self) -> float:
        """The share of all answered questions that were solved; 0 if none was answered."""
        return self.total.accuracy

    @property
    def total(self) -> AnalogySection:
        """All sections as one."""
        return AnalogySection(
            "total",
            [question for section in self.sections for question in section.correct],
            [question for section in self.sections for question in section.wrong],
            self.unknown,
        )


def chinese_analogies() -> Path:
    """The Chinese set that comes with regard: capitals, provinces, family, opposites."""
    return Path(str(files("regard.vectors") / "data" / "analogies_zh.txt"))


def evaluate_analogies(
    vectors: WordVectors,
    path: str | Path,
    *,
    encoding: str = "utf-8",
    restrict: int | None = 300_000,
    ignore_case: bool = True,
    unknown: str = "skip",
    malformed: str = "error",
) -> AnalogyResult:
    """Solve the analogies in the file `path` with `vectors`.

    A line holds four words, parted by blanks; a line that starts with ``:`` names a section. Only
    the first `restrict` words of the table are asked about and searched. An answer is the word
    nearest to b - a + c, a, b and c left out, however they are capitalized if case is ignored.
    Questions with an unknown word are skipped, or counted as wrong. A line of another form is a
    `DataError`, or skipped.
    """
    check_choice("unknown", unknown, ("skip", "wrong"))
    check_choice("malformed", malformed, ("error", "skip"))
    path = Path(path)
    known = known_words(vectors, restrict, ignore_case)
    sections = _read_sections(path, encoding, ignore_case, malformed == "error")
    asked = [q for _, questions in sections for q in questions if all(w in known for w in q)]
    asked = list(dict.fromkeys(asked))
    solved = dict(zip(asked, _solve(vectors, asked, known, restrict, ignore_case), strict=True))
    results: list[AnalogySection] = []
    for name, questions in sections:
        correct = [q for q in questions if solved.get(q)]
        wrong = [q for q in questions if not solved.get(q, unknown == "skip")]
        results.append(
            AnalogySection(name, correct, wrong, sum(q not in solved for q in questions))
        )
    return AnalogyResult(path.name, results, sum(len(q) for _, q in sections))


def _read_sections(
    path: Path, encoding: str, ignore_case: bool, strict: bool
) -> list[tuple[str, list[Question]]]:
    sections: list[tuple[str, list[Question]]] = []
    for number, line in lines(path, encoding):
        if line.startswith(":"):
            sections.append((line.lstrip(": ").strip(), []))
            continue
        words = (line.upper() if ignore_case else line).split()
        if len(words) != 4:
            if strict:
                raise DataError(f"{path}, line {number}: {line!r} where four words are expected")
            continue
        if not sections:
            sections.append(("questions", []))
        sections[-1][1].append((words[0], words[1], words[2], words[3]))
    if not any(questions for _, questions in sections):
        raise DataError(f"{path} holds no analogy: four words a line, ': name' before each section")
    return sections


def _solve(
    vectors: WordVectors,
    questions: list[Question],
    known: dict[str, int],
    restrict: int | None,
    ignore_case: bool,
) -> list[bool]:
    """Whether each question is answered rightly."""
    candidates = np.arange(len(vectors))[:restrict]
    used = sorted({known[word] for question in questions for word in question})
    place = {row: at for at, row in enumerate(used)}
    units = np.asarray(vectors.matrix[used], vectors.norms.dtype)
    lengths = vectors.norms[used][:, None]
    units = units / np.where(lengths > 0, lengths, 1)
    solved: list[bool] = []
    for first in range(0, len(questions), _BATCH):
        batch = questions[first : first + _BATCH]
        rows = np.array([[known[word] for word in question[:3]] for question in batch])
        a, b, c = (units[[place[row] for row in column]] for column in rows.T.tolist())
        target = b - a + c
        length = np.linalg.norm(target, axis=1, keepdims=True)
        target /= np.where(length > 0, length, 1)
        answers, _ = vectors.best_rows(target, _LOOKED_AT, candidates, rows.tolist())
        for question, some in zip(batch, answers.tolist(), strict=True):
            words = [vectors.tokens[row] for row in some if row >= 0]
            words = [word.upper() for word in words] if ignore_case else words
            answer = next((word for word in words if word not in question[:3]), None)
            solved.append(answer == question[3])
    return solved
