"""The loop over tiles of rows and keys: scores, bias table, mask, softmax, values; and back.

Only what is O(T) outlives a tile: query, key, value, output, and two numbers a row. Backward makes
the weights again from these. After Dao et al., "FlashAttention" (2022), algorithms 1 and 4: forward
keeps a running maximum and sum, so that keys come by the tile as well.

All but the scores is PyTorch's own operations, on one team of threads with the matrix products:
a second team would wait for a processor while the first one, done, still spins. Powers are of two,
for PyTorch's are three times as fast as those of e.
Rows of a tile run backward, so that a table over offsets is added as a view.
"""

import math
from collections.abc import Iterator
from itertools import chain
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from regard.attention import rows
from regard.attention.bias import RelativeBias
from regard.attention.call import Call
from regard.attention.dropout import keep
from regard.attention.kernels.scratch import scratch
from regard.attention.kernels.table import Table
from regard.attention.kernels.threads import Threads
from regard.attention.masks import Rectangle
from regard.errors import RegardError

# A tile has so many rows; fewer under a mask, where its keys are those of any of its rows.
_ROWS, _ROWS_UNDER_MASK, _FEWEST_KEYS = 256, 128, 128
_LOG2_E = 1 / math.log(2)
# A row's largest score until it has seen a key: finite, for no score minus infinity is a number.
_NOTHING_YET = torch.finfo(torch.float32).min


@runtime_checkable
class Scores(Protocol):
    """What makes the scores of a tile, and takes their gradients."""

    def __init__(self, query: Tensor, key: Tensor, parameter: Tensor, /): ...

    def tile(self) -> tuple[int, int]:
        """How many scores a tile holds at most, all heads together, and how many keys."""
        ...

    def fill(self, threads: Threads, scores: Tensor, rectangle: Rectangle) -> None:
        """Write the rectangle's scores, (batch, heads, rows backward, keys)."""

    def start_gradients(self) -> None:
        """Make room for the gradients."""

    def absorb(self, threads: Threads, slopes: Tensor, rectangle: Rectangle) -> None:
        """Add what the gradients `slopes` of those scores give."""

    def gradients(self) -> tuple[Tensor, Tensor, Tensor | None]:
        """Of query, key and the score's parameter."""
        ...


class Fused(torch.autograd.Function):
    """``apply(call, kind, lowest, query, key, value, parameter, table)``: the mixed values.

    `kind`: a class of `Scores`, made with query, key and parameter. `table`: (heads, offsets) or
    None, its first column for the offset `lowest`. Tensors are float32 and (batch, heads, tokens,
    width), with as many key as query heads.
    """

    @staticmethod
    def forward(
        ctx: Any,
        call: Call,
        kind: "type[Scores]",
        lowest: int,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        parameter: Tensor,
        table: Tensor | None,
    ) -> Tensor:
        """Tile by tile: scores, powers, mix; what a larger score makes smaller is scaled down."""
        value = value.detach().contiguous()
        scores_of: Scores = kind(query.detach(), key.detach(), parameter.detach())
        batch, heads, q_tokens, _ = call.sizes
        output = value.new_zeros(batch, heads, q_tokens, value.shape[-1])
        # By row: the largest score, in powers of two, and one over the sum of the powers.
        statistics = value.new_zeros(2, batch, heads, q_tokens, 1)
        lines = None if table is None else Table(call, table, lowest, _LOG2_E)
        with Threads() as threads:
            for block in _blocks(call, scores_of):
                part = block[0].batch, slice(None), block[0].rows
                total = torch.zeros_like(statistics[0][part])
                largest = torch.full_like(total, _NOTHING_YET)
                mixed = output.new_zeros(output[part].shape)
                for rectangle in block:
                    powers = _room("powers", call, rectangle)
                    _fill(threads, call, scores_of, lines, powers, rectangle)
                    before = largest
                    largest = torch.maximum(before, powers.amax(-1, keepdim=True))
                    powers.sub_(largest).exp2_()
                    shrink = torch.exp2(before - largest)
                    total.mul_(shrink).add_(powers.sum(-1, keepdim=True))
                    kept = _kept(call, rectangle)
                    if kept is not None:
                        powers *= kept
                    values = value[rectangle.batch].flatten(0, 1)[:, rectangle.cols]
                    mixed.mul_(shrink).flatten(0, 1).add_(torch.bmm(powers.flatten(0, 1), values))
                share = torch.where(total == 0, 0, 1 / total)
                output[part] = mixed.mul_(share).flip(2)
                statistics[0][part] = largest.flip(2)
                statistics[1][part] = share.flip(2)
        ctx.save_for_backward(query, key, value, parameter, table, statistics, output)
        ctx.call, ctx.kind, ctx.lowest = call, kind, lowest
        return output

    @staticmethod
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, output_slopes: Tensor
    ) -> tuple[Tensor | None, ...]:
        """Tile by tile: powers again, gradients of scores, of everything else."""
        if torch.is_grad_enabled():
            raise RegardError(
                "the kernels have gradients of first order only, and create_graph=True asks for "
                'more; pass path="reference"'
            )
        query, key, value, parameter, table, statistics, output = ctx.saved_tensors
        call: Call = ctx.call
        scores_of: Scores = ctx.kind(query, key, parameter)
        scores_of.start_gradients()
        largest, share = statistics
        # Weights are powers times share; the share goes with the rows of the output.
        balance = (output_slopes * output).sum(-1, keepdim=True).mul_(share).neg_()
        value_slopes = torch.zeros_like(value)
        lines = None if table is None else Table(call, table, ctx.lowest, _LOG2_E)
        with Threads() as threads:
            for rectangle in chain.from_iterable(_blocks(call, scores_of)):
                part = rectangle.batch, slice(None), rectangle.rows
                powers, slopes = (_room(name, call, rectangle) for name in ("powers", "slopes"))
                _fill(threads, call, scores_of, lines, powers, rectangle)
                powers.sub_(largest[part].flip(2)).exp2_()
                out = (output_slopes[part] * share[part]).flip(2).flatten(0, 1)
                start = balance[part].flip(2)
                values = value[rectangle.batch].flatten(0, 1)[:, rectangle.cols].transpose(1, 2)
                kept = _kept(call, rectangle)
                if kept is None:
                    torch.baddbmm(start.flatten(0, 1), out, values, out=slopes.flatten(0, 1))
                    slopes *= powers
                else:
                    torch.bmm(out, values, out=slopes.flatten(0, 1))
                    slopes.mul_(kept).add_(start).mul_(powers)
                    powers *= kept
                value_slopes[rectangle.batch].flatten(0, 1)[:, rectangle.cols].add_(
                    torch.bmm(powers.flatten(0, 1).transpose(1, 2), out)
                )
                if lines is not None:
                    lines.absorb(slopes, rectangle)
                scores_of.absorb(threads, slopes, rectangle)
        query_slopes, key_slopes, parameter_slopes = scores_of.gradients()
        return (
            *(None, None, None),
            query_slopes,
            key_slopes,
            value_slopes,
            parameter_slopes,
            None if lines is None else lines.gradient(),
        )


