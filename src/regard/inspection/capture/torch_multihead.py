"""`torch.nn.MultiheadAttention`: q, k and v are projected again beside it, its output is its own.

PyTorch does not hand out what it mixed, so that is computed from q, k and v and must give, through
the module's own output map, what the module returned.
"""

import inspect
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from regard.attention import make_call, paths
from regard.attention.masks import Arbitrary
from regard.errors import OptionError
from regard.inspection.capture._captured import Captured

SIGNATURE = inspect.signature(nn.MultiheadAttention.forward)


def hooks(model: nn.Module, keep: Callable[[Captured], None]) -> Iterator[Any]:
    """The hooks on every `torch.nn.MultiheadAttention` of a module, for runs of this thread."""
    thread = threading.get_ident()
    for name, module in model.named_modules():
        if isinstance(module, nn.MultiheadAttention):

            def finish(
                module: nn.MultiheadAttention,
                args: Any,
                kwargs: dict[str, Any],
                output: Any,
                name: str = name,
            ) -> None:
                if threading.get_ident() != thread:
                    return
                given = SIGNATURE.bind(module, *args, **kwargs).arguments
                keep(_captured(name or type(module).__name__, module, given, output[0]))

            yield module.register_forward_hook(finish, with_kwargs=True)


@torch.no_grad()
def _captured(
    name: str, module: nn.MultiheadAttention, given: dict[str, Any], output: Tensor
) -> Captured:
    if module.bias_k is not None or module.add_zero_attn:
        raise OptionError(
            f"{name} adds keys that stand for no token (add_bias_kv or add_zero_attn), so its "
            "weights have columns without tokens; it cannot be watched"
        )
    if module.training and module.dropout > 0:
        raise OptionError(f"{name} drops weights at random in training; call eval() before")
    query, key, value = (_batch_first(module, given[part]) for part in ("query", "key", "value"))
    q, k, v = (
        # (B, T, E) → (B, H, T, d)
        linear(x, *weights).unflatten(-1, (module.num_heads, -1)).transpose(1, 2)
        for x, weights in zip((query, key, value), _projections(module), strict=True)
    )
    mask = _mask(module, given, q.shape[0], q.shape[2], k.shape[2])
    is_bool = mask is not None and mask.dtype == torch.bool
    call = make_call(
        q,
        k,
        v,
        mask=Arbitrary(mask) if is_bool and mask is not None else None,
        bias=None if is_bool else mask,
        query_positions=torch.arange(q.shape[2], device=q.device),
        key_positions=torch.arange(k.shape[2], device=q.device),
    )
    mixed = paths.choose(call).run(call)
    again = module.out_proj(mixed.transpose(1, 2).flatten(2))
    own = _batch_first(module, output)
    error, size = float((again - own).abs().max()), float(own.abs().max())
    if error > 64 * torch.finfo(own.dtype).eps * max(size, 1.0):
        raise OptionError(
            f"{name}: attention from its inputs gives another output than its own (by {error:.1e})"
            "; a picture of it would be wrong, so there is none"
        )
    return Captured(
        name=name,
        kind="self" if given["query"] is given["key"] else "cross",
        step=0,
        q=q,
        k=k,
        v=v,
        scale=q.shape[-1] ** -0.5,
        own=mixed,
        mask=mask,
        residual=query.detach(),
    )


def _batch_first(module: nn.MultiheadAttention, x: Tensor) -> Tensor:
    if x.ndim == 2:
        return x[None]
    return x if module.batch_first else x.transpose(0, 1)


def _projections(module: nn.MultiheadAttention) -> Iterator[tuple[Tensor, Tensor | None]]:
    if module.in_proj_weight is not None:
        weights = module.in_proj_weight.chunk(3)
    else:
        weights = (module.q_proj_weight, module.k_proj_weight, module.v_proj_weight)
    bias = module.in_proj_bias
    biases = (None,) * 3 if bias is None else bias.chunk(3)
    yield from zip(weights, biases, strict=True)


def _mask(
    module: nn.MultiheadAttention, given: dict[str, Any], batch: int, queries: int, keys: int
) -> Tensor | None:
    """Both masks of PyTorch in one: True = may attend, or float where one of them is float."""
    padding, attention = given.get("key_padding_mask"), given.get("attn_mask")
    parts: list[Tensor] = []
    if padding is not None:
        parts.append(padding.reshape(batch, 1, 1, keys))
    if attention is not None:
        own = (-1, module.num_heads) if attention.ndim == 3 and len(attention) > 1 else (1, 1)
        parts.append(attention.reshape(*own, queries, keys))
    if not parts:
        return None
    if all(part.dtype == torch.bool for part in parts):
        hidden = parts[0] if len(parts) == 1 else parts[0] | parts[1]
        return ~hidden
    floats = [
        torch.zeros(part.shape, device=part.device).masked_fill(part, -torch.inf)
        if part.dtype == torch.bool
        else part
        for part in parts
    ]
    return floats[0] if len(floats) == 1 else floats[0] + floats[1]
