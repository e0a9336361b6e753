"""Where edits sit in a model: regard's taps, or transformers' attention interface.

A seat applies `Apply` to the scores, weights and mixed values of each attention that runs. Layers
are counted as in a trace: from 0, in the order of the run, encoder, decoder and cross-attention
each on its own.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from regard.attention import Call, DenseBias, MultiHeadAttention, make_call, rows
from regard.attention.masks import Arbitrary, Causal
from regard.attention.normalizers.softmax import Softmax
from regard.errors import OptionError
from regard.inspection.capture._captured import Passed
from regard.inspection.capture.own import part_of
from regard.inspection.record import ScaledBy
from regard.models import EncoderDecoder

Apply = Callable[[str, Tensor, int, Call], Tensor]
"""``apply(stage, values, layer, call)``: what to go on with."""

Wants = Callable[[str, int], bool]
"""``wants(stage, layer)``: whether a stage of a layer is to be applied."""


def is_encoder_decoder(model: nn.Module) -> bool:
    """Whether layers are counted in an encoder, a decoder and in cross-attention apart."""
    config = getattr(model, "config", None)
    return isinstance(model, EncoderDecoder) or bool(getattr(config, "is_encoder_decoder", False))


def own_layers(model: nn.Module, part: str) -> list[MultiHeadAttention]:
    """regard's attention layers in a part of a model, in their order."""
    found = [(n, m) for n, m in model.named_modules() if isinstance(m, MultiHeadAttention)]
    return [module for name, module in found if part == "self" or part_of(name) == part]


@contextmanager
def seated(model: nn.Module, apply: Apply, wants: Wants, part: str) -> Iterator[None]:
    """Every attention of the model goes through `apply` until the context ends."""
    layers = own_layers(model, part)
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
    thread = threading.get_ident()

    def called(_: nn.Module, args: Any, call: Call) -> None:
        if threading.get_ident() == thread:
            latest[:] = [call]

    def edit(stage: str) -> Callable[[nn.Module, Any, Tensor], Tensor]:
        def edited(_: nn.Module, args: Any, values: Tensor) -> Tensor:
            if threading.get_ident() != thread:
                return values
            return apply(stage, values, layer, latest[0])

        return edited

    yield module.call.register_forward_hook(called)
    for stage in ("scores", "weights", "mixed"):
        if wants(stage, layer):
            yield getattr(module, stage).register_forward_hook(edit(stage))


@dataclass(eq=False)
class _Seat:
    """The place of one part of a model of transformers, and the edits there, outer ones first."""

    model: nn.Module
    part: str
    edits: list[tuple[Apply, Wants]]

    def wants(self, layer: int, *stages: str) -> bool:
        return any(wants(stage, layer) for _, wants in self.edits for stage in stages)

    def apply(self, stage: str, values: Tensor, layer: int, call: Call) -> Tensor:
        for apply, _ in self.edits:
            values = apply(stage, values, layer, call)
        return values

    def attend(self, layer: int, call: Call, run: Callable[[], Tensor]) -> Tensor:
        """The edited mixed values, (B, H, T, d); `run` gives the model's own."""
        if self.wants(layer, "scores", "weights"):
            observed = replace(
                call,
                observe_scores=lambda x: self.apply("scores", x, layer, call),
                observe_weights=lambda x: self.apply("weights", x, layer, call),
            )
            tensors = rows.tensors_of(observed)
            mixed = rows.row_output(observed, tensors, observed.rectangle()).to(call.value.dtype)
        else:
            mixed = run()
        return self.apply("mixed", mixed, layer, call)


_taken = threading.local()


@contextmanager
def _interface(model: Any, apply: Apply, wants: Wants, part: str) -> Iterator[None]:
    """Edits of a model of transformers; one within another is applied after it, in its seat."""
    taken: list[_Seat] = _taken.__dict__.setdefault("seats", [])
    for seat in taken:
        if seat.model is model and seat.part == part:
            seat.edits.append((apply, wants))
            try:
                yield
            finally:
                seat.edits.pop()
            return
    seat = _Seat(model, part, [(apply, wants)])
    taken.append(seat)
    try:
        with _seated(seat):
            yield
    finally:
        taken.remove(seat)


@contextmanager
def _seated(seat: _Seat) -> Iterator[None]:
    from regard.inspection.capture import bloom, interface, mpnet

    model: Any = seat.model
    names = {id(module): name for name, module in model.named_modules()}
    pairs = bool(getattr(model.config, "is_encoder_decoder", False))
    watch = interface.Watch(names, pairs)
    counted: dict[str, int] = {}
    thread = threading.get_ident()

    def restart(module: nn.Module, args: Any) -> None:
        if threading.get_ident() != thread:
            return
        parts = {"encoder": ["encoder"], "decoder": ["decoder", "cross"]}
        kind = next((kind for kind, stack in stacks.items() if stack is module), "")
        for one in parts.get(kind, list(counted)):
            counted.pop(one, None)

    def place(module: nn.Module) -> tuple[str, int]:
        kind = watch.kind(names[id(module)])
        layer = counted[kind] = counted.get(kind, -1) + 1
        return kind, layer

    def wrap(module: nn.Module, run: Callable[..., Any]) -> Callable[..., Any]:
        if id(module) not in names:
            return run
        kind, layer = place(module)
        if kind != seat.part:
            return run

        def edited(_: nn.Module, q: Tensor, k: Tensor, v: Tensor, mask: Any = None, **settings):
            interface.require_readable(names[id(module)], mask)
            call = _call_of(module, q, k, v, mask, settings)
            others: tuple[Any, ...] = (None,)

            def own() -> Tensor:
                nonlocal others
                output, *rest = run(module, q, k, v, mask, **settings)
                others = tuple(rest)
                return output.transpose(1, 2)

            # The interface gives (B, T, H, d).
            output = seat.attend(layer, call, own)
            return output.transpose(1, 2).contiguous(), *others

        return edited

    def attended(module: nn.Module, passed: Passed) -> Tensor:
        settings = {"scaling": passed.scale, "position_bias": passed.bias, "is_causal": False}
        call = _call_of(module, passed.q, passed.k, passed.v, passed.mask, settings)
        return seat.attend(place(module)[1], call, lambda: passed.mixed)

    stacks = {}
    for kind in ("encoder", "decoder") if pairs else ():
        stacks[kind] = getattr(model, f"get_{kind}")()
    with ExitStack() as stack:
        stack.enter_context(interface.around(model, wrap))
        for module in (model, *stacks.values()):
            stack.callback(module.register_forward_pre_hook(restart).remove)
        for family in (bloom, mpnet):
            for hook in family.hooks(model, attended, lambda: threading.get_ident() == thread):
                stack.callback(hook.remove)
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
