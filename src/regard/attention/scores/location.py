"""Location: ``Linear([q; k])``, where q and k are of the same step, gives one score a position.

The first of the three rules of the lecture notes that this package follows,
softmax(Linear([Q; K])) · V; Luong, Pham, Manning (2015), equation 7, "location", has it with the
query alone. Taken for every pair (q_i, k_j) instead, the part of the linear map that reads q_i
would be the same for all j, softmax would cancel it, and the query would be ignored.

Score j of step t is w_j · [q_t; k_t; 1], a dot product of what step t brings and what position j
has learned, so it reduces to one.
"""

import torch
from torch import Tensor, nn

from regard.attention.scores._score import DotForm, Score, check_sizes, glorot, product
from regard.errors import OptionError, ShapeError


class Location(Score):
    """One score for each of the first Tk memory positions, at most `max_length`, from [q; k].

    Queries and keys must be equally many, for the key of a query's own step is read: an error
    otherwise, and where there are more than `max_length`. Positions are indices here: the memory's
    first token is position 0.

    >>> import torch
    >>> Location(heads=2, head_width=3, max_length=8)(*torch.randn(2, 1, 2, 5, 3)).shape
    torch.Size([1, 2, 5, 5])
    """

    def __init__(self, heads: int, head_width: int, max_length: int = 512):
        super().__init__()
        check_sizes("location", heads, head_width)
        if max_length < 1:
            raise OptionError(f"max_length of the location score is at least 1, not {max_length}")
        self.max_length = max_length
        # As a linear map of [q; k] to max_length scores, (H, L, 2d), with its offset (H, L).
        self.weight = nn.Parameter(glorot(heads, 2 * head_width, max_length).transpose(1, 2))
        self.bias = nn.Parameter(torch.zeros(heads, max_length))

    def project(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
        """[q; k; 1] of every step, and [w; b] of every memory position."""
        steps, memory = query.shape[2], key.shape[2]
        if steps != memory:
            raise ShapeError(
                f"the location score reads query and key of the same step, but there are {steps} "
                f"queries and {memory} keys; it serves self-attention over a whole sequence, "
                "without a cache"
            )
        if memory > self.max_length:
            raise ShapeError(
                f"the location score has weights for {self.max_length} memory positions, but there "
                f"are {memory}; create it with max_length={memory} or more"
            )
        ones = query.new_ones(*query.shape[:3], 1)
        slots = torch.cat([self.weight, self.bias[..., None]], -1)[:, :memory]
        return torch.cat([query, key, ones], -1), slots.expand(query.shape[0], -1, -1, -1)

    def rule(self, query_rows: Tensor, key_rows: Tensor, *parameters: Tensor) -> Tensor:
        """Their dot products."""
        return product(query_rows, key_rows)

    def as_dot(self, query: Tensor, key: Tensor) -> DotForm:
        """What a step brings, and what a position has learned."""
        return DotForm(*self.project(query, key), 1.0)
