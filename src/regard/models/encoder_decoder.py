"""An encoder–decoder: reads one text, writes another.

Vaswani et al., "Attention Is All You Need" (2017), section 3.1; the norms stand before each part.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import log_softmax

from regard.attention.masks import Padding
from regard.errors import OptionError
from regard.models._model import BEGIN, END, TextModel, batches_of, make_segmenter, many
from regard.models.decoder import Decoder, DecoderCache
from regard.models.encoder import Encoder
from regard.models.joining import join
from regard.models.settings import EncoderDecoderSettings
from regard.text import Segmenter, Vocabulary
from regard.text.vocabulary import PADDING, UNKNOWN

AT_ONCE = 64


@dataclass(frozen=True)
class Written:
    """A text that a model wrote, its tokens, and the logarithm of their probability.

    `ended`: whether the model ended the text by itself; `log_probability` then counts its end.
    """

    text: str
    tokens: list[str]
    log_probability: float
    ended: bool


class EncoderDecoder(TextModel):
    """Reads a text with an encoder; a decoder writes another, looking back at it.

    Each side has its vocabulary and segmenter. A text to read is cut to `text.max_tokens`; what is
    written begins with ``<s>``, ends with ``</s>`` and has `target.max_tokens` tokens at most.
    """

    kind = "an encoder–decoder"
    settings_class = EncoderDecoderSettings
    specials = (PADDING, UNKNOWN, BEGIN, END)
    sides = ("", "target")

    def __init__(
        self,
        settings: EncoderDecoderSettings,
        vocabulary: Vocabulary,
        segmenter: Segmenter | None = None,
        target_vocabulary: Vocabulary | None = None,
        target_segmenter: Segmenter | None = None,
    ):
        super().__init__(settings.text, vocabulary, segmenter)
        self.settings = settings
        if target_vocabulary is None:
            raise OptionError("an encoder–decoder needs a target_vocabulary, for what it writes")
        self.target_vocabulary = self._checked(target_vocabulary)
        self.target_segmenter = target_segmenter or make_segmenter(settings.target_text)
        self.begin, self.end = target_vocabulary[BEGIN], target_vocabulary[END]
        layers = settings.encoder
        self.encoder = Encoder(
            len(vocabulary), layers, settings.text.max_tokens, vocabulary.padding or 0
        )
        self.decoder = Decoder(
            len(target_vocabulary),
            layers,
            settings.target_text.max_tokens,
            target_vocabulary.padding or 0,
            cross=True,
        )

    def side(self, name: str) -> tuple[Vocabulary, Segmenter]:
        """What it reads with, ``""``, or what it writes with, ``"target"``."""
        if name == "target":
            return self.target_vocabulary, self.target_segmenter
        return super().side(name)

    def forward(
        self,
        ids: Int[Tensor, "batch tokens"],
        lengths: Int[Tensor, " batch"],
        target_ids: Int[Tensor, "batch target_tokens"],
    ) -> Float[Tensor, "batch target_tokens vocabulary"]:
        """Logits of the token after each of `target_ids`, which begin with ``<s>``.

        Rows of `ids` hold `lengths` tokens; all padding stands on the right.
        """
        memory = self.encoder(ids, lengths)
        mask = Padding.from_lengths(lengths, ids.shape[1])
        return self.decoder.logits(self.decoder(target_ids, None, memory, mask))

    def encode_targets(self, texts: Sequence[str]) -> list[Tensor]:
        """The ids of each text to write, ``<s>`` before and ``</s>`` behind, cut to the limit."""
        longest = self.settings.target_text.max_tokens + 1
        ids = self.target_segmenter.split(texts)
        return [
            torch.tensor([self.begin, *self.target_vocabulary.encode(row).tolist(), self.end])[
                :longest
            ]
            for row in ids
        ]

    def logits(
        self, texts: Sequence[str], targets: Sequence[str]
    ) -> list[Float[Tensor, "_ vocabulary"]]:
        """Logits of what follows ``<s>`` and each token of each target, (tokens + 1, V).

        As in eval mode, whatever the model would have written itself.
        """
        ids, written = self.encode(many(texts, "logits")), self.encode_targets(targets)
        if len(ids) != len(written):
            raise OptionError(f"there are {len(ids)} texts but {len(written)} targets")
        found: list[Tensor] = [torch.empty(0)] * len(ids)
        with self.evaluating():
            for part in batches_of([len(row) for row in ids], AT_ONCE):
                read = self.collate([ids[i] for i in part])
                rows, lengths = self.collate([written[i][:-1] for i in part])
                logits = self(*read, rows).float().cpu()
                for i, row, length in zip(part, logits, lengths.tolist(), strict=True):
                    found[i] = row[:length]
        return found

    def predict(
        self, texts: Sequence[str], beams: int = 1, tokens: int | None = None
    ) -> list[Written]:
        """What the model writes for each text, `tokens` tokens at most.

        One beam takes the most probable token every time; more keep as many beginnings side by side
        and give the one with the highest mean log-probability a token. `OptionError` for a single
        string, `DataError` for a text without tokens.
        """
        limit = self.settings.target_text.max_tokens
        longest = limit if tokens is None else tokens
        if not 1 <= longest <= limit:
            raise OptionError(f"tokens= is from 1 to {limit}, which the model writes at most")
        if not 1 <= beams < len(self.target_vocabulary):
            raise OptionError(
                f"beams= is at least 1 and less than the {len(self.target_vocabulary)} tokens of "
                f"the vocabulary, not {beams}"
            )
        ids = self.encode(many(texts, "predict"))
        found: list[Written | None] = [None] * len(ids)
        with self.evaluating():
            for part in batches_of([len(row) for row in ids], max(1, AT_ONCE // beams)):
                read = self.collate([ids[i] for i in part])
                for i, (new, log) in zip(part, self._search(*read, beams, longest), strict=True):
                    found[i] = self._written(new, log)
        return [one for one in found if one is not None]

    def _written(self, ids: list[int], log: float) -> Written:
        ended = ids[-1] == self.end
        tokens = self.target_vocabulary.decode(ids[: len(ids) - ended])
        return Written(join(self.target_segmenter.name, tokens), tokens, log, ended)

    def _search(
        self, ids: Tensor, lengths: Tensor, beams: int, tokens: int
    ) -> list[tuple[list[int], float]]:
        """The ids that are written for each text, and their log-probability.

        Row b · beams + i of the decoder's batch is beam i of text b.
        """
        batch = len(ids)
        memory = self.encoder(ids, lengths).repeat_interleave(beams, 0)
        mask = Padding.from_lengths(lengths.repeat_interleave(beams), ids.shape[1])
        cache = DecoderCache.empty(len(self.decoder.blocks))
        searches = [_Search(beams, self.end) for _ in range(batch)]
        last = torch.full((batch * beams, 1), self.begin, device=ids.device)
        barred = [self.target_vocabulary.padding, self.target_vocabulary.unknown, self.begin]
        for _ in range(tokens):
            x = self.decoder(last, cache, memory, mask)[:, -1:]
            logs = log_softmax(self.decoder.logits(x)[:, 0].float(), -1).cpu()
            logs[:, torch.tensor(barred)] = -torch.inf
            rows = []
            for number, search in enumerate(searches):
                part = slice(number * beams, (number + 1) * beams)
                rows += [number * beams + beam for beam in search.step(logs[part])]
            if all(search.done for search in searches):
                break
            cache.take(torch.tensor(rows, device=ids.device))
            last = torch.tensor([[new] for one in searches for new in one.last], device=ids.device)
        return [search.best() for search in searches]


class _Search:
    """The beams of one text: beginnings that go on, and texts that have ended."""

    def __init__(self, beams: int, end: int):
        self.beams, self.end = beams, end
        self.running: list[tuple[list[int], float]] = [([], 0.0)]
        self.ended: list[tuple[list[int], float]] = []

    @property
    def done(self) -> bool:
        """Whether as many texts have ended as there are beams, or none is left to go on."""
        return len(self.ended) >= self.beams or not self.running

    @property
    def last(self) -> list[int]:
        """The newest id of each beam; beams that are not used repeat the first."""
        new = [ids[-1] for ids, _ in self.running] or [self.end]
        return [*new, *new[:1] * (self.beams - len(new))]

    def step(self, logs: Float[Tensor, "beams vocabulary"]) -> list[int]:
        """Go on by one token; which beam each of the new ones comes from."""
        if self.done:
            return list(range(self.beams))
        so_far = torch.tensor([log for _, log in self.running], dtype=torch.float64)
        total = logs[: len(self.running)].double() + so_far[:, None]
        # Of twice as many candidates, at most half end the text.
        best = total.flatten().topk(min(2 * self.beams, total.numel()))
        running, rows = [], []
        for rank, (log, place) in enumerate(
            zip(best.values.tolist(), best.indices.tolist(), strict=True)
        ):
            row, new = divmod(place, logs.shape[1])
            ids = [*self.running[row][0], new]
            if log == -torch.inf or len(running) == self.beams:
                break
            if new != self.end:
                running.append((ids, log))
                rows.append(row)
            elif rank < self.beams:
                self.ended.append((ids, log))
        self.running = running
        return [*rows, *[0] * (self.beams - len(rows))]

    def best(self) -> tuple[list[int], float]:
        """The text with the highest mean log-probability a token, among ended ones if there are."""
        return max(self.ended or self.running, key=lambda one: one[1] / len(one[0]))
