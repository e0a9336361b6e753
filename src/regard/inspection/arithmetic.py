"""Every number behind one weight, as the record has them, computed in float64."""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from regard.attention import rows as definition
from regard.errors import OptionError
from regard.inspection.record import AttentionRecord


@dataclass(frozen=True, kw_only=True, eq=False)
class Arithmetic:
    """How query `row` of a head comes to give key `col` its weight.

    ``score = scale · Σ products``, ``+ bias``, capped by ``softcap·tanh(s/softcap)``; and
    ``weight = exp(capped − log_sum_exp)``, or 0 where not `allowed`. `q`, `k`: per dimension, as
    the score sees them; `q_unrotated`, `k_unrotated`: before their rotation by position, where
    there is one. `contribution`: weight · v, (dv,), what the key adds to the output of the row.
    `products`, `dot`, `scale` are None where the score is no dot product, `log_sum_exp` where the
    weights are no softmax.
    """

    layer: int
    head: int
    kv_head: int
    row: int
    col: int
    q: Float[Tensor, " head_width"]
    k: Float[Tensor, " head_width"]
    q_unrotated: Float[Tensor, " head_width"] | None
    k_unrotated: Float[Tensor, " head_width"] | None
    products: Float[Tensor, " head_width"] | None
    dot: float | None
    scale: float | None
    score: float
    bias: float
    softcap: float | None
    capped: float
    allowed: bool
    sink: float | None
    log_sum_exp: float | None
    weight: float
    v: Float[Tensor, " value_width"]
    contribution: Float[Tensor, " value_width"]
    output: Float[Tensor, " value_width"] | None

    def lines(self) -> list[str]:
        """The steps in words, one a line."""
        found = [f"layer {self.layer}, head {self.head} (reads key/value head {self.kv_head})"]
        if self.dot is not None and self.scale is not None:
            found.append(f"q · k              {self.dot:+.6f}   over {len(self.q)} dimensions")
            found.append(f"× scale            {self.score:+.6f}   scale {self.scale:.6g}")
        else:
            found.append(f"score              {self.score:+.6f}")
        if self.bias:
            found.append(
                f"+ bias             {self.score + self.bias:+.6f}   bias {self.bias:+.6f}"
            )
        if self.softcap is not None:
            formula = f"{self.softcap:g}·tanh(s/{self.softcap:g})"
            found.append(f"softcap            {self.capped:+.6f}   {formula}")
        if not self.allowed:
            found.append("mask               hidden: the weight is 0")
        if self.sink is not None:
            found.append(f"sink               {self.sink:+.6f}   a logit that takes its share")
        if self.log_sum_exp is not None:
            found.append(f"− log Σ exp        {self.log_sum_exp:+.6f}")
        found.append(f"weight             {self.weight:.6f}")
        found.append(
            f"weight · v         length {float(self.contribution.norm()):.6f} of "
            f"{float(self.v.norm()):.6f}"
        )
        return found


@torch.no_grad()
def arithmetic(record: AttentionRecord, head: int, row: int, col: int) -> Arithmetic:
    """The numbers behind the weight of key `col` for query `row`."""
    if not 0 <= row < record.q_tokens or not 0 <= col < record.k_tokens:
        raise OptionError(
            f"row {row}, column {col} is asked for; there are rows 0 … {record.q_tokens - 1} and "
            f"columns 0 … {record.k_tokens - 1}"
        )
    may = record.allowed(row, col, head)
    one = record.double_row(row)
    kv = record.kv_head(head)
    q, k, v = one.q[head, 0], one.k[kv, col], one.v[kv, col]
    score = float(one.raw_scores(head, 0, col))
    bias = one.bias(head, 0, col)
    shift = 0.0 if bias is None else float(bias)
    weight = float(definition.weights(one.call)[0, head, 0, col])
    cap = record.softcap
    products = q * k if _is_plain(record) else None
    return Arithmetic(
        layer=record.layer,
        head=head,
        kv_head=kv,
        row=row,
        col=col,
        q=q,
        k=k,
        q_unrotated=None if record.q_unrotated is None else record.q_unrotated[head, row].double(),
        k_unrotated=None if record.k_unrotated is None else record.k_unrotated[kv, col].double(),
        products=products,
        dot=None if products is None else float(products.sum()),
        scale=record.scale if products is not None else None,
        score=score,
        bias=shift,
        softcap=cap,
        capped=score + shift if cap is None else cap * math.tanh((score + shift) / cap),
        allowed=may is None or bool(may),
        sink=None if record.sinks is None else float(record.sinks[head]),
        log_sum_exp=float(one.block_log_sum_exp(head, slice(0, 1))) if record.is_softmax else None,
        weight=weight,
        v=v,
        contribution=weight * v,
        output=None if record.mixed is None else record.mixed[head, row].double(),
    )


def _is_plain(record: AttentionRecord) -> bool:
    """Whether the score is scale · q·k of q and k themselves."""
    features = record.features(0)
    if record.scale is None or features is None or features[1].shape[-1] != record.k.shape[-1]:
        return False
    return torch.equal(features[1], record.k[0].to(features[1].dtype))
