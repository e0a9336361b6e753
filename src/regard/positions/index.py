"""The whole numbers: the first token gets 1, the n-th n.

position + 1, added to every dimension of the embedding. The longer the text, the more the number
outweighs the embedding, which is why no model uses it and why it is instructive.
"""

from jaxtyping import Float, Shaped
from torch import Tensor

from regard.positions._encoding import Encoding, precise, token_positions


class Index(Encoding):
    """Adds position + 1 to every dimension: 1 … n, counted from position 0.

    >>> import torch
    >>> from regard import positions
    >>> positions.create("index")(torch.zeros(1, 6, 1)).flatten()
    tensor([1., 2., 3., 4., 5., 6.])
    """

    places = frozenset({"add"})

    def forward(
        self,
        x: Float[Tensor, "batch tokens width"],
        positions: Shaped[Tensor, "..."] | None = None,
        lengths: Shaped[Tensor, "..."] | None = None,
    ) -> Float[Tensor, "batch tokens width"]:
        """`x` (batch, tokens, width) with each token's number added."""
        numbers = token_positions(positions, x.shape[0], x.shape[1], x.device) + 1
        return (x.to(precise(x.device)) + numbers[..., None]).to(x.dtype)
