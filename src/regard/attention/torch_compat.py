"""`torch.nn.MultiheadAttention` by regard's definition: same signature, conventions, state_dict.

Differences: a query that may attend nowhere gives zeros (PyTorch: nan where weights are asked for);
dropout draws from regard's generator; without weights, calls go to whichever path is fastest.
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from regard.attention import paths
from regard.attention.call import make_call
from regard.attention.masks import Arbitrary, Causal, Mask, Padding
from regard.attention.rows import drop, row_weights, tensors_of
from regard.errors import OptionError, ShapeError


class MultiheadAttention(nn.MultiheadAttention):
    """As `torch.nn.MultiheadAttention`: (T, B, E), or (B, T, E) with `batch_first`, or (T, E).

    Masks follow PyTorch: True = may NOT attend; float masks are added to the scores; `attn_mask` is
    (Tq, Tk) or (B·H, Tq, Tk), `key_padding_mask` (B, Tk). Weights come averaged over the heads
    unless `average_attn_weights=False`.

    >>> attention = MultiheadAttention(6, 2)
    >>> output, weights = attention(*[torch.randn(5, 3, 6)] * 3)
    >>> output.shape, weights.shape
    (torch.Size([5, 3, 6]), torch.Size([3, 5, 5]))
    """

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Attention output, and weights if `need_weights`."""
        batched = query.ndim == 3
        if query.ndim not in (2, 3) or not query.ndim == key.ndim == value.ndim:
            raise ShapeError(
                "query, key and value must be all (tokens, batch, width) or all (tokens, width); "
                f"got {tuple(query.shape)}, {tuple(key.shape)}, {tuple(value.shape)}"
            )
        if is_causal and attn_mask is None:
            raise OptionError("is_causal is a hint about attn_mask: pass the mask as well")
        if not batched:
            query, key, value = query[None], key[None], value[None]
            key_padding_mask = None if key_padding_mask is None else key_padding_mask[None]
        elif not self.batch_first:
            query, key, value = (x.transpose(0, 1) for x in (query, key, value))

        q, k, v = self._heads(query, key, value)
        # PyTorch takes the hint at its word where it need not show weights or read padding.
        hinted = is_causal and not need_weights and key_padding_mask is None
        added = k.shape[2] - key.shape[1]
        mask, biases = self._conditions(
            query.shape[0], added, key_padding_mask, None if hinted else attn_mask
        )
        if hinted:
            mask = Causal()
        call = make_call(
            q,
            k,
            v,
            mask=mask,
            bias=biases,
            query_positions=torch.arange(q.shape[2], device=q.device),
            key_positions=torch.arange(k.shape[2], device=q.device),
            dropout=self.dropout,
            training=self.training,
        )
        weights = None
        if need_weights:
            rectangle = call.rectangle()
            weights = drop(call, row_weights(call, tensors_of(call), rectangle), rectangle)
            weights = weights.to(v.dtype)
            mixed = weights @ v
        else:
            mixed = paths.choose(call).run(call)
        # (B, H, Tq, d) → (B, Tq, E)
        output = self.out_proj(mixed.transpose(1, 2).flatten(2))
        if weights is not None and average_attn_weights:
            weights = weights.mean(1)
        if not batched:
            return output[0], None if weights is None else weights[0]
        return output if self.batch_first else output.transpose(0, 1), weights

    def _heads(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Project, add the learned and the zero key/value, split: (B, T, E) → (B, H, T, d)."""
        if self.in_proj_weight is not None:
            weights = self.in_proj_weight.chunk(3)
        else:
            weights = self.q_proj_weight, self.k_proj_weight, self.v_proj_weight
        offsets = (None,) * 3 if self.in_proj_bias is None else self.in_proj_bias.chunk(3)
        q, k, v = (
            linear(x, w, b) for x, w, b in zip((query, key, value), weights, offsets, strict=True)
        )
        if self.bias_k is not None and self.bias_v is not None:
            batch = k.shape[0]
            k = torch.cat([k, self.bias_k.expand(batch, -1, -1)], 1)
            v = torch.cat([v, self.bias_v.expand(batch, -1, -1)], 1)
        if self.add_zero_attn:
            k, v = (torch.cat([x, x.new_zeros(x.shape[0], 1, x.shape[2])], 1) for x in (k, v))
        q, k, v = (x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for x in (q, k, v))
        return q, k, v

    def _conditions(
        self, batch: int, added: int, key_padding_mask: Tensor | None, attn_mask: Tensor | None
    ) -> tuple[Mask | None, list[Tensor]]:
        """PyTorch's masks as ours: Boolean ones inverted, float ones as biases.

        The `added` keys at the end, learned or zero, are open to everybody.
        """
        mask: Mask | None = None
        biases: list[Tensor] = []
        if attn_mask is not None:
            if attn_mask.ndim == 3:
                attn_mask = attn_mask.unflatten(0, (batch, self.num_heads))
            elif attn_mask.ndim == 2:
                attn_mask = attn_mask[None, None]
            attn_mask = nn.functional.pad(attn_mask, (0, added))
            if attn_mask.dtype.is_floating_point:
                biases.append(attn_mask)
            else:
                mask = Arbitrary(_inverted("attn_mask", attn_mask))
        if key_padding_mask is not None:
            key_padding_mask = nn.functional.pad(key_padding_mask, (0, added))
            if key_padding_mask.dtype.is_floating_point:
                biases.append(key_padding_mask[:, None, None])
            else:
                padding = Padding(_inverted("key_padding_mask", key_padding_mask))
                mask = padding if mask is None else mask & padding
        return mask, biases


def _inverted(name: str, mask: Tensor) -> Tensor:
    if mask.dtype != torch.bool:
        raise OptionError(
            f"{name} must be Boolean, True = may not attend, or float, added to the scores; "
            f"it is {mask.dtype}: pass {name}.bool()"
        )
    return ~mask
