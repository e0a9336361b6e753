"""Sparsemax: the nearest point of the simplex, ``max(s − τ, 0)`` with τ such that the sum is 1.

Martins and Astudillo, "From Softmax to Sparsemax" (2016), algorithm 1.
"""

import torch
from torch import Tensor

from regard.attention.normalizers._normalizer import Normalizer, shift


class Sparsemax(Normalizer):
    """Weights that sum to one, many of them exactly 0.

    >>> import torch
    >>> Sparsemax()(torch.tensor([[[[1.0, 0.5, -1.0]]]]))
    tensor([[[[0.7500, 0.2500, 0.0000]]]])
    """

    def rule(self, scores: Tensor, allowed: Tensor | None, *parameters: Tensor) -> Tensor:
        """Which keys are in the support is found by sorting; τ then is their mean, less 1/k."""
        z = shift(scores, allowed)
        with torch.no_grad():
            falling = z.sort(-1, descending=True).values
            count = torch.arange(1, z.shape[-1] + 1, device=z.device, dtype=z.dtype)
            size = (1 + count * falling > falling.cumsum(-1)).sum(-1, keepdim=True)
            support = (z >= falling.gather(-1, size - 1)).to(z.dtype)
            size = support.sum(-1, keepdim=True)
        threshold = ((z * support).sum(-1, keepdim=True) - 1) / size
        weights = (z - threshold).relu()
        return weights if allowed is None else weights.masked_fill(~allowed, 0)

    def pair_width(self) -> int:
        """Scores, sorted, sums, indices, and gradients."""
        return 10
