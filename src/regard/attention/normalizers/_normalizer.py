"""What every normalizer has in common: scores of a row become its weights."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn


class Normalizer(nn.Module):
    """Weights from scores, (B, H, Tq, Tk) → the same, over the keys that `allowed` allows.

    A key that is not allowed weighs 0 and does not count. A row without any allowed key is all
    zeros, with zero gradients. Weights are computed in float32 or better.
    """

    def rule(self, scores: Tensor, allowed: Tensor | None, *parameters: Tensor) -> Tensor:
        """The weights; pure."""
        raise NotImplementedError

    def rule_parameters(self) -> tuple[Tensor, ...]:
        """The learned tensors that `rule` takes."""
        return ()

    def pair_width(self) -> int:
        """How many numbers `rule` holds for one pair at a time, gradients included."""
        return 4

    @property
    def plain_softmax(self) -> bool:
        """Whether this is softmax with no option set, the one that fused kernels compute."""
        return False

    def forward(
        self,
        scores: Float[Tensor, "batch heads q_tokens k_tokens"],
        allowed: Bool[Tensor, "#batch #heads #q_tokens #k_tokens"] | None = None,
    ) -> Float[Tensor, "batch heads q_tokens k_tokens"]:
        """`rule` with the parameters of this module."""
        return self.rule(scores, allowed, *self.rule_parameters())


def widen(scores: Tensor) -> Tensor:
    """Scores in float32 or better: weights of 16-bit scores are not computed in 16 bit."""
    return scores.float() if scores.dtype in (torch.bfloat16, torch.float16) else scores


def allowed_count(scores: Tensor, allowed: Tensor | None) -> Tensor | int:
    """How many keys each row may attend to, at least 1: an int, or a tensor (…, Tq, 1)."""
    if allowed is None:
        return scores.shape[-1]
    allowed = allowed.expand(*allowed.shape[:-1], scores.shape[-1])
    return allowed.sum(-1, keepdim=True).clamp(min=1)


def shift(scores: Tensor, allowed: Tensor | None) -> Tensor:
    """Scores less their row's largest, but −2 at least, and −2 where not allowed.

    Adding one number to a whole row changes no weight of a normalizer on the simplex. The threshold
    of sparsemax and 1.5-entmax then lies between −1 and 0, so that −2 weighs nothing; of much lower
    numbers the squares would overflow.
    """
    scores = widen(scores)
    if allowed is None:
        return (scores - scores.detach().amax(-1, keepdim=True)).clamp(min=-2)
    lowest = torch.finfo(scores.dtype).min
    largest = scores.detach().masked_fill(~allowed, lowest).amax(-1, keepdim=True)
    return (scores - largest).clamp(min=-2).masked_fill(~allowed, -2)
