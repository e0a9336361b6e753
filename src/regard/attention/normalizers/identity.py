"""Identity: the scores are the weights.

Katharopoulos et al., "Transformers are RNNs" (2020), section 3.2, with the identity as feature map
and without the division.
"""

from torch import Tensor

from regard.attention.normalizers._normalizer import Normalizer, widen


class Identity(Normalizer):
    """Weights that are the scores, 0 where not allowed.

    >>> import torch
    >>> Identity()(torch.tensor([[[[2.0, -1.0]]]]))
    tensor([[[[ 2., -1.]]]])
    """

    def rule(self, scores: Tensor, allowed: Tensor | None, *parameters: Tensor) -> Tensor:
        """Scores where allowed."""
        scores = widen(scores)
        return scores if allowed is None else scores.masked_fill(~allowed, 0)
