"""Classifying: one label a text."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.errors import DataError
from regard.models import Classifier
from regard.training.baselines import NaiveBayes, majority
from regard.training.data import Labelled, read_labelled
from regard.training.metrics import Metrics, measure
from regard.training.tasks._task import (
    Drop,
    Examples,
    Task,
    make_segmenter,
    refuse_answers,
    vocabulary_of,
)


@dataclass(frozen=True)
class LabelledExamples(Examples):
    """Encoded texts and the indices of their labels."""

    ids: list[Tensor]
    targets: Tensor
    at_once = 4

    @property
    def lengths(self) -> list[int]:
        """Tokens of each text."""
        return [len(row) for row in self.ids]

    def ask(self, model: Any, part: Sequence[int], drop: Drop) -> tuple[Tensor, Tensor]:
        """One answer a text."""
        ids, lengths = model.collate([self.ids[i] for i in part])
        return model(drop(ids), lengths), self.targets[list(part)].to(ids.device)


class Classify(Task):
    """A classifier; it has to beat the most frequent label and naive Bayes."""

    @classmethod
    def read(cls, path: Path, data: Any) -> Labelled:
        """A table of texts and labels."""
        return read_labelled(path, data.text_column, data.label_column)

    @classmethod
    def check(cls, parts: dict[str, Any]) -> None:
        """Two labels at least, and none that training never saw."""
        train = parts["train"]
        labels = sorted(set(train.labels))
        if len(labels) < 2:
            only = f"only the label {labels[0]!r}" if labels else "no text left after duplicates"
            raise DataError(f"{train.source} has {only}; a classifier needs two labels or more")
        for name, part in parts.items():
            if name != "train":
                check_labels(part, labels)

    @classmethod
    def prepare(cls, config: Any, train: Labelled) -> tuple[Any, Any, int]:
        """The labels join the settings."""
        refuse_answers(config, "labels", "texts")
        text = config.text
        segmenter = make_segmenter(text, train.texts)
        tokens = segmenter.split(train.texts)
        vocabulary = vocabulary_of(tokens, text, Classifier.specials)
        config = config.model_copy(update={"labels": tuple(sorted(set(train.labels)))})
        cut = sum(len(row) > text.max_tokens for row in tokens)
        return config, lambda settings: Classifier(settings, vocabulary, segmenter), cut

    @classmethod
    def examples(cls, model: Classifier, data: Labelled) -> LabelledExamples:
        """Ids and label numbers."""
        index = {label: i for i, label in enumerate(model.labels)}
        targets = torch.tensor([index[label] for label in data.labels])
        return LabelledExamples(model.encode(data.texts), targets)

    @classmethod
    def evaluate(cls, model: Classifier, data: Labelled) -> Metrics:
        """The model's predictions against the labels, which training must have seen."""
        check_labels(data, model.labels)
        return measure([p.label for p in model.predict(data.texts)], data.labels)

    @classmethod
    def baselines(
        cls, model: Classifier, train: Labelled, validation: Labelled, test: Labelled
    ) -> dict[str, Metrics]:
        """Always the most frequent label; naive Bayes on character bigrams."""
        bayes = NaiveBayes(train.texts, train.labels)
        return {
            "naive_bayes": measure([bayes.predict(text) for text in test.texts], test.labels),
            "majority": measure([majority(train.labels)] * len(test), test.labels),
        }


def check_labels(data: Labelled, known: Sequence[str]) -> None:
    """`DataError` for a label that training never saw."""
    unseen = sorted(set(data.labels) - set(known))
    if unseen:
        text = data.texts[data.labels.index(unseen[0])]
        raise DataError(
            f"{data.source} has the label {unseen[0]!r} (of {text[:20]!r}), which training never "
            f"saw; known: {', '.join(known)}"
        )
