import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.training import chrf, compare


def test_by_hand():
    # "ab" against "abc": 1-grams 2 of 2 and 2 of 3, 2-grams 1 of 1 and 1 of 2; longer ones are not
    # in both
    precision, recall = (2 / 2 + 1 / 1) / 2, (2 / 3 + 1 / 2) / 2
    expected = 5 * precision * recall / (4 * precision + recall)
    assert chrf(["ab"], ["abc"]) == pytest.approx(expected)
    # white space does not count
    assert chrf([" a b"], ["abc"]) == pytest.approx(expected)


@given(st.lists(st.text("abc ", max_size=9), min_size=1, max_size=5))
def test_a_text_agrees_with_itself(texts):
    found = chrf(texts, texts)
    assert found == (1.0 if any(text.strip() for text in texts) else 0.0)


@given(st.lists(st.tuples(st.text("abc", max_size=9), st.text("abc", max_size=9)), min_size=1))
def test_it_lies_between_nothing_and_one(pairs):
    written, wanted = map(list, zip(*pairs, strict=True))
    assert 0 <= chrf(written, wanted) <= 1
    found = compare(written, wanted)
    assert found.exact == sum(a == b for a, b in pairs) / len(pairs)
