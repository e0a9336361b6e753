import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.errors import DataError, OptionError
from regard.text import decoding
from regard.text.decoding import decode, recognise

CHINESE = "我喜欢吃洋葱，我真的不喜欢吃洋葱。他在北京大学学习自然语言处理。"
TRADITIONAL = "我喜歡吃洋蔥，我真的不喜歡吃洋蔥。他在北京大學學習自然語言處理。"


class Dribble(io.BytesIO):
    """A stream that gives a few bytes at a time, so that every place is a block's end once."""

    def __init__(self, content, step):
        super().__init__(content)
        self.step = step

    def read(self, size=-1):
        return super().read(self.step)


def read(content, step=1 << 20, **options):
    return "".join(decode(Dribble(content, step), "x.txt", **options))


@pytest.mark.parametrize("step", [1, 2, 3, 5, 7, 64])
@pytest.mark.parametrize(
    "encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-be+bom", "utf-32", "gb18030", "gbk"]
)
@pytest.mark.parametrize("text", ["plain", CHINESE, "x" * 99 + CHINESE, "naïve café 👍 " + CHINESE])
def test_encodings_are_recognised(encoding, text, step):
    if encoding == "gbk":
        text = text.replace("👍", "").replace("ï", "i")
    if encoding == "utf-16-be+bom":
        content = b"\xfe\xff" + text.encode("utf-16-be")
    else:
        content = text.encode(encoding)
    assert read(content, step) == text


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf_16_without_a_mark(encoding):
    assert read("Hello, Welt: ünïcode".encode(encoding)) == "Hello, Welt: ünïcode"


@pytest.mark.parametrize("encoding", ["utf-8", "gb18030"])
def test_the_first_chinese_character_may_come_late(encoding):
    late = "plain ascii\n" * 400_000 + CHINESE
    assert read(late.encode(encoding)) == late


def test_traditional_gbk():
    assert read(TRADITIONAL.encode("gbk")) == TRADITIONAL


@given(st.text(st.characters(exclude_categories=["Cs"])), st.integers(1, 9))
def test_utf_8_is_never_taken_for_anything_else(text, step):
    content = text.encode()
    if b"\x00" not in content and not content.startswith((b"\xef\xbb\xbf",)):
        assert read(content, step) == text


@given(st.text(st.sampled_from(CHINESE + "的一是在人有我他这 \nabc"), min_size=1))
def test_common_chinese_in_gb18030_reads_right_or_fails(text):
    # Two or three characters can happen to be good UTF-8; longer texts cannot.
    content = text.encode("gb18030")
    if recognise(content.lstrip(b"abc \n"), True) == "gb18030":
        assert read(content) == text
    else:
        assert len(content) < 16


@pytest.mark.parametrize("lead", ["", "abc ", "你好", "plain\n" * 300_000])
@pytest.mark.parametrize("cut", [1, 2])
def test_a_last_character_cut_short_is_an_error(lead, cut):
    content = (lead + "你").encode()[:-cut]
    line = lead.count("\n") + 1
    message = (
        f"^line {line} of x.txt: byte 0xe4 at offset {len(lead.encode())} "
        "starts a character that is cut short in UTF-8; mend the file, name its encoding, "
        'or read on with errors="replace"$'
    )
    with pytest.raises(DataError, match=message):
        read(content)
    assert read(content, errors="replace") == lead + "\ufffd"


@pytest.mark.parametrize("step", [1, 2, 7, 1 << 20])
def test_a_damaged_byte_names_line_and_offset(step):
    content = f"first\n{CHINESE}\nthi".encode() + b"\xff" + CHINESE.encode()
    offset = content.index(b"\xff")
    message = f"^line 3 of x.txt: byte 0xff at offset {offset} is no character in UTF-8"
    with pytest.raises(DataError, match=message):
        read(content, step)
    assert read(content, step, errors="replace") == f"first\n{CHINESE}\nthi\ufffd{CHINESE}"


def test_a_damaged_byte_past_a_mark_and_in_gb18030():
    with pytest.raises(DataError, match=r"^line 2 of x.txt: byte 0xff at offset 7 is no character"):
        read(b"\xef\xbb\xbfab\nc\xff")
    content = (CHINESE * 9 + "\n").encode("gb18030") + b"\xff\xff"
    with pytest.raises(DataError, match=r"^line 2 of x.txt: byte 0xff at offset .* in GB18030"):
        read(content)


def test_utf_16_cut_in_half():
    with pytest.raises(DataError, match=r"byte 0x62 at offset 4 starts a character that is cut"):
        read("ab".encode("utf-16")[:-1])


@pytest.mark.parametrize("text", ["café", "naïve coöperation", "Zoë déjà vu", "Привет, мир"])
def test_western_and_cyrillic_bytes_are_not_taken_for_chinese(text):
    encoding = "cp1251" if text.startswith("П") else "cp1252"
    with pytest.raises(DataError, match=r"(is no character|is cut short) in UTF-8"):
        read(text.encode(encoding))
    assert read(text.encode(encoding), encoding=encoding) == text


def test_some_damage_does_not_turn_utf_8_into_gb18030():
    content = bytearray(CHINESE.encode() * 9)
    for place in (10, 100, 200):
        content[place] = 0xFF
    assert recognise(bytes(content), True) == "utf-8"


def test_a_named_encoding_is_taken_at_its_word():
    assert read("浣".encode("gb18030"), encoding="gb18030") == "浣"
    assert read(b"\xef\xbb\xbfabc", encoding="utf-8") == "abc"
    with pytest.raises(OptionError, match=r"^unknown encoding 'utf8x'; for example: utf-8"):
        read(b"abc", encoding="utf8x")
    with pytest.raises(OptionError, match=r"^unknown encoding 'base64'"):
        read(b"abc", encoding="base64")
    with pytest.raises(OptionError, match=r"^unknown errors= 'ignore'; known: replace, strict$"):
        read(b"abc", errors="ignore")


@pytest.mark.parametrize("content", [b"", b"\xef\xbb\xbf", b"\xff\xfe"])
def test_no_text_at_all(content):
    assert read(content) == ""


def test_zero_bytes_are_characters():
    assert read(b"ab\x00cd ef gh") == "ab\x00cd ef gh"


def test_blocks_are_small():
    blocks = list(decode(io.BytesIO(b"a" * (3 * decoding.BLOCK + 5)), "x.txt"))
    assert max(map(len, blocks)) <= decoding.BLOCK
