"""Rollout: attention through all layers, from a token back to the input tokens.

Abnar, Zuidema, "Quantifying Attention Flow in Transformers" (2020), section 3: with W̄ the mean of
a layer's heads, each layer mixes ``A = ½W̄ + ½I`` (rows divided by their sum), and the rollout is
``A_L … A_2 A_1``. Rows of it are found from the last layer down, block by block, so that no layer's
matrix is formed.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from regard.errors import OptionError
from regard.inspection.atlas import head_of
from regard.inspection.record import AttentionRecord, Span, _index
from regard.inspection.tracing import Trace


@torch.no_grad()
def rollout(
    trace: Trace, rows: Span = None, layer: int | None = None
) -> Float[Tensor, "rows tokens"]:
    """How much of each input token arrives at these tokens after `layer` (the last, if left out).

    `rows`: tokens, all if left out; memory grows with their number times the number of tokens.
    Each row sums to one. `OptionError` for cross-attention, whose layers do not follow each other.
    """
    if trace.key_tokens is not trace.tokens:
        raise OptionError(
            "rollout follows self-attention from layer to layer; this trace is of "
            f"{trace.part}-attention: use trace.parts['encoder'] or ['decoder']"
        )
    last = trace.layers - 1 if layer is None else layer
    top = trace.record(last)
    picked = _index(rows, top.q_tokens)
    flow = torch.zeros(len(picked), top.q_tokens, device=top.q.device)
    flow[torch.arange(len(picked)), picked] = 1
    for record in reversed(trace.records[: last + 1]):
        flow = _through(record, flow)
    return flow


def _through(record: AttentionRecord, flow: Tensor) -> Tensor:
    """``flow A`` for one layer's A."""
    heads = [head_of(record, number) for number in range(record.heads)]
    step = heads[0].block[0]
    out = torch.zeros_like(flow)
    for start in range(0, record.q_tokens, step):
        rows = slice(start, min(start + step, record.q_tokens))
        mean = torch.zeros(rows.stop - rows.start, record.k_tokens, device=flow.device)
        for head in heads:
            for cols in head.chunks(rows):
                mean[:, cols] += head.weights(rows, cols) / len(heads)
        share = flow[:, rows] / (1 + mean.sum(1))
        out += share @ mean
        out[:, rows] += share
    return out
