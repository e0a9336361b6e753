"""Concat: ``v · tanh(W [q; k])``, one W over query and key laid end to end.

Luong, Pham, Manning (2015), equation 8, "concat". W [q; k] = W₁ q + W₂ k with W = [W₁ W₂], so it
is the additive score without its offset b, written with one matrix.
"""

from torch import Tensor, nn

from regard.attention.scores._score import Score, TanhForm, check_sizes, glorot, tanh_sum


class Concat(Score):
    """One linear map of [q; k] to `hidden_width` (the head width unless given), tanh, times v.

    >>> import torch
    >>> score = Concat(heads=1, head_width=2)
    >>> for parameter in score.parameters():
    ...     _ = torch.nn.init.constant_(parameter, 0.5)
    >>> score(torch.ones(1, 1, 1, 2), torch.ones(1, 1, 1, 2))  # 2 · 0.5 · tanh(2)
    tensor([[[[0.9640]]]], grad_fn=<SqueezeBackward1>)
    """

    def __init__(self, heads: int, head_width: int, hidden_width: int | None = None):
        super().__init__()
        hidden_width = head_width if hidden_width is None else hidden_width
        check_sizes("concat", heads, head_width, hidden_width)
        self.pair_weight = nn.Parameter(glorot(heads, 2 * head_width, hidden_width))
        self.weight = nn.Parameter(glorot(heads, hidden_width, 1).squeeze(-1))

    def project(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
        """W's first half times query, its second half times key."""
        for_query, for_key = self.pair_weight.chunk(2, dim=1)
        return query @ for_query, key @ for_key

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
        """Both halves and v."""
        return TanhForm(*self.project(query, key), self.weight)
