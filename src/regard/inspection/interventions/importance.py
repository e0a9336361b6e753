"""How much a data set's loss rises when each head is switched off.

Michel, Levy, Neubig, "Are Sixteen Heads Really Better than One?" (2019), section 3.2.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from regard.errors import OptionError
from regard.inspection.interventions import answers
from regard.inspection.interventions.change import loss
from regard.inspection.interventions.editing import edit, number_of
from regard.inspection.interventions.edits import Edit, Place
from regard.inspection.summary import Summary


def head_importance(
    model: nn.Module, data: Sequence[Any], how: str | Edit = "zero", *, part: str | None = None
) -> Summary:
    """A table with one row a head: the loss without it − with it, and the share of answers changed.

    `data`: for a model of regard, (text, label), (tokens, tags) or (text, what to write) pairs, or
    texts for a language model; for a Hugging Face model, dicts of inputs with their `labels`.
    `how`: the edit that switches a head off. Every head costs one run over the data.
    """
    if not len(data):
        raise OptionError("head_importance needs data: (text, label) pairs or dicts of inputs")
    count = _Count()
    with edit(model, {"all": count}, part=part):
        whole, before = _run(model, data)
    rows, values = [], []
    for layer, heads in sorted(count.heads.items()):
        for head in range(heads):
            with edit(model, {(layer, head): how}, part=part):
                without, other = _run(model, data)
            changed = float((before != other).double().mean())
            rows.append((layer, head))
            values.append([without - whole, changed])
    return Summary(rows, ["loss_increase", "answers_changed"], values)


class _Count(Edit):
    """Changes nothing; counts the heads of each layer."""

    def __init__(self) -> None:
        self.heads: dict[int, int] = {}

    def mixed(self, mixed: Tensor, place: Place) -> Tensor:
        """As it comes."""
        self.heads[place.layer] = mixed.shape[1]
        return mixed


@torch.no_grad()
def _run(model: Any, data: Sequence[Any]) -> tuple[float, Tensor]:
    """The mean loss over all examples, and the answers."""
    if not isinstance(data[0], Mapping):
        given, right = answers.examples(model, data)
        logits, names = answers.logits(model, given), answers.labels(model) or ()
        target = [number_of(names, one) if isinstance(one, str) else one for one in right]
        return loss(logits, torch.as_tensor(target)), logits.argmax(-1)
    losses, sizes, best = [], [], []
    for inputs in data:
        if "labels" not in inputs:
            raise OptionError(f"an example has no labels, only {', '.join(inputs)}")
        logits = model(**{k: v for k, v in inputs.items() if k != "labels"}).logits
        losses.append(loss(logits, inputs["labels"]))
        sizes.append(len(inputs["labels"]))
        best.append(logits.argmax(-1).flatten())
    weights = torch.tensor(sizes, dtype=torch.float64)
    mean = float((torch.tensor(losses, dtype=torch.float64) * weights).sum() / weights.sum())
    return mean, torch.cat(best)
