"""A learned vector for each offset, added to the key that a query meets at that offset.

Shaw et al., "Self-Attention with Relative Position Representations" (2018), equations 4 and 5: the
score is q_i · (k_j + a^K_ij) / √d, a^K_ij the vector of j − i clipped to ±k, the same for all
heads. This is the part a^K, which acts on the scores; the paper's ablation (table 3) finds that it
alone does as well as with the vectors a^V on the values.
"""

import math

import torch
from jaxtyping import Shaped
from torch import Tensor, nn

from regard.positions._encoding import Encoding, RowRule, check_at_least


class Shaw(Encoding):
    """Adds q · a / √head_width, a the learned vector of the offset clipped to ±max_distance.

    >>> import torch
    >>> from regard import positions
    >>> shaw = positions.create("shaw", head_width=7)
    >>> x = torch.rand(2, 3, 5, 7)
    >>> shaw.bias(torch.arange(5), torch.arange(5))(x, x, torch.arange(5), torch.arange(5)).shape
    torch.Size([2, 3, 5, 5])
    """

    places = frozenset({"bias"})

    def __init__(self, head_width: int, max_distance: int = 16):
        super().__init__()
        check_at_least("head_width", head_width, 1)
        check_at_least("max_distance", max_distance, 1)
        self.max_distance = max_distance
        self.vectors = nn.Parameter(torch.empty(2 * max_distance + 1, head_width))
        nn.init.normal_(self.vectors, std=0.02)

    def bias(
        self, query_positions: Shaped[Tensor, "..."], key_positions: Shaped[Tensor, "..."]
    ) -> RowRule:
        """The rule that gives (batch, heads, q_tokens, k_tokens)."""
        return RowRule(self._rows, (self.vectors,), pair_width=3)

    def _rows(
        self,
        query_rows: Tensor,
        keys: Tensor,
        query_positions: Tensor,
        key_positions: Tensor,
        allowed: Tensor | None,
        vectors: Tensor,
    ) -> Tensor:
        # (batch, heads, q_tokens, 2 · max_distance + 1): each query with each vector, once
        met = query_rows @ vectors.to(query_rows.dtype).T / math.sqrt(query_rows.shape[-1])
        offset = key_positions[:, None, :] - query_positions[:, :, None]
        row = offset.clamp(-self.max_distance, self.max_distance) + self.max_distance
        return met.gather(-1, row[:, None].expand(*met.shape[:3], -1))
