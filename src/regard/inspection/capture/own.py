"""regard's own attention: the taps of each layer tell what passes through.

`MultiHeadAttention` sends its whole `Call` through the tap `call` and its mixed values through
`mixed`; queries and keys before rotation are what its two norms give. A text that a model writes
token by token is put together again: queries of all steps, keys and values of the last.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from regard.attention import Call, DenseBias, MultiHeadAttention
from regard.attention.bias import Bias, as_biases
from regard.attention.masks import Arbitrary, Causal, Mask
from regard.errors import DataError, OptionError
from regard.inspection.capture import recover
from regard.inspection.capture.hugging_face import choose, choose_part
from regard.inspection.record import AttentionRecord
from regard.inspection.tokens import Token
from regard.inspection.tracing import Trace
from regard.inspection.verify import require_faithful
from regard.models.joining import join, joined_after, offsets

BEGIN = "<s>"
WRITTEN = "the last generated token was written, not read, so it has no row"


@dataclass(eq=False, kw_only=True)
class Seen:
    """One call of one attention of regard, for a whole batch.

    `q_unrotated`, `k_unrotated`: of the tokens that are new in this call. `position`: the encoding
    that the layer has, if it has one.
    """

    name: str
    call: Call
    position: Any = None
    mixed: Tensor | None = None
    residual: Tensor | None = None
    q_unrotated: Tensor | None = None
    k_unrotated: Tensor | None = None

    def record(self, layer: int, item: int) -> AttentionRecord:
        """One text of the batch."""

        def one(x: Tensor | None) -> Tensor | None:
            return None if x is None else x[item]

        whole = self.k_unrotated is not None and self.k_unrotated.shape == self.call.key.shape
        return AttentionRecord(
            name=self.name,
            layer=layer,
            call=one_item(self.call, item),
            mixed=one(self.mixed),
            residual=one(self.residual),
            q_unrotated=one(self.q_unrotated) if whole else None,
            k_unrotated=one(self.k_unrotated) if whole else None,
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
        seen = Seen(
            name=name or type(module).__name__,
            call=call,
            position=module.position,
            residual=before.get("residual"),
            q_unrotated=before["q"] if rotates else None,
            k_unrotated=before["k"] if rotates else None,
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


def joined(steps: Sequence[Seen]) -> Seen:
    """All calls of one layer for one text, read piece by piece with a cache, as one call.

    Row i is the query of token i, in whichever step it ran. Without a cache the last call has read
    everything, and is taken as it is.
    """
    last = steps[-1].call
    tokens = sum(step.call.sizes[2] for step in steps)
    if len(steps) == 1 or last.sizes[2] == last.sizes[3]:
        return steps[-1]

    def all_of(part: str) -> Tensor | None:
        found = [getattr(step, part) for step in steps]
        return None if any(x is None for x in found) else torch.cat(found, -2)

    query = torch.cat([step.call.query for step in steps], -2)
    rows = torch.arange(tokens, device=query.device)[None]
    if tokens == last.sizes[3] and isinstance(last.mask, Causal):
        rule = getattr(steps[-1].position, "bias", lambda *_: None)(rows[0], rows[0])
        biases = as_biases(None if rule is None else [rule])
        call = replace(last, query=query, biases=biases, query_positions=rows, key_positions=rows)
    else:
        call = replace(last, query=query, query_positions=rows)
    return Seen(
        name=steps[-1].name,
        call=replace(call, in_order=call.query_positions is call.key_positions),
        mixed=all_of("mixed"),
        residual=all_of("residual"),
        q_unrotated=all_of("q_unrotated"),
        k_unrotated=all_of("k_unrotated"),
    )


def is_own(model: Any) -> bool:
    """Whether a model is one of regard's, which reads texts by itself."""
    from regard.models import TextModel

    return isinstance(model, TextModel)


def trace_model(
    model: Any,
    text: str | Sequence[str] | None,
    *,
    item: int | None = None,
    target: str | None = None,
    generate: int = 0,
    part: str | None = None,
) -> Trace:
    """Run a model of regard on a text under watch. Of a batch, the chosen text runs alone.

    `generate`: let a language model or an encoder–decoder write so many tokens, greedily. `target`:
    what an encoder–decoder writes instead of its own answer.
    """
    from regard.models import EncoderDecoder, LanguageModel

    name = type(model).__name__
    if text is None:
        raise OptionError(f"{name} is traced on a text: pass one")
    writes = isinstance(model, LanguageModel | EncoderDecoder)
    for asked, value, fits in (
        ("target", target, isinstance(model, EncoderDecoder)),
        ("generate", generate or None, writes),
    ):
        if value is not None and not fits:
            raise OptionError(f"{asked}= is not for {name}; give it texts alone")
    if generate < 0 or (generate and target is not None):
        raise OptionError("give either target= or generate=, a number of tokens, not both")
    texts = [text] if isinstance(text, str) else list(text)
    text = texts[choose(item, len(texts))]
    if not text.strip():
        raise DataError("the text is empty")
    if isinstance(model, EncoderDecoder):
        parts = _encoder_decoder(model, text, target, generate)
    elif isinstance(model, LanguageModel):
        parts = {"self": _language_model(model, text, generate)}
    else:
        parts = {"self": _reader(model, text)}
    for one in parts.values():
        one.parts = parts
    return choose_part(parts, part)


