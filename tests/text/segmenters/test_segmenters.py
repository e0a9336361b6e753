from functools import cache

import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st

from regard.errors import DataError, OptionError
from regard.text import segmenters
from regard.text.normalization import Normalization

TRAINED = ("bpe", "unigram", "wordpiece")
FIXED = ("characters", "jieba", "whitespace", "words")
LESSON = ["the low lower lowest slow", "我喜欢吃洋葱，我真的不喜欢吃洋葱。", "é 1⁄2 fi x3.14"] * 5
PARTS = [
    *"abcz 我喜欢洋葱，。\n\t\u3000\x1c\x00é½ﬁİＡ３",
    "e\u0301",
    "👨‍👩‍👧",
    "🇨🇳",
    "👍🏽",
    "각",
    "low",
    "\r\n",
    "3.14",
    "<unk>",
]
texts = st.lists(st.sampled_from(PARTS), max_size=12).map("".join) | st.text(
    st.characters(exclude_categories=["Cs"]), max_size=12
)


@cache
def segmenter_of(name, normalization="none", lowercase=False):
    made = segmenters.create(name, normalization=normalization, lowercase=lowercase)
    return made.train(LESSON, size=300) if name in TRAINED else made


def as_text(name, token, text):
    """The characters that a token shows; None where it shows bytes or the unknown."""
    if token == text:
        return text
    if token == "<unk>" or token.startswith("<0x") or "<0x" in token:
        return None
    return token.removeprefix("##") if name == "wordpiece" else token


def test_the_members_of_the_family():
    assert segmenters.names() == sorted((*FIXED, *TRAINED))
    with pytest.raises(OptionError, match=r"^unknown segmenter 'word'; did you mean 'words'"):
        segmenters.create("word")


@pytest.mark.parametrize("name", [*FIXED, *TRAINED])
@given(text=texts)
def test_a_token_is_its_stretch_of_the_text(name, text):
    found = segmenter_of(name)(text)
    assert len(found) == len(found.tokens) == len(found.starts) == len(found.ends)
    before = (0, 0)
    for token, start, end in zip(found.tokens, found.starts, found.ends, strict=True):
        stretch = text[start:end]
        shown = as_text(name, token, stretch)
        assert start < end
        assert shown is None or shown == stretch
        if name != "bpe":
            assert start >= before[1]
        else:  # bytes of one character share its place
            assert start >= before[1] or (start >= before[0] and before[1] - start == 1)
        before = (start, end)


@pytest.mark.parametrize("name", [*FIXED, *TRAINED])
@given(text=texts)
def test_nothing_but_white_space_is_left_out(name, text):
    found = segmenter_of(name)(text)
    covered = {i for s, e in zip(found.starts, found.ends, strict=True) for i in range(s, e)}
    assert all(text[i].isspace() for i in set(range(len(text))) - covered)


@pytest.mark.parametrize("name", [*FIXED, *TRAINED])
@given(text=texts)
def test_normalizing_keeps_offsets_true(name, text):
    normalization = Normalization("nfkc", lowercase=True)
    found = segmenter_of(name, "nfkc", True)(text)
    assert found.tokens == segmenter_of(name)(normalization(text)).tokens or name in TRAINED
    before = after = (0, 0)
    for place, token in enumerate(found.tokens):
        start, end = found.starts[place], found.ends[place]
        assert 0 <= start < end <= len(text)
        assert start >= before[0]
        last = place + 1 == len(found)
        after = (len(text), 0) if last else (found.starts[place + 1], found.ends[place + 1])
        shown = as_text(name, token, normalization(text[start:end]))
        alone = before[1] <= start and end <= after[0]
        # The final form of sigma depends on the letters around it.
        if alone and shown is not None and "Σ" not in text:
            # Accents that stand alone, such as ¸, become a space and a combining accent.
            assert normalization(text[start:end]).strip() == shown.strip()
        before = (start, end)


