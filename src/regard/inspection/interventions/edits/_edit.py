"""What every edit has in common: it changes scores, weights or mixed values of some heads."""

from dataclasses import dataclass
from functools import cached_property

from jaxtyping import Bool, Float
from torch import Tensor

from regard.attention import rows
from regard.attention.call import Call


@dataclass(frozen=True, eq=False)
class Place:
    """Where an edit is applied: the layer, the head (None: all of them), and the call under way."""

    layer: int
    head: int | None
    call: Call

    @cached_property
    def allowed(self) -> Bool[Tensor, "_ _ _ _"] | None:
        """True where a query may attend, broadcastable to (B, H, Tq, Tk); None if all may."""
        may = rows.allowed(self.call, self.call.rectangle())
        if may is None or self.head is None or may.shape[1] == 1:
            return may
        return may[:, self.head : self.head + 1]

    @cached_property
    def real(self) -> Bool[Tensor, "_ _ tokens"] | None:
        """True for tokens that somebody may attend to, (B or 1, H or 1, T): all but padding."""
        _, _, q_tokens, k_tokens = self.call.sizes
        if self.allowed is None or q_tokens != k_tokens:
            return None
        return self.allowed.any(-2)


class Edit:
    """Changes what passes through an attention; each stage is left alone unless overridden.

    Scores come before mask and normalizer. An edit of scores or weights costs the reference path,
    memory that grows with the square of the tokens, in the layers it is for.
    """

    def scores(
        self, scores: Float[Tensor, "batch heads q_tokens k_tokens"], place: Place
    ) -> Float[Tensor, "batch heads q_tokens k_tokens"]:
        """The scores to go on with."""
        return scores

    def weights(
        self, weights: Float[Tensor, "batch heads q_tokens k_tokens"], place: Place
    ) -> Float[Tensor, "batch heads q_tokens k_tokens"]:
        """The weights to go on with."""
        return weights

    def mixed(
        self, mixed: Float[Tensor, "batch heads q_tokens value_width"], place: Place
    ) -> Float[Tensor, "batch heads q_tokens value_width"]:
        """The heads' outputs, Σ weight·v, to go on with."""
        return mixed

    def changes(self, stage: str) -> bool:
        """Whether the edit overrides `scores`, `weights` or `mixed`."""
        return getattr(type(self), stage) is not getattr(Edit, stage)
