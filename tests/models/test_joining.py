import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.models.joining import join, offsets
from regard.text import segmenters

TEXTS = [
    "我喜欢吃洋葱。",
    "low lower, lowest!",
    "I can't; 3.14 (is it?)",
    "好 😀 ok",
    "他说“好吧”。",
]


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=40))
def test_what_keeps_white_space_comes_back_whole(text):
    for segmenter in (segmenters.create("characters"), BPE):
        assert join(segmenter.name, segmenter(text).tokens) == text


BPE = segmenters.create("bpe").train(TEXTS, size=270)


@pytest.mark.parametrize("name", ["words", "jieba", "wordpiece", "unigram", "whitespace"])
def test_texts_come_back_to_the_same_tokens(name):
    segmenter = segmenters.create(name)
    if hasattr(segmenter, "train"):
        segmenter.train(TEXTS, size=120)
    for text in TEXTS:
        tokens = segmenter(text).tokens
        assert segmenter(join(name, tokens)).tokens == tokens


def test_marks_stand_where_they_belong():
    assert join("words", ["I", "can't", ";", "3.14", "(", "is", "it", "?", ")"]) == (
        "I can't; 3.14 (is it?)"
    )
    assert join("jieba", ["我", "用", "Python", "3", "写"]) == "我用Python 3写"


@pytest.mark.parametrize("name", ["words", "jieba", "whitespace", "characters"])
def test_offsets_are_those_of_the_segmenter(name):
    for text in TEXTS:
        found = segmenters.create(name)(text)
        joined = join(name, found.tokens)
        for (start, end), token in zip(offsets(name, found.tokens), found.tokens, strict=True):
            assert joined[start:end] == token