@pytest.mark.parametrize("name", [*FIXED, *TRAINED])
@given(many=st.lists(texts, max_size=4))
def test_batches_agree_with_single_texts(name, many):
    segmenter = segmenter_of(name, "nfkc", True)
    single = [segmenter(text).tokens for text in many]
    assert segmenter.split(many) == single
    batch = segmenter.batch(many)
    entries = batch.dictionary.tokens().to_pylist()
    assert [entries[code] for code in batch.codes] == [t for tokens in single for t in tokens]
    assert batch.lengths.tolist() == [len(tokens) for tokens in single]


@pytest.mark.parametrize("name", [*FIXED, *TRAINED])
@given(page=st.lists(texts, max_size=4).map("\n".join))
def test_lines_of_a_page_are_texts_but_for_blank_ones(name, page):
    segmenter = segmenter_of(name)
    lines = [line for line in page.split("\n") if line and not line.isspace()]
    ours, theirs = segmenter.batch_lines(page), segmenter.batch(lines)
    assert ours.lengths.tolist() == theirs.lengths.tolist()
    first, second = ours.dictionary.tokens(), theirs.dictionary.tokens()
    assert first.take(ours.codes).equals(second.take(theirs.codes))


@pytest.mark.parametrize("name", [*FIXED, *TRAINED])
def test_settings_make_the_segmenter_again(name, tmp_path):
    segmenter = segmenter_of(name, "nfkc", True)
    again = segmenters.from_settings(segmenter.settings(tmp_path), tmp_path)
    text = "Ｌow 我喜欢吃洋葱 slower ½"
    assert again(text) == segmenter(text)
    assert again.fingerprint() == segmenter.fingerprint()
    assert again.fingerprint() != segmenter_of(name).fingerprint()


@pytest.mark.parametrize("name", [*FIXED, *TRAINED])
def test_half_a_pair_is_refused(name):
    segmenter = segmenter_of(name)
    message = r"^character 1 of the text is the lone surrogate \\ud83d, half of a UTF-16 pair"
    with pytest.raises(DataError, match=message):
        segmenter("a\ud83d")
    with pytest.raises(DataError, match=r"is the lone surrogate \\ud83d, half of a UTF-16 pair"):
        segmenter.batch(["fine", "a\ud83d"])


@pytest.mark.parametrize(
    "whole", ["👨‍👩‍👧", "🇨🇳", "👍🏽", "e\u0301", "\u1100\u1161\u11a8", "நி", "\r\n", "각"]
)
def test_characters_keep_clusters_whole(whole):
    found = segmenter_of("characters")("x" + whole + "我")
    assert found.tokens == ["x", whole, "我"]
    assert found.starts == [0, 1, 1 + len(whole)]


def test_words_by_unicode_boundaries():
    found = segmenter_of("words")("Don't pay $3.14, 我们 ok?")
    assert found.tokens == ["Don't", "pay", "$", "3.14", ",", "我", "们", "ok", "?"]


def test_jieba_words_and_offsets():
    found = segmenter_of("jieba")("👍我 喜欢吃洋葱")
    assert found.tokens == ["👍", "我", "喜欢", "吃", "洋葱"]
    assert found.starts == [0, 1, 3, 5, 6]


def test_jieba_takes_words_and_hmm():
    plain = segmenters.create("jieba", hmm=False)
    taught = segmenters.create("jieba", hmm=False, words=["注意力机制"])
    assert "注意力机制" not in plain("自注意力机制").tokens
    assert "注意力机制" in taught("自注意力机制").tokens
    assert segmenters.from_settings(taught.settings()).fingerprint() == taught.fingerprint()


def test_settings_without_a_name_are_refused():
    with pytest.raises(OptionError, match=r"^segmenter settings need a 'name'; they have: hmm$"):
        segmenters.from_settings({"hmm": True})


@given(st.text(st.sampled_from([c for c in map(chr, range(0x3001)) if c.isspace()] + [*"ab我"])))
def test_white_space_is_what_python_splits_at(text):
    assert segmenter_of("whitespace")(text).tokens == text.split()


def test_characters_are_the_clusters_of_the_standard():
    for start in range(0, 0x30000, 0x1000):
        text = "".join(chr(c) for c in range(start, start + 0x1000) if not 0xD800 <= c < 0xE000)
        assert segmenter_of("characters")(text).tokens == regex.findall(r"\X", text)
