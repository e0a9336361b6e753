"""A trace by words, characters or sentences instead of tokens.

The weight of a unit is summed over its keys (a word gets what its pieces get) and averaged over its
queries (a word gives what its pieces give on average), so that rows of units sum to one as rows of
tokens do.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor

from regard.errors import OptionError, unknown_name
from regard.inspection.tokens import Token, joined_characters, require_offsets
from regard.text import segmenters

if TYPE_CHECKING:
    from regard.inspection.tracing import Trace

HAN = re.compile(r"[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")
SENTENCE = re.compile(r"""(?:[^。！？!?.\n]|\.(?=\S))+[。！？!?.]*[”’」』）)"']*""")

Piece = tuple[int, int]


@dataclass(frozen=True)
class Unit:
    """One unit: its text, its tokens by index, and whether a tokenizer put it in."""

    text: str
    tokens: tuple[int, ...]
    special: bool = False


class Units:
    """The weights of a trace between units.

    `kind`: tokens, characters, words or sentences. A unit is never smaller than a token. Words of
    texts with Chinese are those of jieba, else those of white space and punctuation.
    `special=False` hides the tokens that the tokenizer put in; what they get is then missing from
    the rows, or shared out among the others with `renormalize=True`. `description` says which.
    """

    def __init__(
        self,
        trace: "Trace",
        kind: str = "words",
        *,
        special: bool = True,
        renormalize: bool = False,
    ):
        if kind not in KINDS:
            raise unknown_name("unit", kind, KINDS)
        if renormalize and special:
            raise OptionError("renormalize=True is for hidden special tokens: pass special=False")
        self.trace, self.kind = trace, kind
        self.special, self.renormalized = special, renormalize
        self.rows = _shown(units(trace.tokens, trace.texts, kind), special)
        same = trace.key_tokens is trace.tokens
        self.cols = (
            self.rows if same else _shown(units(trace.key_tokens, trace.key_texts, kind), special)
        )
        if not self.rows or not self.cols:
            raise OptionError("all tokens are special, so there is nothing left to show")

    @property
    def description(self) -> str:
        """What these numbers are, in one line."""
        merged = "" if self.kind == "tokens" else ", summed over keys, averaged over queries"
        hidden = "" if self.special else "; special tokens hidden"
        if self.renormalized:
            hidden += ", rows scaled to sum to one without them"
        elif not self.special:
            hidden += ", rows lack their share"
        return f"{self.kind}{merged}{hidden}"

    def weights(self, layer: int, head: int) -> Float[Tensor, "q_units k_units"]:
        """The weights of one head between all units, going through its rows in blocks."""
        record = self.trace.record(layer)
        row_unit, col_unit = (
            _owners(self.rows, record.q_tokens),
            _owners(self.cols, record.k_tokens),
        )
        shown = col_unit >= 0
        total = torch.zeros(len(self.rows), len(self.cols), dtype=torch.float64)
        for block in record.row_blocks():
            weights = record.weights(head, block).double().cpu()
            summed = torch.zeros(len(weights), len(self.cols), dtype=torch.float64)
            summed.index_add_(1, col_unit[shown], weights[:, shown])
            of = row_unit[block]
            total.index_add_(0, of[of >= 0], summed[of >= 0])
        total /= torch.tensor([[len(unit.tokens)] for unit in self.rows])
        if self.renormalized:
            sums = total.sum(1, keepdim=True)
            total = torch.where(sums > 0, total / sums, 0.0)
        return total.float()


def _owners(shown: Sequence[Unit], tokens: int) -> Tensor:
    """Which unit each token belongs to; −1 for tokens that are hidden."""
    owner = torch.full((tokens,), -1)
    for i, unit in enumerate(shown):
        owner[list(unit.tokens)] = i
    return owner


def _shown(found: list[Unit], special: bool) -> list[Unit]:
    return [unit for unit in found if special or not unit.special]


def units(tokens: Sequence[Token], texts: Sequence[str], kind: str) -> list[Unit]:
    """The tokens in units of a kind, in their order; special tokens are units by themselves."""
    if kind == "tokens":
        return [Unit(token.label, (i,), token.special) for i, token in enumerate(tokens)]
    require_offsets(tokens)
    pieces = [KINDS[kind](text) for text in texts]
    found: list[Unit] = []
    group: list[int] = []
    span: Piece | None = None
    for members in joined_characters(tokens):
        first, last = tokens[members[0]], tokens[members[-1]]
        touched = _touched(first, last, pieces)
        same = (
            span is not None
            and touched is not None
            and touched[0] <= span[1]
            and first.segment == tokens[group[-1]].segment
        )
        if group and not same:
            found.append(_unit(tokens, texts, group))
            group = []
        group += members
        span = (
            touched
            if not same or span is None or touched is None
            else (
                span[0],
                max(span[1], touched[1]),
            )
        )
    if group:
        found.append(_unit(tokens, texts, group))
    return found


def _touched(first: Token, last: Token, pieces: Sequence[list[Piece]]) -> Piece | None:
    """The first and last piece of text that some tokens overlap; None if they stand for no text."""
    if first.special or first.start is None or last.end is None or first.segment is None:
        return None
    own = pieces[first.segment]
    hit = [i for i, (a, b) in enumerate(own) if a < last.end and first.start < b]
    return (hit[0], hit[-1]) if hit else None


def _unit(tokens: Sequence[Token], texts: Sequence[str], group: list[int]) -> Unit:
    first, last = tokens[group[0]], tokens[group[-1]]
    if first.special or first.start is None or first.segment is None:
        return Unit(first.label, tuple(group), first.special)
    text = texts[first.segment][first.start : last.end]
    return Unit(Token(text).label, tuple(group))


def _characters(text: str) -> list[Piece]:
    return [(i, i + 1) for i in range(len(text))]


def _words(text: str) -> list[Piece]:
    found = segmenters.create("jieba" if HAN.search(text) else "words")(text)
    return list(zip(found.starts, found.ends, strict=True))


def _sentences(text: str) -> list[Piece]:
    return [match.span() for match in SENTENCE.finditer(text) if match.group().strip()]


KINDS: dict[str, Callable[[str], list[Piece]]] = {
    "tokens": _characters,
    "characters": _characters,
    "words": _words,
    "sentences": _sentences,
}
