"""regard's own attention: the taps of each layer tell what passes through.

`MultiHeadAttention` sends its whole `Call` through the tap `call` and its mixed values through
`mixed`; queries and keys before rotation are what its two norms give.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from regard.attention import Call, DenseBias, MultiHeadAttention
from regard.attention.bias import Bias
from regard.attention.masks import Arbitrary, Mask
from regard.errors import DataError, OptionError
from regard.inspection.capture import recover
from regard.inspection.capture.hugging_face import choose, choose_part
from regard.inspection.record import AttentionRecord
from regard.inspection.tokens import Token
from regard.inspection.tracing import Trace
from regard.inspection.verify import require_faithful


@dataclass(eq=False, kw_only=True)
class Seen:
    """One call of one attention of regard, for a whole batch."""

    name: str
    call: Call
    mixed: Tensor | None = None
    residual: Tensor | None = None
    q_unrotated: Tensor | None = None
    k_unrotated: Tensor | None = None

    def record(self, layer: int, item: int) -> AttentionRecord:
        """One text of the batch."""

        def one(x: Tensor | None) -> Tensor | None:
            return None if x is None else x[item]

        return AttentionRecord(
            name=self.name,
            layer=layer,
            call=one_item(self.call, item),
            mixed=one(self.mixed),
            residual=one(self.residual),
            q_unrotated=one(self.q_unrotated),
            k_unrotated=one(self.k_unrotated),
        )


def one_item(call: Call, item: int) -> Call:
    """The call of one text of a batch."""

    def row(positions: Tensor) -> Tensor:
        return positions[item : item + 1] if positions.shape[0] > 1 else positions

    part = slice(item, item + 1)
    return replace(
        call,
        query=call.query[part].detach(),
        key=call.key[part].detach(),
        value=call.value[part].detach(),
        mask=None if call.mask is None else _mask_of(call, call.mask, item),
        biases=tuple(_bias_of(bias, item) for bias in call.biases),
        query_positions=row(call.query_positions),
        key_positions=row(call.key_positions),
        dropout=0.0,
        seed=None,
        observe_scores=None,
        observe_weights=None,
    )


def _mask_of(call: Call, mask: Mask, item: int) -> Mask | None:
    """The mask of one text; padding where there is none is dropped."""
    if call.sizes[0] > 1 and mask.batch_size not in (None, 1):
        may = mask.allows(call.rectangle())
        return Arbitrary(may[item : item + 1] if may.shape[0] > 1 else may)
    _, _, q_tokens, k_tokens = call.sizes
    return recover.trim(mask, torch.arange(q_tokens), torch.arange(k_tokens))


def _bias_of(bias: Bias, item: int) -> Bias:
    if isinstance(bias, DenseBias) and bias.tensor.shape[0] > 1:
        return DenseBias(bias.tensor[item : item + 1])
    return bias


def hooks(model: nn.Module, keep: Callable[[Seen], None]) -> Iterator[Any]:
    """The hooks on every attention layer of regard in a module, for runs of this thread."""
    for name, module in model.named_modules():
        if isinstance(module, MultiHeadAttention):
            yield from _hooks(name, module, model, keep)


def _hooks(
    name: str, module: MultiHeadAttention, model: nn.Module, keep: Callable[[Seen], None]
) -> Iterator[Any]:
    before: dict[str, Tensor] = {}
    rotates = "rotate" in getattr(module.position, "places", ())
    running: list[Seen] = []
    thread = threading.get_ident()

    def keep_output(part: str) -> Any:
        def hook(_: nn.Module, args: Any, output: Tensor) -> None:
            if threading.get_ident() == thread:
                before[part] = output.detach()

        return hook

    def entered(_: nn.Module, args: Any) -> None:
        if threading.get_ident() == thread:
            before["residual"] = args[0].detach()

    def called(_: nn.Module, args: Any, call: Call) -> None:
        if threading.get_ident() != thread:
            return
        past = before["k"].shape[2] != call.key.shape[2]
        turned = rotates and not past
        seen = Seen(
            name=name or type(module).__name__,
            call=call,
            residual=before.get("residual"),
            q_unrotated=before["q"] if turned else None,
            k_unrotated=before["k"] if turned else None,
        )
        running[:] = [seen]
        keep(seen)

    def mixed(_: nn.Module, args: Any, output: Tensor) -> None:
        if threading.get_ident() == thread:
            running[0].mixed = output.detach()

    yield module.query_norm.register_forward_hook(keep_output("q"))
    yield module.key_norm.register_forward_hook(keep_output("k"))
    yield module.call.register_forward_hook(called)
    yield module.mixed.register_forward_hook(mixed)
    parent = name.rpartition(".")[0]
    if parent:
        yield model.get_submodule(parent).register_forward_pre_hook(entered)


def is_own(model: Any) -> bool:
    """Whether a model is one of regard's, which reads texts by itself."""
    from regard.models import Classifier

    return isinstance(model, Classifier)


def trace_model(
    model: Any, text: str | Sequence[str] | None, *, item: int | None, part: str | None
) -> Trace:
    """Run a model of regard on a text under watch. Of a batch, the chosen text runs alone."""
    if text is None:
        raise OptionError(f"{type(model).__name__} is traced on a text: pass one")
    texts = [text] if isinstance(text, str) else list(text)
    text = texts[choose(item, len(texts))]
    if not text.strip():
        raise DataError("the text is empty")
    seen: list[Seen] = []
    with ExitStack() as stack:
        for hook in hooks(model, seen.append):
            stack.callback(hook.remove)
        model.logits([text])
    made = [one.record(layer, 0) for layer, one in enumerate(seen)]
    if not made:
        raise OptionError(f"{type(model).__name__} has no attention, so there is nothing to trace")
    require_faithful(made)
    found = model.segmenter(text)
    limit = made[0].q_tokens
    notes = []
    if limit < len(found):
        notes.append(f"the text is cut to the {limit} tokens that the model reads")
    known = model.vocabulary
    tokens = [
        Token(word, start, end, 0, unknown=word not in known, id=int(known.encode([word])[0]))
        for word, start, end in zip(
            found.tokens[:limit], found.starts[:limit], found.ends[:limit], strict=True
        )
    ]
    trace = Trace(made, tokens, texts=(text,), model=type(model).__name__, notes=notes)
    return choose_part({"self": trace}, part)
