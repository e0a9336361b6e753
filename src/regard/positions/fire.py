"""A bias that a small network reads off the distance as a share of the query's position.

Li et al., "Functional Interpolation for Relative Positions Improves Long Context Transformers"
(2024), section 3, FIRE: f(ψ(i − j) / ψ(max(L, i))) with ψ(x) = ln(c·x + 1), f a two-layer network
with an output for each head, and c and the threshold L learned. Whatever the length, the network
sees numbers from 0 to 1 for the keys before a query.
"""

import torch
from jaxtyping import Shaped
from torch import Tensor, nn

from regard.positions._encoding import Encoding, RowRule, check_at_least


class Fire(Encoding):
    """Adds f(ψ(|i − j|) / ψ(max(L, i))) to the score of the query at i and the key at j.

    Keys after the query, which the paper does not have, are taken by their distance as well.
    c begins at 0.1 and L, c's and L's absolute values counting, at `threshold`.

    >>> import torch
    >>> from regard import positions
    >>> fire = positions.create("fire", heads=3)
    >>> x = torch.rand(2, 3, 5, 7)
    >>> fire.bias(torch.arange(5), torch.arange(5))(x, x, torch.arange(5), torch.arange(5)).shape
    torch.Size([1, 3, 5, 5])
    """

    places = frozenset({"bias"})

    def __init__(self, heads: int, hidden: int = 32, threshold: float | int = 512.0):
        super().__init__()
        check_at_least("heads", heads, 1)
        check_at_least("hidden", hidden, 1)
        check_at_least("threshold", threshold, 1)
        self.threshold = threshold
        self.into_hidden = nn.Linear(1, hidden)
        self.into_heads = nn.Linear(hidden, heads)
        self.c = nn.Parameter(torch.tensor(0.1))
        # L = threshold_scale · threshold: of size 1, so that it learns at the pace of the others.
        self.threshold_scale = nn.Parameter(torch.tensor(1.0))

    def bias(
        self, query_positions: Shaped[Tensor, "..."], key_positions: Shaped[Tensor, "..."]
    ) -> RowRule:
        """The rule that gives (batch or 1, heads, q_tokens, k_tokens)."""
        first, second = self.into_hidden, self.into_heads
        layers = (first.weight, first.bias, second.weight, second.bias)
        pair_width = 2 + -(-3 * first.out_features // second.out_features)
        return RowRule(self._rows, (self.c, self.threshold_scale, *layers), pair_width)

    def _rows(
        self,
        query_rows: Tensor,
        keys: Tensor,
        query_positions: Tensor,
        key_positions: Tensor,
        allowed: Tensor | None,
        c: Tensor,
        threshold_scale: Tensor,
        *layers: Tensor,
    ) -> Tensor:
        dtype = torch.promote_types(c.dtype, torch.float32)
        c = c.abs().to(dtype)
        threshold = threshold_scale.abs().to(dtype) * self.threshold
        q, k = query_positions[:, :, None], key_positions[:, None, :]
        distance = torch.log1p(c * (q - k).abs())
        # A query before position 0 is padding; c = 0 would make this 0 / 0.
        reach = torch.log1p(c * torch.maximum(q.to(dtype), threshold)) + 1e-6
        share = (distance / reach)[..., None]
        weight, bias, out_weight, out_bias = (layer.to(dtype) for layer in layers)
        hidden = torch.relu(share * weight[:, 0] + bias)
        scores = nn.functional.linear(hidden, out_weight, out_bias)
        return scores.permute(0, 3, 1, 2)
