from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from regard.text.lines import lines, pages

texts = st.text(st.sampled_from(["a", "b", "\n", "\r", "\u2028", "\x85", "\x0b", "\x0c"]))


@given(texts, st.lists(st.integers(0, 40)))
def test_lines_end_as_python_reads_them_wherever_the_pieces_end(text, cuts):
    bounds = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    pieces = [text[start:end] for start, end in pairwise(bounds)]
    expected = text.replace("\r\n", "\n").replace("\r", "\n").removesuffix("\n").split("\n")
    assert list(lines(pieces)) == (expected if text else [])
    for page in list(pages(pieces))[:-1]:
        assert page.endswith("\n")


def test_other_separators_are_no_line_ends():
    assert list(lines(["a\u2028b\u2029c\x85d\x0be\x0cf\r\ng\rh\n"])) == [
        "a\u2028b\u2029c\x85d\x0be\x0cf",
        "g",
        "h",
    ]
