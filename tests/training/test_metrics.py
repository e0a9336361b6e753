import math

import pytest

from regard.training.baselines import NaiveBayes, majority
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
