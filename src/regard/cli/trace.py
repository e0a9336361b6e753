"""``regard trace``: what a model attends to in a text, in the terminal or in files."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import App, Parameter

from regard.errors import OptionError

if TYPE_CHECKING:
    from regard.cli._console import Console
    from regard.inspection import Trace
    from regard.inspection.export import View

app = App(name="trace", help="Show what a model attends to in a text.")

SHOWN_ROWS = 40
LINKS_A_ROW = 3
FORMATS = (".png", ".svg", ".json", ".html", ".safetensors")
Flag = Annotated[bool, Parameter(negative=())]


@app.default
def trace(
    model: str,
    text: Annotated[str | None, Parameter(allow_leading_hyphen=True)] = None,
    /,
    *,
    layer: int | None = None,
    head: int | None = None,
    pair: str | None = None,
    target: str | None = None,
    generate: int = 0,
    part: str | None = None,
    units: Literal["tokens", "characters", "words", "sentences"] = "tokens",
    hide_special: Flag = False,
    renormalize: Flag = False,
    tokens: str | None = None,
    top: int = 10,
    arithmetic: str | None = None,
    summary: Flag = False,
    verify: Flag = False,
    windows: Flag = False,
    save: tuple[Path, ...] = (),
    trust_remote_code: Flag = False,
) -> None:
    """Show what a model attends to in a text.

    Parameters
    ----------
    model
        A folder that regard train wrote, a folder or name of a Hugging Face model, or a trace that
        was saved as .safetensors.
    text
        The text, or - to read it from standard input.
    layer
        The layer to show, from 0; without it the last.
    head
        The head to show, from 0.
    pair
        A second text, for models that read pairs.
    target
        What the decoder of an encoder-decoder reads.
    generate
        Let the model write this many tokens, and trace all steps.
    part
        Of an encoder-decoder: encoder, decoder or cross.
    units
        Show tokens, or join them to characters, words or sentences.
    hide_special
        Leave out tokens such as [CLS] that the tokenizer put in.
    renormalize
        With --hide-special: scale rows to sum to one without them.
    tokens
        Show only these, from 0, as in 10-40.
    top
        How many of the strongest links to list.
    arithmetic
        Print every number behind one weight: row and column, as in 3,5.
    summary
        Print what each head does.
    verify
        Recompute sampled rows in float64 and say how they compare with the model's own output.
    windows
        Cut a text longer than the model reads into windows that overlap.
    save
        Write to a file ending in .png, .svg, .json or .html, or the whole trace to .safetensors;
        may be given several times.
    trust_remote_code
        Run Python code that a model brings along.
    """
    from regard.cli._console import Console

    for path in save:
        if path.suffix not in FORMATS:
            raise OptionError(f"--save writes {', '.join(FORMATS)}, not {path.name!r}")
    if top < 0:
        raise OptionError(f"--top is a number of links, 0 or more, not {top}")
    if renormalize and not hide_special:
        raise OptionError("--renormalize is for rows without special tokens: add --hide-special")
    if windows and save:
        raise OptionError("--save is for one trace, and --windows makes several")
    span = _range(tokens)
    settings = {
        "pair": pair,
        "target": target,
        "generate": generate,
        "part": part,
        "trust_remote_code": trust_remote_code,
    }
    console = Console(highlight=False)
    for found in _traces(model, text, windows, settings):
        at = found.layers - 1 if layer is None else layer
        which = 0 if head is None else head
        _describe(console, found)
        if summary:
            console.print(str(found.summary()), soft_wrap=True, markup=False)
        if arithmetic is not None:
            row, col = _pair(arithmetic)
            for line in found.arithmetic(at, which, row, col).lines():
                console.print(line, soft_wrap=True, markup=False)
        if save or not (summary or arithmetic):
            shown = _view(found, at, which, units, hide_special, renormalize, span)
            _require_fits(shown, save)
            if not (summary or arithmetic):
                _show(console, shown, top)
            for path in save:
                _write(found, shown, path)
                console.print(f"saved in {path}", soft_wrap=True, markup=False)
        if verify:
            console.print(str(found.verify()), soft_wrap=True, markup=False)


def _traces(model: str, text: str | None, windows: bool, settings: dict[str, Any]) -> "list[Trace]":
    """The traces that are asked for: one, unless there are windows."""
    from regard.inspection import Trace, trace, trace_windows
    from regard.inspection.capture.hugging_face import choose_part

    if Path(model).suffix == ".safetensors":
        if text is not None:
            raise OptionError("a saved trace has its text already; give the model to trace another")
        saved = Trace.load(model)
        return [choose_part(dict(saved.parts), settings["part"]) if settings["part"] else saved]
    if text is None:
        raise OptionError('give a text: regard trace MODEL "text", or - for standard input')
    read = sys.stdin.read().strip() if text == "-" else text
    if windows:
        wanted: dict[str, Any] = {n: settings[n] for n in ("part", "trust_remote_code")}
        return trace_windows(model, read, **wanted)
    return [trace(model, read, **settings)]


def _view(
    found: "Trace",
    layer: int,
    head: int,
    units: str,
    hide_special: bool,
    renormalize: bool,
    span: slice | None,
) -> "View":
    from regard.inspection.export import view

    return view(
        found,
        layer,
        head,
        units=units,
        special=not hide_special,
        renormalize=renormalize,
        rows=span,
        cols=span if found.key_tokens is found.tokens else None,
    )


def _describe(console: "Console", found: "Trace") -> None:
    sizes = f"{len(found.tokens):,}"
    if found.key_tokens is not found.tokens:
        sizes += f" × {len(found.key_tokens):,}"
    line = f"{found.model}: {found.layers} layers, {found.heads} heads, {sizes} tokens"
    if len(found.parts) > 1:
        line += f"; {found.part} of {', '.join(found.parts)}"
    console.print(line, soft_wrap=True, markup=False)
    for note in found.notes:
        console.print(f"note: {note}", soft_wrap=True, markup=False)


def _show(console: "Console", shown: "View", top: int) -> None:
    """Each row's strongest links, and the strongest of all."""
    from rich.table import Table
    from rich.text import Text

    console.print(f"{shown.title}; {shown.description}", soft_wrap=True, markup=False)
    table = Table()
    table.add_column("", justify="right")
    table.add_column("token")
    table.add_column("attends to")
    best = shown.weights[:SHOWN_ROWS].topk(min(LINKS_A_ROW, len(shown.cols)))
    for row, label in enumerate(shown.rows[:SHOWN_ROWS]):
        links = [
            f"{shown.cols[int(col)]} {float(weight):.3f}"
            for col, weight in zip(best.indices[row], best.values[row], strict=True)
            if weight > 0
        ]
        table.add_row(str(shown.first_row + row), Text(label), Text("  ".join(links)))
    console.print(table)
    if len(shown.rows) > SHOWN_ROWS:
        console.print(f"the first {SHOWN_ROWS} of {len(shown.rows):,} rows; --tokens shows others")
    links = Table(title="strongest links")
    for name, justify in (("token", "left"), ("attends to", "left"), ("weight", "right")):
        links.add_column(name, justify=justify)  # pyright: ignore[reportArgumentType]
    for row, col, weight in shown.strongest(top):
        first = Text(f"{shown.rows[row]} ({shown.first_row + row})")
        second = Text(f"{shown.cols[col]} ({shown.first_col + col})")
        links.add_row(first, second, f"{weight:.4f}")
    if top > 0:
        console.print(links)


