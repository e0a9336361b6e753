"""The answer of a model before and after an edit."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import cross_entropy


@dataclass(frozen=True, eq=False)
class Change:
    """Logits before and after: (texts, labels), or (texts, tokens, vocabulary).

    `labels`: the names of the last axis, where there are any. `target`: the right answers.
    """

    before: Float[Tensor, "texts *tokens classes"]
    after: Float[Tensor, "texts *tokens classes"]
    labels: tuple[str, ...] | None = None
    target: Tensor | None = None

    @property
    def difference(self) -> Float[Tensor, "texts *tokens classes"]:
        """Logits after − before."""
        return self.after - self.before

    @property
    def answers_before(self) -> list:
        """The most probable label of each text (a language model: the next token of its end)."""
        return self._answers(self.before)

    @property
    def answers_after(self) -> list:
        """As `answers_before`, after the edit."""
        return self._answers(self.after)

    @property
    def probabilities(self) -> Float[Tensor, "texts *tokens classes"]:
        """Probabilities after − before."""
        return self.after.softmax(-1) - self.before.softmax(-1)

    @property
    def loss(self) -> float | None:
        """Mean cross-entropy of the target after − before, in nats; None without a target."""
        if self.target is None:
            return None
        return loss(self.after, self.target) - loss(self.before, self.target)

    def _answers(self, logits: Tensor) -> list:
        best = (logits if logits.ndim == 2 else logits[:, -1]).argmax(-1).tolist()
        return best if self.labels is None else [self.labels[i] for i in best]

    def __str__(self) -> str:
        lines = [
            f"{before} → {after}" if before != after else f"{after}"
            for before, after in zip(self.answers_before, self.answers_after, strict=True)
        ]
        largest = f"largest change of a probability {float(self.probabilities.abs().max()):.3f}"
        change = "" if self.loss is None else f", of the loss {self.loss:+.3f}"
        return "; ".join(lines) + f" ({largest}{change})"


def loss(logits: Tensor, target: Tensor | Sequence[int]) -> float:
    """Mean cross-entropy in nats; of (texts, tokens, vocabulary), each token's from those before.

    A target of −100 does not count.
    """
    target = torch.as_tensor(target, device=logits.device)
    if logits.ndim == 3:
        logits, target = logits[:, :-1].flatten(0, 1), target[:, 1:].flatten()
    return float(cross_entropy(logits.float(), target))
