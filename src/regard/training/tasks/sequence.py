"""Sequence to sequence: a text to write for each text that is read."""

from collections.abc import Sequence as Items
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from regard.errors import DataError
from regard.models import EncoderDecoder
from regard.training.baselines import majority
from regard.training.data import Pairs, read_pairs
from regard.training.metrics import WrittenMetrics, compare
from regard.training.tasks._task import (
    Drop,
    Examples,
    Task,
    counted,
    make_segmenter,
    padded,
    vocabulary_of,
)


@dataclass(frozen=True)
class PairExamples(Examples):
    """Encoded texts to read and to write, the latter between ``<s>`` and ``</s>``."""

    ids: list[Tensor]
    targets: list[Tensor]

    @property
    def lengths(self) -> list[int]:
        """Tokens of the longer text of each pair."""
        return [max(len(a), len(b) - 1) for a, b in zip(self.ids, self.targets, strict=True)]

    def ask(self, model: Any, part: Items[int], drop: Drop) -> tuple[Tensor, Tensor]:
        """One answer a token of the text to write, given those before it."""
        ids, lengths = model.collate([self.ids[i] for i in part])
        rows = [self.targets[i] for i in part]
        read, _ = model.collate([row[:-1] for row in rows])
        logits = model(drop(ids), lengths, read)
        return counted(logits, padded([row[1:] for row in rows], logits.device))


class Sequence(Task):
    """An encoder–decoder; it has to beat copying, and the most frequent text.

    Validation decides by the share of right tokens, each given the right ones before it.
    """

    @classmethod
    def read(cls, path: Path, data: Any) -> Pairs:
        """A table of pairs."""
        return read_pairs(path, data.source_column, data.target_column)

    @classmethod
    def check(cls, parts: dict[str, Any]) -> None:
        """A pair at least."""
        if not len(parts["train"]):
            raise DataError(f"{parts['train'].source} has no pair left after duplicates")

    @classmethod
    def prepare(cls, config: Any, train: Pairs) -> tuple[Any, Any, int]:
        """A vocabulary and a segmenter for each side."""
        sides, cut = [], set()
        for text, lines in ((config.text, train.sources), (config.target_text, train.targets)):
            segmenter = make_segmenter(text, lines)
            tokens = segmenter.split(lines)
            sides += [vocabulary_of(tokens, text, EncoderDecoder.specials), segmenter]
            cut |= {i for i, row in enumerate(tokens) if len(row) > text.max_tokens}
        return config, lambda settings: EncoderDecoder(settings, *sides), len(cut)

    @classmethod
    def examples(cls, model: EncoderDecoder, data: Pairs) -> PairExamples:
        """Ids of both sides."""
        return PairExamples(model.encode(data.sources), model.encode_targets(data.targets))

    @classmethod
    def evaluate(cls, model: EncoderDecoder, data: Pairs, beams: int = 1) -> WrittenMetrics:
        """What the model writes against what it should."""
        written = model.predict(data.sources, beams)
        wanted = model.target_segmenter.split(data.targets)
        same = [mine.tokens == true for mine, true in zip(written, wanted, strict=True)]
        return compare([one.text for one in written], data.targets, same)

    @classmethod
    def baselines(
        cls, model: EncoderDecoder, train: Pairs, validation: Pairs, test: Pairs
    ) -> dict[str, WrittenMetrics]:
        """The text that is read, copied; always the most frequent text."""
        return {
            "copy": compare(test.sources, test.targets),
            "most_frequent": compare([majority(train.targets)] * len(test), test.targets),
        }
