"""What a model has to beat: the most frequent answer, and what counting alone can do."""

import math
from collections import Counter, defaultdict
from collections.abc import Sequence

import numpy as np


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


class FrequentTags:
    """Gives each word the tag that it bears most often, and unseen words the most frequent tag.

    >>> FrequentTags([["a", "b", "a"]], [["x", "y", "x"]]).predict(["a", "b", "c"])
    ['x', 'y', 'x']
    """

    def __init__(self, sentences: Sequence[Sequence[str]], tags: Sequence[Sequence[str]]):
        counts: dict[str, Counter[str]] = defaultdict(Counter)
        for words, marks in zip(sentences, tags, strict=True):
            for word, mark in zip(words, marks, strict=True):
                counts[word][mark] += 1
        self._tag = {word: majority(list(c.elements())) for word, c in counts.items()}
        self._unseen = majority([mark for marks in tags for mark in marks])

    def predict(self, words: Sequence[str]) -> list[str]:
        """The tag of each word."""
        return [self._tag.get(word, self._unseen) for word in words]


class Bigrams:
    """How often a token follows another, with `k` added to every count.

    p(b | a) = (n(a, b) + k) / (n(a) + k · V); Jurafsky and Martin, "Speech and Language
    Processing", chapter 3, "N-gram Language Models". With `unigrams`, a is left out.

    `before` and `after` are ids (N,); `size` is V, how many tokens may follow.
    """

    def __init__(
        self, before: np.ndarray, after: np.ndarray, size: int, k: float, unigrams: bool = False
    ):
        self.k, self.size, self.unigrams = k, size, unigrams
        self._width = int(max(before.max(), after.max())) + 1
        self._keys, self._counts = np.unique(self._key(before, after), return_counts=True)
        before = np.zeros_like(before) if unigrams else before
        self._totals = np.bincount(before, minlength=self._width)
        # the most frequent follower: counts ascending, so that the largest is written last
        order = np.argsort(self._counts, kind="stable")
        self._best = np.full(self._width, -1)
        self._best[self._keys[order] // self._width] = self._keys[order] % self._width

    def _key(self, before: np.ndarray, after: np.ndarray) -> np.ndarray:
        before = np.zeros_like(before) if self.unigrams else before
        return before.astype(np.int64) * self._width + after

    def loss(self, before: np.ndarray, after: np.ndarray) -> float:
        """The sum of the negative logarithms of p(after | before)."""
        keys = self._key(before, np.minimum(after, self._width - 1))
        places = np.searchsorted(self._keys, keys).clip(max=len(self._keys) - 1)
        known = (self._keys[places] == keys) & (after < self._width)
        hits = np.where(known, self._counts[places], 0)
        totals = np.append(self._totals, 0)[self._context(before)]
        return float(-np.log((hits + self.k) / (totals + self.k * self.size)).sum())

    def right(self, before: np.ndarray, after: np.ndarray) -> int:
        """How often the most frequent follower is the true one."""
        return int((np.append(self._best, -1)[self._context(before)] == after).sum())

    def _context(self, before: np.ndarray) -> np.ndarray:
        return np.zeros_like(before) if self.unigrams else np.minimum(before, self._width)
