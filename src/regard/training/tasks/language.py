"""Language modelling: the next token of running text."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from regard.errors import DataError
from regard.models import LanguageModel
from regard.training.baselines import Bigrams
from regard.training.data import Lines, read_lines
from regard.training.metrics import LanguageMetrics, foreseen
from regard.training.tasks._task import (
    IGNORED,
    Drop,
    Examples,
    Task,
    counted,
    make_segmenter,
    padded,
    vocabulary_of,
)

ADDED = (1.0, 0.3, 0.1, 0.03, 0.01, 0.003, 0.001)
"""What may be added to the baselines' counts; validation chooses."""
AT_ONCE = 8
"""Windows that are measured together."""


@dataclass(frozen=True)
class Windows(Examples):
    """A stream of lines, each between ``<s>`` and ``</s>``, cut into windows of `size` tokens.

    Every token but ``<s>`` is an answer, once.
    """

    stream: Tensor
    size: int
    begin: int

    @property
    def lengths(self) -> list[int]:
        """Tokens that are read of each window."""
        total = len(self.stream) - 1
        whole, rest = divmod(total, self.size)
        return [self.size] * whole + [rest] * bool(rest)

    def window(self, number: int) -> tuple[Tensor, Tensor]:
        """What is read, and what comes after each token."""
        start = number * self.size
        row = self.stream[start : start + self.size + 1].long()
        after = row[1:].masked_fill(row[1:] == self.begin, IGNORED)
        return row[:-1], after

    def ask(self, model: Any, part: Sequence[int], drop: Drop) -> tuple[Tensor, Tensor]:
        """One answer a token."""
        read, after = zip(*(self.window(number) for number in part), strict=True)
        ids, lengths = model.collate(read)
        return counted(model(drop(ids), lengths), padded(after, ids.device))

    def pairs(self) -> tuple[np.ndarray, np.ndarray]:
        """Each token that is an answer, and the one before it."""
        stream = self.stream.numpy()
        before, after = stream[:-1], stream[1:]
        return before[after != self.begin], after[after != self.begin]


class Language(Task):
    """A language model; it has to beat counts of tokens and of pairs of tokens."""

    measure = "perplexity"

    @classmethod
    def key(cls, accuracy: float, loss: float) -> tuple[float, ...]:
        """The lower the loss, the better."""
        return (-loss,)

    @classmethod
    def read(cls, path: Path, data: Any) -> Lines:
        """Lines of any file, folder or glob."""
        return read_lines(path, data.column)

    @classmethod
    def check(cls, parts: dict[str, Any]) -> None:
        """A line at least."""
        if not len(parts["train"]):
            raise DataError(f"{parts['train'].source} has no line left after duplicates")

    @classmethod
    def prepare(cls, config: Any, train: Lines) -> tuple[Any, Any, int]:
        """Nothing is cut: windows go over all lines."""
        segmenter = make_segmenter(config.text, train.lines)
        tokens = segmenter.split(train.lines)
        vocabulary = vocabulary_of(tokens, config.text, LanguageModel.specials)
        return config, lambda settings: LanguageModel(settings, vocabulary, segmenter), 0

    @classmethod
    def examples(cls, model: LanguageModel, data: Lines) -> Windows:
        """One stream of all lines."""
        stream = torch.cat([row.int() for row in model.encode(data.lines)])
        return Windows(stream, model.text.max_tokens, model.begin)

    @classmethod
    def evaluate(cls, model: LanguageModel, data: Lines) -> LanguageMetrics:
        """How likely the model finds each token, in the same windows as in training."""
        windows = cls.examples(model, data)
        loss, right, count, unknown = 0.0, 0, 0, 0
        with model.evaluating():
            numbers = range(len(windows.lengths))
            for start in range(0, len(numbers), AT_ONCE):
                part = numbers[start : start + AT_ONCE]
                logits, after = windows.ask(model, part, lambda ids: ids)
                loss += cross_entropy(logits.double(), after, reduction="sum").item()
                right += int((logits.argmax(-1) == after).sum())
                unknown += int((after == model.vocabulary.unknown).sum())
                count += len(after)
        return foreseen(loss, right, unknown, count)

    @classmethod
    def baselines(
        cls, model: LanguageModel, train: Lines, validation: Lines, test: Lines
    ) -> dict[str, LanguageMetrics]:
        """Counts of tokens, and of pairs of neighbors; what is added to them suits validation."""
        seen, tuning, asked = (
            cls.examples(model, part).pairs() for part in (train, validation, test)
        )
        size = len(model.vocabulary) - 2  # neither padding nor <s> may follow
        unknown = int((asked[1] == model.vocabulary.unknown).sum())
        found = {}
        for name in ("unigrams", "bigrams"):
            models = [Bigrams(*seen, size, k, unigrams=name == "unigrams") for k in ADDED]
            best = min(models, key=lambda one: one.loss(*tuning))
            found[name] = foreseen(best.loss(*asked), best.right(*asked), unknown, len(asked[1]))
        return found
