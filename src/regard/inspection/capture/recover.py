"""Rules behind captured masks and biases: a T×T tensor becomes a few numbers, or is kept.

A rule is guessed from the tensor and believed only if it gives the whole tensor back, number for
number. What follows no rule is kept as it is, shared by all layers that were given it.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from regard.attention.bias import Bias, DenseBias, RelativeBias
from regard.attention.masks import Arbitrary, Causal, Mask, Padding, Rectangle, Window
from regard.attention.masks._mask import _Both

ROWS = 256
"""How many rows of a captured tensor are looked at together."""


class Piece(NamedTuple):
    """What one step was given: (H or 1, Tq or 1, Tk or 1), and where its rows and columns lie."""

    values: Tensor
    rows: range
    cols: range

    def cut(self, start: int, stop: int) -> Tensor:
        """Some rows, expanded to all columns, (H or 1, rows, Tk)."""
        values = self.values if self.values.shape[1] == 1 else self.values[:, start:stop]
        return values.expand(-1, stop - start, len(self.cols))

    def blocks(self) -> list[tuple[int, int]]:
        """Ranges of rows to go through."""
        return [(a, min(a + ROWS, len(self.rows))) for a in range(0, len(self.rows), ROWS)]


class Recovered(NamedTuple):
    """A mask as a rule where there is one, and what a float mask adds besides."""

    mask: Mask | None
    bias: Bias | None


def mask(pieces: list[Piece], q_tokens: int, k_tokens: int) -> Recovered:
    """The mask of all steps, over (q_tokens, k_tokens) by index.

    A number at or below half the lowest of its type forbids; other numbers but 0 are added.
    """
    values = pieces[0].values
    if values.is_floating_point() and any(_adds(piece) for piece in pieces):
        return Recovered(None, DenseBias(_assemble(pieces, q_tokens, k_tokens, _forbidding)[None]))
    alike = all(p.values.shape[0] == 1 or bool((p.values == p.values[:1]).all()) for p in pieces)
    if alike:
        pieces = [p._replace(values=p.values[:1]) for p in pieces]
        rule = _mask_rule(pieces, k_tokens)
        if rule is not None:
            return Recovered(*rule)
    return Recovered(Arbitrary(_assemble(pieces, q_tokens, k_tokens, _may)[None]), None)


def _mask_rule(pieces: list[Piece], k_tokens: int) -> tuple[Mask | None, None] | None:
    """Causal, window and padding together, if they give every piece back."""
    device = pieces[0].values.device
    real = torch.zeros(k_tokens, dtype=torch.bool, device=device)
    seen = torch.zeros_like(real)
    before, after = 0, 0
    for piece in pieces:
        cols = torch.arange(piece.cols.start, piece.cols.stop, device=device)
        seen[cols] = True
        for start, stop in piece.blocks():
            rows = torch.arange(start, stop, device=device) + piece.rows.start
            may = _may(piece.cut(start, stop))[0]
            real[cols] |= may.any(0)
            if may.any():
                offsets = (cols[None] - rows[:, None])[may]
                before = max(before, -int(offsets.min()))
                after = max(after, int(offsets.max()))
    keys = real.nonzero()[:, 0]
    if not len(keys):
        return None
    reach_before = max(piece.rows.stop for piece in pieces) - 1 - int(keys[0])
    reach_after = int(keys[-1]) - min(piece.rows.start for piece in pieces)
    real |= ~seen
    rule: Mask | None = None
    if before < reach_before:
        rule = Window(before + 1, after=after)
    elif after == 0 and reach_after > 0:
        rule = Causal()
    elif after < reach_after:
        rule = Window(reach_before + 1, after=after)
    if not bool(real.all()):
        padding = Padding(real[None])
        rule = padding if rule is None else rule & padding
    for piece in pieces:
        for start, stop in piece.blocks():
            may = _may(piece.cut(start, stop))[0]
            if not torch.equal(_evaluate(rule, piece, start, stop), may):
                return None
    return rule, None


def _evaluate(rule: Mask | None, piece: Piece, start: int, stop: int) -> Tensor:
    rows = range(piece.rows.start + start, piece.rows.start + stop)
    shape = len(rows), len(piece.cols)
    device = piece.values.device
    if rule is None:
        return torch.ones(shape, dtype=torch.bool, device=device)
    rectangle = Rectangle(
        slice(0, 1),
        slice(rows.start, rows.stop),
        slice(piece.cols.start, piece.cols.stop),
        torch.arange(rows.start, rows.stop, device=device)[None],
        torch.arange(piece.cols.start, piece.cols.stop, device=device)[None],
    )
    return rule.allows(rectangle)[0, 0].expand(shape)


def trim(mask: Mask | None, rows: Tensor, cols: Tensor) -> Mask | None:
    """The mask of the rows and columns that stay; padding that is gone is dropped from it."""
    if isinstance(mask, _Both):
        first, second = trim(mask.first, rows, cols), trim(mask.second, rows, cols)
        return second if first is None else first if second is None else first & second
    if isinstance(mask, Padding):
        real = mask.real[:, cols]
        return None if bool(real.all()) else Padding(real)
    if isinstance(mask, Arbitrary):
        allowed = mask.allowed
        allowed = allowed if allowed.shape[2] == 1 else allowed[:, :, rows]
        return Arbitrary(allowed if allowed.shape[3] == 1 else allowed[:, :, :, cols])
    return mask


def trim_bias(bias: Bias, rows: Tensor, cols: Tensor) -> Bias:
    """The bias of the rows and columns that stay."""
    if not isinstance(bias, DenseBias):
        return bias
    values = bias.tensor
    values = values if values.shape[2] == 1 else values[:, :, rows]
    return DenseBias(values if values.shape[3] == 1 else values[:, :, :, cols])


def bias(pieces: list[Piece], q_tokens: int, k_tokens: int) -> Bias | None:
    """The bias of all steps: nothing, a number a key, a table over offsets, or the matrix."""
    if not any(bool(piece.values.any()) for piece in pieces):
        return None
    return (
        _key_bias(pieces, k_tokens)
        or _offset_table(pieces, q_tokens, k_tokens)
        or DenseBias(_assemble(pieces, q_tokens, k_tokens, lambda x: x)[None])
    )


def _key_bias(pieces: list[Piece], k_tokens: int) -> DenseBias | None:
    """The same for every query, as ALiBi in the form of BLOOM."""
    last = pieces[-1]
    if any(piece.values.shape[1] != 1 for piece in pieces) or last.cols != range(k_tokens):
        return None
    whole = last.values.expand(-1, 1, k_tokens)
    for piece in pieces:
        cut = whole[:, :, piece.cols.start : piece.cols.stop]
        if not torch.equal(piece.values.expand(-1, 1, len(piece.cols)), cut):
            return None
    return DenseBias(whole[None].clone())


def _offset_table(pieces: list[Piece], q_tokens: int, k_tokens: int) -> RelativeBias | None:
    """The same for every pair of one offset, as in T5; 0 for offsets that no step has seen."""
    lowest, highest = 1 - q_tokens, k_tokens - 1
    heads, device = pieces[0].values.shape[0], pieces[0].values.device
    table = torch.zeros(heads, highest - lowest + 1, dtype=pieces[0].values.dtype, device=device)
    for check in (False, True):
        for piece in pieces:
            for start, stop in piece.blocks():
                values = piece.cut(start, stop)
                rows = torch.arange(start, stop, device=device) + piece.rows.start
                cols = torch.arange(piece.cols.start, piece.cols.stop, device=device)
                columns = cols[None] - rows[:, None] - lowest
                if not check:
                    table[:, columns] = values
                elif not torch.equal(table[:, columns], values):
                    return None
    return RelativeBias(table, lowest)


def _adds(piece: Piece) -> bool:
    for start, stop in piece.blocks():
        values = piece.cut(start, stop)
        if bool((values.masked_fill(~_may(values), 0) != 0).any()):
            return True
    return False


def _may(values: Tensor) -> Tensor:
    """True where a pair is allowed."""
    if values.dtype == torch.bool:
        return values
    return values > torch.finfo(values.dtype).min / 2


def _forbidding(values: Tensor) -> Tensor:
    return values.masked_fill(~_may(values), -torch.inf)


def _assemble(
    pieces: list[Piece], q_tokens: int, k_tokens: int, read: Callable[[Tensor], Tensor]
) -> Tensor:
    """All pieces in their places, (H or 1, q_tokens, k_tokens); elsewhere nothing is allowed."""
    first = read(pieces[0].values[:, :1, :1])
    heads = max(piece.values.shape[0] for piece in pieces)
    empty = False if first.dtype == torch.bool else -torch.inf
    whole = torch.full((heads, q_tokens, k_tokens), empty, dtype=first.dtype, device=first.device)
    for piece in pieces:
        for start, stop in piece.blocks():
            rows = slice(piece.rows.start + start, piece.rows.start + stop)
            whole[:, rows, piece.cols.start : piece.cols.stop] = read(piece.cut(start, stop))
    return whole
