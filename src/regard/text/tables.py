"""Rows of .csv, .tsv, .jsonl and .parquet files, streamed, with the line each stands on.

- .csv: commas, fields in double quotes may hold commas and line ends, ``""`` is a quote.
- .tsv: tabs and nothing else; a double quote is a character like any other.
- .jsonl: one object a line; numbers and Booleans become their JSON text.
- .parquet: any columns that Arrow can cast to strings.

Blank lines are left out. Every value is a string.
"""

import csv
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from regard.errors import DataError, OptionError, StorageError
from regard.text.decoding import decode
from regard.text.lines import lines
from regard.text.sources import Source

Row = tuple[int, tuple[str, ...]]


def read_table(
    path: str | Path,
    columns: Sequence[str],
    errors: str = "strict",
    encoding: str | None = None,
) -> Iterator[Row]:
    """(line number, values of `columns`) for each row of a .csv, .tsv, .jsonl or .parquet file.

    The line number counts from 1 with the header; for .parquet it is the row's number. `DataError`
    names the line of a row that does not fit and the columns that there are.
    """
    if isinstance(columns, str):
        raise OptionError(f"columns= takes a list of names; it got the string {columns!r}")
    source = Source(Path(path))
    if source.format == ".txt":
        raise DataError(f"{source.name} is no table; known endings: .csv, .tsv, .jsonl, .parquet")
    return rows(source, tuple(columns), errors, encoding)


def rows(
    source: Source, columns: tuple[str, ...], errors: str, encoding: str | None
) -> Iterator[Row]:
    """The rows of one table."""
    if source.format == ".parquet":
        yield from _parquet_rows(source, columns)
        return
    with source.open() as stream:
        numbered = enumerate(lines(decode(stream, source.name, errors, encoding)), start=1)
        if source.format == ".jsonl":
            yield from _json_rows(source.name, numbered, columns, errors)
        else:
            yield from _separated_rows(source, numbered, columns)


def columns_of(source: Source, errors: str = "strict", encoding: str | None = None) -> list[str]:
    """The names of a table's columns; of the first object's members for .jsonl."""
    if source.format == ".parquet":
        with _open_parquet(source) as file:
            return list(file.schema_arrow.names)
    with source.open() as stream:
        numbered = enumerate(lines(decode(stream, source.name, errors, encoding)), start=1)
        if source.format == ".jsonl":
            return list(next(_objects(source.name, numbered))[1])
        return next(_records(source, numbered))[1]


def _separated_rows(
    source: Source, numbered: Iterator[tuple[int, str]], columns: tuple[str, ...]
) -> Iterator[Row]:
    records = _records(source, numbered)
    _, header = next(records)
    places = [_place(source.name, name, header) for name in columns]
    for number, record in records:
        if len(record) != len(header):
            raise DataError(
                f"line {number} of {source.name} has {_count(len(record), 'column')}, "
                f"the header has {len(header)}"
            )
        yield number, tuple([record[place] for place in places])


def _records(
    source: Source, numbered: Iterator[tuple[int, str]]
) -> Iterator[tuple[int, list[str]]]:
    """The header, then the rows; at least the header."""
    split = _split_csv if source.format == ".csv" else _split_tsv
    empty = True
    for number, record in split(source.name, numbered):
        if empty and len(set(record)) < len(record):
            twice = next(name for name in record if record.count(name) > 1)
            raise DataError(f"{source.name} has two columns named {twice!r}")
        empty = False
        yield number, record
    if empty:
        raise DataError(f"{source.name} is empty; its first line must name the columns")


def _split_tsv(name: str, numbered: Iterator[tuple[int, str]]) -> Iterator[tuple[int, list[str]]]:
    return ((number, line.split("\t")) for number, line in numbered if line)


def _split_csv(name: str, numbered: Iterator[tuple[int, str]]) -> Iterator[tuple[int, list[str]]]:
    csv.field_size_limit(2**31 - 1)
    reader = csv.reader((line + "\n" for _, line in numbered), strict=True)
    while True:
        start = reader.line_num + 1
        try:
            record = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            if str(error) == "unexpected end of data":
                raise DataError(
                    f"line {start} of {name}: the quoted field is never closed"
                ) from None
            raise DataError(f"line {start} of {name} is not CSV: {error}") from None
        if record:
            yield start, record


