"""A trace: what every layer of a model attended to, for one text, exactly and at any length.

q, k, v and a number a row are kept, O(T·d) a head; any rectangle of weights is computed on demand.
"""

import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jaxtyping import Float
from torch import Tensor

from regard.errors import DataError, OptionError, StorageError
from regard.inspection.record import AttentionRecord, Span
from regard.inspection.tokens import Token
from regard.inspection.verify import Verification, verify

if TYPE_CHECKING:
    from regard.inspection.arithmetic import Arithmetic
    from regard.inspection.atlas import Atlas, Link, Tile
    from regard.inspection.summary import Summary
    from regard.inspection.units import Units


def trace(
    model: Any,
    text: str | Sequence[str] | None = None,
    *,
    tokenizer: Any = None,
    pair: str | Sequence[str] | None = None,
    input_ids: Any = None,
    attention_mask: Any = None,
    item: int | None = None,
    target: str | None = None,
    generate: int = 0,
    part: str | None = None,
    trust_remote_code: bool = False,
) -> "Trace":
    """Run a model on a text and keep what its attention does, exactly.

    `model`: a model of regard, a folder that ``regard train`` wrote, a Hugging Face model, or a
    folder or name of one. `text`: a text, or a batch of texts, of which `item` is looked at;
    `pair`: second texts. Or `input_ids`, (T,) or (B, T), with `attention_mask`. `tokenizer`: for
    Hugging Face models that are given as objects. `target`: what an encoder–decoder's decoder
    reads. `generate`: let the model write this many tokens, greedily, and trace all steps as one
    matrix. `part`: encoder, decoder or cross; else the first, and `Trace.parts` has all.

    The model's own forward runs, bit for bit as without. A few rows of each layer are recomputed
    and compared with the model's output: `OptionError` if they disagree, never a wrong picture.
    """
    for one in (text, pair, target):
        _require_unicode(one)
    if isinstance(model, str | Path):
        model, opened = open_model(model, trust_remote_code)
        tokenizer = opened if tokenizer is None else tokenizer
    from regard.inspection.capture import hugging_face, own

    if own.is_own(model):
        asked = {"pair": pair, "input_ids": input_ids, "tokenizer": tokenizer}
        for name, value in (asked | {"attention_mask": attention_mask}).items():
            if value is not None:
                raise OptionError(f"{name}= is not for {type(model).__name__}; give it texts alone")
        return own.trace_model(model, text, item=item, target=target, generate=generate, part=part)
    if not hugging_face.is_hugging_face(model):
        raise OptionError(
            f"regard.trace takes a model of regard, a Hugging Face model, or a folder; for "
            f"{type(model).__name__}, run it under regard.watch"
        )
    return hugging_face.trace_model(
        model,
        tokenizer,
        text,
        pair=pair,
        input_ids=input_ids,
        attention_mask=attention_mask,
        item=item,
        target=target,
        generate=generate,
        part=part,
    )


def _require_unicode(text: str | Sequence[str] | None) -> None:
    """`DataError` for a text with halves of characters, as broken bytes leave them."""
    for one in [text] if isinstance(text, str) else text or ():
        try:
            one.encode()
        except UnicodeEncodeError as error:
            raise DataError(
                f"the text is not valid Unicode: character {error.start} is {one[error.start]!a}"
            ) from None


def trace_windows(
    model: Any, text: str, *, tokenizer: Any = None, overlap: float = 0.25, **settings: Any
) -> "list[Trace]":
    """Traces of a text longer than the model reads, in windows that overlap.

    Each window is a text of its own to the model: nothing attends from one to another. Windows are
    as long as the model allows, and a share `overlap` of each is also in the next.
    """
    from regard.inspection.capture import hugging_face

    if isinstance(model, str | Path):
        model, opened = open_model(model, settings.pop("trust_remote_code", False))
        tokenizer = opened if tokenizer is None else tokenizer
    if not 0 <= overlap < 1:
        raise OptionError(f"overlap is a share, at least 0 and below 1, not {overlap}")
    if not hugging_face.is_hugging_face(model):
        raise OptionError("windows are for Hugging Face models; models of regard cut their texts")
    spans = hugging_face.window_spans(model, tokenizer, text, overlap)
    found = []
    for start, end in spans:
        one = trace(model, text[start:end], tokenizer=tokenizer, **settings)
        for each in one.parts.values():
            each.notes = (*each.notes, f"window of characters {start} … {end} of {len(text)}")
        found.append(one)
    return found


