"""Opening files that may be compressed, and writing them whole or not at all."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa

from regard.errors import DataError, StorageError
from regard.text.storage import new_file

COMPRESSIONS = {".gz": "gzip", ".zst": "zstd"}
_MAGIC = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_HEAD = 1 << 16


def uncompressed_suffix(path: Path) -> str:
    """The suffix of `path` in lower case, that of its compression left out."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] in COMPRESSIONS:
        suffixes.pop()
    return suffixes[-1] if suffixes else ""


@runtime_checkable
class Sink(Protocol):
    """What bytes can be written to."""

    def write(self, data: Any, /) -> object:
        """Write `data`, anything that lends its bytes."""


class Source:
    """The bytes of a file, decompressed when its first bytes say that it is compressed.

    A UTF-8 byte order mark at the start is passed over.
    `StorageError` if it cannot be opened, `DataError` where its compression is broken.
    """

    def __init__(self, path: Path):
        self.path = path
        self._stream: pa.NativeFile | None = None

    def __enter__(self) -> "Source":
        try:
            raw = pa.OSFile(str(self.path))
        except OSError as error:
            raise _unopened(self.path, error) from None
        start = raw.read(4)
        raw.seek(0)
        compression = next((c for magic, c in _MAGIC.items() if start.startswith(magic)), None)
        self.compressed = compression is not None
        self._stream = pa.CompressedInputStream(raw, compression) if compression else raw
        self._held = b""
        start = self.read(len(_BYTE_ORDER_MARK))
        self._held = b"" if start == _BYTE_ORDER_MARK else start
        return self

    def __exit__(self, *exception: object) -> None:
        assert self._stream is not None
        self._stream.close()

    def read(self, size: int | None = None) -> bytes:
        """The next `size` bytes, fewer only at the end; all that is left if `size` is None."""
        assert self._stream is not None
        parts = [held] if (held := self._held[:size]) else []
        self._held = self._held[len(held) :]
        left = None if size is None else size - len(held)
        try:
            while left is None or left > 0:
                part = self._stream.read(left if left is not None else 1 << 24)
                if not part:
                    break
                parts.append(part)
                left = None if left is None else left - len(part)
        except (OSError, pa.ArrowException) as error:
            raise DataError(
                f"{self.path} cannot be decompressed: {' '.join(str(error).split())}; "
                "the file is cut or damaged"
            ) from None
        return parts[0] if len(parts) == 1 else b"".join(parts)


def _unopened(path: Path, error: OSError) -> StorageError:
    if path.is_dir():
        reason = "it is a folder"
    else:
        reason = os.strerror(error.errno) if error.errno else "it does not exist"
    return StorageError(f"{path} cannot be opened: {reason}")


def head(path: Path) -> bytes:
    """The first 64 KB of what the file `path` holds."""
    if path.is_dir():
        raise _unopened(path, OSError())
    with Source(path) as source:
        return source.read(_HEAD)


class _OnlyTriedError(Exception):
    """Ends the writing of a file that was not meant to be written."""


def check_place(path: Path) -> None:
    """`StorageError` if no file can be written to `path`; whatever is there stays."""
    with suppress(_OnlyTriedError), new_file(path):
        raise _OnlyTriedError


@contextmanager
def writing(path: Path) -> Iterator[Sink]:
    """A file to write to, which becomes `path` at the end; on an error `path` stays as it was.

    Compressed if `path` ends in ``.gz`` or ``.zst``.
    """
    with new_file(path) as new:
        compression = COMPRESSIONS.get(path.suffix.lower())
        if compression:
            with pa.CompressedOutputStream(pa.OSFile(str(new), "w"), compression) as packed:
                yield packed
        else:
            with new.open("wb") as plain:
                yield plain
