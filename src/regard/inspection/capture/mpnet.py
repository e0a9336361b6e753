"""MPNet computes its attention itself: captured by hooks on its attention modules.

Scores are ``q·k/√d`` plus a learned bias over distances (Song et al., "MPNet", 2020; the bias is
that of Raffel et al., "T5", 2020, section 2.1).
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from regard.inspection.capture._captured import Captured

if TYPE_CHECKING:
    from regard.inspection.capture.interface import Watch


def hooks(model: nn.Module, watch: "Watch") -> Iterator[Any]:
    """The hooks on every MPNet attention of the model."""
    for module in model.modules():
        if type(module).__name__ == "MPNetSelfAttention":
            yield from _hooks(module, watch)


def _hooks(module: Any, watch: "Watch") -> Iterator[Any]:
    from regard.inspection.capture.interface import current

    seen: dict[str, Tensor] = {}

    def keep_output(part: str) -> Any:
        def hook(_: nn.Module, args: Any, output: Tensor) -> None:
            if current() is watch:
                seen[part] = output.detach()

        return hook

    def mixed(_: nn.Module, args: Any) -> None:
        if current() is watch:
            seen["mixed"] = args[0].detach()

    def finish(_: nn.Module, args: Any, kwargs: dict[str, Any], output: Any) -> None:
        if current() is not watch:
            return

        def heads(part: str) -> Tensor:
            # (B, T, H·d) → (B, H, T, d)
            split = seen.pop(part).unflatten(-1, (-1, module.attention_head_size))
            return split.transpose(1, 2)

        named = zip(("hidden_states", "attention_mask", "position_bias"), args, strict=False)
        given: dict[str, Any] = {**dict(named), **kwargs}
        name = watch.names[id(module)]
        watch.calls.append(
            Captured(
                name=name,
                kind="self",
                step=max(watch.step, 0),
                q=heads("q"),
                k=heads("k"),
                v=heads("v"),
                scale=module.attention_head_size**-0.5,
                own=heads("mixed"),
                mask=given.get("attention_mask"),
                bias=given.get("position_bias"),
                residual=watch.residual(name),
            )
        )

    for part in ("q", "k", "v"):
        yield getattr(module, part).register_forward_hook(keep_output(part))
    yield module.o.register_forward_pre_hook(mixed)
    yield module.register_forward_hook(finish, with_kwargs=True)
