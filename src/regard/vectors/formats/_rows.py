"""Rows of text, a word and its numbers a line: read and written by the million.

Arrow cuts and converts a block of lines at once. A block that it cannot take whole is read again
line by line, which names the first fault.
"""

# pyright: reportAttributeAccessIssue=false
# (pyarrow.compute makes its functions when it is imported)

import os
import warnings
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from regard.errors import DataError
from regard.vectors.formats._files import Sink, Source
from regard.vectors.formats._format import (
    Faults,
    GrowingMatrix,
    Reading,
    Table,
    check_numbers,
    without_repeats,
)

_BLOCK = 1 << 23
_NUMBERS = 1 << 20
_THREADS = min(os.cpu_count() or 1, 8)


def number(field: bytes) -> float:
    """The number in `field`, in Python's notation but for ``1_000``; `ValueError` if it is none."""
    if b"_" in field:
        raise ValueError
    return float(field)


def is_number(field: bytes) -> bool:
    """Whether `field` is one number."""
    try:
        number(field)
    except ValueError:
        return False
    return True


def is_text(head: bytes) -> bool:
    """Whether `head` holds no control characters but blanks and line breaks."""
    return not set(head) & (set(range(32)) - set(b"\t\n\r\v\f"))


def vector_size(head: bytes) -> int:
    """How many numbers most of the first hundred lines hold after one word; 0 if most hold none.

    Some words hold blanks, so that a few lines seem longer than they are.
    """
    lines = head.split(b"\n")
    rows = [line.split() for line in (lines[:-1] or lines)[:100] if line.strip()]
    plain = Counter(
        len(fields) - 1 for fields in rows if len(fields) > 1 and all(map(is_number, fields[1:]))
    )
    size = min(plain, key=lambda size: (-plain[size], size), default=0)
    return size if 2 * plain[size] >= len(rows) else 0


def read_rows(
    source: Source, size: int, reading: Reading, *, announced: int | None, line: int
) -> Table:
    """The rows that `source` still holds, `size` numbers each; the next line is number `line`.

    A word is all that stands before the last `size` fields, blanks included. `announced` is the
    number of rows in the header, if there is one.
    """
    path = source.path
    faults = Faults(path, reading)
    dtype = np.dtype(reading.dtype or np.float32)
    kind = pa.float64() if dtype == np.float64 else pa.float32()
    plausible = path.stat().st_size * (20 if source.compressed else 1) // (2 * size) + 1
    wanted = min(x for x in (reading.limit, announced, plausible) if x is not None)
    matrix = GrowingMatrix(wanted, size, dtype)
    tokens: list[str] = []
    end = reading.limit
    if reading.strict and announced is not None and (end is None or announced <= end):
        end = announced
    blocks = _line_blocks(source)
    beyond = 0
    with ThreadPoolExecutor(_THREADS) as pool:
        while group := list(islice(blocks, _THREADS)):
            for block, parsed in zip(
                group, pool.map(lambda block: _parse(block, size, kind), group), strict=True
            ):
                room = None if end is None else end - len(tokens)
                if room is not None and room <= 0:
                    beyond += _rows(block)
                    continue
                words, numbers = parsed or _parse_lines(block, size, room, line, dtype, faults)
                line += block.count(b"\n")
                if room is not None and len(words) >= room:
                    words, numbers = words[:room], numbers[:room]
                    beyond += _rows(block) - room
                tokens += words
                matrix.append(numbers)
            if reading.limit is not None and len(tokens) >= reading.limit:
                break
    if announced is not None and (reading.limit is None or len(tokens) < reading.limit):
        found = len(tokens) + faults.dropped.total() + beyond
        if found != announced:
            faults.rows(announced, found)
    faults.warn()
    spaced = [token for token in tokens if " " in token]
    if spaced:
        warnings.warn(
            f"{path}: {len(spaced)} words hold a space, such as {spaced[0]!r}: all that stands "
            f"before the last {size} numbers of a line was taken as the word",
            stacklevel=2,
        )
    return without_repeats(path, tokens, matrix.finish())


def _line_blocks(source: Source) -> Iterator[bytes]:
    """The rest of the source in blocks of whole lines."""
    rest = b""
    while part := source.read(_BLOCK):
        cut = part.rfind(b"\n") + 1
        if cut:
            yield rest + part[:cut]
            rest = part[cut:]
        else:
            rest += part
    if rest:
        yield rest + b"\n"


def _rows(block: bytes) -> int:
    return sum(1 for row in block.split(b"\n") if row.strip())


