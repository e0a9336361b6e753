"""A corpus as numbers on disk: one int32 a token, and where each paragraph begins.

Built once, in memory that does not grow with the text; later builds reuse the folder while the
text and the settings are the same. The text is read once, so standard input will do.
"""

import hashlib
import json
import os
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from regard.errors import DataError, OptionError, StorageError
from regard.text import segmenters
from regard.text.counting import Census
from regard.text.reading import chunked, parts
from regard.text.segmenters import Segmenter
from regard.text.segmenters._segmenter import Batch
from regard.text.sources import Source, find_sources
from regard.text.storage import new_folder, publish
from regard.text.vocabulary import SPECIALS, Vocabulary, check_limits

FORMAT = 1
AHEAD = 8  # parts read before they are needed, so that no core waits while counts are merged
IDS, OFFSETS, VOCABULARY, ABOUT = "ids.bin", "offsets.bin", "vocabulary.json", "corpus.json"
FILES = frozenset({IDS, OFFSETS, VOCABULARY, ABOUT, segmenters.FILE})


class EncodedCorpus:
    """The ids of a corpus: paragraph i is ``ids[offsets[i]:offsets[i + 1]]``.

    `ids` (int32) and `offsets` (int64, one more than paragraphs) are memory-mapped, read-only.
    """

    def __init__(self, folder: Path, about: dict[str, Any], vocabulary: Vocabulary) -> None:
        """What `open` and `build` call."""
        self.folder = folder
        self.vocabulary = vocabulary
        self._about = about
        self.ids = _map(folder / IDS, "<i4", about["tokens"])
        self.offsets = _map(folder / OFFSETS, "<i8", about["paragraphs"] + 1)

    @classmethod
    def build(
        cls,
        source: str | Path | Iterable[str],
        folder: str | Path,
        segmenter: str | Segmenter = "whitespace",
        min_count: int = 1,
        max_size: int | None = None,
        specials: Sequence[str] = SPECIALS,
        column: str | None = None,
        errors: str = "strict",
        encoding: str | None = None,
        vocabulary: Vocabulary | None = None,
        threads: int | None = None,
    ) -> "EncodedCorpus":
        """Encode `source` into `folder`, or open `folder` if it holds just that already.

        `source` is what `read_texts` takes, or paragraphs themselves (any iterable of strings but
        one string). Files are compared by path, size and time of change; standard input, pipes and
        iterables are encoded anew. Tokens outside the vocabulary become ``<unk>`` where `specials`
        have it and are dropped otherwise; a paragraph stays even if nothing of it does. With
        `vocabulary` nothing is counted, and `min_count`, `max_size` and `specials` play no part.
        The folder appears whole or not at all. `threads` (by default one a core, at most 8) does
        not change the result.
        """
        folder = Path(os.path.realpath(folder))
        if isinstance(segmenter, str):
            segmenter = segmenters.create(segmenter)
        check_limits(min_count, max_size, specials)
        if threads is not None and threads < 1:
            raise OptionError(f"threads must be at least 1; it is {threads}")
        sources = find_sources(source) if isinstance(source, str | Path) else None
        before = None if sources is None else [_stamp(one) for one in sources]
        settings = {
            "format": FORMAT,
            "sources": before,
            "column": column,
            "errors": errors,
            "encoding": encoding,
            "segmenter": segmenter.fingerprint(),
            "vocabulary": [min_count, max_size, list(specials)]
            if vocabulary is None
            else vocabulary.fingerprint(),
        }
        fingerprint = hashlib.sha256(json.dumps(settings).encode()).hexdigest()
        lasting = before is not None and None not in before
        if lasting and (there := _opened(folder, fingerprint)) is not None:
            return there
        if sources is not None:
            texts = (part for one in sources for part in parts(one, column, errors, encoding))
        else:
            texts = chunked(source)  # type: ignore[arg-type]
        with new_folder(folder) as new, _Spools(new) as spools:
            census = _count(texts, segmenter, spools, threads or min(_cores(), 8))
            seen = census.seen
            if vocabulary is None:
                vocabulary, id_of = _settle(census, min_count, max_size, specials)
            else:
                id_of = _look_up(census, vocabulary)
            del census
            totals = _write_ids(new, spools, id_of)
            if totals["tokens"] == 0:
                raise _nothing_left(source, seen, min_count)
            if sources is not None and before != [_stamp(one) for one in sources]:
                raise DataError(f"{source} changed while it was read; encode it again")
            vocabulary.save(new / VOCABULARY)
            about = totals | {
                "format": FORMAT,
                "fingerprint": fingerprint,
                "segmenter": segmenter.settings(new),
            }
            (new / ABOUT).write_text(json.dumps(about, ensure_ascii=False, indent=1) + "\n")
            made = cls(new, about, vocabulary)
            publish(
                new, folder, lambda old: lasting and _opened(old, fingerprint) is not None, FILES
            )
        made.folder = folder
        return made

    @classmethod
    def open(cls, folder: str | Path) -> "EncodedCorpus":
        """Open a folder that `build` wrote; `DataError` when it is not whole."""
        folder = Path(folder)
        try:
            about = json.loads((folder / ABOUT).read_text())
            if about["format"] != FORMAT:
                raise DataError(
                    f"{folder} has format {about['format']}, this version reads {FORMAT}; "
                    "encode the text again"
                )
            return cls(folder, about, Vocabulary.load(folder / VOCABULARY))
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise StorageError(f"{folder} is no encoded corpus: {ABOUT}: {reason}") from None
        except (ValueError, TypeError, KeyError) as error:
            if isinstance(error, DataError):
                raise
            raise DataError(f"{folder} is no encoded corpus: {ABOUT}: {error}") from None

    @cached_property
    def segmenter(self) -> Segmenter:
        """What split the text into tokens."""
        return segmenters.from_settings(self._about["segmenter"], self.folder)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> np.ndarray:
        """The ids (int32) of one paragraph."""
        if not -len(self) <= index < len(self):
            raise IndexError(f"paragraph {index} of {len(self)}")
        index %= len(self)
        return self.ids[self.offsets[index] : self.offsets[index + 1]]

    def __iter__(self) -> Iterator[np.ndarray]:
        return (self[i] for i in range(len(self)))

    def __repr__(self) -> str:
        return f"EncodedCorpus({len(self):,} paragraphs, {len(self.ids):,} tokens)"


