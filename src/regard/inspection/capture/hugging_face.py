"""Traces of Hugging Face models: text to ids, the model's own run, records to a trace."""

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from regard.errors import DataError, OptionError, StorageError
from regard.inspection.capture._captured import Captured
from regard.inspection.capture.assemble import records
from regard.inspection.capture.interface import STAND_INS, require_transformers, watching
from regard.inspection.tokens import Token, from_encoding, from_ids
from regard.inspection.tracing import Trace
from regard.inspection.verify import require_faithful

REASONS = {
    "deberta": "its scores have content-to-position terms that q·k does not hold",
    "deberta-v2": "its scores have content-to-position terms that q·k does not hold",
    "xlnet": "its scores have a term of relative positions that q·k does not hold",
    "transfo-xl": "its scores have a term of relative positions that q·k does not hold",
    "funnel": "its scores have terms of relative positions, and its layers pool tokens",
    "longformer": "it attends in bands of its own making",
    "led": "it attends in bands of its own making",
    "big_bird": "it attends in blocks of its own making",
    "reformer": "it attends within hash buckets",
    "falcon": "its attention calls the kernel itself",
}
"""Families that compute attention in a way that q, k, a bias and a mask do not describe."""

CODE_REFUSED = (
    "{where} brings Python code of its own, which would be run on this machine; "
    "if you trust it, pass {how}"
)


@dataclass
class Given:
    """What the model gets, and the tokens of the text that is looked at."""

    inputs: dict[str, Tensor]
    item: int
    tokens: list[Token]
    texts: tuple[str, ...]
    keep: Tensor
    notes: list[str]


def is_hugging_face(model: Any) -> bool:
    """Whether a model is one of transformers'."""
    return any(cls.__module__.startswith("transformers.") for cls in type(model).__mro__)


def open_folder(name: str | Path, trust_remote_code: bool = False) -> tuple[nn.Module, Any]:
    """Model and tokenizer of a folder, or of a name on the hub.

    The model keeps the dtype it was saved in. `StorageError` if there is no model.
    """
    require_transformers()
    import transformers

    _refuse_remote_code(name, trust_remote_code)
    with _quietly():
        return _open(transformers, name, trust_remote_code)


@contextmanager
def _quietly() -> Iterator[None]:
    """Without the progress bars and remarks of transformers."""
    from transformers.utils import logging

    bars, verbosity = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()


def _open(transformers: Any, name: str | Path, trust_remote_code: bool) -> tuple[nn.Module, Any]:
    try:
        config = transformers.AutoConfig.from_pretrained(name, trust_remote_code=trust_remote_code)
        named = (getattr(config, "architectures", None) or [None])[0]
        loader = getattr(transformers, named, None) if named else None
        loader = loader or transformers.AutoModel
        trusted = {"trust_remote_code": True} if trust_remote_code else {}
        model = loader.from_pretrained(name, **trusted)
        tokenizer = transformers.AutoTokenizer.from_pretrained(name, **trusted)
    except (OSError, ValueError, KeyError) as error:
        first = str(error).strip().splitlines()[0]
        raise StorageError(f"cannot load a model from {str(name)!r}: {first}") from None
    return model.eval(), tokenizer


def _refuse_remote_code(name: str | Path, allowed: bool) -> None:
    from transformers import CONFIG_MAPPING

    config = Path(name) / "config.json"
    if allowed or not config.is_file():
        return
    try:
        found = json.loads(config.read_bytes())
    except ValueError as error:
        raise DataError(f"{config} is not JSON: {error}") from None
    if "auto_map" in found and found.get("model_type") not in CONFIG_MAPPING:
        how = "trust_remote_code=True (--trust-remote-code)"
        raise OptionError(CODE_REFUSED.format(where=name, how=how))


def longest(model: Any) -> int | None:
    """How many tokens the model can read, or None where nothing limits it."""
    for name, module in model.named_modules():
        if isinstance(module, nn.Embedding) and re.search(
            r"(^|\.)(position_embeddings|wpe|embed_positions)$", name
        ):
            padding = module.padding_idx
            taken = getattr(module, "offset", 0 if padding is None else padding + 1)
            return module.num_embeddings - taken
    limit = getattr(model.config, "max_position_embeddings", None)
    return limit if limit is not None and limit > 0 else None


