"""Relevance: what each token of a text did for a classifier's answer, by gradient and attention.

Chefer, Gur, Wolf, "Generic Attention-model Explainability for Interpreting Bi-Modal and
Encoder-Decoder Transformers" (2021), section 3.1: with A a head's weights and ∇A the gradient of
the answer's logit, a layer adds ``Ā = mean over heads of max(∇A ⊙ A, 0)``, and relevance is
``(I + Ā_L) … (I + Ā_1)``, read from where the answer is read. Since a head's output is A v, its
gradient G gives ``∇A = G vᵀ``, so that rows of ∇A come as rows of A do, block by block.
"""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.errors import OptionError
from regard.inspection.atlas import head_of
from regard.inspection.capture import own
from regard.inspection.interventions.editing import edit, number_of
from regard.inspection.interventions.edits import Edit, Place
from regard.inspection.record import AttentionRecord
from regard.inspection.tokens import Token
from regard.inspection.tracing import Trace, trace


@dataclass(frozen=True, eq=False)
class Relevance:
    """`values`: how much each of `tokens` speaks for `label`; 0 and more."""

    tokens: tuple[Token, ...]
    values: Float[Tensor, " tokens"]
    label: str | int

    def top(self, n: int = 10) -> list[tuple[str, float]]:
        """The n tokens that matter most."""
        order = self.values.argsort(descending=True, stable=True)[:n].tolist()
        return [(self.tokens[i].label, float(self.values[i])) for i in order]


def relevance(
    model: nn.Module, text: str, label: str | int | None = None, *, tokenizer: Any = None
) -> Relevance:
    """What speaks for `label`, the model's own answer if left out.

    For regard's classifiers, whose answer is read from the mean over the tokens, and for Hugging
    Face sequence classifiers with their tokenizer, whose answer is read from the first token, or
    the last of a causal model.
    """
    if own.is_own(model) and not hasattr(model, "labels"):
        raise OptionError(f"relevance is for classifiers, and {type(model).__name__} is none")
    traced = trace(model, text, tokenizer=tokenizer)
    gradients = _Gradients()
    was_training = model.training
    model.eval()
    try:
        with torch.enable_grad(), edit(model, {"all": gradients}):
            logits = _logits(model, text, tokenizer)
            chosen = _choose(model, logits, label)
            found = torch.autograd.grad(logits[0, chosen], gradients.kept)
    finally:
        model.train(was_training)
    flow = _read_from(model, traced)
    with torch.no_grad():
        for record, gradient in zip(reversed(traced.records), reversed(found), strict=True):
            flow = flow + _through(record, gradient[0].float(), flow)
    names = getattr(model, "labels", None)
    return Relevance(traced.tokens, flow, names[chosen] if names else chosen)


class _Gradients(Edit):
    """Changes nothing; keeps each layer's mixed values, to ask for their gradients."""

    def __init__(self) -> None:
        self.kept: list[Tensor] = []

    def mixed(self, mixed: Tensor, place: Place) -> Tensor:
        """As it comes, part of a graph even where no parameter wants a gradient."""
        mixed = mixed if mixed.requires_grad else mixed.detach().requires_grad_()
        self.kept.append(mixed)
        return mixed


def _logits(model: Any, text: str, tokenizer: Any) -> Tensor:
    if tokenizer is None:
        logits = model(*model.collate(model.encode([text])))
    else:
        inputs = tokenizer(text, return_tensors="pt").to(next(model.parameters()).device)
        logits = getattr(model(**inputs), "logits", None)
    if logits is None or logits.ndim != 2:
        raise OptionError(
            f"{type(model).__name__} gives no logits (texts, labels): relevance is for classifiers"
        )
    return logits


def _choose(model: Any, logits: Tensor, label: str | int | None) -> int:
    if label is None:
        return int(logits[0].argmax())
    if isinstance(label, str):
        return number_of(getattr(model, "labels", ()), label)
    if not 0 <= label < logits.shape[1]:
        raise OptionError(f"label {label} is asked for; there are 0 … {logits.shape[1] - 1}")
    return label


def _read_from(model: Any, traced: Trace) -> Tensor:
    """Where the answer is read: how much each token counts in it."""
    tokens = len(traced.tokens)
    flow = torch.zeros(tokens, device=traced.records[0].q.device)
    if hasattr(model, "labels"):
        return flow + 1 / tokens
    flow[-1 if traced.records[-1].is_causal else 0] = 1
    return flow


def _through(record: AttentionRecord, gradient: Tensor, flow: Tensor) -> Tensor:
    """``flow Ā`` of one layer; `gradient`: (H, Tq, dv)."""
    out = torch.zeros_like(flow)
    for number in range(record.heads):
        head, value = head_of(record, number), record.v[record.kv_head(number)].float()
        for start in range(0, head.queries, head.block[0]):
            rows = slice(start, min(start + head.block[0], head.queries))
            for cols in head.chunks(rows):
                slope = gradient[number, rows] @ value[cols].T
                added = (slope * head.weights(rows, cols)).clamp_(min=0)
                out[cols] += flow[rows] @ added / record.heads
    return out
