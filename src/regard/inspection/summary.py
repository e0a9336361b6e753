"""The table of what heads do: one row a head, one column a measure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import torch

from regard.errors import OptionError, RegardError
from regard.inspection.atlas import Head, head_of
from regard.inspection.heads import Block, Measure, Text, family
from regard.inspection.tracing import Trace


@dataclass(frozen=True, eq=False)
class Summary:
    """`values[i][m]`: what measure `columns[m]` gives for head `heads[i]`, a (layer, head)."""

    heads: list[tuple[int, int]]
    columns: list[str]
    values: list[list[float]]

    def of(self, layer: int, head: int) -> dict[str, float]:
        """One head's numbers by name."""
        if (layer, head) not in self.heads:
            raise OptionError(f"the summary has no head {head} of layer {layer}")
        return dict(zip(self.columns, self.values[self.heads.index((layer, head))], strict=True))

    def top(self, column: str, n: int = 10) -> list[tuple[int, int]]:
        """The n heads that measure most in a column, most first; nan is left out."""
        if column not in self.columns:
            raise OptionError(f"the summary has no {column!r}; it has {', '.join(self.columns)}")
        at = self.columns.index(column)
        some = [(row[at], head) for head, row in zip(self.heads, self.values, strict=True)]
        some = [pair for pair in some if pair[0] == pair[0]]
        return [head for _, head in sorted(some, key=lambda pair: (-pair[0], pair[1]))[:n]]

    def to_pandas(self) -> Any:
        """A DataFrame with the index (layer, head); pandas has to be installed."""
        try:
            pandas = import_module("pandas")
        except ImportError:
            raise RegardError("pandas is not installed; run: pip install pandas") from None
        index = pandas.MultiIndex.from_tuples(self.heads, names=["layer", "head"])
        return pandas.DataFrame(self.values, index=index, columns=self.columns)

    def __str__(self) -> str:
        names = ["layer", "head", *self.columns]
        lines = [
            [str(layer), str(head), *("–" if v != v else f"{v:.3f}" for v in row)]
            for (layer, head), row in zip(self.heads, self.values, strict=True)
        ]
        widths = [max(map(len, column)) for column in zip(names, *lines, strict=True)]
        return "\n".join(
            "  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True))
            for line in [names, *lines]
        )


def summarize(
    trace: Trace,
    measures: Sequence[str] | None = None,
    heads: Iterable[tuple[int, int]] | None = None,
) -> Summary:
    """What each head of a trace does, in memory that grows with tokens and not their square.

    `measures`: names, all if left out. `heads`: (layer, head) pairs, all if left out.
    """
    names = known(trace) if measures is None else list(measures)
    made = [family.create(name) for name in names]
    text = text_of(trace)
    if heads is None:
        heads = [(i, h) for i, record in enumerate(trace.records) for h in range(record.heads)]
    heads = list(heads)
    values = [measure(head_of(trace.record(i), h), text, made) for i, h in heads]
    return Summary(heads, names, values)


def known(trace: Trace | None = None) -> list[str]:
    """The measures' names; of those that fit a trace, if one is given."""
    names = family.names()
    if trace is None or trace.key_tokens is trace.tokens:
        return names
    return [name for name in names if not family.get(name).self_attention]


def text_of(trace: Trace) -> Text:
    """The tokens of a trace as numbers, equal for equal tokens."""
    numbers: dict[Any, int] = {}

    def number(tokens: Sequence[Any]) -> torch.Tensor:
        keys = [token.text if token.id is None else token.id for token in tokens]
        return torch.tensor([numbers.setdefault(key, len(numbers)) for key in keys])

    device = trace.records[0].q.device
    special = torch.tensor([token.special for token in trace.key_tokens])
    return Text(
        number(trace.tokens).to(device),
        number(trace.key_tokens).to(device),
        special.to(device),
        same=trace.key_tokens is trace.tokens,
    )


def measure(head: Head, text: Text, measures: Sequence[Measure]) -> list[float]:
    """Each measure of one head; nan where there is nothing to measure."""
    found = [torch.nan if m.self_attention and not text.same else m.of_head(head) for m in measures]
    rows = [m for m, value in zip(measures, found, strict=True) if value is None]
    means = iter(_means(head, text, rows))
    return [next(means) if value is None else value for value in found]


@torch.no_grad()
def _means(head: Head, text: Text, measures: Sequence[Measure]) -> list[float]:
    if not measures:
        return []
    sums = torch.zeros(len(measures), head.queries, device=head.device)
    attends = torch.zeros(head.queries, dtype=torch.bool, device=head.device)
    call = head.record.call
    for start in range(0, head.queries, head.block[0]):
        rows = slice(start, min(start + head.block[0], head.queries))
        for cols in head.chunks(rows):
            block = Block(
                head.weights(rows, cols),
                rows,
                cols,
                text,
                call.query_positions[0, rows],
                call.key_positions[0, cols],
            )
            attends[rows] |= (block.weights != 0).any(1)
            for i, m in enumerate(measures):
                sums[i, rows] += m.of_block(block)
    counted = [m.counts(text) & attends for m in measures]
    return [
        float(row[some].double().mean()) if some.any() else torch.nan
        for row, some in zip(sums, counted, strict=True)
    ]
