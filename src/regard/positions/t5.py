"""A learned bias for each head and each bucket of offsets, fine close by and coarse far away.

Raffel et al., "Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer"
(2020), section 2.1: half of a direction's buckets hold one distance each, the others distances that
grow logarithmically up to `max_distance`; all that are farther share the last. T5 has no bias in
cross-attention, and one table for all layers: give the same encoding to each.
"""

import math

import torch
from jaxtyping import Int, Shaped
from torch import Tensor, nn

from regard.errors import OptionError
from regard.positions._encoding import Encoding, OffsetTable, check_at_least, offsets


class T5(Encoding):
    """Adds a learned number for the head and the bucket of the offset.

    `bidirectional` gives half of the buckets to keys after the query (encoders); without it these
    all share the bucket of distance 0 (decoders, whose mask hides them). `weight` is (buckets,
    heads), as in the published models.

    >>> import torch
    >>> from regard import positions
    >>> t5 = positions.create("t5", heads=2)
    >>> bias = t5.bias(torch.arange(5), torch.arange(5))
    >>> bias.table.shape, bias.lowest
    (torch.Size([2, 9]), -4)
    """

    places = frozenset({"bias"})

    def __init__(
        self, heads: int, buckets: int = 32, max_distance: int = 128, bidirectional: bool = True
    ):
        super().__init__()
        check_at_least("heads", heads, 1)
        exact = buckets // (4 if bidirectional else 2)
        if exact < 1 or max_distance <= exact:
            raise OptionError(
                "t5 needs buckets for two distances or more in each direction, and a max_distance "
                f"past the distances that have their own, got buckets={buckets} "
                f"({'both directions' if bidirectional else 'one direction'}), "
                f"max_distance={max_distance}"
            )
        self.max_distance = max_distance
        self.bidirectional = bidirectional
        self.weight = nn.Parameter(torch.empty(buckets, heads))
        nn.init.normal_(self.weight, std=0.02)

    def bias(
        self, query_positions: Shaped[Tensor, "..."], key_positions: Shaped[Tensor, "..."]
    ) -> OffsetTable:
        """The learned bias of every offset that occurs, (heads, offsets)."""
        every = offsets(query_positions, key_positions)
        bucket = buckets(every, self.weight.shape[0], self.max_distance, self.bidirectional)
        return OffsetTable(self.weight[bucket].T, int(every[0]))


def buckets(
    offset: Int[Tensor, "*shape"], count: int, max_distance: int, bidirectional: bool
) -> Int[Tensor, "*shape"]:
    """The bucket, 0 … count − 1, of each offset, key position − query position.

    >>> import torch
    >>> buckets(torch.tensor([-200, -8, -1, 0, 1, 8]), 32, 128, True)
    tensor([15,  8,  1,  0, 17, 24])
    """
    if bidirectional:
        count //= 2
        after = (offset > 0) * count
        distance = offset.abs()
    else:
        after = torch.zeros_like(offset)
        distance = (-offset).clamp(min=0)
    exact = count // 2
    # float32 in this order: trained weights expect the bucket edges that this rounding gives.
    growth = torch.log(distance.clamp(min=exact).float() / exact)
    growth = growth / math.log(max_distance / exact) * (count - exact)
    coarse = (exact + growth.long()).clamp(max=count - 1)
    return after + torch.where(distance < exact, distance, coarse)