def _json_rows(
    name: str, numbered: Iterator[tuple[int, str]], columns: tuple[str, ...], errors: str
) -> Iterator[Row]:
    for number, found in _objects(name, numbered):
        try:
            values = [found[column] for column in columns]
        except KeyError as error:
            raise DataError(
                f"line {number} of {name} has no column {error.args[0]!r}; "
                f"it has: {', '.join(found) or 'nothing'}"
            ) from None
        yield (
            number,
            tuple(
                [
                    _json_text(name, number, column, value, errors)
                    for column, value in zip(columns, values, strict=True)
                ]
            ),
        )


def _objects(
    name: str, numbered: Iterator[tuple[int, str]]
) -> Iterator[tuple[int, dict[str, Any]]]:
    empty = True
    for number, line in numbered:
        if not line or line.isspace():
            continue
        try:
            found = json.loads(line)
        except (ValueError, RecursionError) as error:
            at = f" at character {error.colno}" if isinstance(error, json.JSONDecodeError) else ""
            what = error.msg if isinstance(error, json.JSONDecodeError) else str(error)
            raise DataError(f"line {number} of {name} is not JSON: {what}{at}") from None
        if not isinstance(found, dict):
            raise DataError(f"line {number} of {name} is not a JSON object: {line[:40]}")
        empty = False
        yield number, found
    if empty:
        raise DataError(f"{name} is empty; each line must be a JSON object")


def _json_text(name: str, number: int, column: str, value: Any, errors: str) -> str:
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError as error:
            if errors == "replace":
                return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
            raise DataError(
                f"line {number} of {name}: column {column!r} has the lone surrogate "
                f"\\u{ord(value[error.start]):04x}, half of a UTF-16 pair; "
                'read on with errors="replace"'
            ) from None
        return value
    if isinstance(value, int | float):
        return json.dumps(value)
    kind = {type(None): "null", list: "an array", dict: "an object"}[type(value)]
    raise DataError(f"line {number} of {name}: column {column!r} is {kind}, not a string")


def _parquet_rows(source: Source, columns: tuple[str, ...]) -> Iterator[Row]:
    with _open_parquet(source) as file:
        for name in columns:
            _place(source.name, name, file.schema_arrow.names)
        number = 0
        for batch in _batches(source.name, file, columns):
            values = [_strings(source.name, number, name, batch.column(name)) for name in columns]
            for row in zip(*values, strict=True):
                number += 1
                yield number, row


def _batches(name: str, file: pq.ParquetFile, columns: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
    try:
        yield from file.iter_batches(1 << 13, columns=list(dict.fromkeys(columns)))
    except (OSError, pa.ArrowException) as error:
        reason = str(error).splitlines()[0]
        raise DataError(f"{name} is damaged: {reason}") from None


def _strings(file: str, before: int, name: str, column: pa.Array) -> list[str]:
    if column.null_count:
        row = before + column.is_null().to_pylist().index(True) + 1
        raise DataError(f"row {row} of {file}: column {name!r} is null, not a string")
    try:
        return column.cast(pa.string()).to_pylist()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, UnicodeDecodeError):
        raise DataError(
            f"column {name!r} of {file} holds {column.type}, which is no text"
        ) from None


def _open_parquet(source: Source) -> pq.ParquetFile:
    if source.compression is not None:
        raise DataError(
            f"{source.name}: Parquet is compressed inside; store it without {source.compression}"
        )
    assert source.path is not None
    try:
        return pq.ParquetFile(source.path)
    except pa.ArrowInvalid as error:
        reason = str(error).split(".")[0]
        raise DataError(f"{source.name} is not a whole Parquet file: {reason}") from None
    except OSError as error:
        raise StorageError(f"cannot read {source.path}: {error}") from None


def _place(file: str, name: str, known: Sequence[str]) -> int:
    if name not in known:
        raise DataError(f"{file} has no column {name!r}; it has: {', '.join(known)}")
    return list(known).index(name)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
