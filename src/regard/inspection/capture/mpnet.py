"""MPNet computes its attention itself: seen, and edited, by hooks on its attention modules.

Scores are ``q·k/√d`` plus a learned bias over distances (Song et al., "MPNet", 2020; the bias is
that of Raffel et al., "T5", 2020, section 2.1).
"""

from collections.abc import Callable, Iterator
from typing import Any

from torch import Tensor, nn

from regard.inspection.capture._captured import Attended, Passed


def hooks(model: nn.Module, attended: Attended, ours: Callable[[], bool]) -> Iterator[Any]:
    """The hooks on every MPNet attention of the model; `ours`: whether a run is to be seen."""
    for module in model.modules():
        if type(module).__name__ == "MPNetSelfAttention":
            yield from _hooks(module, attended, ours)


def _hooks(module: Any, attended: Attended, ours: Callable[[], bool]) -> Iterator[Any]:
    given: dict[str, Any] = {}

    def begin(_: nn.Module, args: Any, kwargs: dict[str, Any]) -> None:
        if ours():
            named = zip(("hidden_states", "attention_mask", "position_bias"), args, strict=False)
            given.update({**dict(named), **kwargs})

    def keep_output(part: str) -> Any:
        def hook(_: nn.Module, args: Any, output: Tensor) -> None:
            if ours():
                given[part] = output

        return hook

    def heads(x: Tensor) -> Tensor:
        # (B, T, H·d) → (B, H, T, d)
        return x.unflatten(-1, (-1, module.attention_head_size)).transpose(1, 2)

    def mixed(_: nn.Module, args: Any) -> tuple[Tensor] | None:
        if not ours():
            return None
        passed = Passed(
            q=heads(given["q"]),
            k=heads(given["k"]),
            v=heads(given["v"]),
            scale=module.attention_head_size**-0.5,
            mixed=heads(args[0]),
            mask=given.get("attention_mask"),
            bias=given.get("position_bias"),
        )
        given.clear()
        edited = attended(module, passed)
        return None if edited is None else (edited.transpose(1, 2).flatten(2),)

    yield module.register_forward_pre_hook(begin, with_kwargs=True)
    for part in ("q", "k", "v"):
        yield getattr(module, part).register_forward_hook(keep_output(part))
    yield module.o.register_forward_pre_hook(mixed)
