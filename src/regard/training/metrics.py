"""How good predicted labels, predicted next tokens and written texts are."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from regard.models.language_model import perplexity_of
from regard.training.chrf import chrf


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


@dataclass(frozen=True)
class LanguageMetrics:
    """How well a text is foreseen, token by token, the ends of its lines included.

    `perplexity`: exp of `loss`, the mean negative log-probability of a token. `accuracy`: share of
    tokens that were the most probable one. `unknown`: share of tokens that the vocabulary lacks,
    which count as one and the same.
    """

    perplexity: float
    loss: float
    accuracy: float
    count: int
    unknown: float


def foreseen(loss: float, right: int, unknown: int, count: int) -> LanguageMetrics:
    """From the sum of the negative log-probabilities, and counts."""
    return LanguageMetrics(
        perplexity_of(loss / count), loss / count, right / count, count, unknown / count
    )


@dataclass(frozen=True)
class WrittenMetrics:
    """How near written texts come to the wanted ones.

    `exact`: share that agree token by token. `chrf`: see `regard.training.chrf`.
    """

    exact: float
    chrf: float
    count: int


def compare(
    written: Sequence[str], wanted: Sequence[str], same: Sequence[bool] | None = None
) -> WrittenMetrics:
    """Written against wanted texts; `same`: which agree, if not those that are equal."""
    if same is None:
        same = [mine == true for mine, true in zip(written, wanted, strict=True)]
    return WrittenMetrics(sum(same) / len(wanted), chrf(written, wanted), len(wanted))