def prepare(
    model: Any,
    tokenizer: Any,
    text: str | Sequence[str] | None,
    *,
    pair: str | Sequence[str] | None = None,
    input_ids: Any = None,
    attention_mask: Any = None,
    item: int | None = None,
    left: bool = False,
) -> Given:
    """Ids, mask and tokens for one text, a batch of texts, or ids; `left`: pad on the left."""
    if (text is None) == (input_ids is None):
        raise OptionError("give either a text or input_ids")
    if input_ids is not None:
        return _from_ids(model, tokenizer, input_ids, attention_mask, item)
    if tokenizer is None:
        raise OptionError("a text needs its tokenizer: pass tokenizer=…, or input_ids=…")
    texts = [text] if isinstance(text, str) else list(text or ())
    pairs = [pair] if isinstance(pair, str) else None if pair is None else list(pair)
    if pairs is not None and len(pairs) != len(texts):
        raise OptionError(f"there are {len(texts)} texts but {len(pairs)} second texts")
    item = choose(item, len(texts))
    for number, one in enumerate(texts):
        if not one.strip():
            raise DataError(
                f"text {number} of {len(texts)} is empty" if item else "the text is empty"
            )
    fast = bool(getattr(tokenizer, "is_fast", False))
    if len(texts) > 1 and tokenizer.pad_token is None:
        raise OptionError("this tokenizer has no padding token, so texts go in one at a time")
    encoding = tokenizer(
        texts,
        pairs,
        padding=len(texts) > 1,
        return_offsets_mapping=fast,
        return_tensors="pt",
        truncation=False,
        **({"padding_side": "left"} if left else {}),
        verbose=False,
    )
    mask = encoding.get("attention_mask", torch.ones_like(encoding["input_ids"]))
    _check_length(model, int(mask.sum(1).max()))
    both = (texts[item],) if pairs is None else (texts[item], pairs[item])
    if fast:
        tokens = from_encoding(tokenizer, encoding, item, both)
    else:
        joined, tokens = from_ids(tokenizer, encoding["input_ids"][item].tolist())
        both = (joined,)
    inputs = {k: v for k, v in encoding.items() if k != "offset_mapping"}
    return _trim(inputs, mask, item, tokens, both)


def _from_ids(
    model: Any, tokenizer: Any, input_ids: Any, attention_mask: Any, item: int | None
) -> Given:
    ids = torch.as_tensor(input_ids)
    ids = ids[None] if ids.ndim == 1 else ids
    if ids.ndim != 2 or ids.is_floating_point() or ids.numel() == 0:
        raise OptionError(
            f"input_ids are integers (tokens,) or (batch, tokens), at least one; "
            f"got {ids.dtype} of shape {tuple(ids.shape)}"
        )
    size = model.get_input_embeddings().num_embeddings
    if int(ids.min()) < 0 or int(ids.max()) >= size:
        raise OptionError(
            f"input_ids reach from {int(ids.min())} to {int(ids.max())}, but the model has "
            f"{size} tokens, 0 … {size - 1}"
        )
    item = choose(item, len(ids))
    mask = torch.ones_like(ids) if attention_mask is None else torch.as_tensor(attention_mask)
    mask = mask[None] if mask.ndim == 1 else mask
    if mask.shape != ids.shape:
        raise OptionError(
            f"attention_mask has shape {tuple(mask.shape)}, input_ids {tuple(ids.shape)}; "
            "they must agree"
        )
    _check_length(model, int((mask != 0).sum(1).max()))
    text, tokens = from_ids(tokenizer, ids[item].tolist())
    return _trim({"input_ids": ids, "attention_mask": mask}, mask, item, tokens, (text,))


def choose(item: int | None, size: int) -> int:
    """Which text of a batch: the only one, or the one that is said."""
    if item is None and size > 1:
        raise OptionError(f"there are {size} texts: say which one to look at, item=0 … {size - 1}")
    if not 0 <= (item or 0) < size:
        raise OptionError(f"item {item} is asked for; the batch has items 0 … {size - 1}")
    return item or 0


def _trim(
    inputs: dict[str, Tensor],
    mask: Tensor,
    item: int,
    tokens: list[Token],
    texts: tuple[str, ...],
) -> Given:
    keep = (mask[item] != 0).nonzero()[:, 0]
    notes = []
    if (gone := mask.shape[1] - len(keep)) > 0:
        notes.append(f"{gone} padding tokens are left out")
    return Given(inputs, item, [tokens[i] for i in keep.tolist()], texts, keep, notes)


