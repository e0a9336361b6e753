"""One head of a trace as a matrix with its labels: to print, to draw, as JSON and as a page."""

import json
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from regard.errors import OptionError
from regard.inspection.tracing import Trace
from regard.text.storage import new_file

LARGEST_PAGE = 512
"""How many rows or columns a page of plain HTML holds at most."""


@dataclass(frozen=True, eq=False)
class View:
    """The weights of one head between some tokens or units. `description`: what they are.

    `first_row`, `first_col`: the numbers of the first label of either side in the whole.
    """

    model: str
    part: str
    layer: int
    head: int
    rows: list[str]
    cols: list[str]
    weights: Float[Tensor, "rows cols"]
    description: str
    notes: tuple[str, ...]
    first_row: int = 0
    first_col: int = 0

    @property
    def title(self) -> str:
        """Model, layer and head on one line."""
        part = "" if self.part == "self" else f"{self.part}, "
        return f"{self.model}: {part}layer {self.layer}, head {self.head}"

    def strongest(self, n: int) -> list[tuple[int, int, float]]:
        """The n largest weights: row, column, weight."""
        flat = self.weights.flatten()
        found = flat.topk(min(n, flat.numel()))
        width = len(self.cols)
        return [
            (int(i) // width, int(i) % width, float(weight))
            for i, weight in zip(found.indices, found.values, strict=True)
        ]

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values."""
        return {
            "model": self.model,
            "part": self.part,
            "layer": self.layer,
            "head": self.head,
            "description": self.description,
            "notes": list(self.notes),
            "first_row": self.first_row,
            "first_col": self.first_col,
            "rows": self.rows,
            "cols": self.cols,
            "weights": self.weights.tolist(),
        }

    def require_at_most(self, side: int, what: str) -> None:
        """`OptionError` if there are more rows or columns than `side`."""
        if max(len(self.rows), len(self.cols)) > side:
            raise OptionError(
                f"{len(self.rows)} × {len(self.cols)} cells are too many for {what}: it holds "
                f"{side} a side; choose some tokens (--tokens 0-{side - 1}), or use the explorer"
            )

    def to_html(self) -> str:
        """A page by itself: a table of shades, each cell telling its weight."""
        self.require_at_most(LARGEST_PAGE, "a page by itself")
        highest = max(float(self.weights.max()), 1e-30)
        head = "".join(f"<th><span>{escape(col)}</span></th>" for col in self.cols)
        lines = []
        for label, line in zip(self.rows, self.weights.tolist(), strict=True):
            cells = "".join(
                f'<td style="--w:{weight / highest:.3f}" '
                f'title="{escape(label)} → {escape(col)}: {weight:.6f}"></td>'
                for col, weight in zip(self.cols, line, strict=True)
            )
            lines.append(f"<tr><th>{escape(label)}</th>{cells}</tr>")
        about = "; ".join([self.description, f"full color is {highest:.3f}", *self.notes])
        return PAGE.format(
            title=escape(self.title), about=escape(about), head=head, body="\n".join(lines)
        )

    def write(self, path: str | Path) -> None:
        """Write as .json or .html; the file appears whole or not at all."""
        path = Path(path)
        if path.suffix == ".json":
            text = json.dumps(self.to_dict(), ensure_ascii=False)
        elif path.suffix == ".html":
            text = self.to_html()
        else:
            raise OptionError(f"a view is written as .json or .html, not {path.suffix!r}")
        with new_file(path) as new:
            new.write_text(text, encoding="utf-8")


PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<style>
:root {{ color-scheme: light dark; --ink: 8 48 107; --line: #e4e4e4 }}
@media (prefers-color-scheme: dark) {{ :root {{ --ink: 158 202 255; --line: #3a3a3a }} }}
body {{ font: 13px system-ui, sans-serif; margin: 1.5em }}
h1 {{ font-size: 1.3em }}
table {{ border-collapse: collapse }}
th {{ font-weight: normal; text-align: right; padding: 0 .4em; white-space: pre;
  background: Canvas; position: sticky; left: 0 }}
thead th {{ vertical-align: bottom; padding: .3em 0; top: 0; z-index: 1 }}
thead span {{ writing-mode: vertical-rl }}
td {{ width: 1.3em; min-width: 1.3em; height: 1.3em; border: 1px solid var(--line);
  background: rgb(var(--ink) / var(--w)) }}
</style></head><body>
<h1>{title}</h1>
<p>{about}</p>
<table><thead><tr><th></th>{head}</tr></thead>
<tbody>
{body}
</tbody></table>
</body></html>
"""


@torch.no_grad()
def view(
    trace: Trace,
    layer: int,
    head: int,
    *,
    units: str = "tokens",
    special: bool = True,
    renormalize: bool = False,
    rows: slice | None = None,
    cols: slice | None = None,
) -> View:
    """One head of a trace between its tokens or units, or between some of them."""
    if units == "tokens" and special:
        row_labels = [token.label for token in trace.tokens]
        col_labels = [token.label for token in trace.key_tokens]
        first, second = _range(rows, len(row_labels)), _range(cols, len(col_labels))
        weights = trace.weights(layer, head, slice(*first), slice(*second))
        description = "tokens"
    else:
        merged = trace.units(units, special=special, renormalize=renormalize)
        row_labels = [unit.text for unit in merged.rows]
        col_labels = [unit.text for unit in merged.cols]
        first, second = _range(rows, len(row_labels)), _range(cols, len(col_labels))
        weights = merged.weights(layer, head)[slice(*first), slice(*second)]
        description = merged.description
    return View(
        trace.model,
        trace.part,
        layer,
        head,
        row_labels[slice(*first)],
        col_labels[slice(*second)],
        weights.float().cpu(),
        description,
        trace.notes,
        first[0],
        second[0],
    )


def _range(part: slice | None, size: int) -> tuple[int, int]:
    start, stop, _ = (part or slice(None)).indices(size)
    if start >= stop:
        raise OptionError(f"tokens {start} … {stop - 1} are asked for; there are 0 … {size - 1}")
    return start, stop
