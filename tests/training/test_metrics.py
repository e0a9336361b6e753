import math

import numpy as np
import pytest

from regard.training.baselines import Bigrams, FrequentTags, NaiveBayes, majority
from regard.training.metrics import measure


def test_measured_by_hand():
    metrics = measure(list("aabbbc"), list("abbbcc"))
    assert metrics.accuracy == pytest.approx(4 / 6)
    scores = metrics.labels
    assert (scores["a"].precision, scores["a"].recall) == (1 / 2, 1)
    assert (scores["b"].precision, scores["b"].recall) == (2 / 3, 2 / 3)
    assert (scores["c"].precision, scores["c"].recall) == (1, 1 / 2)
    assert metrics.macro_f1 == pytest.approx((2 / 3 + 2 / 3 + 2 / 3) / 3)


def test_a_label_never_predicted_and_one_never_true():
    scores = measure(["a", "x"], ["a", "y"]).labels
    assert (scores["x"].precision, scores["x"].recall, scores["x"].f1) == (0, 0, 0)
    assert (scores["y"].precision, scores["y"].recall, scores["y"].f1) == (0, 0, 0)


def test_majority_breaks_ties_by_name():
    assert majority(list("bbaac")) == "a"


def test_naive_bayes_by_hand():
    bayes = NaiveBayes(["abc", "abd", "xbc"], ["+", "+", "-"])
    # bigrams: + has ab, bc, ab, bd; - has xb, bc; five are known
    plus = math.log(2 / 3) + math.log(3 / 9) + math.log(2 / 9)
    minus = math.log(1 / 3) + math.log(1 / 7) + math.log(2 / 7)
    assert plus > minus
    assert bayes.predict("abc") == "+"
    assert bayes.predict("xbc") == "-"
    assert bayes.predict("") == "+"


def test_unseen_words_get_the_most_frequent_tag():
    tags = FrequentTags([["a", "a", "a", "b"]], [["x", "y", "y", "x"]])
    assert tags.predict(["a", "b", "?"]) == ["y", "x", "x"]


@pytest.mark.parametrize("unigrams", [False, True])
def test_counts_are_probabilities(unigrams):
    before, after = np.array([4, 4, 4, 5, 6, 5]), np.array([5, 5, 6, 4, 4, 6])
    model = Bigrams(before, after, 9, 0.5, unigrams)
    everything = np.arange(9)
    for token in (4, 5, 8, 30):
        total = sum(math.exp(-model.loss(np.array([token]), np.array([one]))) for one in everything)
        assert total == pytest.approx(1)
    seen = (2 + 0.5) / (6 + 0.5 * 9) if unigrams else (2 + 0.5) / (3 + 0.5 * 9)
    assert model.loss(np.array([4]), np.array([5])) == pytest.approx(-math.log(seen))
    assert model.right(np.array([4, 4, 30]), np.array([5, 6, 5])) == 1
