"""Positions that count what matters: each key counts as much as the query opens its gate to it.

Golovneva et al., "Contextual Position Encoding: Learning to Count What's Important" (2024),
equations 3 to 6: the gate g_ij = σ(q_i · k_j), the position p_ij = Σ_{k=j..i} g_ik of a key at or
before the query, and the score q_i · (k_j + e[p_ij]), e interpolated between the learned vectors of
the whole numbers around p_ij. As in the authors' code q · k is divided by √d in the gate, and so is
the score.
"""

import math

import torch
from jaxtyping import Shaped
from torch import Tensor, nn

from regard.positions._encoding import Encoding, RowRule, check_at_least


class Cope(Encoding):
    """Adds q · e[p] / √head_width, p the sum of the gates from the key to the query.

    Positions past `max_position` share its vector. Keys that the query may not attend to and keys
    after it count nothing, which makes this an encoding for decoders.

    >>> import torch
    >>> from regard import positions
    >>> cope = positions.create("cope", head_width=7)
    >>> x = torch.rand(2, 3, 5, 7)
    >>> cope.bias(torch.arange(5), torch.arange(5))(x, x, torch.arange(5), torch.arange(5)).shape
    torch.Size([2, 3, 5, 5])
    """

    places = frozenset({"bias"})

    def __init__(self, head_width: int, max_position: int = 64):
        super().__init__()
        check_at_least("head_width", head_width, 1)
        check_at_least("max_position", max_position, 1)
        self.vectors = nn.Parameter(torch.empty(max_position + 1, head_width))
        nn.init.normal_(self.vectors, std=0.02)

    def bias(
        self, query_positions: Shaped[Tensor, "..."], key_positions: Shaped[Tensor, "..."]
    ) -> RowRule:
        """The rule that gives (batch, heads, q_tokens, k_tokens); it must see all keys at once."""
        return RowRule(self._rows, (self.vectors,), pair_width=12, whole_rows=True)

    def _rows(
        self,
        query_rows: Tensor,
        keys: Tensor,
        query_positions: Tensor,
        key_positions: Tensor,
        allowed: Tensor | None,
        vectors: Tensor,
    ) -> Tensor:
        heads, kv_heads = query_rows.shape[1], keys.shape[1]
        scale = math.sqrt(query_rows.shape[-1])
        dtype = torch.promote_types(query_rows.dtype, torch.float32)
        # head h reads key head h // (heads / kv_heads)
        keys = keys.repeat_interleave(heads // kv_heads, dim=1)
        gates = torch.sigmoid((query_rows @ keys.mT).to(dtype) / scale)
        counted = (key_positions[:, None, :] <= query_positions[:, :, None])[:, None]
        if allowed is not None:
            counted = counted & allowed
        gates = torch.where(counted, gates, 0.0)
        # keys in the order of their positions, summed from the last to the first
        order = key_positions.argsort(dim=-1, stable=True)[:, None, None].expand_as(gates)
        sums = gates.gather(-1, order).flip(-1).cumsum(-1).flip(-1)
        position = torch.zeros_like(sums).scatter(-1, order, sums)

        last = vectors.shape[0] - 1
        position = position.clamp(max=last)
        below = position.detach().floor().long().clamp(max=last - 1)
        # (batch, heads, q_tokens, max_position + 1): each query with each vector, once
        met = (query_rows @ vectors.to(query_rows.dtype).T).to(dtype) / scale
        share = position - below
        return met.gather(-1, below) * (1 - share) + met.gather(-1, below + 1) * share
