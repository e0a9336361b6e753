"""Where text comes from: files of several formats, folders, globs, standard input."""

import gzip
import os
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from glob import glob
from pathlib import Path

import pyarrow as pa

from regard.errors import DataError, StorageError
from regard.text.decoding import ByteStream

FORMATS = (".txt", ".csv", ".tsv", ".jsonl", ".parquet")
COMPRESSIONS = (".gz", ".zst")


@dataclass(frozen=True)
class Source:
    """One file; `path` is None for standard input."""

    path: Path | None

    @property
    def name(self) -> str:
        """What messages call it: the file's name."""
        return "standard input" if self.path is None else self.path.name or str(self.path)

    @property
    def compression(self) -> str | None:
        """``".gz"``, ``".zst"`` or None, by the name's end."""
        suffix = self.path.suffix.lower() if self.path is not None else ""
        return suffix if suffix in COMPRESSIONS else None

    @property
    def format(self) -> str:
        """One of `FORMATS`, by the name's end before the compression; any other is plain text."""
        if self.path is None:
            return ".txt"
        inner = self.path.with_suffix("") if self.compression else self.path
        suffix = inner.suffix.lower()
        return suffix if suffix in FORMATS else ".txt"

    @property
    def named_format(self) -> bool:
        """Whether the name's end says that this is text."""
        if self.path is None or self.compression is not None:
            return True
        return self.path.suffix.lower() in FORMATS

    @contextmanager
    def open(self) -> Iterator[ByteStream]:
        """The bytes, decompressed; a damaged archive is a `DataError` when the damage is met."""
        if self.path is None:
            yield sys.stdin.buffer
            return
        try:
            raw = open(self.path, "rb")  # noqa: SIM115
        except (OSError, ValueError) as error:  # ValueError: a zero byte in the name
            raise _cannot_read(str(self.path), error) from None
        with raw:
            try:
                if self.compression == ".gz":
                    with gzip.open(raw) as stream:
                        yield stream
                elif self.compression == ".zst":
                    with pa.CompressedInputStream(pa.PythonFile(raw), "zstd") as stream:
                        yield stream
                else:
                    yield raw
            except (EOFError, zlib.error, gzip.BadGzipFile) as error:
                raise self._damaged(error) from None
            except OSError as error:
                if isinstance(error, StorageError):
                    raise
                if self.compression == ".zst" and error.errno is None:
                    raise self._damaged(error) from None
                raise _cannot_read(str(self.path), error) from None

    def _damaged(self, error: Exception) -> DataError:
        return DataError(
            f"{self.name} cannot be decompressed ({error}); the file is damaged or cut short"
        )


def find_sources(source: str | Path) -> list[Source]:
    """The files that `source` names, in sorted order.

    `source` is a file, a folder (its files with a known ending, at any depth, hidden ones left
    out), a glob, or ``"-"`` for standard input. `StorageError` when there is none.
    """
    if source == "-":
        return [Source(None)]
    if source == "":
        raise StorageError('the source is an empty name; "." is the folder at hand')
    path = Path(source)
    if os.path.isdir(path):
        inside = (p for p in sorted(path.rglob("*")) if p.is_file())
        visible = (p for p in inside if not _hidden(p.relative_to(path)))
        found = [s for s in map(Source, visible) if s.named_format]
        if not found:
            raise StorageError(
                f"folder {path} holds no text file; known endings: {', '.join(FORMATS)}, "
                f"and each with {' or '.join(COMPRESSIONS)}"
            )
        return found
    if not os.path.exists(path) and any(c in str(source) for c in "*?["):
        found = [Source(Path(p)) for p in sorted(glob(str(source), recursive=True))]
        found = [s for s in found if s.path is not None and not s.path.is_dir()]
        if not found:
            raise StorageError(f"no file matches {str(source)!r}")
        return found
    return [Source(path)]


def _hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)


def _cannot_read(name: str, error: OSError | ValueError) -> StorageError:
    reason = getattr(error, "strerror", None) or str(error)
    shown = name if len(name) < 200 else name[:200] + "…"
    return StorageError(f"cannot read {shown!s}: {reason.lower()}".replace("\0", "\\0"))
