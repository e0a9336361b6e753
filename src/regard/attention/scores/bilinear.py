"""Bilinear: ``qᵀ W k``, one W a head.

Luong, Pham, Manning (2015), equation 8, "general".
"""

import torch
from torch import Tensor, nn

from regard.attention.scores._score import DotForm, Score, check_sizes, product


class Bilinear(Score):
    """``q W k``; W (H, d, d) starts as 1/√d times the identity, where it is the scaled dot product.

    >>> import torch
    >>> q = torch.ones(1, 1, 1, 4)
    >>> Bilinear(heads=1, head_width=4)(q, q)
    tensor([[[[2.]]]], grad_fn=<UnsafeViewBackward0>)
    """

    def __init__(self, heads: int, head_width: int):
        super().__init__()
        check_sizes("bilinear", heads, head_width)
        start = torch.eye(head_width) * head_width**-0.5
        self.weight = nn.Parameter(start.repeat(heads, 1, 1))

    def project(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
        """Query times W."""
        return query @ self.weight.to(query.dtype), key

    def rule(self, query_rows: Tensor, key_rows: Tensor, *parameters: Tensor) -> Tensor:
        """Their dot products."""
        return product(query_rows, key_rows)

    def as_dot(self, query: Tensor, key: Tensor) -> DotForm:
        """Query times W, key as it is."""
        return DotForm(*self.project(query, key), 1.0)