def _map(path: Path, dtype: str, length: int) -> np.memmap:
    size = path.stat().st_size
    if size != length * np.dtype(dtype).itemsize:
        raise DataError(
            f"{path} has {size} bytes where {length} numbers of {np.dtype(dtype).itemsize} bytes "
            "belong; encode the text again"
        )
    return np.memmap(path, dtype, "r", shape=(length,))


def _stamp(source: Source) -> list[Any] | None:
    """What changes when a file changes; None for what is no ordinary file."""
    if source.path is None or not os.path.isfile(source.path):
        return None
    try:
        status = source.path.stat()
    except OSError as error:
        raise StorageError(f"cannot read {source.path}: {error.strerror}") from None
    return [str(source.path.resolve()), status.st_size, status.st_mtime_ns]


def _opened(folder: Path, fingerprint: str) -> EncodedCorpus | None:
    """The corpus in `folder` if it is whole and has that fingerprint."""
    with suppress(DataError, StorageError):
        corpus = EncodedCorpus.open(folder)
        if corpus._about.get("fingerprint") == fingerprint:
            return corpus
    return None


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class _Spool:
    """Arrays appended to a file, read back in the same order."""

    def __init__(self, path: Path, dtype: type[np.generic]) -> None:
        self._path, self._dtype = path, dtype
        self._file = open(path, "wb")  # noqa: SIM115
        self._sizes: list[int] = []

    def add(self, array: np.ndarray) -> None:
        self._file.write(np.ascontiguousarray(array, self._dtype).data)
        self._sizes.append(len(array))

    def extend(self, arrays: Iterable[np.ndarray]) -> None:
        for array in arrays:
            self.add(array)

    def drain(self) -> Iterator[np.ndarray]:
        """The arrays; afterwards the file is gone."""
        self._file.flush()
        with open(self._path, "rb") as file:
            for size in self._sizes:
                yield np.fromfile(file, self._dtype, size)
        self._path.unlink()

    def __enter__(self) -> "_Spool":
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):  # a full disk was reported where it was met
            self._file.close()


