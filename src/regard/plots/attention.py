"""Attention matrices: a row of heads for each layer, each with its tokens written at the sides."""

from collections.abc import Sequence

from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor

from regard.errors import ShapeError
from regard.plots._figure import new_figure
from regard.plots._fonts import fit_fonts

LARGEST = 64


def attention(
    tokens: Sequence[str],
    weights: Float[Tensor, "layers heads q_tokens k_tokens"],
    *,
    keys: Sequence[str] | None = None,
    title: str = "",
    first: tuple[int, int] = (0, 0),
) -> Figure:
    """One picture a layer and head: rows attend, columns are attended to; darker is more.

    `tokens` label the rows, and the columns too unless `keys` are given. `first`: the numbers of
    the first layer and head. All pictures share one scale. `ShapeError` where tokens and weights
    disagree, or for more than 64 tokens.
    """
    keys = tokens if keys is None else keys
    layers, heads, rows, columns = weights.shape
    if (rows, columns) != (len(tokens), len(keys)):
        raise ShapeError(
            f"{len(tokens)} × {len(keys)} tokens do not fit weights of {rows} × {columns}; "
            "give one token a row and one a column"
        )
    if max(rows, columns) > LARGEST:
        raise ShapeError(
            f"{rows} × {columns} tokens are too many to write beside a picture; "
            f"cut the weights to {LARGEST} or fewer"
        )
    side = 1.0 + 0.28 * max(rows, columns)
    figure = new_figure(heads * side + 0.8, layers * side + 0.4)
    grid = figure.subplots(layers, heads, squeeze=False)
    highest = float(weights.max())
    image = None
    for layer, line in enumerate(grid):
        for head, axes in enumerate(line):
            image = axes.imshow(weights[layer, head].tolist(), cmap="Blues", vmin=0, vmax=highest)
            axes.set_title(f"layer {first[0] + layer}, head {first[1] + head}", fontsize=9)
            axes.set_xticks(range(columns), keys, rotation="vertical" if _long(keys) else 0)
            axes.set_yticks(range(rows), tokens)
            axes.tick_params(length=0)
    if image is not None:
        figure.colorbar(image, ax=grid, shrink=0.8, label="weight")
    if title:
        figure.suptitle(title)
    fit_fonts(figure)
    return figure


def _long(tokens: Sequence[str]) -> bool:
    return any(len(token) > 3 for token in tokens)