def _reader(model: Any, text: str) -> Trace:
    """A model that reads a whole text at once: a classifier, a tagger."""
    ids = model.encode([text])[0][: model.text.max_tokens]
    with _watching(model) as seen, model.evaluating():
        model(*model.collate([ids]))
    tokens = _tokens(model, "", text)
    notes = []
    if len(ids) < len(tokens):
        notes.append(f"the text is cut to the {len(ids)} tokens that the model reads")
    return _trace(model, seen, tokens[: len(ids)], (text,), notes=notes)


def _language_model(model: Any, text: str, generate: int) -> Trace:
    tokens = _tokens(model, "", text)
    if not generate:
        with _watching(model) as seen:
            model.logits([text])
        return _trace(model, seen, [_begin(model.begin), *tokens], (text,))
    start = model.encode([text])[0][:-1].tolist()
    with _watching(model) as seen:
        new = model.continuation(start, generate, temperature=0)
    before = [token.text for token in tokens]
    words = model.vocabulary.decode(new[:-1])
    written = joined_after(model.segmenter.name, before, words)
    whole = text + written
    tokens += _written(model, "", words, before, whole, len(text))
    return _trace(model, seen, [_begin(model.begin), *tokens], (whole,), notes=[WRITTEN])


def _encoder_decoder(model: Any, text: str, target: str | None, generate: int) -> dict[str, Trace]:
    source, notes = _tokens(model, "", text), []
    limit = model.text.max_tokens
    if limit < len(source):
        notes.append(f"the text is cut to the {limit} tokens that the model reads")
    source = source[:limit]
    with _watching(model) as seen:
        if target is not None:
            ids = model.encode_targets([target])[0][:-1]
            read = model.collate(model.encode([text]))
            with model.evaluating():
                model(*read, ids[None].to(model.device))
            said = target
            tokens = _tokens(model, "target", target)
            if len(ids) - 1 < len(tokens):
                notes.append(f"the target is cut to the {len(ids) - 1} tokens that the model reads")
            tokens = tokens[: len(ids) - 1]
        else:
            answer = model.predict([text], tokens=generate or None)[0]
            words = answer.tokens if answer.ended else answer.tokens[:-1]
            said = joined_after(model.target_segmenter.name, [], words)
            tokens = _written(model, "target", words, [], said, 0)
    written = [] if target is not None else [WRITTEN]
    rows = [_begin(model.begin), *tokens]
    found = {}
    for kind, queries, keys in (
        ("encoder", source, source),
        ("decoder", rows, rows),
        ("cross", rows, source),
    ):
        reads = kind == "encoder"
        found[kind] = _trace(
            model,
            [one for one in seen if part_of(one.name) == kind],
            queries,
            (text,) if reads else (said,),
            key_tokens=keys if kind == "cross" else None,
            key_texts=(text,) if kind == "cross" else None,
            notes=notes if reads else [*notes, *written],
            part=kind,
        )
    return found


def part_of(name: str) -> str:
    """Which part of an encoder–decoder an attention layer of this name belongs to."""
    if name.startswith("encoder."):
        return "encoder"
    return "cross" if name.endswith(".cross") else "decoder"


@contextmanager
def _watching(model: nn.Module) -> Iterator[list[Seen]]:
    """What every attention of the model does until the context ends, in its order."""
    seen: list[Seen] = []
    with ExitStack() as stack:
        for hook in hooks(model, seen.append):
            stack.callback(hook.remove)
        yield seen


def _trace(
    model: Any,
    seen: Sequence[Seen],
    tokens: Sequence[Token],
    texts: tuple[str, ...],
    **settings: Any,
) -> Trace:
    """One layer for each attention that ran, its steps joined."""
    layers: dict[str, list[Seen]] = {}
    for one in seen:
        layers.setdefault(one.name, []).append(one)
    made = [joined(steps).record(layer, 0) for layer, steps in enumerate(layers.values())]
    if not made:
        raise OptionError(f"{type(model).__name__} has no attention, so there is nothing to trace")
    require_faithful(made)
    return Trace(made, tokens, texts=texts, model=type(model).__name__, **settings)


def _tokens(model: Any, side: str, text: str) -> list[Token]:
    """The tokens of a text as a side of the model reads it."""
    known, segmenter = model.side(side)
    found = segmenter(text)
    return [
        Token(word, start, end, 0, unknown=word not in known, id=int(known.encode([word])[0]))
        for word, start, end in zip(found.tokens, found.starts, found.ends, strict=True)
    ]


def _written(
    model: Any, side: str, words: Sequence[str], before: Sequence[str], whole: str, start: int
) -> list[Token]:
    """Tokens that the model wrote behind `before`, with their places in the `whole` text."""
    known, segmenter = model.side(side)
    again = segmenter(whole)
    if again.tokens == [*before, *words]:
        places = list(zip(again.starts, again.ends, strict=True))[len(before) :]
    else:
        moved = start - len(join(segmenter.name, before))
        places = [
            (a + moved, b + moved)
            for a, b in offsets(segmenter.name, [*before, *words])[len(before) :]
        ]
    ids = known.encode(words).tolist()
    return [Token(w, a, b, 0, id=i) for w, (a, b), i in zip(words, places, ids, strict=True)]


def _begin(number: int) -> Token:
    return Token(BEGIN, segment=None, special=True, id=number)
