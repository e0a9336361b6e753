"""Patch: a head's output, or its weights, come from another text.

Vig et al., "Investigating Gender Bias in Language Models Using Causal Mediation Analysis" (2020),
section 3; called activation patching since.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from regard.errors import OptionError, ShapeError
from regard.inspection.interventions.edits._edit import Edit, Place
from regard.inspection.tracing import Trace


class Patch(Edit):
    """What the same layer and head gave for the text of `trace`.

    `what`: "output" (Σ weight·v) or "weights". `tokens`: the rows to patch, all if left out.
    """

    def __init__(self, trace: Trace, what: str = "output", tokens: Sequence[int] | None = None):
        if what not in ("output", "weights"):
            raise OptionError(f"a patch is of 'output' or 'weights', not {what!r}")
        self.trace, self.what, self.tokens = trace, what, tokens

    def changes(self, stage: str) -> bool:
        """The one stage that `what` names."""
        return stage == {"output": "mixed", "weights": "weights"}[self.what]

    def weights(self, weights: Tensor, place: Place) -> Tensor:
        """Weights of the other text."""
        record = self.trace.record(place.layer)
        heads = range(record.heads) if place.head is None else [place.head]
        return self._put(weights, torch.stack([record.weights(head) for head in heads]), place)

    def mixed(self, mixed: Tensor, place: Place) -> Tensor:
        """Outputs of the other text."""
        other = self.trace.output(place.layer)
        return self._put(mixed, other if place.head is None else other[[place.head]], place)

    def _put(self, here: Tensor, other: Tensor, place: Place) -> Tensor:
        if here.shape[1:] != other.shape:
            raise ShapeError(
                f"layer {place.layer}: the {self.what} here is {tuple(here.shape[1:])}, in the "
                f"other text {tuple(other.shape)}; both texts need the same number of tokens"
            )
        other = other.to(here).expand_as(here)
        if self.tokens is None:
            return other.clone()
        return here.index_copy(2, index := self._rows(here), other.index_select(2, index))

    def _rows(self, here: Tensor) -> Tensor:
        assert self.tokens is not None
        for token in self.tokens:
            if not 0 <= token < here.shape[2]:
                raise OptionError(
                    f"token {token} is to be patched; there are 0 … {here.shape[2] - 1}"
                )
        return torch.tensor(list(self.tokens), device=here.device)
