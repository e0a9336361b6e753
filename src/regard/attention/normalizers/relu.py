"""ReLU scaled by length: ``max(s, 0) / n`` over n keys.

Wortsman et al., "Replacing softmax with ReLU in Vision Transformers" (2023), section 3.
"""

from torch import Tensor

from regard.attention.normalizers._normalizer import Normalizer, allowed_count, widen


class Relu(Normalizer):
    """Weights of 0 or more, each by its own score; n counts the keys that the row may attend to.

    >>> import torch
    >>> Relu()(torch.tensor([[[[2.0, -1.0]]]]))
    tensor([[[[1., 0.]]]])
    """

    def rule(self, scores: Tensor, allowed: Tensor | None, *parameters: Tensor) -> Tensor:
        """ReLU where allowed, by the number of allowed keys."""
        scores = widen(scores)
        weights = scores.relu() / allowed_count(scores, allowed)
        return weights if allowed is None else weights.masked_fill(~allowed, 0)
