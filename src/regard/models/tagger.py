"""A tagger: segmenter, vocabulary, encoder, one linear map for each token: a tag a token."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.errors import DataError, OptionError
from regard.models._model import TextModel, batches_of
from regard.models.encoder import Encoder
from regard.models.settings import TaggerSettings
from regard.text import Segmenter, Tokens, Vocabulary


@dataclass(frozen=True)
class Tagged:
    """A token, its most probable tag, and the probability of each tag.

    `start` and `end` are the characters of the text that it stands for; of tokens that were given,
    in these tokens joined by spaces.
    """

    token: str
    start: int
    end: int
    tag: str
    probabilities: dict[str, float]

    @property
    def probability(self) -> float:
        """The probability of `tag`."""
        return self.probabilities[self.tag]


class Tagger(TextModel):
    """Assigns one of `settings.tags` to each token of a text.

    Takes texts, which its segmenter cuts, or lists of tokens as they are. What is longer than
    `text.max_tokens` is read in pieces of that length, each by itself.
    """

    kind = "a tagger"
    settings_class = TaggerSettings

    def __init__(
        self,
        settings: TaggerSettings,
        vocabulary: Vocabulary,
        segmenter: Segmenter | None = None,
    ):
        super().__init__(settings.text, vocabulary, segmenter)
        if len(settings.tags) < 2:
            raise OptionError(f"a tagger needs two tags or more, got {settings.tags}")
        if len(set(settings.tags)) < len(settings.tags):
            raise OptionError(f"a tagger's tags must differ, got {settings.tags}")
        self.settings = settings
        self.encoder = Encoder(
            len(vocabulary), settings.encoder, settings.text.max_tokens, vocabulary.padding or 0
        )
        self.dropout = nn.Dropout(settings.encoder.dropout)
        self.head = nn.Linear(settings.encoder.width, len(settings.tags))

    @property
    def tags(self) -> tuple[str, ...]:
        """The answers, in the order of the logits."""
        return self.settings.tags

    def forward(
        self, ids: Int[Tensor, "batch tokens"], lengths: Int[Tensor, " batch"]
    ) -> Float[Tensor, "batch tokens tags"]:
        """Logits; rows of `ids` hold `lengths` tokens (at least one) and padding on the right."""
        return self.head(self.dropout(self.encoder(ids, lengths)))

    def tokens(self, texts: Sequence[str] | Sequence[Sequence[str]]) -> list[Tokens]:
        """The tokens of each text with their offsets; `DataError` for a text without any."""
        if isinstance(texts, str):
            raise OptionError("a tagger takes a list of texts; for one text pass [text]")
        found = [self.segmenter(one) if isinstance(one, str) else _given(one) for one in texts]
        for number, one in enumerate(found, start=1):
            if not len(one):
                raise DataError(
                    f"text {number} of {len(texts)} has no tokens: {texts[number - 1]!r}"
                )
        return found

    def encode(self, texts: Sequence[str] | Sequence[Sequence[str]]) -> list[Tensor]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The ids of the tokens of each text, all of them; `DataError` if it has none.

        Tokens that are given are normalized as the segmenter normalizes texts.
        """
        normal = self.segmenter.normalization
        ids = []
        for text, found in zip(texts, self.tokens(texts), strict=True):
            known = found.tokens
            if not isinstance(text, str):
                known = [normal(token) for token in known]
            ids.append(torch.from_numpy(self.vocabulary.encode(known)).long())
        return ids

    def logits(
        self, texts: Sequence[str] | Sequence[Sequence[str]]
    ) -> list[Float[Tensor, "_ tags"]]:
        """The logits of each token of each text, (tokens, tags), as in eval mode."""
        ids = self.encode(texts)
        pieces = [piece for row in ids for piece in row.split(self.text.max_tokens)]
        answers: list[Tensor] = [torch.empty(0)] * len(pieces)
        with self.evaluating():
            for part in batches_of([len(piece) for piece in pieces]):
                logits = self(*self.collate([pieces[i] for i in part])).float().cpu()
                for i, row in zip(part, logits, strict=True):
                    answers[i] = row[: len(pieces[i])]
        return list(torch.cat(answers).split([len(row) for row in ids])) if ids else []

    def predict(self, texts: Sequence[str] | Sequence[Sequence[str]]) -> list[list[Tagged]]:
        """The tag of each token of each text, with probabilities.

        `OptionError` for a single string, `DataError` for a text without tokens.
        """
        found = []
        for tokens, logits in zip(self.tokens(texts), self.logits(texts), strict=True):
            rows = logits.double().softmax(-1).tolist()
            places = zip(tokens.tokens, tokens.starts, tokens.ends, rows, strict=True)
            found.append([self._tagged(*place) for place in places])
        return found

    def _tagged(self, token: str, start: int, end: int, row: list[float]) -> Tagged:
        probabilities = dict(zip(self.tags, row, strict=True))
        best = max(self.tags, key=probabilities.__getitem__)
        return Tagged(token, start, end, best, probabilities)


def _given(tokens: Sequence[str]) -> Tokens:
    """Tokens as they are, with their places in the text that spaces between them make."""
    starts, at = [], 0
    for token in tokens:
        starts.append(at)
        at += len(token) + 1
    ends = [start + len(token) for start, token in zip(starts, tokens, strict=True)]
    return Tokens(list(tokens), starts, ends)