# A compiled model steps out of its graph here.
_apply: Any = torch.compiler.disable(Fused.apply)


def run(
    call: Call, kind: type[Scores], query: Tensor, key: Tensor, parameter: Tensor, value: Tensor
) -> Tensor:
    """Mix `value` by the scores `kind` of `query`, `key` and `parameter`, in float32."""
    table, lowest = None, 0
    for bias in call.biases:
        assert isinstance(bias, RelativeBias)
        table, lowest = bias.table.float(), bias.lowest
    tensors = (each.float() for each in (query, key, value, parameter))
    return _apply(call, kind, lowest, *tensors, table).to(call.value.dtype)


def _tile_sizes(call: Call, scores_of: Scores) -> tuple[int, int, int]:
    """Batch, rows and keys of a tile."""
    batch, heads, q_tokens, k_tokens = call.sizes
    numbers, most_keys = scores_of.tile()
    rows = min(q_tokens, _ROWS if call.mask is None else _ROWS_UNDER_MASK)
    keys = min(k_tokens, most_keys, max(_FEWEST_KEYS, numbers // (heads * rows)))
    return min(batch, max(1, numbers // (heads * rows * keys))), rows, keys


def _room(name: str, call: Call, rectangle: Rectangle) -> Tensor:
    """Room for the numbers of a tile, (batch, heads, rows, keys), in memory that is used again."""
    batch, rows, cols = rectangle.batch, rectangle.rows, rectangle.cols
    shape = batch.stop - batch.start, call.sizes[1], rows.stop - rows.start, cols.stop - cols.start
    return scratch(name, math.prod(shape)).view(shape)


def _blocks(call: Call, scores_of: Scores) -> Iterator[list[Rectangle]]:
    """Blocks that cover all rows, each as the tiles of the keys it may see, if there are any."""
    batch, _, q_tokens, k_tokens = call.sizes
    batch_step, row_step, key_step = _tile_sizes(call, scores_of)
    for b in range(0, batch, batch_step):
        sequences = slice(b, min(b + batch_step, batch))
        for start in range(0, q_tokens, row_step):
            here = slice(start, min(start + row_step, q_tokens))
            span = slice(0, k_tokens)
            if call.mask is not None and call.in_order:
                span = call.mask.span(here, k_tokens)
            tiles = [
                call.rectangle(here, slice(k, min(k + key_step, span.stop)), sequences)
                for k in range(span.start, span.stop, key_step)
            ]
            if tiles:
                yield tiles


def _fill(
    threads: Threads,
    call: Call,
    scores_of: Scores,
    lines: Table | None,
    scores: Tensor,
    rectangle: Rectangle,
) -> None:
    """Write what the powers of two are to be taken of: scores, table and mask."""
    scores_of.fill(threads, scores, rectangle)
    if lines is None:
        scores *= _LOG2_E
    else:
        lines.add_to(scores, rectangle, _LOG2_E)
    seen = rows.allowed(call, rectangle)
    if seen is not None and not seen.all():
        scores += torch.where(seen, 0.0, -torch.inf).flip(2)


def _kept(call: Call, rectangle: Rectangle) -> Tensor | None:
    """What dropout multiplies the weights by, or None."""
    if not call.dropout or call.seed is None:
        return None
    kept = keep(call.seed, call.dropout, rectangle, call.sizes[1])
    return kept.flip(2) / (1 - call.dropout)
