"""How good predicted labels are."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class LabelScore:
    """Precision, recall and their harmonic mean F1 for one label, and how often it occurs."""

    precision: float
    recall: float
    f1: float
    count: int


@dataclass(frozen=True)
class Metrics:
    """Accuracy, the mean of the labels' F1 (macro), and the scores of each label."""

    accuracy: float
    macro_f1: float
    count: int
    labels: dict[str, LabelScore]


def measure(predicted: Sequence[str], true: Sequence[str]) -> Metrics:
    """Compare predicted with true labels; a ratio without cases is 0.

    >>> measure(["a", "b", "b"], ["a", "a", "b"]).accuracy
    0.6666666666666666
    """
    hits = Counter(t for p, t in zip(predicted, true, strict=True) if p == t)
    given, wanted = Counter(predicted), Counter(true)
    scores = {}
    for label in sorted(given | wanted):
        precision = hits[label] / given[label] if given[label] else 0.0
        recall = hits[label] / wanted[label] if wanted[label] else 0.0
        total = given[label] + wanted[label]
        scores[label] = LabelScore(precision, recall, 2 * hits[label] / total, wanted[label])
    return Metrics(
        sum(hits.values()) / len(true),
        sum(score.f1 for score in scores.values()) / len(scores),
        len(true),
        scores,
    )