class _Spools(ExitStack):
    """What is known of the text before its vocabulary is, in files of the new folder."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.codes = self.enter_context(_Spool(folder / "codes.tmp", np.int32))
        self.lengths = self.enter_context(_Spool(folder / "lengths.tmp", np.int64))
        self.numbers = self.enter_context(_Spool(folder / "numbers.tmp", np.int32))


def _count(
    texts: Iterable[str | list[str]], segmenter: Segmenter, spools: _Spools, threads: int
) -> Census:
    """Counts all tokens.

    Each token goes to disk as its code in the dictionary of its batch, and each dictionary as the
    numbers that its entries have in the census.
    """
    census = Census()
    for batch, counts in _batches(texts, segmenter, threads):
        spools.codes.add(batch.codes)
        spools.lengths.add(batch.lengths)
        spools.numbers.extend(census.add(batch.dictionary, counts))
    spools.numbers.extend(census.finish())
    return census


def _batches(
    texts: Iterable[str | list[str]], segmenter: Segmenter, threads: int
) -> Iterator[tuple[Batch, np.ndarray]]:
    def one(part: str | list[str]) -> tuple[Batch, np.ndarray]:
        batch = segmenter.batch_lines(part) if isinstance(part, str) else segmenter.batch(part)
        return batch, np.bincount(batch.codes, minlength=sum(map(len, batch.dictionary)))

    with ThreadPoolExecutor(threads) as pool:
        waiting: deque[Future[tuple[Batch, np.ndarray]]] = deque()
        for part in texts:
            waiting.append(pool.submit(one, part))
            if len(waiting) > threads + AHEAD:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def _settle(
    census: Census, min_count: int, max_size: int | None, specials: Sequence[str]
) -> tuple[Vocabulary, np.ndarray]:
    """The vocabulary of all that was counted, and the id of each number: −1 is dropped."""
    tokens, counts, numbers = census.total()
    vocabulary, ids = Vocabulary.from_counts(tokens, counts, min_count, max_size, specials)
    return vocabulary, _by_number(numbers, ids)


def _look_up(census: Census, vocabulary: Vocabulary) -> np.ndarray:
    """The id in `vocabulary` of each number: −1 is dropped."""
    tokens, _, numbers = census.total()
    return _by_number(numbers, vocabulary.encode_array(tokens))


def _by_number(numbers: np.ndarray, ids: np.ndarray) -> np.ndarray:
    id_of = np.full(numbers.max(initial=0) + 1, -1, np.int32)
    id_of[numbers] = ids
    return id_of


def _write_ids(folder: Path, spools: _Spools, id_of: np.ndarray) -> dict[str, int]:
    """Turns the codes into ids and the lengths into offsets; says how many there are."""
    tokens = paragraphs = 0
    every = (spools.codes, spools.lengths, spools.numbers)
    drained = zip(*(spool.drain() for spool in every), strict=True)
    with open(folder / IDS, "wb") as ids_file, open(folder / OFFSETS, "wb") as offsets_file:
        offsets_file.write(bytes(8))
        for codes, lengths, numbers in drained:
            ids, ends = id_of[numbers][codes], np.cumsum(lengths)
            kept = ids >= 0
            if not kept.all():
                ids, ends = ids[kept], np.concatenate([[0], np.cumsum(kept)])[ends]
            ids_file.write(ids.astype("<i4", copy=False).data)
            offsets_file.write((ends + tokens).astype("<i8", copy=False).data)
            tokens += len(ids)
            paragraphs += len(lengths)
    return {"tokens": tokens, "paragraphs": paragraphs}


def _nothing_left(source: object, seen: int, min_count: int) -> DataError:
    name = source if isinstance(source, str | Path) else "the source"
    if not seen:
        return DataError(f"{name} holds no token: it is empty or blank")
    return DataError(
        f"no token of {name} is left: none occurs min_count={min_count} times or is in the "
        "vocabulary"
    )
