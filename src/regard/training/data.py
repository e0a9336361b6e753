"""What models learn from: reading, dropping duplicates, splitting, batches of similar length."""

import json
from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from regard.errors import DataError
from regard.text import read_table, read_texts
from regard.text.decoding import decode
from regard.text.lines import lines
from regard.text.sources import Source

POOL = 2048


class Dataset:
    """Lists of one length, item by item; `source` names where they come from.

    Two items that agree in `identities` are the same text; where `contradictions_go`, a text that
    stands with several answers is left out, else its first answer is kept.
    """

    source: str
    noun: ClassVar[str] = "texts"
    contradictions_go: ClassVar[bool] = False

    def identities(self) -> Sequence[Hashable]:
        """What makes an item the same as another."""
        raise NotImplementedError

    def answers(self) -> Sequence[Hashable]:
        """What belongs to each item."""
        return [None] * len(self)

    def strata(self) -> Sequence[str]:
        """The kind of each item; a split takes its share of each kind."""
        return [""] * len(self)

    def rows(self) -> Iterator[dict[str, Any]]:
        """The items as objects of a .jsonl file, named by field."""
        columns = self.columns()
        for row in zip(*columns.values(), strict=True):
            yield dict(zip(columns, row, strict=True))

    def __len__(self) -> int:
        return len(next(iter(self.columns().values())))

    def take(self, indices: Sequence[int], what: str | None = None) -> Any:
        """The items at `indices`."""
        part = {name: [column[i] for i in indices] for name, column in self.columns().items()}
        source = self.source if what is None else f"{what} of {self.source}"
        kind: Any = type(self)
        return kind(**part, source=source)

    def columns(self) -> dict[str, list[Any]]:
        """The lists, by name."""
        return {name: column for name, column in vars(self).items() if name != "source"}


@dataclass(frozen=True)
class Labelled(Dataset):
    """Texts and their labels, one to one."""

    texts: list[str]
    labels: list[str]
    source: str
    contradictions_go = True

    def identities(self) -> Sequence[str]:
        """The texts."""
        return self.texts

    def answers(self) -> Sequence[str]:
        """The labels."""
        return self.labels

    def strata(self) -> Sequence[str]:
        """The labels."""
        return self.labels


@dataclass(frozen=True)
class Sentences(Dataset):
    """Lists of tokens and the tag of each token."""

    tokens: list[list[str]]
    tags: list[list[str]]
    source: str
    noun = "sentences"

    def identities(self) -> Sequence[Hashable]:
        """The tokens."""
        return [tuple(row) for row in self.tokens]

    def answers(self) -> Sequence[Hashable]:
        """The tags."""
        return [tuple(row) for row in self.tags]


@dataclass(frozen=True)
class Lines(Dataset):
    """Lines of running text, in their order."""

    lines: list[str]
    source: str
    noun = "lines"

    def identities(self) -> Sequence[str]:
        """The lines."""
        return self.lines


@dataclass(frozen=True)
class Pairs(Dataset):
    """Texts to read and the texts to write for them."""

    sources: list[str]
    targets: list[str]
    source: str
    noun = "pairs"

    def identities(self) -> Sequence[str]:
        """The texts to read."""
        return self.sources

    def answers(self) -> Sequence[str]:
        """The texts to write."""
        return self.targets


@dataclass(frozen=True)
class Dropped:
    """What `deduplicate` left out: repetitions, and texts that stand with several answers."""

    repeated: int = 0
    contradictory: int = 0

    def __str__(self) -> str:
        return f"{self.repeated:,} repeated and {self.contradictory:,} contradictory texts dropped"


def read_labelled(path: Path, text_column: str, label_column: str) -> Labelled:
    """The texts and labels of a table; `DataError` for one that is empty or has an empty field."""
    texts, labels = _two_columns(path, (text_column, label_column), "labelled texts")
    return Labelled(texts, labels, path.name)


def read_pairs(path: Path, source_column: str, target_column: str) -> Pairs:
    """The pairs of a table; `DataError` for one that is empty or has an empty field."""
    sources, targets = _two_columns(path, (source_column, target_column), "pairs of texts")
    return Pairs(sources, targets, path.name)


def read_lines(path: str | Path, column: str | None = None) -> Lines:
    """The lines of a file, folder, glob or ``"-"``; `DataError` if there are none."""
    found = [line.strip() for line in read_texts(str(path), column)]
    name = "standard input" if str(path) == "-" else Path(path).name
    if not found:
        raise DataError(f"{name} has no text")
    return Lines(found, name)


def read_sentences(path: Path) -> Sentences:
    """Tokens and tags: a .jsonl file with lists `tokens` and `tags`, or lines of word⇥tag.

    In the latter a blank line ends a sentence. `DataError` names the line that does not fit.
    """
    source = Source(path)
    if source.format not in (".txt", ".tsv", ".jsonl"):
        raise DataError(
            f"{source.name} is no tagged text; it is a .jsonl file with lists tokens and tags, or "
            "lines of word, tab, tag with a blank line between sentences"
        )
    tokens: list[list[str]] = []
    tags: list[list[str]] = []
    read = _json_sentences if source.format == ".jsonl" else _line_sentences
    with source.open() as stream:
        numbered = enumerate(lines(decode(stream, source.name)), start=1)
        for words, marks in read(source.name, numbered):
            tokens.append(words)
            tags.append(marks)
    if not tokens:
        raise DataError(f"{source.name} has no sentence")
    return Sentences(tokens, tags, source.name)


