"""A text classifier: segmenter, vocabulary, encoder, mean over the tokens, one score a label."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.errors import OptionError
from regard.models._model import TextModel, batches_of, many
from regard.models.encoder import Encoder
from regard.models.settings import ClassifierSettings
from regard.text import Segmenter, Vocabulary


@dataclass(frozen=True)
class Prediction:
    """The most probable label of a text, and the probability of each label."""

    label: str
    probabilities: dict[str, float]

    @property
    def probability(self) -> float:
        """The probability of `label`."""
        return self.probabilities[self.label]


class Classifier(TextModel):
    """Assigns one of `settings.labels` to a text.

    The encoder's vectors are averaged over the tokens, then mapped to one logit a label; the tap
    `encoder.blocks[i].attention.weights` and its neighbours show what happens within.
    """

    kind = "a classifier"
    settings_class = ClassifierSettings

    def __init__(
        self,
        settings: ClassifierSettings,
        vocabulary: Vocabulary,
        segmenter: Segmenter | None = None,
    ):
        super().__init__(settings.text, vocabulary, segmenter)
        if len(settings.labels) < 2:
            raise OptionError(f"a classifier needs two labels or more, got {settings.labels}")
        if len(set(settings.labels)) < len(settings.labels):
            raise OptionError(f"a classifier's labels must differ, got {settings.labels}")
        self.settings = settings
        self.encoder = Encoder(
            len(vocabulary), settings.encoder, settings.text.max_tokens, vocabulary.padding or 0
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

    def logits(self, texts: Sequence[str]) -> Float[Tensor, "texts labels"]:
        """The logits of each text, as in eval mode, in the order of `texts`."""
        ids = self.encode(texts)
        found = torch.empty(len(ids), len(self.labels))
        with self.evaluating():
            for part in batches_of([len(row) for row in ids]):
                found[part] = self(*self.collate([ids[i] for i in part])).float().cpu()
        return found

    def predict(self, texts: Sequence[str]) -> list[Prediction]:
        """The label of each text, with probabilities.

        `OptionError` for a single string, `DataError` for a text without tokens.
        """
        found = []
        for row in self.logits(many(texts, "predict")).double().softmax(-1).tolist():
            probabilities = dict(zip(self.labels, row, strict=True))
            found.append(Prediction(max(self.labels, key=probabilities.__getitem__), probabilities))
        return found
