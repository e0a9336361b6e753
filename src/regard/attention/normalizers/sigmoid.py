"""Sigmoid: ``σ(s − log n)`` over n keys, each key on its own.

Ramapuram et al., "Theory, Analysis, and Best Practices for Sigmoid Self-Attention" (2024),
section 3: the offset −log n lets a row of small scores sum to about 1.
"""

import math

from torch import Tensor

from regard.attention.normalizers._normalizer import Normalizer, allowed_count, widen


class Sigmoid(Normalizer):
    """Weights between 0 and 1, each by its own score; n counts the keys that the row may attend to.

    `by_length=False` leaves the offset out.

    >>> import torch
    >>> Sigmoid()(torch.zeros(1, 1, 1, 4))
    tensor([[[[0.2000, 0.2000, 0.2000, 0.2000]]]])
    """

    def __init__(self, *, by_length: bool = True):
        super().__init__()
        self.by_length = by_length

    def rule(self, scores: Tensor, allowed: Tensor | None, *parameters: Tensor) -> Tensor:
        """Sigmoid where allowed."""
        scores = widen(scores)
        if self.by_length:
            count = allowed_count(scores, allowed)
            counted = isinstance(count, Tensor)
            scores = scores - (count.to(scores.dtype).log() if counted else math.log(count))
        weights = scores.sigmoid()
        return weights if allowed is None else weights.masked_fill(~allowed, 0)

    def extra_repr(self) -> str:
        """The option, if set."""
        return "" if self.by_length else "by_length=False"