def _check_length(model: Any, tokens: int) -> None:
    limit = longest(model)
    if limit is not None and tokens > limit:
        raise OptionError(
            f"the text has {tokens} tokens, but the model reads at most {limit}; "
            "shorten it, or ask for windows (trace_windows, --windows)"
        )


def window_spans(model: Any, tokenizer: Any, text: str, overlap: float) -> list[tuple[int, int]]:
    """Where to cut a text, in characters, so that each window is no longer than the model reads."""
    if tokenizer is None or not getattr(tokenizer, "is_fast", False):
        raise OptionError("windows need a tokenizer that gives character offsets: pass tokenizer=…")
    limit = longest(model)
    bare = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
    offsets = bare["offset_mapping"]
    if not offsets:
        raise DataError("the text is empty")
    if limit is None:
        return [(0, len(text))]
    # A cut may change how its edges are split: room for that beside the special tokens.
    room = limit - tokenizer.num_special_tokens_to_add() - 2
    step = max(1, int(room * (1 - overlap)))
    starts = [0]
    while starts[-1] + room < len(offsets):
        starts.append(starts[-1] + step)
    return [
        (int(offsets[at][0]), int(offsets[min(at + room, len(offsets)) - 1][1])) for at in starts
    ]


def trace_model(
    model: Any,
    tokenizer: Any,
    text: str | Sequence[str] | None,
    *,
    pair: str | Sequence[str] | None = None,
    input_ids: Any = None,
    attention_mask: Any = None,
    item: int | None = None,
    target: str | None = None,
    generate: int = 0,
    part: str | None = None,
) -> Trace:
    """Run the model on a text under watch, and put the trace together."""
    encoder_decoder = bool(getattr(model.config, "is_encoder_decoder", False))
    given = prepare(
        model,
        tokenizer,
        text,
        pair=pair,
        input_ids=input_ids,
        attention_mask=attention_mask,
        item=item,
        left=bool(generate) and not encoder_decoder,
    )
    if target is not None and not encoder_decoder:
        raise OptionError("target= is for encoder–decoder models; this model has no decoder apart")
    if generate < 0:
        raise OptionError(f"generate= is a number of tokens, not {generate}")
    if target is not None and generate:
        raise OptionError("give either target= or generate=, not both")
    device = next(model.parameters()).device
    inputs = {name: value.to(device) for name, value in given.inputs.items()}
    training = model.training
    model.eval()
    try:
        with torch.no_grad(), watching(model) as watch:
            if generate:
                ids = _generate(model, tokenizer, inputs, generate)
            else:
                ids = _run(model, tokenizer, inputs, target, encoder_decoder)
    finally:
        model.train(training)
    _require_captured(model, watch.calls)
    return _traces(model, tokenizer, given, watch.calls, ids, encoder_decoder, bool(generate), part)


def _run(
    model: Any, tokenizer: Any, inputs: dict[str, Tensor], target: str | None, pairs: bool
) -> Tensor | None:
    """One forward pass; the decoder's ids where there is a decoder apart."""
    import inspect

    takes = inspect.signature(model.forward).parameters
    settings = {"use_cache": False} if "use_cache" in takes else {}
    inputs = {name: value for name, value in inputs.items() if name in takes}
    if not pairs or "decoder_input_ids" not in takes:
        model(**inputs, **settings)
        return None
    start = model.config.decoder_start_token_id
    start = 0 if start is None else start
    ids = torch.full((len(inputs["input_ids"]), 1), start, device=inputs["input_ids"].device)
    if target is not None:
        encoded = tokenizer(text_target=target, return_tensors="pt")["input_ids"].to(ids.device)
        ids = torch.cat([ids, encoded.expand(len(ids), -1)], 1)
    model(**inputs, decoder_input_ids=ids, **settings)
    return ids


def _generate(model: Any, tokenizer: Any, inputs: dict[str, Tensor], generate: int) -> Tensor:
    """Greedy generation; all ids that were read or written."""
    if not getattr(model, "can_generate", lambda: False)():
        raise OptionError(f"{type(model).__name__} does not generate; trace it without generate=")
    padding = getattr(tokenizer, "pad_token_id", None)
    if padding is None:
        padding = model.config.eos_token_id if model.config.eos_token_id is not None else 0
    inputs = {k: v for k, v in inputs.items() if k in ("input_ids", "attention_mask")}
    return model.generate(
        **inputs, max_new_tokens=generate, do_sample=False, num_beams=1, pad_token_id=padding
    )


