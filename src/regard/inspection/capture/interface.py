"""Transformers' attention interface: one function stands in for the model's own while it runs.

Since version 4.48 most model families of transformers call ``ALL_ATTENTION_FUNCTIONS[name]`` with
q, k, v, mask and scale. The function here calls the very function that would have run, sdpa or
eager, with the very same arguments, and keeps what passed by. The log-sum-exp is read off the fused
kernel's second result, which it computes anyway.
"""

import re
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from regard.errors import MissingExtraError, OptionError
from regard.inspection.capture._captured import Attended, Captured, Passed

STAND_INS = ("sdpa", "eager")
"""The functions of the interface that edits stand in for; captures do for the model's own too."""

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
    names = _implementations(model)
    if "flex_attention" in names:
        raise OptionError(
            f"{type(model).__name__} runs with attn_implementation='flex_attention', whose masks "
            "are compiled rules that regard does not read; load it with attn_implementation='sdpa'"
        )
    with ExitStack() as stack:
        _local.watch = watch
        stack.callback(setattr, _local, "watch", None)
        for table in {id(home): home for home in map(_home, model.modules())}.values():
            _stand_in(table, stack, (*STAND_INS, *names))
        ours = lambda: current() is watch  # noqa: E731
        for hook in (
            *_structure_hooks(model, watch),
            *bloom.hooks(model, _keep_passed(watch), ours),
            *mpnet.hooks(model, _keep_passed(watch), ours),
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
    with ExitStack() as stack:
        before = getattr(_local, "wraps", ())
        _local.wraps = (*before, wrap)
        stack.callback(setattr, _local, "wraps", before)
        for table in {id(home): home for home in map(_home, model.modules())}.values():
            _stand_in(table, stack, STAND_INS)
        yield


def _implementations(model: nn.Module) -> set[str]:
    """The names under which a model and its parts ask the interface for attention."""
    configs = [getattr(module, "config", None) for module in model.modules()]
    names = {getattr(config, "_attn_implementation", None) for config in configs}
    return {name for name in names if name is not None and name not in STAND_INS}


def _home(module: nn.Module) -> dict[str, Any]:
    """The global names that a module's forward sees."""
    for cls in type(module).__mro__:
        if "forward" in vars(cls):
            return vars(sys.modules[cls.__module__])
    return {}


_installing = threading.RLock()
_installed: dict[tuple[int, str], tuple[int, Any]] = {}


def _stand_in(table: dict[str, Any], stack: ExitStack, names: Sequence[str]) -> None:
    """Put the capturing functions in the interface and the rotation that one source file uses."""
    if "transformers" not in sys.modules:
        return
    from transformers.modeling_utils import AttentionInterface

    for known, value in list(table.items()):
        if isinstance(value, AttentionInterface):
            for name in names:
                _install(value._local_mapping, name, _capturing, stack, missing=value.get(name))
        if known.startswith("apply_rotary_pos_emb") and callable(value):
            _install(table, known, _rotating, stack, missing=value)


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
        for wrap in getattr(_local, "wraps", ()):
            run = wrap(module, run)
        watch = current()
        if watch is None or id(module) not in watch.names:
            return run(module, query, key, value, attention_mask, *args, **kwargs)
        require_readable(watch.names[id(module)], attention_mask)
        with _ReadLogSumExp() as reader:
            result = run(module, query, key, value, attention_mask, *args, **kwargs)
        keep(watch, module, query, key, value, attention_mask, result[0], kwargs, function, reader)
        return result

    return capturing


def require_readable(name: str, mask: Any) -> None:
    """`OptionError` for a mask that is no (B, H, Tq, Tk) tensor, as those of other kernels."""
    if mask is not None and not (isinstance(mask, Tensor) and mask.ndim == 4):
        shape = f" of shape {tuple(mask.shape)}" if isinstance(mask, Tensor) else ""
        raise OptionError(
            f"{name} was given a mask of type {type(mask).__name__}{shape}, which regard does not "
            "read; load the model with attn_implementation='sdpa'"
        )


def _keep_passed(watch: Watch) -> Attended:
    """Puts what passed an attention outside of the interface among the captured."""

    def attended(module: nn.Module, passed: Passed) -> None:
        name = watch.names[id(module)]
        watch.calls.append(
            Captured(
                name=name,
                kind="self",
                step=max(watch.step, 0),
                q=passed.q.detach(),
                k=passed.k.detach(),
                v=passed.v.detach(),
                scale=passed.scale,
                own=passed.mixed.detach(),
                mask=passed.mask,
                bias=None if passed.bias is None else passed.bias.detach(),
                residual=watch.residual(name),
            )
        )

    return attended


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
    is_causal = settings.get("is_causal")
    if is_causal is None:
        is_causal = getattr(module, "is_causal", True)
    causal = function is not None and mask is None and query.shape[2] > 1 and bool(is_causal)
    scale = settings.get("scaling")
    q_unrotated, k_unrotated = _before_rotation(watch.rotation, query, key)
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
            q_unrotated=q_unrotated,
            k_unrotated=k_unrotated,
            residual=watch.residual(name),
        )
    )


def _before_rotation(
    rotation: tuple[Tensor, Tensor, Tensor, Tensor] | None, query: Tensor, key: Tensor
) -> tuple[Tensor | None, Tensor | None]:
    """Queries and new keys before the rotation that ran last, if it is theirs.

    Some models rotate a part of the width, the first or the last, and put it together with the
    rest: their own numbers show which part it is.
    """
    if rotation is None:
        return None, None
    q_before, k_before, q_after, k_after = (x.detach() for x in rotation)
    if rotation[2] is query:
        return q_before, k_before
    turned, width = q_after.shape[-1], query.shape[-1]
    if q_after.ndim != 4 or turned >= width or q_after.shape[2] != query.shape[2]:
        return None, None
    new_keys = key[:, :, -k_after.shape[2] :]
    for part in (slice(0, turned), slice(width - turned, width)):
        theirs = query[..., part], new_keys[..., part]
        after = [x.expand_as(y) for x, y in zip((q_after, k_after), theirs, strict=True)]
        if all(torch.equal(x, y) for x, y in zip(after, theirs, strict=True)):
            q, k = query.detach().clone(), new_keys.detach().clone()
            q[..., part], k[..., part] = q_before, k_before
            return q, k
    return None, None


class _ReadLogSumExp(TorchDispatchMode):
    """Reads the second result of the fused attention kernel, if one runs."""

    log_sum_exp: Tensor | None = None

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func.name().removeprefix("aten::").partition(".")[0] in FUSED:
            lse = result[1]
            self.log_sum_exp = lse.detach() if lse.numel() else None
        return result
