"""The [0,1] range: the first token gets 0, the last 1, the others equal steps between.

position / (length − 1), added to every dimension of the embedding; a text of one token gets 0. Six
tokens step by 0.2, nine by 0.125: the same step means different things in texts of different
lengths, which is why no model uses it and why it is instructive.
"""

from jaxtyping import Float, Shaped
from torch import Tensor

from regard.positions._encoding import Encoding, precise, token_lengths, token_positions


class UnitInterval(Encoding):
    """Adds position / (length − 1) to every dimension.

    A text's length is its highest position + 1 unless `lengths` tells it: tell it when texts are
    padded on the right, packed, or given piece by piece. Padding, whose position lies outside the
    text, gets the value of the nearer end.

    >>> import torch
    >>> from regard import positions
    >>> encode = positions.create("unit_interval")
    >>> encode(torch.zeros(1, 6, 1)).flatten()
    tensor([0.0000, 0.2000, 0.4000, 0.6000, 0.8000, 1.0000])
    >>> encode(torch.zeros(1, 6, 1), lengths=torch.tensor([3])).flatten()
    tensor([0.0000, 0.5000, 1.0000, 1.0000, 1.0000, 1.0000])
    """

    places = frozenset({"add"})

    def forward(
        self,
        x: Float[Tensor, "batch tokens width"],
        positions: Shaped[Tensor, "..."] | None = None,
        lengths: Shaped[Tensor, "..."] | None = None,
    ) -> Float[Tensor, "batch tokens width"]:
        """`x` (batch, tokens, width) with each token's place in [0, 1] added."""
        batch, tokens, _ = x.shape
        if tokens == 0:
            return x
        places = token_positions(positions, batch, tokens, x.device)
        if lengths is None:
            lengths = places.amax(-1, keepdim=True) + 1
        else:
            lengths = token_lengths(lengths, batch, tokens)
        fractions = places.to(precise(x.device)) / (lengths - 1).clamp(min=1)
        return x + fractions.clamp(0.0, 1.0)[..., None].to(x.dtype)