def open_model(name: str | Path, trust_remote_code: bool = False) -> tuple[Any, Any]:
    """The model and tokenizer of a folder; models of regard have no tokenizer apart."""
    folder = Path(name)
    if folder.is_dir():
        config = folder / "config.json"
        if not config.is_file():
            raise StorageError(
                f"{folder} is not a model: it has no config.json; name a folder that regard train "
                "or transformers' save_pretrained wrote"
            )
        from regard.models.storage import load, read_json

        if "model_type" not in read_json(config):
            return load(folder), None
    elif not re.fullmatch(r"[\w.-]+(/[\w.-]+)?", str(name)) or folder.exists():
        raise StorageError(f"{folder} is not a folder, and no name of a model on the hub")
    from regard.inspection.capture import hugging_face

    return hugging_face.open_folder(name, trust_remote_code)


class Trace:
    """One text as one model read it.

    `records`: one `AttentionRecord` a layer. `tokens`: the rows; `key_tokens`: the columns, the
    same but for cross-attention. `texts`: what the tokens' offsets count in. `model`: a name.
    `notes`: what a reader must know, such as trimmed padding. `part`: self, or encoder, decoder
    or cross; `parts` holds the traces of all parts of the model, this one too.
    """

    def __init__(
        self,
        records: Sequence[AttentionRecord],
        tokens: Sequence[Token],
        *,
        key_tokens: Sequence[Token] | None = None,
        texts: Sequence[str] = (),
        key_texts: Sequence[str] | None = None,
        model: str = "",
        notes: Sequence[str] = (),
        part: str = "self",
    ):
        if not records:
            raise OptionError("a trace needs a layer of attention at least")
        self.records = tuple(records)
        self.tokens = tuple(tokens)
        self.key_tokens = self.tokens if key_tokens is None else tuple(key_tokens)
        self.texts = tuple(texts)
        self.key_texts = self.texts if key_texts is None else tuple(key_texts)
        self.model, self.notes, self.part = model, tuple(notes), part
        self.parts: Mapping[str, Trace] = {part: self}
        self.path: Path | None = None
        for record in self.records:
            sizes = (record.q_tokens, record.k_tokens)
            if sizes != (len(self.tokens), len(self.key_tokens)):
                raise OptionError(
                    f"{record.name} has {sizes[0]} queries and {sizes[1]} keys, but there are "
                    f"{len(self.tokens)} and {len(self.key_tokens)} tokens"
                )

    @property
    def layers(self) -> int:
        """How many layers there are."""
        return len(self.records)

    @property
    def heads(self) -> int:
        """How many heads a layer has; the most, where layers differ."""
        return max(record.heads for record in self.records)

    def record(self, layer: int) -> AttentionRecord:
        """What is kept of one layer; `OptionError` for a layer that is not there."""
        if not 0 <= layer < self.layers:
            raise OptionError(
                f"layer {layer} is asked for; {self.model or 'the model'} has layers "
                f"0 … {self.layers - 1}"
            )
        return self.records[layer]

    def weights(
        self, layer: int, head: int, rows: Span = None, cols: Span = None
    ) -> Float[Tensor, "q_rows k_cols"]:
        """How much each token of `rows` attends to each token of `cols`; all if left out."""
        return self.record(layer).weights(head, rows, cols)

    def log_weights(
        self, layer: int, head: int, rows: Span = None, cols: Span = None
    ) -> Float[Tensor, "q_rows k_cols"]:
        """Logarithms of the weights; −inf where a weight is 0."""
        return self.record(layer).log_weights(head, rows, cols)

    def scores(
        self, layer: int, head: int, rows: Span = None, cols: Span = None
    ) -> Float[Tensor, "q_rows k_cols"]:
        """What goes into the softmax: scaled, biased, capped; −inf where the mask forbids."""
        return self.record(layer).scores(head, rows, cols)

    def q(self, layer: int, head: int | None = None) -> Float[Tensor, "... q_tokens head_width"]:
        """Queries, (H, Tq, d), or of one head, (Tq, d), in the model's dtype."""
        return _of_head(self.record(layer), self.record(layer).q, head)

    def k(self, layer: int, head: int | None = None) -> Float[Tensor, "... k_tokens head_width"]:
        """Keys, (Hkv, Tk, d), or those that one head reads, (Tk, d)."""
        record = self.record(layer)
        return _of_head(record, record.k, head, grouped=True)

    def v(self, layer: int, head: int | None = None) -> Float[Tensor, "... k_tokens value_width"]:
        """Values, (Hkv, Tk, dv), or those that one head mixes, (Tk, dv)."""
        record = self.record(layer)
        return _of_head(record, record.v, head, grouped=True)

    def output(
        self, layer: int, head: int | None = None
    ) -> Float[Tensor, "... q_tokens value_width"]:
        """The model's own Σ weight·v, (H, Tq, dv), or of one head, before the map W^O."""
        record = self.record(layer)
        if record.mixed is None:
            raise OptionError(f"the output of {record.name} was not recorded")
        return _of_head(record, record.mixed, head)

    def residual(self, layer: int) -> Float[Tensor, "q_tokens width"]:
        """The hidden states that entered the layer, (Tq, D)."""
        record = self.record(layer)
        if record.residual is None:
            raise OptionError(f"what entered the layer of {record.name} was not recorded")
        return record.residual

    def verify(self, rows_per_head: int = 8, seed: int = 0) -> Verification:
        """Recompute sampled rows in float64 and compare with the model's own output."""
        return verify(self.records, rows_per_head, seed)

    def arithmetic(self, layer: int, head: int, row: int, col: int) -> "Arithmetic":
        """Every number behind one weight."""
        from regard.inspection.arithmetic import arithmetic

        return arithmetic(self.record(layer), head, row, col)

    def units(
        self, kind: str = "words", *, special: bool = True, renormalize: bool = False
    ) -> "Units":
        """The trace by words, characters or sentences; see `regard.inspection.units`."""
        from regard.inspection.units import Units

        return Units(self, kind, special=special, renormalize=renormalize)

    @cached_property
    def atlas(self) -> "Atlas":
        """Exact maps at any length; grids are kept beside the file of a saved trace."""
        from regard.inspection.atlas import Atlas

        special = {i for i, token in enumerate(self.key_tokens) if token.special}
        folder = self.path and self.path.with_name(f"{self.path.name}.grids") / self.part
        return Atlas(self.records, sinks=sorted({0, *special}), folder=folder)

    def tile(
        self,
        layer: int,
        head: int,
        pool: int,
        row: int,
        col: int,
        stat: str = "max",
        *,
        wait: bool = True,
    ) -> "Tile":
        """256×256 pixels, each pooling pool×pool weights by max, mean or sum; see `Atlas.tile`."""
        return self.atlas.tile(layer, head, pool, row, col, stat, wait=wait)

    def strongest(
        self,
        layer: int,
        head: int,
        n: int = 10,
        *,
        exclude_diagonal: bool = False,
        exclude_sinks: bool = False,
    ) -> "list[Link]":
        """The n largest weights of a head, exact; sinks are the first and the special tokens."""
        return self.atlas.strongest(
            layer, head, n, exclude_diagonal=exclude_diagonal, exclude_sinks=exclude_sinks
        )

    def summary(
        self,
        measures: Sequence[str] | None = None,
        heads: Sequence[tuple[int, int]] | None = None,
    ) -> "Summary":
        """What each head does: a table with one row a head and one column a measure."""
        from regard.inspection.summary import summarize

        return summarize(self, measures, heads)

    def rollout(
        self, rows: Span = None, layer: int | None = None
    ) -> Float[Tensor, "rows k_tokens"]:
        """How much of each token arrives at these tokens through all layers."""
        from regard.inspection.rollout import rollout

        return rollout(self, rows, layer)

    def save(self, path: str | Path) -> None:
        """Write everything to one safetensors file, which appears whole or not at all."""
        from regard.inspection.storage import save

        save(self, path)

    @staticmethod
    def load(path: str | Path) -> "Trace":
        """What `save` wrote."""
        from regard.inspection.storage import load

        return load(path)

    def __repr__(self) -> str:
        size = f"{len(self.tokens)}"
        if self.key_tokens is not self.tokens:
            size += f" × {len(self.key_tokens)}"
        return (
            f"Trace({self.model or 'model'}, {self.part}: {self.layers} layers, "
            f"{self.heads} heads, {size} tokens)"
        )


def _of_head(
    record: AttentionRecord, values: Tensor, head: int | None, grouped: bool = False
) -> Tensor:
    if head is None:
        return values
    if not 0 <= head < record.heads:
        raise OptionError(
            f"head {head} is asked for; {record.name} has heads 0 … {record.heads - 1}"
        )
    return values[record.kv_head(head) if grouped else head]
