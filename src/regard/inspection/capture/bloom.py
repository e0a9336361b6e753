"""BLOOM computes its attention itself: captured by hooks on its attention modules.

Scores are ``alibi + q·k/√d``, with alibi a number a head and key (Press, Smith, Lewis, "Train
Short, Test Long", 2022; Le Scao et al., "BLOOM", 2022, section 3.2.2).
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from regard.inspection.capture._captured import Captured

if TYPE_CHECKING:
    from regard.inspection.capture.interface import Watch


def hooks(model: nn.Module, watch: "Watch") -> Iterator[Any]:
    """The hooks on every BLOOM attention of the model."""
    for module in model.modules():
        if type(module).__name__ == "BloomAttention":
            yield from _hooks(module, watch)


def _hooks(module: Any, watch: "Watch") -> Iterator[Any]:
    from regard.inspection.capture.interface import current

    seen: dict[str, Tensor] = {}

    def fused(_: nn.Module, args: Any, output: Tensor) -> None:
        if current() is watch:
            seen["fused"] = output.detach()

    def mixed(_: nn.Module, args: Any) -> None:
        if current() is watch:
            seen["mixed"] = args[0].detach()

    def finish(_: nn.Module, args: Any, kwargs: dict[str, Any], output: Any) -> None:
        if current() is not watch:
            return
        heads, width = module.num_heads, module.head_dim
        # (B, T, H·3·d) → three of (B, H, T, d)
        fused = seen.pop("fused").unflatten(-1, (heads, 3, width))
        q, k, v = (fused[..., part, :].transpose(1, 2) for part in range(3))
        cache = kwargs.get("layer_past")
        if cache is not None:
            layer = cache.layers[module.layer_idx]
            k, v = layer.keys.detach(), layer.values.detach()
        alibi = kwargs["alibi"]
        name = watch.names[id(module)]
        watch.calls.append(
            Captured(
                name=name,
                kind="self",
                step=max(watch.step, 0),
                q=q,
                k=k,
                v=v,
                scale=module.inv_norm_factor,
                own=seen.pop("mixed").unflatten(-1, (heads, width)).transpose(1, 2),
                mask=kwargs.get("attention_mask"),
                bias=alibi.detach().unflatten(0, (-1, heads)),
                residual=watch.residual(name),
            )
        )

    yield module.query_key_value.register_forward_hook(fused)
    yield module.dense.register_forward_pre_hook(mixed)
    yield module.register_forward_hook(finish, with_kwargs=True)
