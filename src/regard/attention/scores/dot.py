"""Dot product: ``q · k``.

Luong, Pham, Manning, "Effective Approaches to Attention-based Neural Machine Translation" (2015),
equation 8, "dot".
"""

from typing import ClassVar

from torch import Tensor

from regard.attention.scores._score import DotForm, Score, product


class Dot(Score):
    """``q · k``, without scaling; nothing to learn, so heads and width may be left out.

    >>> import torch
    >>> q = torch.tensor([[[[1.0, 2.0]]]])
    >>> Dot()(q, q)
    tensor([[[[5.]]]])
    """

    learned: ClassVar[bool] = False

    def __init__(self, heads: int | None = None, head_width: int | None = None):
        super().__init__()

    def rule(self, query_rows: Tensor, key_rows: Tensor, *parameters: Tensor) -> Tensor:
        """``query_rows key_rowsᵀ``."""
        return product(query_rows, key_rows)

    def as_dot(self, query: Tensor, key: Tensor) -> DotForm:
        """Query and key as they are."""
        return DotForm(query, key, 1.0)
