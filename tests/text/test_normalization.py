import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.errors import OptionError
from regard.text.normalization import Normalization

# Characters that expand, contract, compose, reorder or change case in unusual ways.
UNUSUAL = (
    "ﬁ½Ⅳİıß㎏ＡＺ０カﾞｶﾟe\u0301\u0323\u0327ㄱㅏㄴ각각ΣσςÅK\u09c7\u09beﷺ㍿¨´\u0345ᾳ🇨🇳\u200d\n a我"
)
texts = st.text(st.sampled_from(UNUSUAL), max_size=12) | st.text(max_size=12)


@given(texts, st.booleans())
def test_the_aligned_text_is_the_normalized_text(text, lowercase):
    aligned = Normalization("nfkc", lowercase).align(text)
    expected = unicodedata.normalize("NFKC", text)
    assert aligned.text == (expected.lower() if lowercase else expected)
    assert len(aligned.starts) == len(aligned.ends) == len(aligned.text)


@given(texts)
def test_stretches_run_forward_and_cover_the_original(text):
    aligned = Normalization("nfkc", lowercase=True).align(text)
    assert aligned.starts == sorted(aligned.starts)
    assert aligned.ends == sorted(aligned.ends)
    covered = {i for s, e in zip(aligned.starts, aligned.ends, strict=True) for i in range(s, e)}
    assert covered == set(range(len(text)))


@given(texts)
def test_a_stretch_normalizes_to_what_stands_for_it(text):
    normalization = Normalization("nfkc")
    aligned = normalization.align(text)
    stretches = dict.fromkeys(zip(aligned.starts, aligned.ends, strict=True), "")
    for character, *stretch in zip(aligned.text, aligned.starts, aligned.ends, strict=True):
        stretches[tuple(stretch)] += character
    for (start, end), normalized in stretches.items():
        assert normalization(text[start:end]) == normalized


@pytest.mark.parametrize(
    ("text", "normalized", "starts", "ends"),
    [
        ("aﬁb", "afib", [0, 1, 1, 2], [1, 2, 2, 3]),
        ("½", "1⁄2", [0, 0, 0], [1, 1, 1]),
        ("İx", "i̇x", [0, 0, 1], [1, 1, 2]),
        ("e\u0301x", "éx", [0, 2], [2, 3]),
        ("ｶﾞ", "ガ", [0], [2]),
        ("ㄱㅏㄴ", "가ᄂ", [0, 2], [2, 3]),
    ],
)
def test_by_hand(text, normalized, starts, ends):
    aligned = Normalization("nfkc", lowercase=True).align(text)
    assert (aligned.text, aligned.starts, aligned.ends) == (normalized, starts, ends)


def test_an_unknown_form_is_refused():
    with pytest.raises(OptionError, match=r"^unknown normalization 'nfc'; known: none, nfkc$"):
        Normalization("nfc")
