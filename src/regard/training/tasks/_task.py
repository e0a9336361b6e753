"""What a task is: from files to a model, its examples and its measures."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from regard.errors import OptionError
from regard.models import TextModel
from regard.models.settings import TextSettings
from regard.text import Segmenter, Vocabulary, segmenters
from regard.training.data import Dataset

IGNORED = -100
"""The target of what is no answer: padding."""

Drop = Callable[[Tensor], Tensor]
"""What becomes of the ids that a model reads, in training."""


class Examples(ABC):
    """Encoded items, of which any batch can be asked of the model.

    `at_once`: how many times the tokens of a training batch are measured together.
    """

    at_once: ClassVar[int] = 1

    @property
    @abstractmethod
    def lengths(self) -> list[int]:
        """Tokens of each item."""

    @abstractmethod
    def ask(self, model: Any, part: Sequence[int], drop: Drop) -> tuple[Tensor, Tensor]:
        """Logits (answers, classes) for the items of `part`, and the right classes (answers,)."""


class Task(ABC):
    """One kind of run. `config` is its settings class, `measure` what validation decides by."""

    measure: ClassVar[str] = "accuracy"

    @classmethod
    @abstractmethod
    def read(cls, path: Path, data: Any) -> Dataset:
        """The items of a file, by the `data` section of the settings."""

    @classmethod
    @abstractmethod
    def prepare(cls, config: Any, train: Any) -> tuple[Any, Callable[[Any], TextModel], int]:
        """The settings completed by what training shows, a function that makes the model of them,
        and how many items are longer than the model reads.
        """

    @classmethod
    @abstractmethod
    def examples(cls, model: Any, data: Any) -> Examples:
        """The items, encoded."""

    @classmethod
    @abstractmethod
    def evaluate(cls, model: Any, data: Any) -> Any:
        """How good the model is on `data`."""

    @classmethod
    @abstractmethod
    def baselines(cls, model: Any, train: Any, validation: Any, test: Any) -> dict[str, Any]:
        """What the model has to beat on `test`, measured in the same way."""

    @classmethod
    @abstractmethod
    def check(cls, parts: dict[str, Any]) -> None:
        """`DataError` for what cannot be learned or measured."""

    @classmethod
    def key(cls, accuracy: float, loss: float) -> tuple[float, ...]:
        """What makes an epoch better than another: the larger."""
        return accuracy, -loss


def make_segmenter(settings: TextSettings, texts: Sequence[str]) -> Segmenter:
    """The segmenter that `settings` name, trained on `texts` if it is one that learns."""
    segmenter = segmenters.create(
        settings.segmenter, normalization=settings.normalization, lowercase=settings.lowercase
    )
    train = getattr(segmenter, "train", None)
    return train(texts, size=settings.subwords) if train else segmenter


def refuse_answers(config: Any, name: str, what: str) -> None:
    """`OptionError` if answers that are read from the files are given as a setting."""
    if getattr(config, name):
        raise OptionError(f"{name} are read from the {what}; leave the setting out")


def padded(rows: Sequence[Tensor], device: torch.device) -> Tensor:
    """Targets of each item in one row each, (B, T), with `IGNORED` where there is none."""
    return nn.utils.rnn.pad_sequence(list(rows), batch_first=True, padding_value=IGNORED).to(device)


def counted(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """(B, T, C) and (B, T) as one row for each target that is one."""
    real = targets != IGNORED
    return logits[real], targets[real]


def vocabulary_of(
    tokens: Sequence[Sequence[str]], text: TextSettings, specials: Sequence[str]
) -> Vocabulary:
    """The vocabulary of these tokens, within the limits of the settings."""
    return Vocabulary.count(tokens, text.min_count, text.max_size, specials)
