"""Scaled dot product: ``q · k / √d``.

Vaswani et al., "Attention Is All You Need" (2017), equation 1.
"""

from typing import ClassVar

from torch import Tensor

from regard.attention.scores._score import DotForm, Score, product


class ScaledDot(Score):
    """``q · k / √d`` with d the head width; nothing to learn.

    >>> import torch
    >>> q = torch.tensor([[[[1.0, 1.0, 1.0, 1.0]]]])
    >>> ScaledDot()(q, q)
    tensor([[[[2.]]]])
    """

    learned: ClassVar[bool] = False

    def __init__(self, heads: int | None = None, head_width: int | None = None):
        super().__init__()

    def rule(self, query_rows: Tensor, key_rows: Tensor, *parameters: Tensor) -> Tensor:
        """``query_rows key_rowsᵀ / √d``."""
        return product(query_rows, key_rows) * query_rows.shape[-1] ** -0.5

    def as_dot(self, query: Tensor, key: Tensor) -> DotForm:
        """Query and key as they are, scale 1/√d."""
        return DotForm(query, key, query.shape[-1] ** -0.5)
