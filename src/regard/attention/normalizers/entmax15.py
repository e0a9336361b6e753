"""1.5-entmax, between softmax and sparsemax: ``max(s/2 − τ, 0)²`` with τ such that the sum is 1.

Peters, Niculae, Martins, "Sparse Sequence-to-Sequence Models" (2019), algorithm 2.
"""

import torch
from torch import Tensor

from regard.attention.normalizers._normalizer import Normalizer, shift


class Entmax15(Normalizer):
    """Weights that sum to one, some of them exactly 0.

    >>> import torch
    >>> Entmax15()(torch.tensor([[[[4.0, 0.0, 0.0]]]]))
    tensor([[[[1., 0., 0.]]]])
    """

    def rule(self, scores: Tensor, allowed: Tensor | None, *parameters: Tensor) -> Tensor:
        """Which keys are in the support is found by sorting; τ then follows from their moments."""
        z = shift(scores / 2, allowed)
        with torch.no_grad():
            falling = z.sort(-1, descending=True).values
            count = torch.arange(1, z.shape[-1] + 1, device=z.device, dtype=z.dtype)
            threshold = _threshold(
                falling.cumsum(-1) / count, falling.square().cumsum(-1) / count, count
            )
            size = (threshold <= falling).sum(-1, keepdim=True)
            support = (z >= falling.gather(-1, size - 1)).to(z.dtype)
        size = support.sum(-1, keepdim=True)
        mean = (z * support).sum(-1, keepdim=True) / size
        # Around the mean, where the second moment loses nothing to cancellation.
        spread = ((z - mean).square() * support).sum(-1, keepdim=True)
        weights = (z - mean + ((1 - spread) / size).clamp(min=0).sqrt()).relu().square()
        return weights if allowed is None else weights.masked_fill(~allowed, 0)

    def pair_width(self) -> int:
        """Scores, sorted, moments, indices, and gradients."""
        return 14


def _threshold(mean: Tensor, mean_square: Tensor, size: Tensor) -> Tensor:
    """τ if the support were the `size` largest: Σ (z − τ)² = 1, solved."""
    return mean - ((1 - size * (mean_square - mean.square())) / size).clamp(min=0).sqrt()
