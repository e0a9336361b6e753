"""What every model has: settings, a vocabulary, a segmenter; texts become padded ids."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

import torch
from jaxtyping import Int
from torch import Tensor, nn

from regard.errors import DataError, OptionError
from regard.models.settings import Settings, TextSettings
from regard.text import Segmenter, Vocabulary, segmenters
from regard.text.vocabulary import PADDING, UNKNOWN

BATCH = 64
BEGIN, END = "<s>", "</s>"


class TextModel(nn.Module):
    """The base of the models: what they are made of, and how texts go in.

    `kind` is the model's name in messages, `settings_class` what ``config.json`` holds, `specials`
    what the vocabulary must hold besides its tokens. A model with a second vocabulary, for what it
    writes, names it in `sides`; the first is ``""``.
    """

    kind: ClassVar[str]
    settings_class: ClassVar[type[Settings]]
    specials: ClassVar[tuple[str, ...]] = (PADDING, UNKNOWN)
    sides: ClassVar[tuple[str, ...]] = ("",)
    settings: Any

    def __init__(self, text: TextSettings, vocabulary: Vocabulary, segmenter: Segmenter | None):
        super().__init__()
        self.text = text
        self.vocabulary = self._checked(vocabulary)
        self.segmenter = segmenter or make_segmenter(text)

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return next(self.parameters()).device

    def side(self, name: str) -> tuple[Vocabulary, Segmenter]:
        """The vocabulary and segmenter of one of `sides`."""
        return self.vocabulary, self.segmenter

    def encode(self, texts: Sequence[str]) -> list[Tensor]:
        """The ids of each text, cut to `text.max_tokens`; `DataError` if it has none."""
        ids = []
        for number, tokens in enumerate(self.segmenter.split(texts), start=1):
            if not tokens:
                raise DataError(
                    f"text {number} of {len(texts)} has no tokens: {texts[number - 1]!r}"
                )
            kept = tokens[: self.text.max_tokens]
            ids.append(torch.from_numpy(self.vocabulary.encode(kept)).long())
        return ids

    def collate(
        self, ids: Sequence[Tensor]
    ) -> tuple[Int[Tensor, "batch tokens"], Int[Tensor, " batch"]]:
        """(B, T) ids padded on the right, and the (B,) lengths, where the model is."""
        padding = self.vocabulary.padding or 0
        rows = nn.utils.rnn.pad_sequence(list(ids), batch_first=True, padding_value=padding)
        lengths = torch.tensor([len(row) for row in ids])
        return rows.to(self.device), lengths.to(self.device)

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """In eval mode and without gradients; afterwards as before."""
        was_training = self.training
        self.eval()
        try:
            with torch.inference_mode():
                yield
        finally:
            self.train(was_training)

    def _checked(self, vocabulary: Vocabulary) -> Vocabulary:
        if missing := [one for one in self.specials if one not in vocabulary.specials]:
            raise OptionError(
                f"{self.kind}'s vocabulary needs {' and '.join(self.specials)} among its specials; "
                f"it lacks {', '.join(missing)}"
            )
        return vocabulary


def make_segmenter(text: TextSettings) -> Segmenter:
    """The segmenter that the settings name; trained ones have to be given instead."""
    return segmenters.create(
        text.segmenter, normalization=text.normalization, lowercase=text.lowercase
    )


def batches_of(lengths: Sequence[int], size: int = BATCH) -> Iterator[list[int]]:
    """Every index once, in batches of similar lengths, shortest first."""
    order = sorted(range(len(lengths)), key=lengths.__getitem__)
    for start in range(0, len(order), size):
        yield order[start : start + size]


def many(texts: Sequence[str], what: str) -> list[str]:
    """`texts` as a list; `OptionError` for a single string."""
    if isinstance(texts, str):
        raise OptionError(f"{what} takes a list of texts; for one text pass [text]")
    return list(texts)
