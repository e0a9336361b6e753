"""Sines and cosines of falling frequency, added to the embedding.

Vaswani et al., "Attention Is All You Need" (2017), section 3.5:

    P(position, 2i)     = sin(position / 10000^(2i / width))
    P(position, 2i + 1) = cos(position / 10000^(2i / width))

The vector of position + k is a rotation of the vector of position, the same for every position.
"""

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn

from regard.errors import OptionError
from regard.positions._encoding import (
    Encoding,
    check_at_least,
    check_width,
    precise,
    token_positions,
)


class Sinusoidal(Encoding):
    """Adds the sinusoidal vector of each position; any width, odd ones too, and any length.

    >>> import torch
    >>> from regard import positions
    >>> positions.create("sinusoidal", width=4)(torch.zeros(1, 2, 4))[0]
    tensor([[0.0000, 1.0000, 0.0000, 1.0000],
            [0.8415, 0.5403, 0.0100, 0.9999]])
    """

    places = frozenset({"add"})

    def __init__(self, width: int, base: float | int = 10000.0):
        super().__init__()
        check_at_least("width", width, 1)
        check_at_least("base", base, 2)
        self.width = width
        self.base = base

    def forward(
        self,
        x: Float[Tensor, "batch tokens width"],
        positions: Shaped[Tensor, "..."] | None = None,
        lengths: Shaped[Tensor, "..."] | None = None,
    ) -> Float[Tensor, "batch tokens width"]:
        """`x` (batch, tokens, width) with the vector of each position added."""
        check_width(self.width, x)
        places = token_positions(positions, x.shape[0], x.shape[1], x.device)
        return x + sinusoids(places, self.width, self.base).to(x.dtype)


class PositionalEncoding(Sinusoidal):
    """The sinusoidal encoding followed by dropout, under the name and arguments courses use.

    `max_len` is taken for the sake of such code and limits nothing: vectors are computed for the
    positions that occur, not looked up.

    >>> import torch
    >>> from regard.positions.sinusoidal import PositionalEncoding
    >>> PositionalEncoding(20, 0)(torch.zeros(1, 100, 20))[0, 1, 4:8]
    tensor([0.1578, 0.9875, 0.0631, 0.9980])
    """

    def __init__(self, width: int, dropout: float | int = 0.0, max_len: int = 5000):
        super().__init__(width)
        if not 0 <= dropout <= 1:
            raise OptionError(f"dropout must be from 0 to 1, got {dropout}")
        self.dropout = nn.Dropout(dropout)

    def forward(
        self,
        x: Float[Tensor, "batch tokens width"],
        positions: Shaped[Tensor, "..."] | None = None,
        lengths: Shaped[Tensor, "..."] | None = None,
    ) -> Float[Tensor, "batch tokens width"]:
        """`x` (batch, tokens, width) with the vector of each position added, then dropout."""
        return self.dropout(super().forward(x, positions, lengths))


def sinusoids(
    positions: Int[Tensor, "*batch tokens"], width: int, base: float | int = 10000.0
) -> Float[Tensor, "*batch tokens width"]:
    """The sinusoidal vector of each position, in float64 where the device has it."""
    dtype, device = precise(positions.device), positions.device
    pairs = torch.arange((width + 1) // 2, dtype=dtype, device=device)
    phases = positions[..., None].to(dtype) * base ** (-2 * pairs / width)
    return torch.stack((phases.sin(), phases.cos()), dim=-1).flatten(-2)[..., :width]
