"""Additive: ``v · tanh(W_q q + W_k k + b)``.

Bahdanau, Cho, Bengio, "Neural Machine Translation by Jointly Learning to Align and Translate"
(2015), appendix A.1.2.
"""

import torch
from torch import Tensor, nn

from regard.attention.scores._score import (
    Score,
    TanhForm,
    check_sizes,
    glorot,
    tanh_sum,
)


class Additive(Score):
    """Linear maps to `hidden_width` (the head width unless given), tanh, a sum weighted by v.

    >>> import torch
    >>> score = Additive(heads=1, head_width=2)
    >>> for parameter in score.parameters():
    ...     _ = torch.nn.init.ones_(parameter)
    >>> score(torch.zeros(1, 1, 1, 2), torch.zeros(1, 1, 1, 2))  # 2 · tanh(1)
    tensor([[[[1.5232]]]], grad_fn=<SqueezeBackward1>)
    """

    def __init__(self, heads: int, head_width: int, hidden_width: int | None = None):
        super().__init__()
        hidden_width = head_width if hidden_width is None else hidden_width
        check_sizes("additive", heads, head_width, hidden_width)
        self.query_weight = nn.Parameter(glorot(heads, head_width, hidden_width))
        self.key_weight = nn.Parameter(glorot(heads, head_width, hidden_width))
        self.bias = nn.Parameter(torch.zeros(heads, hidden_width))
        self.weight = nn.Parameter(glorot(heads, hidden_width, 1).squeeze(-1))

    def project(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
        """``W_q q + b`` and ``W_k k``."""
        return (
            query @ self.query_weight + self.bias[:, None, :],
            key @ self.key_weight,
        )

    def rule(self, query_rows: Tensor, key_rows: Tensor, *parameters: Tensor) -> Tensor:
        """The weighted sum of tanh."""
        return tanh_sum(query_rows, key_rows, *parameters)

    def rule_parameters(self) -> tuple[Tensor, ...]:
        """v."""
        return (self.weight,)

    def pair_width(self, head_width: int) -> int:
        """Sum, tanh and their gradient."""
        return 4 * self.weight.shape[1]

    def as_tanh(self, query: Tensor, key: Tensor) -> TanhForm:
        """Both projections and v."""
        return TanhForm(*self.project(query, key), self.weight)
