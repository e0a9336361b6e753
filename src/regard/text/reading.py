"""Paragraphs out of files, one at a time: a file is never held whole.

A line of plain text is a paragraph, and so is one row of a table's text column. Lines end with
``\\n``, ``\\r\\n`` or ``\\r`` and nothing else; blank paragraphs are left out.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

from regard.errors import DataError, OptionError
from regard.text.decoding import decode
from regard.text.lines import pages
from regard.text.sources import Source, find_sources
from regard.text.tables import columns_of, rows

PART = 1 << 20


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
        for part in parts(one, column, errors, encoding):
            found = part.split("\n") if isinstance(part, str) else part
            yield from (text for text in found if text and not text.isspace())


def parts(
    source: Source, column: str | None, errors: str, encoding: str | None
) -> Iterator[str | list[str]]:
    """The text of one file in parts of some megabytes.

    A part of plain text is a page of whole lines; a part of a table is a list of paragraphs.
    """
    if source.format == ".txt":
        if column is not None:
            raise OptionError(f"{source.name} is plain text and has no column {column!r}")
        with source.open() as stream:
            yield from pages(decode(stream, source.name, errors, encoding))
        return
    if column is None:
        column = _text_column(source, columns_of(source, errors, encoding))
    values = (row[0] for _, row in rows(source, (column,), errors, encoding))
    yield from chunked(text for text in values if text and not text.isspace())


def chunked(texts: Iterable[str]) -> Iterator[list[str]]:
    """The texts in lists of about `PART` characters."""
    part, size = [], 0
    for text in texts:
        if not isinstance(text, str):
            raise DataError(f"a text must be a string; it got {text!r:.40}, {type(text).__name__}")
        part.append(text)
        size += len(text) + 1
        if size >= PART:
            yield part
            part, size = [], 0
    if part:
        yield part


def _text_column(source: Source, known: list[str]) -> str:
    if "text" in known:
        return "text"
    if len(known) == 1:
        return known[0]
    raise DataError(
        f"{source.name} has no column 'text'; it has: {', '.join(known)}; name one with column="
    )
