"""Where edits sit in a model: regard's taps, or transformers' attention interface.

A seat applies `Apply` to the scores, weights and mixed values of each attention that runs. Layers
are counted as in a trace: from 0, in the order of the run, encoder, decoder and cross-attention
each on its own.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from regard.attention import Call, DenseBias, MultiHeadAttention, make_call, rows
from regard.attention.masks import Arbitrary, Causal
from regard.attention.normalizers.softmax import Softmax
from regard.errors import OptionError
from regard.inspection.record import ScaledBy

Apply = Callable[[str, Tensor, int, Call], Tensor]
"""``apply(stage, values, layer, call)``: what to go on with."""

Wants = Callable[[str, int], bool]
"""``wants(stage, layer)``: whether a stage of a layer is to be applied."""


def own_layers(model: nn.Module) -> list[MultiHeadAttention]:
    """regard's attention layers in a model, in their order."""
    return [m for m in model.modules() if isinstance(m, MultiHeadAttention)]


@contextmanager
def seated(model: nn.Module, apply: Apply, wants: Wants, part: str) -> Iterator[None]:
    """Every attention of the model goes through `apply` until the context ends."""
    layers = own_layers(model)
    if layers:
        with ExitStack() as stack:
            for layer, module in enumerate(layers):
                for hook in _tap_hooks(module, layer, apply, wants):
                    stack.callback(hook.remove)
            yield
    elif hasattr(model, "config"):
        with _interface(model, apply, wants, part):
            yield
    else:
        raise OptionError(
            f"{type(model).__name__} has neither regard's attention layers nor a Hugging Face "
            "configuration, so there is no place for an edit"
        )


def _tap_hooks(module: MultiHeadAttention, layer: int, apply: Apply, wants: Wants) -> Iterator[Any]:
    latest: list[Call] = []

    def called(_: nn.Module, args: Any, call: Call) -> None:
        latest[:] = [call]

    def edit(stage: str) -> Callable[[nn.Module, Any, Tensor], Tensor]:
        return lambda _, args, values: apply(stage, values, layer, latest[0])

    yield module.call.register_forward_hook(called)
    for stage in ("scores", "weights", "mixed"):
        if wants(stage, layer):
            yield getattr(module, stage).register_forward_hook(edit(stage))


@contextmanager
def _interface(model: Any, apply: Apply, wants: Wants, part: str) -> Iterator[None]:
    from regard.inspection.capture import interface

    names = {id(module): name for name, module in model.named_modules()}
    pairs = bool(getattr(model.config, "is_encoder_decoder", False))
    watch = interface.Watch(names, pairs)
    counted: dict[str, int] = {}

    def restart(module: nn.Module, args: Any) -> None:
        parts = {"encoder": ["encoder"], "decoder": ["decoder", "cross"]}
        kind = next((kind for kind, stack in stacks.items() if stack is module), "")
        for one in parts.get(kind, list(counted)):
            counted.pop(one, None)

    def wrap(module: nn.Module, run: Callable[..., Any]) -> Callable[..., Any]:
        if id(module) not in names:
            return run
        kind = watch.kind(names[id(module)])
        layer = counted[kind] = counted.get(kind, -1) + 1
        if kind != part:
            return run

        def edited(_: nn.Module, q: Tensor, k: Tensor, v: Tensor, mask: Any = None, **settings):
            call = _call_of(module, q, k, v, mask, settings)
            if wants("scores", layer) or wants("weights", layer):
                call = replace(
                    call,
                    observe_scores=lambda x: apply("scores", x, layer, call),
                    observe_weights=lambda x: apply("weights", x, layer, call),
                )
                mixed = rows.row_output(call, rows.tensors_of(call), call.rectangle())
                result = mixed.to(v.dtype).transpose(1, 2), None
            else:
                result = run(module, q, k, v, mask, **settings)
            # The interface gives (B, T, H, d).
            output = apply("mixed", result[0].transpose(1, 2), layer, call)
            return output.transpose(1, 2).contiguous(), *result[1:]

        return edited

    stacks = {}
    for kind in ("encoder", "decoder") if pairs else ():
        stacks[kind] = getattr(model, f"get_{kind}")()
    with ExitStack() as stack:
        stack.enter_context(interface.around(model, wrap))
        for module in (model, *stacks.values()):
            stack.callback(module.register_forward_pre_hook(restart).remove)
        yield


def _call_of(
    module: nn.Module, q: Tensor, k: Tensor, v: Tensor, mask: Any, settings: dict[str, Any]
) -> Call:
    """A call of transformers' interface by regard's definition, as `capture.interface` reads it."""
    scale, softcap, sinks = (settings.get(name) for name in ("scaling", "softcap", "s_aux"))
    causal = settings.get("is_causal")
    causal = getattr(module, "is_causal", True) if causal is None else causal
    normalizer = Softmax(softcap, sinks=sinks is not None, heads=q.shape[1])
    if sinks is not None:
        normalizer.sinks = nn.Parameter(sinks.float(), requires_grad=False)
    bias = settings.get("position_bias")
    biases = [] if bias is None else [DenseBias(bias)]
    may = None
    if isinstance(mask, Tensor) and mask.dtype == torch.bool:
        may = Arbitrary(mask[..., : k.shape[2]])
    elif isinstance(mask, Tensor):
        # A number as low as the type goes stands for "may not".
        low = mask[..., : k.shape[2]] <= torch.finfo(mask.dtype).min / 2
        biases.append(DenseBias(mask[..., : k.shape[2]].masked_fill(low, -torch.inf)))
    elif causal and q.shape[2] > 1:
        may = Causal()
    return make_call(
        q,
        k,
        v,
        score=ScaledBy(q.shape[-1] ** -0.5 if scale is None else scale),
        normalizer=normalizer,
        mask=may,
        bias=biases or None,
        query_positions=torch.arange(k.shape[2] - q.shape[2], k.shape[2], device=q.device),
        key_positions=torch.arange(k.shape[2], device=k.device),
        training=False,
    )