def _require_captured(model: Any, calls: list[Captured]) -> None:
    if calls:
        return
    family = getattr(model.config, "model_type", type(model).__name__)
    attends = sorted(
        {type(m).__name__ for m in model.modules() if "attention" in type(m).__name__.lower()}
    )
    if not attends:
        raise OptionError(f"{type(model).__name__} has no attention, so there is nothing to trace")
    raise OptionError(
        f"attention of {family!r} cannot be traced: {reason(model.config)} ({', '.join(attends)})"
    )


def reason(config: Any) -> str:
    """Why the attention of a model could not be seen."""
    known = REASONS.get(getattr(config, "model_type", ""))
    runs = getattr(config, "_attn_implementation", None)
    if known is None and runs not in (None, *STAND_INS):
        return (
            f"it runs with attn_implementation={runs!r}, which is not read here; load the model "
            "with attn_implementation='sdpa'"
        )
    return known or "its attention does not go through transformers' interface"


def _traces(
    model: Any,
    tokenizer: Any,
    given: Given,
    calls: list[Captured],
    ids: Tensor | None,
    encoder_decoder: bool,
    generated: bool,
    part: str | None,
) -> Trace:
    device = calls[0].q.device
    keep = given.keep.to(device)
    tokens, texts, notes = given.tokens, given.texts, list(given.notes)
    name = getattr(model.config, "name_or_path", "") or type(model).__name__
    name = Path(name).name if Path(name).is_dir() else name
    written: list[Token] = []
    written_text: tuple[str, ...] = ()
    written_keep: Tensor | None = None
    if ids is not None:
        read = ids[given.item] if not generated else ids[given.item, :-1]
        if generated:
            notes.append("the last generated token was written, not read, so it has no row")
        stop = _end(read, model, given.inputs["input_ids"].shape[1], encoder_decoder, generated)
        if encoder_decoder:
            text, written = from_ids(tokenizer, read[:stop].tolist())
            written_text = (text,)
            written_keep = torch.arange(stop, device=device)
        else:
            start = given.inputs["input_ids"].shape[1]
            keep = torch.cat([keep, torch.arange(start, stop, device=device)])
            text, tokens = from_ids(tokenizer, read[keep].tolist())
            texts = (text,)

    def trace_of(kind: str) -> Trace:
        of_kind = [call for call in calls if call.kind == kind]
        rows = written_keep if kind in ("decoder", "cross") else keep
        cols = written_keep if kind == "decoder" else keep
        made = records(of_kind, given.item, rows, cols)
        require_faithful(made)
        layers = getattr(model.config, "num_hidden_layers", None)
        if kind == "self" and layers is not None and len(made) < layers:
            notes.append(f"{len(made)} of the model's {layers} layers were seen to attend")
        decoded = kind in ("decoder", "cross")
        return Trace(
            made,
            written if decoded else tokens,
            key_tokens=tokens if kind == "cross" else None,
            texts=written_text if decoded else texts,
            key_texts=texts if kind == "cross" else None,
            model=name,
            notes=notes,
            part=kind,
        )

    kinds = list(dict.fromkeys(call.kind for call in calls))
    parts = {kind: trace_of(kind) for kind in kinds}
    for one in parts.values():
        one.parts = parts
    return choose_part(parts, part)


def choose_part(parts: dict[str, Trace], part: str | None) -> Trace:
    """The part that is asked for, or the first; `OptionError` if there is none of that name."""
    if part is None:
        return next(iter(parts.values()))
    if part not in parts:
        raise OptionError(f"part {part!r} is asked for; the model has {', '.join(parts)}")
    return parts[part]


def _end(read: Tensor, model: Any, prompt: int, encoder_decoder: bool, generated: bool) -> int:
    """Where the text of one item of a generated batch ends: after its own end token."""
    if not generated:
        return len(read)
    ends = getattr(model.generation_config, "eos_token_id", None)
    ends = [] if ends is None else ends if isinstance(ends, list) else [ends]
    start = 1 if encoder_decoder else prompt
    for i in range(start, len(read)):
        if int(read[i]) in ends:
            return i + 1
    return len(read)
