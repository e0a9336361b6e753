"""word2vec's binary format: a line ``rows size``, then each word, a space and raw numbers.

Source: Mikolov's word2vec.c (2013), which ends each row with a line break; gensim does not.
Numbers are little-endian float32. A table saved with ``dtype="float64"`` holds float64, which
regard tells apart when reading; other programs read float32 only.
"""

from pathlib import Path
from typing import no_type_check

import numpy as np
from numba import njit

from regard.errors import DataError, OptionError
from regard.vectors.formats._files import Source, writing
from regard.vectors.formats._format import (
    Faults,
    Format,
    GrowingMatrix,
    Reading,
    Table,
    check_numbers,
    check_words,
    without_repeats,
)
from regard.vectors.formats._header import header, read_header

_BLOCK = 1 << 24
_LONGEST_WORD = 1 << 16


@njit(cache=True, nogil=True)
@no_type_check
def _walk(buffer, width, starts, stops):
    """The bounds of the words of the whole rows in buffer: (how many rows, where the rest is)."""
    position = 0
    for row in range(len(starts)):
        start = position
        while start < len(buffer) and buffer[start] == 10:
            start += 1
        stop = start
        while stop < len(buffer) and buffer[stop] != 32:
            stop += 1
        if stop + 1 + width > len(buffer):
            return row, position
        starts[row] = start
        stops[row] = stop
        position = stop + 1 + width
    return len(starts), position


@njit(cache=True, nogil=True)
@no_type_check
def _gather(buffer, stops, numbers):
    for row in range(len(stops)):
        start = stops[row] + 1
        for byte in range(numbers.shape[1]):
            numbers[row, byte] = buffer[start + byte]


def _number_type(head: np.ndarray, size: int) -> np.dtype:
    """float32, unless the first words make sense only when rows hold float64."""
    for dtype in (np.dtype("<f4"), np.dtype("<f8")):
        starts = np.empty(16, np.int64)
        stops = np.empty(16, np.int64)
        rows, rest = _walk(head, size * dtype.itemsize, starts, stops)
        words = [head[a:b] for a, b in zip(starts[:rows], stops[:rows], strict=True)]
        left_over = rows < 16 and bool((head[rest:] != 10).any()) and len(head) < _BLOCK
        if rows and not left_over and all(len(w) and (w >= 32).all() for w in words):
            return dtype
    return np.dtype("<f4")


class Word2vecBinary(Format):
    """Raw numbers behind a header.

    >>> Word2vecBinary().recognizes(b"1 2\\nw " + np.float32([1.5, 2]).tobytes())
    True
    """

    suffixes = (".bin",)

    def __init__(self, dtype: str = "float32"):
        if dtype not in ("float32", "float64"):
            raise OptionError(
                f"word2vec's binary format holds float32 or float64, not {dtype}; save {dtype} as "
                ".safetensors"
            )
        self.dtype = np.dtype(dtype).newbyteorder("<")

    def recognizes(self, head: bytes) -> bool:
        """A header, and then no text of numbers (that is asked first)."""
        found = header(head)
        return found is not None and b" " in head[found[2] :]

    def read(self, path: Path, reading: Reading) -> Table:
        """The table in `path`."""
        faults = Faults(path, reading)
        with Source(path) as source:
            announced, size = read_header(source)
            buffer = source.read(_BLOCK)
            stored = _number_type(np.frombuffer(buffer, np.uint8), size)
            width = size * stored.itemsize
            wanted = announced if reading.limit is None else min(announced, reading.limit)
            plausible = path.stat().st_size * (20 if source.compressed else 1) // width + 1
            matrix = GrowingMatrix(min(wanted, plausible), size, reading.dtype or stored)
            tokens: list[str] = []
            read = 0
            cut_word = ""
            end = wanted if reading.strict else reading.limit
            while end is None or read < end:
                room = len(buffer) // (width + 1) + 1
                room = room if end is None else min(room, end - read)
                starts, stops = np.empty(room, np.int64), np.empty(room, np.int64)
                bytes_ = np.frombuffer(buffer, np.uint8)
                rows, rest = _walk(bytes_, width, starts, stops)
                numbers = np.empty((rows, width), np.uint8)
                _gather(bytes_, stops[:rows], numbers)
                block = numbers.view(stored)
                words = [buffer[a:b] for a, b in zip(starts[:rows], stops[:rows], strict=True)]
                kept = self._check(words, block, read, tokens, faults)
                matrix.append(block if kept is None else block[kept])
                read += rows
                buffer = buffer[rest:]
                if rows == 0 and len(buffer) > width + _LONGEST_WORD:
                    raise DataError(
                        f"{path}: no word after row {read} of {announced}: the file is no "
                        "word2vec binary, or damaged there"
                    )
                if end is not None and read >= end:
                    break
                more = source.read(_BLOCK)
                if not more:
                    cut_word = buffer.lstrip(b"\n").split(b" ", 1)[0].decode("utf-8", "replace")
                    break
                buffer += more
            if reading.limit is None or read < reading.limit:
                self._check_end(source, buffer, width, read, announced, cut_word, faults)
        faults.warn()
        return without_repeats(path, tokens, matrix.finish())

    @staticmethod
    def _check(
        words: list[bytes], block: np.ndarray, read: int, tokens: list[str], faults: Faults
    ) -> np.ndarray | None:
        """Add the words of good rows to `tokens`; which rows are good, None if all of them."""
        good = np.atleast_1d(np.isfinite(block).all(axis=1))
        for row, word in enumerate(words):
            where = f"row {read + row + 1}"
            token = faults.decode(word, where)
            if good[row]:
                tokens.append(token)
            else:
                wrong = block[row][~np.isfinite(block[row])][0]
                faults.row(
                    f"{where}, word {token!r}", "not finite", f"{wrong} is not a finite number"
                )
        return None if good.all() else good

    @staticmethod
    def _check_end(
        source: Source,
        buffer: bytes,
        width: int,
        read: int,
        announced: int,
        cut_word: str,
        faults: Faults,
    ) -> None:
        """Compare the rows read with the header; what follows them may only be line breaks."""
        if read < announced:
            note = f" whole; it ends within the word {cut_word!r}" if cut_word else ""
            faults.rows(announced, read, note)
            return
        if read > announced:
            faults.rows(announced, read)
            return
        rest = buffer + source.read()
        if rest.strip(b"\n"):
            room = len(rest) // (width + 1) + 1
            starts = np.empty(room, np.int64)
            rows, _ = _walk(np.frombuffer(rest, np.uint8), width, starts, starts.copy())
            faults.rows(announced, read + rows, "" if rows else f" and {len(rest)} bytes more")

    def write(self, table: Table, path: Path) -> None:
        """Write `table` as word2vec.c does, a line break after each row, in float32."""
        check_words(table, path)
        rows, size = table.matrix.shape
        step = max(1, (1 << 20) // max(size, 1))
        with writing(path) as file:
            file.write(b"%d %d\n" % (rows, size))
            for first in range(0, rows, step):
                block = table.matrix[first : first + step].astype(self.dtype)
                check_numbers(block, first, table, path)
                words = table.tokens[first : first + step]
                parts = [
                    part
                    for word, row in zip(words, block, strict=True)
                    for part in (str(word).encode(), b" ", row.tobytes(), b"\n")
                ]
                file.write(b"".join(parts))
