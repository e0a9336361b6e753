"""BLOOM computes its attention itself: seen, and edited, by hooks on its attention modules.

Scores are ``alibi + q·k/√d``, with alibi a number a head and key (Press, Smith, Lewis, "Train
Short, Test Long", 2022; Le Scao et al., "BLOOM", 2022, section 3.2.2).
"""

from collections.abc import Callable, Iterator
from typing import Any

from torch import Tensor, nn

from regard.inspection.capture._captured import Attended, Passed


def hooks(model: nn.Module, attended: Attended, ours: Callable[[], bool]) -> Iterator[Any]:
    """The hooks on every BLOOM attention of the model; `ours`: whether a run is to be seen."""
    for module in model.modules():
        if type(module).__name__ == "BloomAttention":
            yield from _hooks(module, attended, ours)


def _hooks(module: Any, attended: Attended, ours: Callable[[], bool]) -> Iterator[Any]:
    given: dict[str, Any] = {}

    def begin(_: nn.Module, args: Any, kwargs: dict[str, Any]) -> None:
        if ours():
            given.update(kwargs)

    def fused(_: nn.Module, args: Any, output: Tensor) -> None:
        if ours():
            given["fused"] = output

    def mixed(_: nn.Module, args: Any) -> tuple[Tensor] | None:
        if not ours():
            return None
        heads, width = module.num_heads, module.head_dim
        # (B, T, H·3·d) → three of (B, H, T, d)
        fused = given["fused"].unflatten(-1, (heads, 3, width))
        q, k, v = (fused[..., part, :].transpose(1, 2) for part in range(3))
        if (cache := given.get("layer_past")) is not None:
            layer = cache.layers[module.layer_idx]
            k, v = layer.keys, layer.values
        passed = Passed(
            q=q,
            k=k,
            v=v,
            scale=module.inv_norm_factor,
            mixed=args[0].unflatten(-1, (heads, width)).transpose(1, 2),
            mask=given.get("attention_mask"),
            bias=given["alibi"].unflatten(0, (-1, heads)),
        )
        given.clear()
        edited = attended(module, passed)
        return None if edited is None else (edited.transpose(1, 2).flatten(2),)

    yield module.register_forward_pre_hook(begin, with_kwargs=True)
    yield module.query_key_value.register_forward_hook(fused)
    yield module.dense.register_forward_pre_hook(mixed)
