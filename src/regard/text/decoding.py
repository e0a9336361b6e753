"""Bytes → text, with the encoding recognised from the bytes themselves.

A byte order mark decides. Without one the text is UTF-8 as long as it is pure ASCII, however far
that goes; the 64 KiB from the first other byte on then decide between UTF-8 and GB18030 (which
contains GBK and GB2312), and that decision holds to the end. UTF-16 without a mark is recognised
when at least a quarter of its first units are ASCII.
"""

import codecs
import re
from collections.abc import Iterator
from functools import cache
from typing import Protocol, runtime_checkable

from regard.errors import DataError, OptionError

BLOCK = 1 << 20
SAMPLE = 1 << 16
_NOT_ASCII = re.compile(rb"[\x80-\xff]")
_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
# What Python's decoders say of the last character of a text.
_CUT_SHORT = ("unexpected end of data", "incomplete multibyte sequence", "truncated data")


@runtime_checkable
class ByteStream(Protocol):
    """What bytes are read from: files, pipes, archives."""

    def read(self, size: int, /) -> bytes:
        """At most `size` bytes; none at the end."""
        ...


def decode(
    stream: ByteStream, name: str, errors: str = "strict", encoding: str | None = None
) -> Iterator[str]:
    """The text of `stream` in blocks of about a million characters.

    A byte that does not fit the encoding is a `DataError` with file, line and byte offset, or
    U+FFFD with ``errors="replace"``. `encoding` names the encoding instead of recognising it.
    """
    if errors not in ("strict", "replace"):
        raise OptionError(f"unknown errors= {errors!r}; known: replace, strict")
    block = stream.read(BLOCK)
    while 0 < len(block) < 4 and (more := stream.read(BLOCK)):
        block += more
    offset = 0
    if encoding is None:
        for mark, marked in _MARKS:
            if block.startswith(mark):
                block, offset, encoding = block[len(mark) :], len(mark), marked
                break
        else:
            encoding = _utf16_without_mark(block)
    elif _lookup(encoding) == "utf-8" and block.startswith(codecs.BOM_UTF8):
        block, offset = block[3:], 3
    block = block or stream.read(BLOCK)
    line = 1
    while encoding is None:
        first = _NOT_ASCII.search(block)
        if first is None:
            yield block.decode("ascii")
            line += block.count(b"\n")
            offset += len(block)
            block = stream.read(BLOCK)
            if not block:
                return
            continue
        complete = False
        while len(block) - first.start() < SAMPLE and not complete:
            more = stream.read(BLOCK)
            block += more
            complete = not more
        encoding = recognise(block[first.start() : first.start() + SAMPLE], complete)
    yield from _decode_as(encoding, stream, block, offset, line, name, errors)


def _decode_as(
    encoding: str, stream: ByteStream, block: bytes, offset: int, line: int, name: str, errors: str
) -> Iterator[str]:
    decoder = codecs.getincrementaldecoder(encoding)(errors)
    while True:
        offset += len(block)
        try:
            text = decoder.decode(block, final=not block)
        except UnicodeDecodeError as error:
            at = offset - len(error.object) + error.start
            line += error.object[: error.start].decode(encoding, "replace").count("\n")
            cut = error.reason in _CUT_SHORT
            raise DataError(
                f"line {line} of {name}: byte 0x{error.object[error.start]:02x} at offset {at} "
                f"{'starts a character that is cut short' if cut else 'is no character'} in "
                f"{encoding.upper()}; mend the file, name its encoding, "
                'or read on with errors="replace"'
            ) from None
        if text:
            yield text
            line += text.count("\n")
        if not block:
            return
        block = stream.read(BLOCK)


def recognise(sample: bytes, complete: bool) -> str:
    """``"utf-8"`` or ``"gb18030"`` for bytes that start at the first byte past ASCII.

    `complete` says that the text ends with the sample, so that a character cut at its end counts
    as damage. GB18030 is chosen only when UTF-8 has more damage than characters and the text then
    reads as Chinese: half of it common characters, at most one in a hundred damaged.
    """
    try:
        codecs.utf_8_decode(sample, "strict", complete)
        return "utf-8"
    except UnicodeDecodeError as error:
        if error.reason in _CUT_SHORT:
            return "utf-8"
    text, _ = codecs.utf_8_decode(sample, "replace", complete)
    damage = text.count("\ufffd")
    sound = sum(c > "\x7f" for c in text) - damage
    if damage <= sound:
        return "utf-8"
    decoder = codecs.getincrementaldecoder("gb18030")("replace")
    beyond_ascii = [c for c in decoder.decode(sample, complete) if c > "\x7f"]
    damage = beyond_ascii.count("\ufffd")
    common = sum(c in _common_chinese() for c in beyond_ascii)
    fits = damage * 100 <= len(beyond_ascii) and common * 2 >= len(beyond_ascii)
    return "gb18030" if fits else "utf-8"


@cache
def _common_chinese() -> frozenset[str]:
    """The punctuation and the 3,755 most used characters of GB2312 (rows 1 to 3, 16 to 55)."""
    rows = (*range(0xA1, 0xA4), *range(0xB0, 0xD8))
    pairs = (bytes((row, cell)) for row in rows for cell in range(0xA1, 0xFF))
    return frozenset(pair.decode("gb2312", "ignore") for pair in pairs) - {""}


def _utf16_without_mark(block: bytes) -> str | None:
    units = len(block[:SAMPLE]) // 2
    if len(block) < BLOCK and len(block) % 2:
        return None
    even, odd = block[: 2 * units : 2].count(0), block[1 : 2 * units : 2].count(0)
    if even == 0 and odd * 4 >= units > 0:
        return "utf-16-le"
    if odd == 0 and even * 4 >= units > 0:
        return "utf-16-be"
    return None


def _lookup(encoding: str) -> str:
    try:
        "".encode(encoding)  # refuses codecs that are no text encodings
        return codecs.lookup(encoding).name
    except (LookupError, ValueError):
        raise OptionError(f"unknown encoding {encoding!r}; for example: utf-8, gb18030") from None
