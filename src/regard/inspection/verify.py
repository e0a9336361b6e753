"""The badge: sampled rows recomputed in float64, against what the model itself added up."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from regard.attention import rows as definition
from regard.errors import OptionError
from regard.inspection.record import AttentionRecord


@dataclass(frozen=True, kw_only=True)
class Verification:
    """What a check found.

    `rows`: rows checked, over all layers and heads. `output_difference`: the largest difference
    between Σ weight·v in float64 and the model's own. `output_tolerance`: what rounding in the
    model's dtype allows, at the row where the difference is largest against it.
    `weight_difference`: between the weights that a trace gives and float64. `row_sum_error`: the
    largest distance of a row's sum from one (rows with a sink lack its share and are left out).
    `empty_rows`: rows that may attend nowhere; their weights are 0.
    """

    rows: int
    output_difference: float
    output_tolerance: float
    weight_difference: float
    row_sum_error: float
    empty_rows: int

    @property
    def passed(self) -> bool:
        """Whether the model's own numbers come out, and rows sum to one, within rounding."""
        return self.output_difference <= self.output_tolerance and self.row_sum_error < 1e-4

    def __str__(self) -> str:
        badge = "verified" if self.passed else "NOT verified"
        empty = f", {self.empty_rows} rows attend nowhere" if self.empty_rows else ""
        return (
            f"{badge}: {self.rows} rows in float64; output differs from the model's own by at most "
            f"{self.output_difference:.1e} (rounding allows {self.output_tolerance:.1e}), "
            f"weights by {self.weight_difference:.1e}, row sums from one by "
            f"{self.row_sum_error:.1e}{empty}"
        )


def verify(
    records: Sequence[AttentionRecord], rows_per_head: int = 8, seed: int = 0
) -> Verification:
    """Recompute some rows of every layer and head: the first, the last, and others at random."""
    generator = torch.Generator().manual_seed(seed)
    checks = []
    for record in records:
        some = _sample(record.q_tokens, rows_per_head, generator)
        wide = record.double()
        checks += [_check_row(record, wide, row) for row in some]
    if not checks:
        raise OptionError("there is no row to verify")
    worst = max(checks, key=lambda c: c.output_difference / max(c.output_tolerance, 1e-300))
    return Verification(
        rows=sum(c.rows for c in checks),
        output_difference=worst.output_difference,
        output_tolerance=worst.output_tolerance,
        weight_difference=max(c.weight_difference for c in checks),
        row_sum_error=max(c.row_sum_error for c in checks),
        empty_rows=sum(c.empty_rows for c in checks),
    )


def require_faithful(records: Sequence[AttentionRecord]) -> None:
    """`OptionError` if a few rows of each layer do not give the model's own output."""
    generator = torch.Generator().manual_seed(1)
    for record in records:
        wide = record.double()
        for row in _sample(record.q_tokens, 4, generator):
            found = _compare_output(record, wide.row(row), row)
            if found is not None and found[0] > found[1]:
                raise OptionError(
                    f"{record.name}: softmax(scale·q·k + bias, mask)·v gives other numbers than "
                    f"the model's own (row {row} differs by {found[0]:.1e}, rounding allows "
                    f"{found[1]:.1e}); this model's attention is something else, and a picture of "
                    "it would be wrong, so there is no trace"
                )


def _sample(size: int, count: int, generator: torch.Generator) -> list[int]:
    if size <= count:
        return list(range(size))
    middle = torch.randperm(size - 2, generator=generator)[: count - 2] + 1
    return [0, *sorted(middle.tolist()), size - 1]


@torch.no_grad()
def _compare_output(
    record: AttentionRecord, one: AttentionRecord, row: int
) -> tuple[float, float] | None:
    """Difference from the model's own output, and what rounding allows, where the first is largest
    against the second; None where there is nothing to compare.
    """
    weights = definition.weights(one.call)[0, :, 0]
    some = weights.sum(-1) > 0
    if record.mixed is None or not bool(some.any()):
        return None
    value = definition.repeat_heads(one.call.value, one.call.group)[0]
    mixed = (weights[:, None] @ value)[:, 0]
    difference = (mixed - record.mixed[:, row].double()).abs()[some]
    allowed = _rounding(record, one, weights, value)[some]
    worst = (difference / allowed).argmax()
    return float(difference.flatten()[worst]), float(allowed.flatten()[worst])


def _rounding(
    record: AttentionRecord, one: AttentionRecord, weights: Tensor, value: Tensor
) -> Tensor:
    """How far rounding may move Σ weight·v, (H, dv).

    A score s is rounded to the model's dtype on its way (by eps·|s|), after a sum of products in
    float32 at least (by eps₃₂·Σ|q·k|). A shift of e in s changes its weight by e·weight in a
    softmax, by e at most in other normalizers; weights, products and the sum are rounded once more.
    """
    eps, eps32 = torch.finfo(record.v.dtype).eps, torch.finfo(torch.float32).eps
    bare = definition.scores(replace(one.call, mask=None, biases=()))[0, :, 0]
    scores = definition.scores(one.call)[0, :, 0]
    size = bare.abs() + scores.masked_fill(~scores.isfinite(), 0.0).abs()
    products = bare.abs().amax(-1, keepdim=True)
    if record.scale is not None:
        key = definition.repeat_heads(one.call.key, one.call.group)[0]
        products = (one.q.abs() @ key.abs().transpose(-1, -2))[:, 0] * abs(record.scale)
    shift = 4 * eps * (1 + size) + 8 * eps32 * products
    moves = (weights if record.is_softmax else scores.isfinite()) * shift
    magnitude = value.abs()
    moved = (moves[:, None] @ magnitude)[:, 0]
    scaled = moves.sum(-1, keepdim=True) * (weights[:, None] @ magnitude)[:, 0]
    return moved + scaled + torch.finfo(record.v.dtype).tiny


@torch.no_grad()
def _check_row(record: AttentionRecord, wide: AttentionRecord, row: int) -> Verification:
    one = wide.row(row)
    weights = definition.weights(one.call)[0, :, 0]
    ours = torch.cat([record.weights(head, row) for head in range(record.heads)]).double()
    empty = weights.sum(-1) == 0
    sums = ours.sum(-1)[~empty]
    off = (sums - 1).abs()
    compared = _compare_output(record, one, row)
    difference, tolerance = compared or (0.0, 0.0)
    summed = len(off) and record.sinks is None and record.is_softmax
    return Verification(
        rows=record.heads,
        output_difference=difference,
        output_tolerance=tolerance,
        weight_difference=float((ours - weights).abs().max()),
        row_sum_error=float(off.max()) if summed else 0.0,
        empty_rows=int(empty.sum()),
    )
