"""Transformers' attention interface: one function stands in for the model's own while it runs.

Since version 4.48 most model families of transformers call ``ALL_ATTENTION_FUNCTIONS[name]`` with
q, k, v, mask and scale. The function here calls the very function that would have run, sdpa or
eager, with the very same arguments, and keeps what passed by. The log-sum-exp is read off the fused
kernel's second result, which it computes anyway.
"""

import re
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from regard.errors import MissingExtraError, OptionError
from regard.inspection.capture._captured import Captured

STAND_INS = ("sdpa", "eager")

FUSED = (
    "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_flash_attention_for_cpu",
    "_scaled_dot_product_efficient_attention",
    "_scaled_dot_product_cudnn_attention",
)


@dataclass
class Watch:
    """One run under watch: which modules are whose, and what was captured so far."""

    names: dict[int, str]
    encoder_decoder: bool
    calls: list[Captured] = field(default_factory=list)
    step: int = -1
    rotation: tuple[Tensor, Tensor, Tensor, Tensor] | None = None
    entered: dict[str, Tensor] = field(default_factory=dict)

    def kind(self, name: str) -> str:
        """Self-attention, or which of the three of an encoder–decoder, by the module's path."""
        if re.search(
            r"cross_?att|encoder_attn|enc_?dec_?att|encoder_attention", name, re.IGNORECASE
        ):
            return "cross"
        if not self.encoder_decoder:
            return "self"
        return "decoder" if re.search(r"(^|\.)decoder(\.|$)", name) else "encoder"

    def residual(self, name: str) -> Tensor | None:
        """The hidden states that entered the innermost layer around a module."""
        around = [layer for layer in self.entered if name.startswith(layer + ".")]
        return self.entered[max(around, key=len)] if around else None


_local = threading.local()


def current() -> Watch | None:
    """The watch of this thread, if a run is under way."""
    return getattr(_local, "watch", None)


def require_transformers() -> None:
    """`MissingExtraError` unless transformers is installed."""
    try:
        import transformers  # noqa: F401
    except ImportError:
        raise MissingExtraError("transformers", "hf") from None


@contextmanager
def watching(model: nn.Module) -> Iterator[Watch]:
    """Capture every attention that `model` runs in this thread until the context ends.

    Everything is put back at the end, also after an exception.
    """
    from regard.inspection.capture import bloom, mpnet

    config = getattr(model, "config", None)
    watch = Watch(
        {id(module): name for name, module in model.named_modules()},
        bool(getattr(config, "is_encoder_decoder", False)),
    )
    if current() is not None:
        raise OptionError("a trace is already under way in this thread; traces do not nest")
    with ExitStack() as stack:
        _local.watch = watch
        stack.callback(setattr, _local, "watch", None)
        for table in {id(home): home for home in map(_home, model.modules())}.values():
            _stand_in(table, stack)
        for hook in (
            *_structure_hooks(model, watch),
            *bloom.hooks(model, watch),
            *mpnet.hooks(model, watch),
        ):
            stack.callback(hook.remove)
        yield watch


@contextmanager
def around(
    model: nn.Module, wrap: Callable[[nn.Module, Callable[..., Any]], Callable[..., Any]]
) -> Iterator[None]:
    """Run ``wrap(module, function)`` for every attention of `model` until the context ends.

    `function` is what would have run; edits stand here. Only this thread is affected.
    """
    if getattr(_local, "wrap", None) is not None:
        raise OptionError("the attention of this thread is edited already; edits do not nest")
    with ExitStack() as stack:
        _local.wrap = wrap
        stack.callback(setattr, _local, "wrap", None)
        for table in {id(home): home for home in map(_home, model.modules())}.values():
            _stand_in(table, stack)
        yield


def _home(module: nn.Module) -> dict[str, Any]:
    """The global names that a module's forward sees."""
    for cls in type(module).__mro__:
        if "forward" in vars(cls):
            return vars(sys.modules[cls.__module__])
    return {}


_installing = threading.RLock()
_installed: dict[tuple[int, str], tuple[int, Any]] = {}


def _stand_in(table: dict[str, Any], stack: ExitStack) -> None:
    """Put the capturing functions in the interface and the rotation that one source file uses."""
    if "transformers" not in sys.modules:
        return
    from transformers.modeling_utils import AttentionInterface

    for value in list(table.values()):
        if isinstance(value, AttentionInterface):
            for name in STAND_INS:
                _install(value._local_mapping, name, _capturing, stack, missing=value.get(name))
    if callable(rotate := table.get("apply_rotary_pos_emb")):
        _install(table, "apply_rotary_pos_emb", _rotating, stack, missing=rotate)