def _parse(block: bytes, size: int, kind: pa.DataType) -> tuple[list[str], np.ndarray] | None:
    """The words and numbers of a block, or None if any line of it is not plain."""
    ends = np.flatnonzero(np.frombuffer(block, np.uint8) == ord("\n")) + 1
    rows = len(ends)
    offsets = np.concatenate([[0], ends]).astype(np.int32)
    lines = pa.Array.from_buffers(
        pa.string(), rows, [None, pa.py_buffer(offsets), pa.py_buffer(block)]
    )
    trimmed = pc.ascii_rtrim_whitespace(lines)
    first = block[: ends[0]]
    blank = "\t" if first.count(b"\t") >= size else " "
    fields = pc.split_pattern(trimmed, blank, max_splits=size, reverse=True)
    if not (np.diff(fields.offsets.to_numpy()) == size + 1).all():
        return None
    flat = fields.values
    _, starts, text = flat.buffers()
    is_value = np.ones((rows, size + 1), bool)
    is_value[:, 0] = False
    valid = pa.py_buffer(np.packbits(is_value.ravel(), bitorder="little"))
    try:
        words = flat.take(pa.array(np.arange(rows) * (size + 1)))
        tokens = pc.ascii_trim_whitespace(words).to_pylist()
        numbers = pa.Array.from_buffers(pa.string(), len(flat), [valid, starts, text]).cast(kind)
    except (pa.ArrowInvalid, UnicodeDecodeError):
        return None
    values = np.frombuffer(numbers.buffers()[1], kind.to_pandas_dtype(), count=len(flat))
    values = values.reshape(rows, size + 1)[:, 1:]
    if not np.isfinite(values).all() or not all(tokens):
        return None
    return tokens, values


def _parse_lines(
    block: bytes, size: int, room: int | None, line: int, dtype: np.dtype, faults: Faults
) -> tuple[list[str], np.ndarray]:
    """As `_parse`, line by line up to `room` rows, with the faults named."""
    tokens: list[str] = []
    rows: list[np.ndarray] = []
    for at, text in enumerate(block.split(b"\n")[:-1], line):
        if room is not None and len(tokens) == room:
            break
        fields = text.strip().rsplit(None, size)
        if not fields:
            continue
        where = f"line {at}"
        if len(fields) <= size:
            word = fields[0].decode("utf-8", "replace")
            faults.row(
                f"{where}, word {word!r}",
                "with too few numbers",
                f"{len(fields) - 1} numbers where {size} are expected",
            )
            continue
        word = faults.decode(fields[0], where)
        where = f"{where}, word {word!r}"
        try:
            with np.errstate(over="ignore"):
                row = np.array([number(field) for field in fields[1:]]).astype(dtype)
        except ValueError:
            wrong = next(f for f in fields[1:] if not is_number(f)).decode("utf-8", "replace")
            faults.row(where, "not all numbers", f"{wrong!r} is not a number")
            continue
        if not np.isfinite(row).all():
            wrong = fields[1 + int(np.flatnonzero(~np.isfinite(row))[0])].decode()
            faults.row(where, "not finite", f"{wrong} is not a finite number")
            continue
        tokens.append(word)
        rows.append(row)
    return tokens, np.array(rows, dtype).reshape(len(rows), size)


def write_rows(file: Sink, table: Table, path: Path) -> None:
    """Write each word and its numbers, in the fewest digits that give the same numbers back."""
    rows, size = table.matrix.shape
    if size == 0:
        raise DataError(f"{path}: vectors of no numbers cannot be written as text")
    starts = iter(range(0, rows, max(1, _NUMBERS // size)))
    with ThreadPoolExecutor(_THREADS) as pool:
        while group := list(islice(starts, _THREADS)):
            for text in pool.map(lambda first: _lines(table, first, path), group):
                file.write(text)


def _lines(table: Table, first: int, path: Path) -> pa.Buffer:
    """The lines of the rows from `first` on, as many as make a block."""
    size = table.matrix.shape[1]
    end = first + max(1, _NUMBERS // size)
    block = np.ascontiguousarray(table.matrix[first:end])
    check_numbers(block, first, table, path)
    if block.dtype not in (np.float32, np.float64):
        block = block.astype(np.float32)
    numbers = pa.array(block.ravel()).cast(pa.string())
    offsets = pa.array(np.arange(len(block) + 1, dtype=np.int32) * size)
    joined = pc.binary_join(pa.ListArray.from_arrays(offsets, numbers), " ")
    words = pa.array(list(map(str, table.tokens[first:end])), pa.string())
    lines = pc.binary_join_element_wise(words, pc.binary_join_element_wise(joined, "", "\n"), " ")
    whole = pa.array([0, len(lines)], pa.int32())
    return pc.binary_join(pa.ListArray.from_arrays(whole, lines), "")[0].as_buffer()
