"""Labelled texts: reading, dropping duplicates, splitting, batches of similar length."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from regard.errors import DataError
from regard.text import read_table

POOL = 2048


@dataclass(frozen=True)
class Labelled:
    """Texts and their labels, one to one; `source` names where they come from."""

    texts: list[str]
    labels: list[str]
    source: str

    def __len__(self) -> int:
        return len(self.texts)

    def take(self, indices: Sequence[int], what: str) -> "Labelled":
        """The texts at `indices`."""
        return Labelled(
            [self.texts[i] for i in indices],
            [self.labels[i] for i in indices],
            f"{what} of {self.source}",
        )


@dataclass(frozen=True)
class Dropped:
    """What `deduplicate` left out: repetitions, and texts that stand with several labels."""

    repeated: int = 0
    contradictory: int = 0

    def __str__(self) -> str:
        return f"{self.repeated:,} repeated and {self.contradictory:,} contradictory texts dropped"


def read_labelled(path: Path, text_column: str, label_column: str) -> Labelled:
    """The texts and labels of a table; `DataError` for one that is empty or has an empty field."""
    texts, labels = [], []
    for line, (text, label) in read_table(path, (text_column, label_column)):
        for column, value in ((text_column, text), (label_column, label)):
            if not value.strip():
                raise DataError(
                    f"line {line} of {path.name} has an empty {column!r}; fill or remove it"
                )
        texts.append(text.strip())
        labels.append(label.strip())
    if not texts:
        raise DataError(f"{path.name} has a header and no rows; it needs labelled texts")
    return Labelled(texts, labels, path.name)


def deduplicate(data: Labelled) -> tuple[Labelled, Dropped]:
    """Each text once, and none that carries two labels, in the order of first appearance."""
    labels_of: dict[str, set[str]] = defaultdict(set)
    for text, label in zip(data.texts, data.labels, strict=True):
        labels_of[text].add(label)
    kept = {text: next(iter(labels)) for text, labels in labels_of.items() if len(labels) == 1}
    dropped = Dropped(len(data) - len(labels_of), len(labels_of) - len(kept))
    return Labelled(list(kept), list(kept.values()), data.source), dropped


def split(data: Labelled, shares: dict[str, float], seed: int) -> dict[str, Labelled]:
    """Random parts of `data`, one for each share, and the rest as ``"train"``.

    Each label is split by itself, so every part has the labels in equal proportion.
    """
    by_label: dict[str, list[int]] = defaultdict(list)
    for index, label in enumerate(data.labels):
        by_label[label].append(index)
    order = np.random.default_rng(seed)
    parts: dict[str, list[int]] = {name: [] for name in (*shares, "train")}
    for label in sorted(by_label):
        indices = order.permutation(by_label[label]).tolist()
        for name, share in shares.items():
            count = round(share * len(by_label[label]))
            parts[name] += indices[:count]
            indices = indices[count:]
        parts["train"] += indices
    for name, share in shares.items():
        if share and not parts[name]:
            raise DataError(
                f"{data.source} has {len(data)} texts, too few to split off a {share:g} share for "
                f"{name}; give more texts or a {name} file"
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
