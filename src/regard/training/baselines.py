"""What a model has to beat: always the most frequent label, and naive Bayes on bigrams."""

import math
from collections import Counter, defaultdict
from collections.abc import Sequence


def majority(labels: Sequence[str]) -> str:
    """The most frequent of `labels`, the first in order among equals."""
    counts = Counter(labels)
    return min(counts, key=lambda label: (-counts[label], label))


class NaiveBayes:
    """Multinomial naive Bayes on character bigrams, with add-one smoothing.

    Manning, Raghavan & Schütze, "Introduction to Information Retrieval" (2008), section 13.2.

    >>> NaiveBayes(["好吃", "难吃", "很难吃"], ["+", "-", "-"]).predict("很好吃")
    '+'
    """

    def __init__(self, texts: Sequence[str], labels: Sequence[str]):
        counts: dict[str, Counter[str]] = defaultdict(Counter)
        for text, label in zip(texts, labels, strict=True):
            counts[label].update(bigrams(text))
        known = {bigram for counter in counts.values() for bigram in counter}
        frequency = Counter(labels)
        self._prior = {label: math.log(n / len(labels)) for label, n in frequency.items()}
        self._unseen, self._seen = {}, {}
        for label in sorted(frequency):
            total = math.log(counts[label].total() + len(known) or 1)  # 1: no text has a bigram
            self._unseen[label] = -total
            self._seen[label] = {b: math.log(n + 1) - total for b, n in counts[label].items()}

    def predict(self, text: str) -> str:
        """The label whose bigrams make `text` most probable."""
        found = bigrams(text)

        def evidence(label: str) -> float:
            seen, unseen = self._seen[label], self._unseen[label]
            return self._prior[label] + sum(seen.get(bigram, unseen) for bigram in found)

        return max(self._seen, key=evidence)


def bigrams(text: str) -> list[str]:
    """Every two neighboring characters."""
    return [text[i : i + 2] for i in range(len(text) - 1)]
