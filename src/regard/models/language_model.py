"""A language model: how likely each next token is, given those before; so it writes, too."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import log_softmax

from regard.errors import DataError, OptionError
from regard.models._model import BEGIN, END, TextModel, batches_of, many
from regard.models.decoder import Decoder, DecoderCache
from regard.models.joining import joined_after
from regard.models.settings import LanguageModelSettings
from regard.text import Segmenter, Vocabulary
from regard.text.vocabulary import PADDING, UNKNOWN


@dataclass(frozen=True)
class Scored:
    """The tokens of a text, its end last, and the natural logarithm of each one's probability."""

    tokens: list[str]
    log_probabilities: list[float]

    @property
    def perplexity(self) -> float:
        """exp of the mean negative log-probability."""
        return perplexity_of(-math.fsum(self.log_probabilities) / len(self.log_probabilities))


class LanguageModel(TextModel):
    """Predicts each token of a text, and its end, from the tokens before it.

    A text begins with ``<s>`` and ends with ``</s>``. The model reads `text.max_tokens` tokens at
    once, ``<s>`` included. Of a longer text each token is judged from as many tokens before it as
    fit, at least half of them.
    """

    kind = "a language model"
    settings_class = LanguageModelSettings
    specials = (PADDING, UNKNOWN, BEGIN, END)

    def __init__(
        self,
        settings: LanguageModelSettings,
        vocabulary: Vocabulary,
        segmenter: Segmenter | None = None,
    ):
        super().__init__(settings.text, vocabulary, segmenter)
        if settings.text.max_tokens < 2:
            raise OptionError("a language model needs max_tokens of 2 or more")
        self.settings = settings
        self.begin, self.end = vocabulary[BEGIN], vocabulary[END]
        self.decoder = Decoder(
            len(vocabulary), settings.decoder, settings.text.max_tokens, vocabulary.padding or 0
        )

    def forward(
        self,
        ids: Int[Tensor, "batch tokens"],
        lengths: Int[Tensor, " batch"] | None = None,
        cache: DecoderCache | None = None,
    ) -> Float[Tensor, "batch tokens vocabulary"]:
        """Logits of the token after each; padding stands on the right, so `lengths` change nothing.

        With a `cache`, `ids` go on where it ends.
        """
        return self.decoder.logits(self.decoder(ids, cache))

    def encode(self, texts: Sequence[str]) -> list[Tensor]:
        """The ids of each text, ``<s>`` before and ``</s>`` behind, all of them."""
        return [
            torch.tensor([self.begin, *self.vocabulary.encode(tokens).tolist(), self.end])
            for tokens in self.segmenter.split(texts)
        ]

    def logits(self, texts: Sequence[str]) -> list[Float[Tensor, "_ vocabulary"]]:
        """Logits of what follows ``<s>`` and each token, (tokens + 1, V), as in eval mode."""
        ids = [row[:-1] for row in self.encode(many(texts, "logits"))]
        for number, row in enumerate(ids, start=1):
            if len(row) > self.text.max_tokens:
                raise OptionError(
                    f"text {number} of {len(ids)} has {len(row)} tokens with <s>, but the model "
                    f"reads {self.text.max_tokens} at once; shorten it, or ask log_probabilities, "
                    "which reads it in windows"
                )
        found: list[Tensor] = [torch.empty(0)] * len(ids)
        with self.evaluating():
            for part in batches_of([len(row) for row in ids]):
                logits = self(*self.collate([ids[i] for i in part])).float().cpu()
                for i, row in zip(part, logits, strict=True):
                    found[i] = row[: len(ids[i])]
        return found

    def log_probabilities(self, texts: Sequence[str]) -> list[Scored]:
        """The probability of each token of each text, and of its end, as logarithms."""
        ids = self.encode(many(texts, "log_probabilities"))
        windows = [(i, *window) for i, row in enumerate(ids) for window in self.windows(len(row))]
        found = [torch.zeros(len(row) - 1) for row in ids]
        with self.evaluating():
            for part in batches_of([stop - start for _, start, _, stop in windows]):
                rows = [ids[i][start:stop] for i, start, _, stop in (windows[n] for n in part)]
                read, lengths = self.collate([row[:-1] for row in rows])
                logs = log_softmax(self(read, lengths).float(), -1)
                for n, row, log in zip(part, rows, logs, strict=True):
                    i, start, first, stop = windows[n]
                    true = log[torch.arange(len(row) - 1), row[1:].to(log.device)].cpu()
                    found[i][first : stop - 1] = true[first - start :]
        tokens = [self.vocabulary.decode(row[1:].numpy()) for row in ids]
        return [Scored(t, row.tolist()) for t, row in zip(tokens, found, strict=True)]

    def perplexity(self, texts: Sequence[str]) -> float:
        """exp of the mean negative log-probability of all tokens of all texts, ends included."""
        logs = [log for one in self.log_probabilities(texts) for log in one.log_probabilities]
        if not logs:
            raise DataError("there is no text to judge")
        return perplexity_of(-math.fsum(logs) / len(logs))

    def windows(self, tokens: int) -> Iterator[tuple[int, int, int]]:
        """(start, first, stop): read start … stop − 1, which says of tokens first + 1 … stop − 1
        how likely they are. Each token but the first is in one.
        """
        limit = self.text.max_tokens
        first = 0
        while first < tokens - 1:
            start = 0 if first == 0 else first - limit // 2
            stop = min(start + limit + 1, tokens)
            yield start, first, stop
            first = stop - 1

    def generate(
        self,
        text: str = "",
        tokens: int = 50,
        *,
        temperature: float | int = 1.0,
        top: int | None = None,
        seed: int | None = None,
        slide: bool = False,
    ) -> str:
        """What the model writes after `text`: at most so many tokens, fewer if it ends the text.

        What it gives goes behind the text: where words need a space between, it begins with one.

        `temperature`: 0 takes the most probable token every time; else logits are divided by it and
        the token is drawn. `top`: draw among so many most probable ones. `seed`: the same one, the
        same text. When the text would be longer than the model reads, `OptionError`; with `slide`,
        it forgets the oldest half of what it has read, whenever it is full.
        """
        start = self.encode([text])[0][:-1].tolist()
        ids = self.continuation(
            start, tokens, temperature=temperature, top=top, seed=seed, slide=slide
        )
        if ids and ids[-1] == self.end:
            ids = ids[:-1]
        before = self.segmenter.split([text])[0]
        return joined_after(self.segmenter.name, before, self.vocabulary.decode(ids))

    def continuation(
        self,
        start: Sequence[int],
        tokens: int,
        *,
        temperature: float | int = 1.0,
        top: int | None = None,
        seed: int | None = None,
        slide: bool = False,
    ) -> list[int]:
        """The ids that the model writes after `start`, ``</s>`` the last where it ends the text."""
        _check(tokens, temperature, top)
        limit = self.text.max_tokens
        if not slide and len(start) + tokens - 1 > limit:
            raise OptionError(
                f"{len(start)} tokens are given and {tokens} more are asked for, but the model "
                f"reads {limit} at once; ask for {max(limit - len(start) + 1, 0)} at most, or pass "
                "slide, and it forgets the oldest half whenever it is full"
            )
        generator = torch.Generator()
        generator.manual_seed(seed) if seed is not None else generator.seed()
        read, new = list(start), []
        with self.evaluating():
            cache, unread = self.decoder.new_cache(), read
            for _ in range(tokens):
                if len(read) > limit:
                    read = read[-(limit // 2) :]
                    cache, unread = self.decoder.new_cache(), read
                if cache is None:
                    unread = read
                logits = self(torch.tensor([unread], device=self.device), cache=cache)[0, -1]
                new.append(self._next(logits.float().cpu(), temperature, top, generator))
                if new[-1] == self.end:
                    break
                unread = new[-1:]
                read = [*read, *unread]
        return new

    def _next(
        self, logits: Tensor, temperature: float | int, top: int | None, generator: torch.Generator
    ) -> int:
        """The id to go on with; never padding, ``<unk>`` or ``<s>``, which are no text."""
        barred = [self.vocabulary.padding, self.vocabulary.unknown, self.begin]
        logits[torch.tensor(barred)] = -torch.inf
        if temperature == 0:
            return int(logits.argmax())
        if top is not None and top < len(logits):
            logits[logits < logits.topk(top).values[-1]] = -torch.inf
        chances = (logits.double() / temperature).softmax(-1)
        return int(torch.multinomial(chances, 1, generator=generator))


def perplexity_of(loss: float) -> float:
    """exp of the mean negative log-probability; infinite where no float holds it."""
    return math.exp(loss) if loss < 700 else math.inf


def _check(tokens: int, temperature: float | int, top: int | None) -> None:
    if tokens < 1:
        raise OptionError(f"tokens= is at least 1, not {tokens}")
    if not 0 <= temperature < math.inf:
        raise OptionError(f"temperature is 0 or more, not {temperature}")
    if top is not None and top < 1:
        raise OptionError(f"top is at least 1, not {top}")
