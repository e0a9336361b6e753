"""The curves of an encoding: chosen dimensions over the positions, as the notes draw them."""

import inspect
from collections.abc import Sequence

import torch
from matplotlib.figure import Figure

from regard import positions as encodings
from regard.errors import OptionError, unknown_name
from regard.plots._figure import new_figure
from regard.plots._fonts import fit_fonts
from regard.positions import Encoding

LABELS = {
    "en": ("position", "added to the embedding"),
    "zh": ("位置", "加到词向量上的值"),
}


def positions(
    encoding: str | Encoding = "sinusoidal",
    width: int = 20,
    length: int = 100,
    dims: Sequence[int] = range(4, 8),
    language: str = "en",
) -> Figure:
    """What `encoding` adds to dimensions `dims` of an embedding at positions 0 … length − 1.

    `encoding` is a name, made for `width`, or an encoding made before. `language` of the axes is
    ``en`` or ``zh``. `OptionError` for an encoding that adds nothing, or dimensions outside
    0 … width − 1. For the figure of the notes, take the defaults.
    """
    if language not in LABELS:
        raise unknown_name("language", language, LABELS)
    if length < 1:
        raise OptionError(f"length must be 1 or more, got {length}")
    outside = [dim for dim in dims if not 0 <= dim < width]
    if outside or not dims:
        raise OptionError(
            f"dims must be from 0 to {width - 1}, the width's last, "
            f"got {', '.join(map(str, outside)) or 'none'}"
        )
    made = _made(encoding, width, length) if isinstance(encoding, str) else encoding
    name = encoding if isinstance(encoding, str) else type(encoding).__name__
    if "add" not in made.places:
        adding = [n for n in encodings.names() if "add" in encodings.get(n).places]
        raise OptionError(
            f"position encoding {name!r} adds nothing to the embedding, so it has no curves; "
            f"those that do: {', '.join(adding)}"
        )
    with torch.no_grad():
        values = made(torch.zeros(1, length, width, dtype=torch.float64))[0]

    figure = new_figure(15, 5)
    axes = figure.add_subplot()
    for dim in dims:
        axes.plot(range(length), values[:, dim].tolist(), label=f"dim {dim}")
    axes.set_title(f"{name}, width {width}" if language == "en" else f"{name}，宽度 {width}")
    axes.set_xlabel(LABELS[language][0])
    axes.set_ylabel(LABELS[language][1])
    axes.margins(x=0)
    axes.grid(alpha=0.3)
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
    fit_fonts(figure)
    return figure


def _made(name: str, width: int, length: int) -> Encoding:
    """The encoding called `name`, given those of the sizes that it takes."""
    takes = inspect.signature(encodings.get(name)).parameters
    sizes = {"width": width, "max_length": length}
    if "add" not in encodings.get(name).places:
        return Encoding()
    return encodings.create(name, **{s: value for s, value in sizes.items() if s in takes})
