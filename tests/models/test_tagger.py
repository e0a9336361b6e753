import pytest
import torch

from regard.errors import DataError, OptionError
from regard.models import Tagger, TaggerSettings
from regard.text import Vocabulary


def test_each_token_gets_a_tag_and_its_place(make):
    model = make("tag")
    text = "我喜欢 吃洋葱"
    found = model.predict([text, "好"])
    assert [len(row) for row in found] == [7, 1]
    for one in found[0]:
        assert text[one.start : one.end] == one.token
        assert sum(one.probabilities.values()) == pytest.approx(1)
        assert one.probability == max(one.probabilities.values()) == one.probabilities[one.tag]


def test_tokens_that_are_given_are_taken_as_they_are(make):
    model = make("tag")
    given = model.predict([["Ｏ", "我", "好"]])[0]
    assert [(one.token, one.start, one.end) for one in given] == [
        ("Ｏ", 0, 1),
        ("我", 2, 3),
        ("好", 4, 5),
    ]
    # ... but for their normalization, which is that of a text
    assert [one.tag for one in given] == [one.tag for one in model.predict(["Ｏ我好"])[0]]
    torch.testing.assert_close(model.logits([["Ｏ", "我", "好"]])[0], model.logits(["o我好"])[0])


def test_a_text_past_the_limit_is_read_in_pieces(make):
    model = make("tag", max_tokens=5)
    text = "我真的不喜欢吃洋葱"
    pieces = model.logits([text[:5], text[5:]])
    torch.testing.assert_close(model.logits([text])[0], torch.cat(pieces))


def test_what_is_no_text(make):
    model = make("tag")
    with pytest.raises(DataError, match=r"text 2 of 2 has no tokens: \[\]"):
        model.predict([["好"], []])
    with pytest.raises(OptionError, match=r"takes a list of texts; for one text pass \[text\]"):
        model.predict("好")
    assert model.predict([]) == []


def test_what_a_tagger_needs():
    vocabulary = Vocabulary.count([["a"]])
    with pytest.raises(OptionError, match="a tagger needs two tags or more"):
        Tagger(TaggerSettings(tags=("n",)), vocabulary)
    with pytest.raises(OptionError, match="a tagger's tags must differ"):
        Tagger(TaggerSettings(tags=("n", "n")), vocabulary)