def _require_fits(shown: "View", save: tuple[Path, ...]) -> None:
    """Nothing is printed or written if one of the files could not be."""
    from regard.inspection.export import LARGEST_PAGE

    for path in save:
        if path.suffix == ".html":
            shown.require_at_most(LARGEST_PAGE, "a page by itself")
        elif path.suffix in (".png", ".svg"):
            from regard.plots.attention import LARGEST

            shown.require_at_most(LARGEST, "a picture")


def _write(found: "Trace", shown: "View", path: Path) -> None:
    if path.suffix == ".safetensors":
        found.save(path)
    elif path.suffix in (".png", ".svg"):
        from regard import plots

        figure = plots.attention(
            shown.rows,
            shown.weights[None, None],
            keys=shown.cols,
            title=shown.model if shown.part == "self" else f"{shown.model}, {shown.part}",
            first=(shown.layer, shown.head),
        )
        plots.save(figure, path)
    else:
        shown.write(path)


def _range(tokens: str | None) -> slice | None:
    if tokens is None:
        return None
    first, dash, last = tokens.partition("-")
    if not first.isdecimal() or (dash and not last.isdecimal()):
        raise OptionError(f"--tokens takes a range such as 10-40, got {tokens!r}")
    return slice(int(first), int(last or first) + 1)


def _pair(numbers: str) -> tuple[int, int]:
    row, comma, col = numbers.partition(",")
    if not comma or not row.strip().isdecimal() or not col.strip().isdecimal():
        raise OptionError(f"--arithmetic takes a row and a column such as 3,5, got {numbers!r}")
    return int(row), int(col)