def _install(
    mapping: dict[str, Any],
    name: str,
    make: Callable[[Any], Any],
    stack: ExitStack,
    missing: Any,
) -> None:
    """Replace ``mapping[name]`` once for all watching threads; the last to leave puts it back."""
    key = (id(mapping), name)
    with _installing:
        users, before = _installed.get(key, (0, None))
        if users == 0:
            before = mapping.get(name)
            mapping[name] = make(missing if before is None else before)
        _installed[key] = (users + 1, before)

    def leave() -> None:
        with _installing:
            users, before = _installed[key]
            _installed[key] = (users - 1, before)
            if users == 1:
                del _installed[key]
                if before is None:
                    del mapping[name]
                else:
                    mapping[name] = before

    stack.callback(leave)


def _structure_hooks(model: nn.Module, watch: Watch) -> Iterator[Any]:
    """Count forward passes, and keep what enters each layer of a list of layers."""

    def begin(*_: Any) -> None:
        if current() is watch:
            watch.step += 1

    yield model.register_forward_pre_hook(begin)
    for name, module in model.named_modules():
        parent = name.rpartition(".")[0]
        if parent and isinstance(model.get_submodule(parent), nn.ModuleList):

            def enter(_: nn.Module, args: Any, kwargs: Any, name: str = name) -> None:
                hidden = args[0] if args else kwargs.get("hidden_states")
                if isinstance(hidden, Tensor) and current() is watch:
                    watch.entered[name] = hidden.detach()

            yield module.register_forward_pre_hook(enter, with_kwargs=True)


def _rotating(rotate: Callable[..., Any]) -> Callable[..., Any]:
    """The rotation itself; what went in and came out is kept until attention asks."""

    def rotating(*args: Any, **kwargs: Any) -> Any:
        result = rotate(*args, **kwargs)
        watch = current()
        if watch is not None and len(args) >= 2 and isinstance(result, tuple) and len(result) == 2:
            watch.rotation = (args[0], args[1], result[0], result[1])
        return result

    return rotating


def _capturing(function: Callable[..., Any] | None) -> Callable[..., Any]:
    """The function that transformers calls in place of its own `function` (None: eager)."""

    def capturing(
        module: nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Any = None,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        run = function or _home(module)["eager_attention_forward"]
        if (wrap := getattr(_local, "wrap", None)) is not None:
            run = wrap(module, run)
        watch = current()
        if watch is None or id(module) not in watch.names:
            return run(module, query, key, value, attention_mask, *args, **kwargs)
        with _ReadLogSumExp() as reader:
            result = run(module, query, key, value, attention_mask, *args, **kwargs)
        keep(watch, module, query, key, value, attention_mask, result[0], kwargs, function, reader)
        return result

    return capturing


def keep(
    watch: Watch,
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Any,
    output: Tensor,
    settings: dict[str, Any],
    function: Callable[..., Any] | None,
    reader: "_ReadLogSumExp",
) -> None:
    """Put one call of the interface among the captured."""
    name = watch.names[id(module)]
    if mask is not None and not (isinstance(mask, Tensor) and mask.ndim == 4):
        raise OptionError(
            f"{name} was given a mask of type {type(mask).__name__}, which regard does not read; "
            "load the model with attn_implementation='sdpa'"
        )
    is_causal = settings.get("is_causal")
    if is_causal is None:
        is_causal = getattr(module, "is_causal", True)
    causal = function is not None and mask is None and query.shape[2] > 1 and bool(is_causal)
    scale = settings.get("scaling")
    q_before, k_before, q_after, _ = watch.rotation or (None,) * 4
    rotated = q_after is query and q_before is not None and q_before.shape == query.shape
    watch.rotation = None
    lse = reader.log_sum_exp
    sinks = settings.get("s_aux")
    watch.calls.append(
        Captured(
            name=name,
            kind=watch.kind(name),
            step=max(watch.step, 0),
            q=query.detach(),
            k=key.detach(),
            v=value.detach(),
            scale=float(scale) if scale is not None else query.shape[-1] ** -0.5,
            own=output.detach().transpose(1, 2),
            mask=mask,
            causal=causal,
            bias=settings.get("position_bias"),
            softcap=settings.get("softcap"),
            sinks=None if sinks is None else sinks.detach(),
            log_sum_exp=None if lse is None or lse.shape != query.shape[:3] else lse,
            q_unrotated=q_before.detach() if rotated and q_before is not None else None,
            k_unrotated=k_before.detach() if rotated and k_before is not None else None,
            residual=watch.residual(name),
        )
    )


class _ReadLogSumExp(TorchDispatchMode):
    """Reads the second result of the fused attention kernel, if one runs."""

    log_sum_exp: Tensor | None = None

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func.name().removeprefix("aten::").partition(".")[0] in FUSED:
            lse = result[1]
            self.log_sum_exp = lse.detach() if lse.numel() else None
        return result
