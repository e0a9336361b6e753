"""One call of one attention, for a whole batch, as it was made."""

from collections.abc import Callable
from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor, nn


@dataclass(eq=False, kw_only=True)
class Captured:
    """What an attention was given and gave.

    `step`: which forward pass of the model it belongs to; `kind`: self, encoder, decoder or cross.
    `mask`: Boolean, True = may attend, or float, added to the scores; broadcastable to
    (B, H, Tq, Tk). `causal`: without a mask, query i attends to the keys up to i. `bias`: added to
    the scaled scores. `own`: what the model added up of v. `k_unrotated`: of the new keys.
    """

    name: str
    kind: str
    step: int
    q: Float[Tensor, "batch heads q_tokens head_width"]
    k: Float[Tensor, "batch kv_heads k_tokens head_width"]
    v: Float[Tensor, "batch kv_heads k_tokens value_width"]
    scale: float
    own: Float[Tensor, "batch heads q_tokens value_width"]
    mask: Tensor | None = None
    causal: bool = False
    bias: Tensor | None = None
    softcap: float | None = None
    sinks: Float[Tensor, " heads"] | None = None
    log_sum_exp: Float[Tensor, "batch heads q_tokens"] | None = None
    q_unrotated: Tensor | None = None
    k_unrotated: Tensor | None = None
    residual: Float[Tensor, "batch q_tokens width"] | None = None


@dataclass(eq=False, kw_only=True)
class Passed:
    """What an attention that bypasses transformers' interface was given, and what it mixed."""

    q: Float[Tensor, "batch heads q_tokens head_width"]
    k: Float[Tensor, "batch heads k_tokens head_width"]
    v: Float[Tensor, "batch heads k_tokens head_width"]
    scale: float
    mixed: Float[Tensor, "batch heads q_tokens head_width"]
    mask: Tensor | None
    bias: Tensor | None


Attended = Callable[[nn.Module, Passed], Tensor | None]
"""``attended(module, passed)``: the mixed values to go on with, None for the module's own."""