def _line_sentences(
    name: str, numbered: Iterator[tuple[int, str]]
) -> Iterator[tuple[list[str], list[str]]]:
    words: list[str] = []
    marks: list[str] = []
    for number, line in numbered:
        if not line.strip():
            if words:
                yield words, marks
                words, marks = [], []
            continue
        columns = line.split("\t")
        if len(columns) != 2:
            count = f"{len(columns)} column{'s' * (len(columns) != 1)}"
            raise DataError(
                f"line {number} of {name} has {count}; it must be a word, a tab and its tag, or "
                f"blank between sentences: {line[:40]!r}"
            )
        word, mark = (column.strip() for column in columns)
        if not word or not mark:
            raise DataError(
                f"line {number} of {name} has an empty {'tag' if word else 'word'}: {line[:40]!r}"
            )
        words.append(word)
        marks.append(mark)
    if words:
        yield words, marks


def _json_sentences(
    name: str, numbered: Iterator[tuple[int, str]]
) -> Iterator[tuple[list[str], list[str]]]:
    for number, line in numbered:
        if not line.strip():
            continue
        try:
            found = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise DataError(f"line {number} of {name} is not JSON: {error}") from None
        both: list[Any] = [
            found.get(key) if isinstance(found, dict) else None for key in ("tokens", "tags")
        ]
        for key, value in zip(("tokens", "tags"), both, strict=True):
            if not isinstance(value, list) or not all(isinstance(v, str) and v for v in value):
                raise DataError(
                    f"line {number} of {name}: {key!r} must be a list of strings, none empty; "
                    f"got {json.dumps(value, ensure_ascii=False)[:40]}"
                )
        if len(both[0]) != len(both[1]):
            raise DataError(
                f"line {number} of {name} has {len(both[0])} tokens and {len(both[1])} tags; each "
                "token needs one tag"
            )
        if not both[0]:
            raise DataError(f"line {number} of {name} has no tokens")
        yield both[0], both[1]


def _two_columns(path: Path, columns: tuple[str, str], noun: str) -> tuple[list[str], list[str]]:
    first, second = [], []
    for line, values in read_table(path, columns):
        for column, value, kept in zip(columns, values, (first, second), strict=True):
            if not value.strip():
                raise DataError(
                    f"line {line} of {path.name} has an empty {column!r}; fill or remove it"
                )
            kept.append(value.strip())
    if not first:
        raise DataError(f"{path.name} has a header and no rows; it needs {noun}")
    return first, second


def deduplicate(data: Dataset) -> tuple[Any, Dropped]:
    """Each text once, in the order of first appearance.

    Of texts that stand with several answers, those of a `Labelled` go, others keep their first.
    """
    answers_of: dict[Hashable, set[Hashable]] = defaultdict(set)
    first: dict[Hashable, int] = {}
    for i, (key, answer) in enumerate(zip(data.identities(), data.answers(), strict=True)):
        answers_of[key].add(answer)
        first.setdefault(key, i)
    clear = [
        i for key, i in first.items() if len(answers_of[key]) == 1 or not data.contradictions_go
    ]
    dropped = Dropped(len(data) - len(first), len(first) - len(clear))
    return data.take(clear), dropped


def without(data: Dataset, keys: Sequence[Hashable]) -> tuple[Any, int]:
    """`data` without the items of these `keys`, and how many were left out."""
    held_out = set(keys)
    kept = [i for i, key in enumerate(data.identities()) if key not in held_out]
    return data.take(kept), len(data) - len(kept)


def split(data: Dataset, shares: dict[str, float], seed: int) -> dict[str, Any]:
    """Random parts of `data`, one for each share, and the rest as ``"train"``.

    Each label is split by itself, so every part has the labels in equal proportion.
    """
    by_kind: dict[str, list[int]] = defaultdict(list)
    for index, kind in enumerate(data.strata()):
        by_kind[kind].append(index)
    order = np.random.default_rng(seed)
    parts: dict[str, list[int]] = {name: [] for name in (*shares, "train")}
    for kind in sorted(by_kind):
        indices = order.permutation(by_kind[kind]).tolist()
        for name, share in shares.items():
            count = round(share * len(by_kind[kind]))
            parts[name] += indices[:count]
            indices = indices[count:]
        parts["train"] += indices
    for name, share in shares.items():
        if share and not parts[name]:
            raise DataError(
                f"{data.source} has {len(data)} {data.noun}, too few to split off a {share:g} "
                f"share for {name}; give more {data.noun} or a {name} file"
            )
    return {name: data.take(sorted(indices), name) for name, indices in parts.items()}


def batches(
    lengths: Sequence[int], batch_tokens: int, order: np.random.Generator
) -> list[list[int]]:
    """Every index once, in batches of similar lengths that hold at most `batch_tokens` tokens.

    Texts are shuffled, sorted by length in pools of 2048, cut into batches, and these shuffled.
    """
    shuffled = order.permutation(len(lengths)).tolist()
    found = [
        batch
        for start in range(0, len(shuffled), POOL)
        for batch in by_length(shuffled[start : start + POOL], lengths, batch_tokens)
    ]
    return [found[position] for position in order.permutation(len(found))]


def by_length(
    indices: Sequence[int], lengths: Sequence[int], batch_tokens: int
) -> Iterator[list[int]]:
    """`indices`, shortest texts first, in batches of at most `batch_tokens` tokens with padding."""
    batch: list[int] = []
    for index in sorted(indices, key=lengths.__getitem__):
        if batch and lengths[index] * (len(batch) + 1) > batch_tokens:
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch
