"""Paragraphs out of files, one at a time: a file is never held whole.

A line of plain text is a paragraph, and so is one row of a table's text column. Lines end with
``\\n``, ``\\r\\n`` or ``\\r`` and nothing else; blank paragraphs are left out.
"""

from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

from regard.errors import DataError, OptionError
from regard.text.decoding import decode
from regard.text.sources import Source, find_sources
from regard.text.tables import columns_of, rows

ROWS = 1 << 14


def read_texts(
    source: str | Path,
    column: str | None = None,
    errors: str = "strict",
    encoding: str | None = None,
) -> Iterator[str]:
    """The paragraphs of a file, folder, glob or ``"-"`` (standard input), in order.

    Plain text gives its lines; .csv, .tsv, .jsonl and .parquet give `column` (by default ``text``,
    or the only one). .gz and .zst are decompressed. Encodings are recognised (see
    `regard.text.decoding`); `errors` is ``"strict"`` or ``"replace"``.
    """
    for one in find_sources(source):
        for block in blocks(one, column, errors, encoding):
            yield from block


def blocks(
    source: Source, column: str | None, errors: str, encoding: str | None
) -> Iterator[list[str]]:
    """The paragraphs of one file in lists of some megabytes."""
    if source.format == ".txt":
        if column is not None:
            raise OptionError(f"{source.name} is plain text and has no column {column!r}")
        with source.open() as stream:
            for lines in line_blocks(decode(stream, source.name, errors, encoding)):
                yield [line for line in lines if line and not line.isspace()]
        return
    if column is None:
        column = _text_column(source, columns_of(source, errors, encoding))
    values = (row[0] for _, row in rows(source, (column,), errors, encoding))
    yield from chunked(text for text in values if text and not text.isspace())


def chunked(texts: Iterable[str]) -> Iterator[list[str]]:
    """The texts in lists of `ROWS`."""
    texts = iter(texts)
    while block := list(islice(texts, ROWS)):
        yield block


def line_blocks(pieces: Iterable[str]) -> Iterator[list[str]]:
    """The lines of a text that comes in pieces, without their ends."""
    held: list[str] = []
    for piece in pieces:
        cut = max(piece.rfind("\n"), piece.rfind("\r", 0, -1)) + 1
        if held and held[-1].endswith("\r"):
            cut = max(cut, 1 if piece.startswith("\n") else 0)
            if cut == 0:
                yield _lines("".join(held))
                held = []
        if cut:
            held.append(piece[:cut])
            yield _lines("".join(held))
            held = []
        if cut < len(piece):
            held.append(piece[cut:])
    if held:
        yield _lines("".join(held))


def _lines(text: str) -> list[str]:
    """The lines of a text that ends with a line's end or the file's."""
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    return text.removesuffix("\n").split("\n")


def _text_column(source: Source, known: list[str]) -> str:
    if "text" in known:
        return "text"
    if len(known) == 1:
        return known[0]
    raise DataError(
        f"{source.name} has no column 'text'; it has: {', '.join(known)}; name one with column="
    )
