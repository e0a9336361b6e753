"""What every score function has in common.

A score has two parts, so that the parts that depend on one token alone are computed once:

``project(query, key)``
    per token, O(T·d): linear maps, normalization; learned by ordinary autograd.
``rule(query_rows, key_rows, *parameters)``
    per pair, pure: the scores of some query rows against some key rows.

``score(query, key)`` is the one after the other.
"""

from typing import ClassVar, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.errors import OptionError


class DotForm(NamedTuple):
    """Features whose scaled dot product is the score: ``scale · query keyᵀ``."""

    query: Float[Tensor, "batch heads q_tokens width"]
    key: Float[Tensor, "batch key_heads k_tokens width"]
    scale: float


class TanhForm(NamedTuple):
    """Features whose score is ``Σₑ weight[h, e] · tanh(query[i, e] + key[j, e])``."""

    query: Float[Tensor, "batch heads q_tokens width"]
    key: Float[Tensor, "batch heads k_tokens width"]
    weight: Float[Tensor, "heads width"]


class Score(nn.Module):
    """Scores of query rows against key rows, (B, H, Tq, d) × (B, H, Tk, d) → (B, H, Tq, Tk).

    Query and key arrive with the same number of heads: grouped key heads are repeated before.
    """

    learned: ClassVar[bool] = True
    """Whether the score has parameters, so that it is created once and passed as an object."""

    def project(
        self,
        query: Float[Tensor, "batch heads q_tokens head_width"],
        key: Float[Tensor, "batch key_heads k_tokens head_width"],
    ) -> tuple[
        Float[Tensor, "batch heads q_tokens _"], Float[Tensor, "batch key_heads k_tokens _"]
    ]:
        """The part that depends on one token alone; by default nothing.

        Scores that learn nothing get grouped key heads as they are, to save repeating them.
        """
        return query, key

    def rule(self, query_rows: Tensor, key_rows: Tensor, *parameters: Tensor) -> Tensor:
        """The scores of projected query rows against projected key rows; pure."""
        raise NotImplementedError

    def rule_parameters(self) -> tuple[Tensor, ...]:
        """The learned tensors that `rule` takes besides the rows."""
        return ()

    def pair_width(self, head_width: int) -> int:
        """How many numbers `rule` holds for one pair at a time: blocks are sized by it."""
        return 1

    def as_dot(
        self,
        query: Float[Tensor, "batch heads q_tokens head_width"],
        key: Float[Tensor, "batch key_heads k_tokens head_width"],
    ) -> DotForm | None:
        """The same scores as a scaled dot product of features, or None if they are none."""
        return None

    def as_tanh(
        self,
        query: Float[Tensor, "batch heads q_tokens head_width"],
        key: Float[Tensor, "batch heads k_tokens head_width"],
    ) -> TanhForm | None:
        """The same scores as a weighted sum of tanh, or None if they are none."""
        return None

    def forward(
        self,
        query: Float[Tensor, "batch heads q_tokens head_width"],
        key: Float[Tensor, "batch heads k_tokens head_width"],
    ) -> Float[Tensor, "batch heads q_tokens k_tokens"]:
        """All scores: `rule` over what `project` gives."""
        return self.rule(*self.project(query, key), *self.rule_parameters())

    @property
    def dot_like(self) -> bool:
        """Whether the score reduces to a dot product."""
        return type(self).as_dot is not Score.as_dot

    @property
    def tanh_like(self) -> bool:
        """Whether the score is a weighted sum of tanh."""
        return type(self).as_tanh is not Score.as_tanh


def product(query_rows: Tensor, key_rows: Tensor) -> Tensor:
    """Dot products of all query rows with all key rows."""
    return query_rows @ key_rows.transpose(-1, -2)


def tanh_sum(query_rows: Tensor, key_rows: Tensor, weight: Tensor) -> Tensor:
    """``Σₑ weight[h, e] · tanh(query_rows[i, e] + key_rows[j, e])``; holds (tq, tk, e) numbers."""
    pairs = (query_rows[..., :, None, :] + key_rows[..., None, :, :]).tanh()
    return (pairs @ weight[:, None, :, None]).squeeze(-1)


def glorot(heads: int, width_in: int, width_out: int) -> Tensor:
    """A matrix a head, uniform in ±√(6 / (in + out)): Glorot and Bengio (2010), equation 16."""
    bound = (6 / (width_in + width_out)) ** 0.5
    return torch.empty(heads, width_in, width_out).uniform_(-bound, bound)


def check_sizes(score: str, heads: int, head_width: int, hidden_width: int = 1) -> None:
    """Heads and widths count: at least 1, else `OptionError`."""
    if heads < 1 or head_width < 1 or hidden_width < 1:
        raise OptionError(
            f"score {score!r} got heads={heads}, head_width={head_width}, "
            f"hidden_width={hidden_width}; each must be at least 1"
        )
