"""Cosine with a learned temperature: ``τ · cos(q, k)``.

Liu et al., "Swin Transformer V2" (2022), equation 2, with τ a head, learned as its logarithm.
"""

import math

import torch
from torch import Tensor, nn

from regard.attention.scores._score import DotForm, Score, check_sizes, product
from regard.errors import OptionError


class Cosine(Score):
    """``scale[h] · q · k / (|q| |k|)``; `scale` is where the learned scale starts.

    A vector of zeros has cosine 0 with everything.

    >>> import torch
    >>> q = torch.tensor([[[[3.0, 0.0]]]])
    >>> Cosine(heads=1, head_width=2, scale=2.0)(q, 5 * q).round(decimals=4)
    tensor([[[[2.]]]], grad_fn=<RoundBackward1>)
    """

    def __init__(self, heads: int, head_width: int, scale: float | int = 10.0):
        super().__init__()
        check_sizes("cosine", heads, head_width)
        if scale <= 0:
            raise OptionError(f"the scale of cosine scores must be above 0, not {scale}")
        self.log_scale = nn.Parameter(torch.full((heads,), math.log(scale)))

    def project(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
        """Unit vectors; the query's times the scale."""
        return _unit(query) * self.log_scale.exp()[:, None, None].to(query.dtype), _unit(key)

    def rule(self, query_rows: Tensor, key_rows: Tensor, *parameters: Tensor) -> Tensor:
        """Their dot products."""
        return product(query_rows, key_rows)

    def as_dot(self, query: Tensor, key: Tensor) -> DotForm:
        """Scaled unit vectors."""
        return DotForm(*self.project(query, key), 1.0)


def _unit(x: Tensor) -> Tensor:
    return x * torch.rsqrt(x.square().sum(-1, keepdim=True) + 1e-12)
