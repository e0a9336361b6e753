"""A penalty on the score that grows in proportion to the distance, at a slope of the head's own.

Press et al., "Train Short, Test Long: Attention with Linear Biases Enables Input Length
Extrapolation" (2022), section 3. Nothing is learned. With n heads, n a power of two, the slopes are
2^(−8/n), 2^(−16/n) … 2^(−8). For other n the authors' code takes the slopes of the power of two
below, then every second one of the power of two above.
"""

import math

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from regard.positions._encoding import Encoding, OffsetTable, check_at_least, offsets, precise


class Alibi(Encoding):
    """Adds −slope · |key position − query position| to the scores of each of `heads` heads.

    Behind a causal mask this is the paper's decoder; without one, the symmetric form for encoders.

    >>> import torch
    >>> from regard import positions
    >>> places = torch.arange(3)
    >>> positions.create("alibi", heads=2).bias(places, places)
    OffsetTable(table=tensor([[-0.1250, -0.0625,  0.0000, -0.0625, -0.1250],
            [-0.0078, -0.0039,  0.0000, -0.0039, -0.0078]]), lowest=-2)
    """

    places = frozenset({"bias"})

    def __init__(self, heads: int):
        super().__init__()
        check_at_least("heads", heads, 1)
        self.heads = heads

    def bias(
        self, query_positions: Shaped[Tensor, "..."], key_positions: Shaped[Tensor, "..."]
    ) -> OffsetTable:
        """The penalty of every offset that occurs, (heads, offsets)."""
        distances = offsets(query_positions, key_positions)
        slope = slopes(self.heads).to(distances.device, precise(distances.device))
        table = slope[:, None] * -distances.abs()
        return OffsetTable(table.float(), int(distances[0]))


def slopes(heads: int) -> Float[Tensor, "heads"]:
    """The slope of each head.

    >>> slopes(3)
    tensor([0.0625, 0.0039, 0.2500], dtype=torch.float64)
    """
    below = 2 ** int(math.log2(heads))
    exponents = [8 * (head + 1) / below for head in range(below)]
    between = [8 * (head + 0.5) / below for head in range(heads - below)]
    return torch.tensor([2.0**-e for e in exponents + between], dtype=torch.float64)
