"""A penalty on the score that grows with the distance as a learned logarithm or power.

Chi et al., "KERPLE: Kernelized Relative Positional Embedding for Length Extrapolation" (2022),
section 4: the logarithmic variant −r1 · ln(1 + r2 · |m − n|), r1, r2 > 0, and the power variant
−r1 · |m − n|^r2, r1 > 0, 0 < r2 ≤ 2, both with r1 and r2 learned for each head. They are
conditionally positive definite kernels of the positions.
"""

import torch
from jaxtyping import Shaped
from torch import Tensor, nn

from regard.errors import unknown_name
from regard.positions._encoding import Encoding, OffsetTable, check_at_least, offsets, precise

VARIANTS = ("log", "power")


class Kerple(Encoding):
    """Adds −r1 · ln(1 + r2 · distance), or −r1 · distance^r2, to the scores of each head.

    r1 is the exponential of a learned number, and so is the logarithm's r2; the power's r2 is twice
    the sigmoid of one: they stay in their ranges whatever the optimizer does. r1 begins at values
    spread over the heads from 1/heads to 1, r2 at 1.

    >>> import torch
    >>> from regard import positions
    >>> kerple = positions.create("kerple", heads=1)
    >>> kerple.bias(torch.tensor([2]), torch.arange(3)).table
    tensor([[-1.0986, -0.6931, -0.0000]], grad_fn=<ToCopyBackward0>)
    """

    places = frozenset({"bias"})

    def __init__(self, heads: int, variant: str = "log"):
        super().__init__()
        check_at_least("heads", heads, 1)
        if variant not in VARIANTS:
            raise unknown_name("kerple variant", variant, VARIANTS)
        self.variant = variant
        self.log_r1 = nn.Parameter(torch.arange(1, heads + 1).div(heads).log())
        # exp(0) = 1 and 2 · sigmoid(0) = 1
        self.raw_r2 = nn.Parameter(torch.zeros(heads))

    def bias(
        self, query_positions: Shaped[Tensor, "..."], key_positions: Shaped[Tensor, "..."]
    ) -> OffsetTable:
        """The penalty of every offset that occurs, (heads, offsets)."""
        every = offsets(query_positions, key_positions)
        dtype = precise(every.device)
        distance = every.abs().to(dtype)
        r1, r2 = self.log_r1.to(dtype).exp()[:, None], self.raw_r2.to(dtype)[:, None]
        if self.variant == "log":
            growth = torch.log1p(r2.exp() * distance)
        else:
            # The power of 0 is 0; that of 1 stands in, since the gradient of 0^r2 is not finite.
            growth = torch.where(distance > 0, distance.clamp(min=1) ** (2 * r2.sigmoid()), 0.0)
        table = -r1 * growth
        return OffsetTable(
            table.to(torch.promote_types(self.log_r1.dtype, torch.float32)), int(every[0])
        )
