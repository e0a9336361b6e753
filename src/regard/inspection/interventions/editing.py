"""`edit`: a model with heads switched off, weights replaced, activations patched, for a while."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from regard.attention import Call
from regard.errors import OptionError, ShapeError
from regard.inspection.capture import hugging_face, own
from regard.inspection.interventions import answers
from regard.inspection.interventions import edits as family
from regard.inspection.interventions.change import Change
from regard.inspection.interventions.edits import Edit, Place
from regard.inspection.interventions.edits.given_weights import GivenWeights
from regard.inspection.interventions.seats import is_encoder_decoder, seated

Where = tuple[int, int | None] | int | str
"""(layer, head), a layer with all its heads, or "all"."""


class Editing:
    """A model under edit; what `edit` gives."""

    def __init__(self, model: nn.Module, edits: Mapping[Where, Any], tokenizer: Any = None):
        self.model, self.tokenizer = model, tokenizer
        self.edits = [
            (*_place(where), _edit_of(one))
            for where, some in edits.items()
            for one in (some if isinstance(some, list) else [some])
        ]
        self.active = True
        self._ran: dict[int, int] = {}
        self._done: set[int] = set()

    def change(self, given: Any, target: Any = None) -> Change:
        """The model's answer without and with the edits.

        `given`: a text or texts, for regard's models and where `edit` has a tokenizer; a dict of
        inputs for a Hugging Face model, or of texts and targets for an encoder–decoder of regard;
        or a function that returns logits. `target`: the right labels (names, or numbers), or ids of
        tokens, to compare the loss too; what regard's models write is known from the texts.
        """
        run = _runner(self.model, given, self.tokenizer)
        if target is None:
            target = answers.written(self.model, given)
        with torch.no_grad():
            self.active = False
            try:
                before = run()
            finally:
                self.active = True
            after = run()
        labels = answers.labels(self.model)
        if target is not None:
            names = [target] if isinstance(target, str) else target
            if labels is not None and not isinstance(names, Tensor) and isinstance(names[0], str):
                names = [number_of(labels, name) for name in names]
            target = torch.as_tensor(names)
        return Change(before, after, labels, target)

    def wants(self, stage: str, layer: int) -> bool:
        """Whether some edit changes this stage of this layer."""
        return self.active and any(
            where in (None, layer) and one.changes(stage) for where, _, one in self.edits
        )

    def apply(self, stage: str, values: Tensor, layer: int, call: Call) -> Tensor:
        """What the edits make of scores, weights or mixed values, (B, H, …)."""
        if not self.active:
            return values
        self._ran[layer] = heads = values.shape[1]
        for i, (where, head, one) in enumerate(self.edits):
            if where not in (None, layer):
                continue
            self._done.add(i)
            if not one.changes(stage):
                continue
            if head is None:
                values = getattr(one, stage)(values, Place(layer, None, call))
                continue
            if not 0 <= head < heads:
                raise OptionError(
                    f"head {head} of layer {layer} is to be edited; it has heads 0 … {heads - 1}"
                )
            part = slice(head, head + 1)
            edited = getattr(one, stage)(values[:, part], Place(layer, head, call))
            values = torch.cat([values[:, :head], edited, values[:, head + 1 :]], 1)
        return values

    def check(self, ran: bool) -> None:
        """`OptionError` if the model ran and an edit found no layer to be applied to."""
        for i, (layer, _, _) in enumerate(self.edits):
            if ran and i not in self._done:
                if self._ran:
                    raise OptionError(
                        f"layer {layer} is to be edited, but the model ran layers 0 … "
                        f"{max(self._ran)}"
                    )
                raise OptionError(f"no edit reached {type(self.model).__name__}: {self._why()}")

    def _why(self) -> str:
        """Why no attention of the model came by."""
        config = getattr(self.model, "config", None)
        if config is None:
            return "no attention ran"
        return hugging_face.reason(config)


@contextmanager
def edit(
    model: nn.Module,
    edits: Mapping[Where, Any],
    *,
    tokenizer: Any = None,
    part: str | None = None,
) -> Iterator[Editing]:
    """The model, edited until the context ends; then as before, also after an exception.

    `edits`: from (layer, head), layer, or "all", to an edit or a list of them: a name such as
    "zero", "mean", "uniform" or "previous_token", an object of `interventions.edits`, or a matrix
    of weights. `part`: "encoder", "decoder" or "cross" of an encoder–decoder. `OptionError` for
    what is not there, also when the context ends and an edit was for a layer that did not run.
    """
    kinds = ("encoder", "decoder", "cross")
    pairs = is_encoder_decoder(model)
    if pairs != (part in kinds) or (part not in (None, *kinds)):
        raise OptionError(
            f"part={part!r}: an encoder–decoder needs part='encoder', 'decoder' or 'cross', other "
            "models have no parts"
        )
    editing = Editing(model, edits, tokenizer)
    ran: list[bool] = []
    noticed = model.register_forward_hook(lambda *_: ran.append(True))
    try:
        with seated(model, editing.apply, editing.wants, part or "self"):
            yield editing
    finally:
        noticed.remove()
    editing.check(bool(ran))


def _place(where: Where) -> tuple[int | None, int | None]:
    if where == "all":
        return None, None
    layer, head = where if isinstance(where, tuple) else (where, None)
    if not isinstance(layer, int) or layer < 0:
        raise OptionError(f"an edit is for (layer, head), a layer, or 'all'; not {where!r}")
    return layer, head


def _edit_of(one: Any) -> Edit:
    if isinstance(one, Edit):
        return one
    if isinstance(one, str):
        return family.create(one)
    if isinstance(one, Tensor):
        return GivenWeights(one)
    raise OptionError(
        f"an edit is a name ({', '.join(family.family.names())}), an object of these, or a matrix "
        f"of weights; not {type(one).__name__}"
    )


def _runner(model: Any, given: Any, tokenizer: Any) -> Callable[[], Tensor]:
    if callable(given) and not isinstance(given, Mapping):
        return lambda: _logits(given())
    texts = [given] if isinstance(given, str) else given
    if isinstance(texts, Sequence) and texts and all(isinstance(t, str) for t in texts):
        if tokenizer is not None:
            inputs = tokenizer(list(texts), return_tensors="pt", padding=len(texts) > 1)
            return lambda: _logits(model(**inputs.to(next(model.parameters()).device)))
        if own.is_own(model):
            return lambda: answers.logits(model, {"texts": list(texts)})
        raise OptionError("texts need a tokenizer: edit(model, edits, tokenizer=…)")
    if isinstance(given, Mapping):
        if own.is_own(model):
            return lambda: answers.logits(model, given)
        return lambda: _logits(model(**given))
    raise OptionError(
        "change takes texts, a dict of inputs or a function that returns logits, "
        f"not {type(given).__name__}"
    )


def _logits(answer: Any) -> Tensor:
    logits = getattr(answer, "logits", answer)
    if not isinstance(logits, Tensor) or logits.ndim not in (2, 3):
        shape = tuple(logits.shape) if isinstance(logits, Tensor) else type(answer).__name__
        raise ShapeError(
            "the answer must be logits, (texts, labels) or (texts, tokens, vocabulary); "
            f"got {shape}"
        )
    return logits.detach().float().clone()


def number_of(labels: Sequence[str], name: str) -> int:
    """The place of a label; `OptionError` if the model has none of that name."""
    if name not in labels:
        raise OptionError(f"label {name!r} is not of the model's: {', '.join(labels)}")
    return list(labels).index(name)
