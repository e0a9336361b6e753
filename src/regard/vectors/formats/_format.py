"""What every vector format shares: the table it carries, how it is read, how faults are told."""

import warnings
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from regard.errors import DataError, OptionError
from regard.vectors.subwords import Subwords


@dataclass
class Table:
    """Words and their vectors, row by row, as a file holds them.

    `matrix` is (V, D); `counts`, if known, how often each word occurred; `extra` named arrays and
    plain values that travel along; `subwords` what gives unknown words a vector.
    """

    tokens: Sequence[str] | pa.LargeStringArray
    matrix: np.ndarray
    counts: np.ndarray | None = None
    extra: dict[str, Any] | None = None
    subwords: Subwords | None = None


@dataclass(frozen=True)
class Reading:
    """How to read: the first `limit` rows, as `dtype` (None: as the file has it), how strictly.

    `errors="strict"` refuses a file with any fault. `"replace"` and `"ignore"` leave damaged rows
    out with a warning that counts them, take the rows that are there whatever the header says, and
    decode damaged words with Python's handler of that name.
    """

    limit: int | None = None
    errors: str = "strict"
    dtype: np.dtype | None = None

    @property
    def strict(self) -> bool:
        """Whether a fault ends the reading."""
        return self.errors == "strict"


@dataclass
class Faults:
    """The faults of one file: the first one raised if strict, else all counted and warned of."""

    path: Path
    reading: Reading
    dropped: Counter[str] = field(default_factory=Counter)

    def row(self, where: str, kind: str, fault: str) -> None:
        """A row that cannot be used: raise `fault`, or leave the row out as one of `kind`."""
        if self.reading.strict:
            raise DataError(
                f"{self.path}, {where}: {fault}; repair it, or load with errors='replace' "
                "to leave such rows out"
            )
        self.dropped[kind] += 1

    def rows(self, announced: int, found: int, note: str = "") -> None:
        """A header that announces another number of rows than the file holds."""
        message = f"{self.path}: its header says {announced} rows but it holds {found}{note}"
        if self.reading.strict:
            raise DataError(
                f"{message}; repair the header, or load with errors='replace' to take the rows "
                "that are there"
            )
        warnings.warn(f"{message}; the rows that are there were taken", stacklevel=2)

    def decode(self, word: bytes, where: str) -> str:
        """The text of `word`, by the handler asked for."""
        try:
            return word.decode("utf-8", errors=self.reading.errors)
        except UnicodeDecodeError as error:
            raise DataError(
                f"{self.path}, {where}: the word {word!r} is not UTF-8 ({error.reason} at byte "
                f"{error.start}), as when it was cut within a character; load with "
                "errors='replace' or errors='ignore' to read it all the same"
            ) from None

    def warn(self) -> None:
        """Tell of the rows left out, if any."""
        if self.dropped:
            kinds = ", ".join(f"{count} {kind}" for kind, count in self.dropped.items())
            warnings.warn(
                f"{self.path}: {self.dropped.total()} rows left out ({kinds})", stacklevel=2
            )


class Format(ABC):
    """A file format of word vectors.

    `suffixes` are those that ask for this format when a table is saved; `compressible` says
    whether it may be compressed.
    """

    suffixes: ClassVar[tuple[str, ...]] = ()
    compressible: ClassVar[bool] = True

    @abstractmethod
    def recognizes(self, head: bytes) -> bool:
        """Whether a file that begins with `head` (up to 64 KB) is in this format."""

    @abstractmethod
    def read(self, path: Path, reading: Reading) -> Table:
        """The table in `path`; `DataError` names the first fault that `reading` does not allow."""

    def write(self, table: Table, path: Path) -> None:
        """Write `table` to `path`, whole or not at all."""
        raise OptionError(f"{path}: {type(self).__name__} is read only; save as another format")


class GrowingMatrix:
    """A matrix filled block by block, whose number of rows may not be known before."""

    def __init__(self, rows: int, size: int, dtype: np.dtype):
        self._matrix = np.empty((max(rows, 1), size), dtype)
        self.rows = 0

    def append(self, block: np.ndarray) -> None:
        """Add the rows of `block`."""
        rows = self.rows + len(block)
        if rows > len(self._matrix):
            grown = np.empty(
                (max(rows, 2 * len(self._matrix)), self._matrix.shape[1]), self._matrix.dtype
            )
            grown[: self.rows] = self._matrix[: self.rows]
            self._matrix = grown
        self._matrix[self.rows : rows] = block
        self.rows = rows

    def finish(self) -> np.ndarray:
        """The rows added so far."""
        return self._matrix[: self.rows]


def without_repeats(
    path: Path, tokens: list[str], matrix: np.ndarray, counts: np.ndarray | None = None
) -> Table:
    """A table in which each word stands once: the first row is kept, a warning counts the rest."""
    first = dict.fromkeys(tokens)
    if len(first) == len(tokens):
        return Table(tokens, matrix, counts)
    seen: set[str] = set()
    keep = np.array([not (token in seen or seen.add(token)) for token in tokens])
    repeated = tokens[int(np.flatnonzero(~keep)[0])]
    warnings.warn(
        f"{path}: {len(tokens) - len(first)} rows repeat a word, such as {repeated!r}; "
        "the first row of each word was kept",
        stacklevel=2,
    )
    return Table(list(first), matrix[keep], None if counts is None else counts[keep])


def utf8(token: object, path: Path) -> bytes:
    """The bytes of a word that goes to `path`; `DataError` for half a surrogate pair."""
    try:
        return str(token).encode()
    except UnicodeEncodeError:
        raise DataError(f"{path}: the word {token!r} cannot be written as UTF-8") from None


def check_words(table: Table, path: Path) -> None:
    """Refuse words that a format with separated fields cannot hold, and numbers that are none."""
    for token in table.tokens:
        token = str(token)
        if not token or any(blank in token for blank in " \t\n\r\v\f"):
            what = "holds a space, tab or line break" if token else "is empty"
            raise DataError(
                f"{path}: the word {token!r} {what}, and blanks part the fields of this format; "
                "save as .safetensors, or rename the word"
            )
        if not token.isascii():
            utf8(token, path)


def check_numbers(block: np.ndarray, first: int, table: Table, path: Path) -> None:
    """Refuse to write numbers that are not finite; `block` begins at row `first`."""
    finite = np.isfinite(block)
    if not finite.all():
        row = int(np.flatnonzero(~finite.all(1))[0])
        raise DataError(
            f"{path}: the vector of {str(table.tokens[first + row])!r} holds a number that is not "
            "finite; such a table is not saved"
        )
