"""A text classifier: segmenter, vocabulary, encoder, mean over the tokens, one score a label."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.errors import DataError, OptionError
from regard.models.encoder import Encoder
from regard.models.settings import ClassifierSettings
from regard.text import Segmenter, Vocabulary, segmenters

BATCH = 64


@dataclass(frozen=True)
class Prediction:
    """The most probable label of a text, and the probability of each label."""

    label: str
    probabilities: dict[str, float]

    @property
    def probability(self) -> float:
        """The probability of `label`."""
        return self.probabilities[self.label]


class Classifier(nn.Module):
    """Assigns one of `settings.labels` to a text.

    The encoder's vectors are averaged over the tokens, then mapped to one logit a label; the tap
    `encoder.blocks[i].attention.weights` and its neighbours show what happens within.
    """

    def __init__(
        self,
        settings: ClassifierSettings,
        vocabulary: Vocabulary,
        segmenter: Segmenter | None = None,
    ):
        super().__init__()
        if len(settings.labels) < 2:
            raise OptionError(f"a classifier needs two labels or more, got {settings.labels}")
        if len(set(settings.labels)) < len(settings.labels):
            raise OptionError(f"a classifier's labels must differ, got {settings.labels}")
        if vocabulary.padding is None or vocabulary.unknown is None:
            raise OptionError("a classifier's vocabulary needs <pad> and <unk> among its specials")
        self.settings = settings
        self.vocabulary = vocabulary
        self.segmenter = segmenter or make_segmenter(settings)
        self.encoder = Encoder(
            len(vocabulary), settings.encoder, settings.text.max_tokens, vocabulary.padding
        )
        self.dropout = nn.Dropout(settings.encoder.dropout)
        self.head = nn.Linear(settings.encoder.width, len(settings.labels))

    @property
    def labels(self) -> tuple[str, ...]:
        """The answers, in the order of the logits."""
        return self.settings.labels

    def forward(
        self, ids: Int[Tensor, "batch tokens"], lengths: Int[Tensor, " batch"]
    ) -> Float[Tensor, "batch labels"]:
        """Logits; rows of `ids` hold `lengths` tokens (at least one) and padding on the right."""
        vectors = self.encoder(ids, lengths)
        real = torch.arange(ids.shape[1], device=ids.device) < lengths[:, None]
        mean = (vectors * real[..., None]).sum(1) / lengths[:, None]
        return self.head(self.dropout(mean))

    def encode(self, texts: Sequence[str]) -> list[Tensor]:
        """The ids of each text, cut to `settings.text.max_tokens`; `DataError` if it has none."""
        ids = []
        for number, tokens in enumerate(self.segmenter.split(texts), start=1):
            if not tokens:
                raise DataError(
                    f"text {number} of {len(texts)} has no tokens: {texts[number - 1]!r}"
                )
            kept = tokens[: self.settings.text.max_tokens]
            ids.append(torch.from_numpy(self.vocabulary.encode(kept)).long())
        return ids

    def collate(self, ids: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """(B, T) ids padded on the right, and the (B,) lengths, where the model is."""
        padding = self.vocabulary.padding or 0
        device = self.head.weight.device
        rows = nn.utils.rnn.pad_sequence(list(ids), batch_first=True, padding_value=padding)
        lengths = torch.tensor([len(row) for row in ids])
        return rows.to(device), lengths.to(device)

    @torch.inference_mode()
    def logits(self, texts: Sequence[str]) -> Float[Tensor, "texts labels"]:
        """The logits of each text, as in eval mode, in the order of `texts`."""
        ids = self.encode(texts)
        order = sorted(range(len(ids)), key=lambda i: len(ids[i]))
        found = torch.empty(len(ids), len(self.labels))
        was_training = self.training
        self.eval()
        try:
            for part in _parts(order):
                found[part] = self(*self.collate([ids[i] for i in part])).float().cpu()
        finally:
            self.train(was_training)
        return found

    def predict(self, texts: Sequence[str]) -> list[Prediction]:
        """The label of each text, with probabilities.

        `OptionError` for a single string, `DataError` for a text without tokens.
        """
        if isinstance(texts, str):
            raise OptionError("predict takes a list of texts; for one text pass [text]")
        found = []
        for row in self.logits(texts).double().softmax(-1).tolist():
            probabilities = dict(zip(self.labels, row, strict=True))
            found.append(Prediction(max(self.labels, key=probabilities.__getitem__), probabilities))
        return found


def make_segmenter(settings: ClassifierSettings) -> Segmenter:
    """The segmenter that the settings name; trained ones have to be given instead."""
    text = settings.text
    return segmenters.create(
        text.segmenter, normalization=text.normalization, lowercase=text.lowercase
    )


def _parts(order: list[int]) -> Iterator[list[int]]:
    rest = iter(order)
    while part := list(islice(rest, BATCH)):
        yield part
