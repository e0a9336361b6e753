"""New figures and their files."""

import warnings
from pathlib import Path

from matplotlib.figure import Figure

from regard.errors import OptionError
from regard.plots._fonts import fit_fonts
from regard.text.storage import new_file

FORMATS = (".png", ".svg")


def new_figure(width: float | int, height: float | int) -> Figure:
    """An empty figure of so many inches whose parts make room for one another."""
    return Figure(figsize=(width, height), layout="constrained")


def save(figure: Figure, path: str | Path) -> list[Path]:
    """Write the figure to `path`, .png or .svg; without a suffix to both. The files written.

    Fonts are chosen for all its characters. A file appears whole or not at all; `OptionError` for
    another suffix, `StorageError` where it cannot be written.
    """
    path = Path(path)
    if path.suffix not in ("", *FORMATS):
        raise OptionError(
            f"a figure is written as {' or '.join(FORMATS)}, not {path.suffix!r}; "
            "leave the suffix out to write both"
        )
    missing = fit_fonts(figure)
    paths = [path] if path.suffix else [path.with_name(path.name + s) for s in FORMATS]
    with warnings.catch_warnings():
        if missing:
            # said already, in one sentence instead of one for each character
            warnings.filterwarnings("ignore", message=r"Glyph \d+ .* missing from font")
        for each in paths:
            with new_file(each) as new:
                figure.savefig(new, format=each.suffix[1:], dpi=150, metadata=_metadata(each))
    return paths


def _metadata(path: Path) -> dict[str, str | None]:
    # without the date, the same figure is the same file
    return {"Date": None} if path.suffix == ".svg" else {}
