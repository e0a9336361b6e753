"""Comparing: two texts on one model, or two models on one text, token by token.

Tokens of both are aligned by their longest common runs; differences are b − a over the tokens that
both have.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from regard.errors import OptionError
from regard.inspection.atlas import Atlas, Tile, head_of
from regard.inspection.summary import Summary
from regard.inspection.tokens import Token
from regard.inspection.tracing import Trace

ROWS = 256
"""Rows that are compared at a time."""


@dataclass(frozen=True, eq=False)
class Comparison:
    """Two traces with the same layers and heads, and the tokens that both have.

    `rows`, `cols`: runs of common tokens, each (first in a, first in b, how many).
    """

    a: Trace
    b: Trace
    rows: list[tuple[int, int, int]]
    cols: list[tuple[int, int, int]]

    @property
    def tokens(self) -> list[Token]:
        """The tokens that both have, as of a: the rows of a difference."""
        return [self.a.tokens[i + n] for i, _, size in self.rows for n in range(size)]

    @property
    def key_tokens(self) -> list[Token]:
        """The same for the columns."""
        return [self.a.key_tokens[i + n] for i, _, size in self.cols for n in range(size)]

    def difference(self, layer: int, head: int) -> Float[Tensor, "rows cols"]:
        """Weights of b − weights of a between the tokens that both have."""
        return torch.cat(list(self._differences(layer, head)))

    def tile(self, layer: int, head: int, pool: int, row: int, col: int) -> Tile:
        """A tile of the difference of means, at any length; for texts of the same tokens."""
        if not self.whole:
            raise OptionError(
                "tiles are compared where both texts have the same tokens; these differ, so ask "
                "for difference(layer, head), which is of the tokens that both have"
            )
        a, b = (atlas.tile(layer, head, pool, row, col, "mean") for atlas in self._atlases)
        values = b.values - a.values
        return Tile(values, pool, row, col, "difference", a.rows, a.cols)

    @cached_property
    def whole(self) -> bool:
        """Whether every token of one is a token of the other, in the same place."""
        sizes = [(len(t.tokens), len(t.key_tokens)) for t in (self.a, self.b)]
        return sizes[0] == sizes[1] and [self.rows, self.cols] == [
            [(0, 0, size)] for size in sizes[0]
        ]

    def changed(self) -> Summary:
        """The table of what changed, one row a head.

        `moved`: the share of a row's weight that went elsewhere, ½ Σ |b − a|, the mean over rows;
        `largest`: the largest difference of one weight.
        """
        heads, values = [], []
        for layer, record in enumerate(self.a.records):
            for head in range(record.heads):
                moved, largest, count = 0.0, 0.0, 0
                for part in self._differences(layer, head):
                    moved += float(part.abs().sum(dtype=torch.float64)) / 2
                    largest = max(largest, float(part.abs().max()))
                    count += len(part)
                heads.append((layer, head))
                values.append([moved / max(count, 1), largest])
        return Summary(heads, ["moved", "largest"], values)

    @cached_property
    def _atlases(self) -> tuple[Atlas, Atlas]:
        return Atlas(self.a.records), Atlas(self.b.records)

    def _differences(self, layer: int, head: int) -> Iterator[Tensor]:
        a, b = (head_of(trace.record(layer), head) for trace in (self.a, self.b))
        for first, second, size in self.rows:
            for n in range(0, size, ROWS):
                high = min(ROWS, size - n)
                rows = slice(first + n, first + n + high), slice(second + n, second + n + high)
                parts = [
                    b.weights(rows[1], slice(j, j + wide)) - a.weights(rows[0], slice(i, i + wide))
                    for i, j, wide in self.cols
                ]
                yield torch.cat(parts, 1)


def compare(a: Trace, b: Trace) -> Comparison:
    """Two traces side by side; `OptionError` if their layers or heads differ in number."""
    shapes = [[record.heads for record in trace.records] for trace in (a, b)]
    if shapes[0] != shapes[1]:
        raise OptionError(
            f"the traces have {a.layers} layers of {a.heads} heads and {b.layers} of {b.heads}; "
            "only models of the same layers and heads are compared"
        )
    rows = _align(a.tokens, b.tokens)
    cols = rows if a.key_tokens is a.tokens else _align(a.key_tokens, b.key_tokens)
    if not rows or not cols:
        raise OptionError("the two texts have no token in common, so there is nothing to compare")
    return Comparison(a, b, rows, cols)


def _align(a: tuple[Token, ...], b: tuple[Token, ...]) -> list[tuple[int, int, int]]:
    names = [[token.label for token in tokens] for tokens in (a, b)]
    if names[0] == names[1]:
        return [(0, 0, len(a))]
    matcher = SequenceMatcher(None, *names, autojunk=False)
    return [(m.a, m.b, m.size) for m in matcher.get_matching_blocks() if m.size]
