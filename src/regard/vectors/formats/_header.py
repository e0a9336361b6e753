"""The header line of word2vec's formats: how many rows, and how many numbers a row."""

import re

from regard.errors import DataError
from regard.vectors.formats._files import Source

_HEADER = re.compile(rb"[ \t]*(\d{1,18})[ \t]+(\d{1,9})[ \t\r]*(?:\n|\Z)")


def header(head: bytes) -> tuple[int, int, int] | None:
    """(rows, size, where the rows begin), or None if `head` does not begin with a header.

    >>> header(b"71290 300\\nthe ")
    (71290, 300, 10)
    """
    match = _HEADER.match(head)
    return match and (int(match[1]), int(match[2]), match.end())


def read_header(source: Source) -> tuple[int, int]:
    """Read the header off `source`: (rows, size). `DataError` if there is none or the size is 0."""
    line = b""
    while not line.endswith(b"\n") and len(line) < 64 and (byte := source.read(1)):
        line += byte
    found = header(line)
    if found is None:
        raise DataError(
            f"{source.path}: the first line is {line!r} where a header 'rows size' is expected; "
            "a file without a header is read with format='glove'"
        )
    rows, size, _ = found
    if size == 0:
        raise DataError(f"{source.path}: its header says that a vector holds 0 numbers")
    return rows, size
