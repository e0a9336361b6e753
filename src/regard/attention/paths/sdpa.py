"""PyTorch's scaled_dot_product_attention: fused kernels for scores that are dot products.

It knows softmax and dot products alone. Plain causal order needs no mask tensor; any other mask,
and a bias without gradient, becomes one tensor of (Tq, Tk), so both are taken only while that
tensor is small.
"""

import torch
from torch import Tensor
from torch.nn.functional import pad, scaled_dot_product_attention

from regard.attention.bias import RowRule
from regard.attention.call import Call
from regard.attention.masks import Causal
from regard.attention.paths._path import Path
from regard.attention.rows import allowed, repeat_heads

MASK_BYTES = 64 * 2**20
"""The largest mask or bias, as the float tensor that the kernels read, that is made for them."""


class Sdpa(Path):
    """Dot-like scores with plain softmax."""

    def refuses(self, call: Call) -> str | None:
        """All but dot-like scores with plain softmax, constant biases and small masks."""
        if not call.score.dot_like:
            return f"score {type(call.score).__name__} is not a dot product"
        if not call.normalizer.plain_softmax:
            return f"normalizer {call.normalizer!r} is not plain softmax"
        if call.observed:
            return "scores or weights are observed, and it shows neither"
        if call.dropout:
            return "its dropout depends on how it runs; ours is the same on every path"
        if any(b.learned or isinstance(b, RowRule) for b in call.biases):
            return "a bias with gradient would become a (Tq, Tk) tensor, with one as its gradient"
        if not causal_alone(call):
            size = _tensor_bytes(call)
            if size > MASK_BYTES:
                return f"mask and bias would become a tensor of {size / 2**20:.0f} MiB"
        return None

    def run(self, call: Call) -> Tensor:
        """One call of scaled_dot_product_attention."""
        key = repeat_heads(call.key, call.group) if call.score.learned else call.key
        dot = call.score.as_dot(call.query, key)
        assert dot is not None
        query, key, value = dot.query, dot.key, call.value
        if key.shape[1] != value.shape[1]:
            value = repeat_heads(value, call.group)
        width, value_width = query.shape[-1], value.shape[-1]
        # Kernels that never hold (Tq, Tk) want one width; zeros change no product.
        if width < value_width:
            query = pad(query, (0, value_width - width))
            key = pad(key, (0, value_width - width))
        elif value_width < width:
            value = pad(value, (0, width - value_width))
        causal = causal_alone(call)
        mask, alive = (None, None) if causal else _mask_tensor(call)
        output = scaled_dot_product_attention(
            query,
            key,
            value,
            attn_mask=mask,
            is_causal=causal,
            scale=dot.scale,
            enable_gqa=query.shape[1] != key.shape[1],
        )[..., :value_width]
        return output if alive is None else output.masked_fill(~alive, 0)


def causal_alone(call: Call) -> bool:
    """Whether the causal mask is all there is, with positions in the order of indices."""
    return call.in_order and isinstance(call.mask, Causal) and not call.biases


def _tensor_bytes(call: Call) -> int:
    """The size of the mask and bias as one tensor, from one pair of each."""
    _, _, q_tokens, k_tokens = call.sizes
    if q_tokens == 0 or k_tokens == 0 or (call.mask is None and not call.biases):
        return 0
    pair = call.rectangle(slice(0, 1), slice(0, 1))
    shapes = [b.values(pair, call.query[:, :, :1], call.key[:, :, :1]).shape for b in call.biases]
    may = allowed(call, pair)
    shapes += [] if may is None else [may.shape]
    sequences, heads = (max((s[axis] for s in shapes), default=0) for axis in (0, 1))
    return sequences * heads * q_tokens * k_tokens * call.query.element_size()


def _mask_tensor(call: Call) -> tuple[Tensor | None, Tensor | None]:
    """The mask (and bias) for the kernel, and which rows may attend anywhere.

    A row that may attend nowhere is opened here and set to zero afterwards: kernels differ in what
    they make of it.
    """
    rectangle = call.rectangle()
    may = allowed(call, rectangle)
    alive = None
    if may is not None:
        may = may.expand(*may.shape[:2], *call.sizes[2:])
        alive = may.any(-1, keepdim=True)
        may = may | ~alive
    if not call.biases:
        return may, alive
    total = torch.zeros((), dtype=call.query.dtype, device=call.query.device)
    key = repeat_heads(call.key, call.group)
    for bias in call.biases:
        total = total + bias.values(rectangle, call.query, key, may)
    if may is not None:
        total = total.masked_fill(~may, -torch.inf)
    return total.to(call.query.dtype).expand(-1, -1, *call.sizes[2:]), alive
