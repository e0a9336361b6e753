"""Tagging: one tag a token."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.errors import DataError, OptionError
from regard.models import Tagger
from regard.training.baselines import FrequentTags
from regard.training.data import Sentences, read_sentences
from regard.training.metrics import Metrics, measure
from regard.training.tasks._task import (
    IGNORED,
    Drop,
    Examples,
    Task,
    counted,
    make_segmenter,
    padded,
    refuse_answers,
    vocabulary_of,
)

SEGMENTERS = ("characters", "jieba", "whitespace", "words")


@dataclass(frozen=True)
class TaggedExamples(Examples):
    """Encoded sentences, in pieces that the model reads at once, and the number of each tag."""

    ids: list[Tensor]
    targets: list[Tensor]
    at_once = 4

    @property
    def lengths(self) -> list[int]:
        """Tokens of each piece."""
        return [len(row) for row in self.ids]

    def ask(self, model: Any, part: Sequence[int], drop: Drop) -> tuple[Tensor, Tensor]:
        """One answer a token."""
        ids, lengths = model.collate([self.ids[i] for i in part])
        targets = padded([self.targets[i] for i in part], ids.device)
        return counted(model(drop(ids), lengths), targets)


class Tag(Task):
    """A tagger; it has to beat the most frequent tag of each word."""

    @classmethod
    def read(cls, path: Path, data: Any) -> Sentences:
        """Sentences of tagged tokens."""
        return read_sentences(path)

    @classmethod
    def check(cls, parts: dict[str, Any]) -> None:
        """Two tags at least. A tag that training never saw is an error of the model wherever it
        stands, for a rare one may well fall among what is held out.
        """
        train = parts["train"]
        tags = {tag for row in train.tags for tag in row}
        if len(tags) < 2:
            only = f"only the tag {min(tags)!r}" if tags else "no sentence left after duplicates"
            raise DataError(f"{train.source} has {only}; a tagger needs two tags or more")
        deciding = parts.get("validation")
        if deciding is not None and len(deciding):
            given = {tag for row in deciding.tags for tag in row}
            if not given & tags:
                raise DataError(
                    f"{deciding.source} has none of the tags of training, only "
                    f"{', '.join(sorted(given)[:5])}; validation decides when to stop, so it needs "
                    f"some; known: {', '.join(sorted(tags)[:20])}"
                )

    @classmethod
    def prepare(cls, config: Any, train: Sentences) -> tuple[Any, Any, int]:
        """The tags join the settings; tokens are those of the file."""
        refuse_answers(config, "tags", "sentences")
        text = config.text
        if text.segmenter not in SEGMENTERS:
            raise OptionError(
                f"segmenter {text.segmenter!r} would cut new texts into pieces, but a tagger knows "
                f"the whole tokens of its file; take one of {', '.join(SEGMENTERS)}"
            )
        segmenter = make_segmenter(text, [])
        normal = segmenter.normalization
        tokens = [[normal(token) for token in row] for row in train.tokens]
        vocabulary = vocabulary_of(tokens, text, Tagger.specials)
        tags = tuple(sorted({tag for row in train.tags for tag in row}))
        config = config.model_copy(update={"tags": tags})
        cut = sum(len(row) > text.max_tokens for row in tokens)
        return config, lambda settings: Tagger(settings, vocabulary, segmenter), cut

    @classmethod
    def examples(cls, model: Tagger, data: Sentences) -> TaggedExamples:
        """Ids and tag numbers."""
        index = {tag: i for i, tag in enumerate(model.tags)}
        ids = model.encode(data.tokens)
        targets = [torch.tensor([index.get(tag, IGNORED) for tag in row]) for row in data.tags]
        limit = model.text.max_tokens
        return TaggedExamples(
            [piece for row in ids for piece in row.split(limit)],
            [piece for row in targets for piece in row.split(limit)],
        )

    @classmethod
    def evaluate(cls, model: Tagger, data: Sentences) -> Metrics:
        """The model's tags against the true ones, token by token."""
        found = [
            model.tags[number]
            for logits in model.logits(data.tokens)
            for number in logits.argmax(-1).tolist()
        ]
        return measure(found, [tag for row in data.tags for tag in row])

    @classmethod
    def baselines(
        cls, model: Tagger, train: Sentences, validation: Sentences, test: Sentences
    ) -> dict[str, Metrics]:
        """The most frequent tag of each word."""
        frequent = FrequentTags(train.tokens, train.tags)
        found = [tag for row in test.tokens for tag in frequent.predict(row)]
        true = [tag for row in test.tags for tag in row]
        return {"frequent_tags": measure(found, true)}
