"""Softmax: ``exp(sⱼ) / Σ exp(s)``, with two options.

`softcap`: scores pass ``c·tanh(s/c)`` first (Gemma Team, "Gemma 2", 2024, section 2).
`sinks`: a learned logit a head joins the denominator, so that a row may weigh less than 1 in all
(OpenAI, "gpt-oss-120b & gpt-oss-20b Model Card", 2025, section 2.2).
"""

import torch
from torch import Tensor, nn

from regard.attention.normalizers._normalizer import Normalizer, widen
from regard.errors import OptionError


class Softmax(Normalizer):
    """Positive weights that sum to one.

    `softcap`: the largest score in absolute value, or None. `sinks`: learn one sink logit a head;
    needs `heads`.

    >>> import torch
    >>> Softmax()(torch.zeros(1, 1, 1, 4))
    tensor([[[[0.2500, 0.2500, 0.2500, 0.2500]]]])
    """

    def __init__(
        self, softcap: float | int | None = None, *, sinks: bool = False, heads: int | None = None
    ):
        super().__init__()
        if softcap is not None and softcap <= 0:
            raise OptionError(f"softcap must be above 0, not {softcap}; None leaves scores as is")
        if sinks and heads is None:
            raise OptionError("softmax with sinks learns one logit a head: pass heads=…")
        self.softcap = softcap
        self.sinks = nn.Parameter(torch.zeros(heads)) if sinks and heads else None

    def rule(self, scores: Tensor, allowed: Tensor | None, *parameters: Tensor) -> Tensor:
        """Softmax over allowed keys (and the sink)."""
        scores = widen(scores)
        if self.softcap is not None:
            scores = self.softcap * torch.tanh(scores / self.softcap)
        if allowed is not None:
            # Filled, not added: a finite value keeps rows without any key free of nan.
            scores = scores.masked_fill(~allowed, torch.finfo(scores.dtype).min)
        if parameters:
            (sinks,) = parameters
            sink = sinks.to(scores.dtype)[None, :, None, None].expand(*scores.shape[:-1], 1)
            weights = torch.cat([scores, sink], -1).softmax(-1)[..., :-1]
        else:
            weights = scores.softmax(-1)
        return weights if allowed is None else weights.masked_fill(~allowed, 0)

    def rule_parameters(self) -> tuple[Tensor, ...]:
        """The sink logits, if any."""
        return () if self.sinks is None else (self.sinks,)

    @property
    def plain_softmax(self) -> bool:
        """Whether neither option is set."""
        return self.softcap is None and self.sinks is None

    def extra_repr(self) -> str:
        """The options that are set."""
        return ", ".join(
            [f"softcap={self.softcap}"] * (self.softcap is not None)
            + ["sinks=True"] * (self.sinks is not None)
        )
