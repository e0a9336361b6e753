"""``regard plot``: figures as PNG and SVG."""

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import App, Parameter

from regard.errors import OptionError

app = App(name="plot", help="Draw figures.")
LARGEST = 100_000_000
"""The most numbers, width times length, that a figure is drawn from."""


@app.command
def positions(
    *,
    encoding: str = "sinusoidal",
    width: int = 20,
    length: int = 100,
    dims: str = "4-7",
    language: Literal["en", "zh"] = "en",
    output: Annotated[Path, Parameter(name=["--output", "-o"])] = Path("positions"),
) -> None:
    """Draw the curves of a position encoding: chosen dimensions over the positions.

    Parameters
    ----------
    encoding
        A position encoding that is added to the embedding.
    width
        The embedding's width.
    length
        How many positions.
    dims
        Dimensions: 4-7, or 0,2,5, or both forms joined by commas.
    language
        Of the axes.
    output
        A file ending in .png or .svg; without an ending both are written.
    """
    from regard import plots

    if not output.name:
        raise OptionError(f"--output takes the name of a file, got {str(output)!r}")
    if width * length > LARGEST:
        raise OptionError(
            f"--width {width} times --length {length} is more than {LARGEST:,} numbers; "
            "make one smaller"
        )
    figure = plots.positions(encoding, width, length, parse_dims(dims), language)
    for path in plots.save(figure, output):
        print(path)


def parse_dims(dims: str) -> list[int]:
    """``4-7`` and ``0,2,5`` as numbers.

    >>> parse_dims("0,4-6")
    [0, 4, 5, 6]
    """
    found = []
    for part in dims.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise OptionError(f"--dims takes numbers and ranges such as 0,4-7, got {dims!r}")
        start, stop = int(first), int(last or first)
        if stop < start:
            raise OptionError(f"--dims has the range {part!r}, which ends before it starts")
        if stop >= LARGEST:
            raise OptionError(f"--dims goes up to {LARGEST - 1:,}, got {part!r}")
        found += range(start, stop + 1)
    return found
