"""The loop over blocks of rows: scores, bias table, mask, softmax, dropout, values; and back.

Only what is O(T) outlives a block: query, key, value, and two numbers a row.
Backward makes the weights again from these.
"""

from collections.abc import Iterator
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from regard.attention import rows
from regard.attention.bias import RelativeBias
from regard.attention.call import Call
from regard.attention.dropout import keep
from regard.attention.kernels.softmax import ROWS_A_TASK, slope, tasks, weigh
from regard.attention.kernels.threads import Threads
from regard.attention.masks import Rectangle
from regard.errors import RegardError

# A block has so many rows; fewer under a mask, where the block's keys are those of any of its rows;
# fewer still if its scores were more numbers than the budget.
_ROWS, _ROWS_UNDER_MASK, _FEWEST_ROWS, _BUDGET = 256, 128, 16, 2**21


@runtime_checkable
class Scores(Protocol):
    """What makes the scores of a block, and takes their gradients."""

    def __init__(self, query: Tensor, key: Tensor, parameter: Tensor, /): ...

    def fill(self, threads: Threads, scores: Tensor, rectangle: Rectangle) -> None:
        """Write the rectangle's scores, (batch, heads, rows, keys)."""

    def start_gradients(self) -> None:
        """Make room for the gradients."""

    def absorb(self, threads: Threads, slopes: Tensor, rectangle: Rectangle) -> None:
        """Add what the gradients `slopes` of the rectangle's scores give."""

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
        """Block by block: fill, weigh, mix."""
        value = value.detach().contiguous()
        scores_of: Scores = kind(query, key, parameter)
        batch, heads, q_tokens, _ = call.sizes
        output = value.new_zeros(batch, heads, q_tokens, value.shape[-1])
        # The rows' largest scores and sums of powers, to make the very same weights again.
        statistics = value.new_zeros(2, batch, heads, q_tokens)
        line, starts = _table_lines(call, table, lowest)
        with Threads() as threads:
            for rectangle, (weights,) in _blocks(call, scratches=1):
                scores_of.fill(threads, weights, rectangle)
                sums = torch.empty(2, *weights.shape[:3])
                _weigh(threads, call, rectangle, weights, sums, line, starts, known=False)
                statistics[:, rectangle.batch, :, rectangle.rows] = sums
                kept = _kept(call, rectangle)
                if kept is not None:
                    weights *= kept
                mixed = torch.bmm(
                    weights.flatten(0, 1), value[rectangle.batch].flatten(0, 1)[:, rectangle.cols]
                )
                output[rectangle.batch, :, rectangle.rows] = mixed.unflatten(0, (-1, heads))
        ctx.save_for_backward(query, key, value, parameter, table, statistics)
        ctx.call, ctx.kind, ctx.lowest = call, kind, lowest
        return output

    @staticmethod
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, output_slopes: Tensor
    ) -> tuple[Tensor | None, ...]:
        """Block by block: weights again, gradients of scores, of everything else."""
        if torch.is_grad_enabled():
            raise RegardError(
                "the kernels have gradients of first order only, and create_graph=True asks for "
                'more; pass path="reference"'
            )
        query, key, value, parameter, table, statistics = ctx.saved_tensors
        call: Call = ctx.call
        scores_of: Scores = ctx.kind(query, key, parameter)
        scores_of.start_gradients()
        output_slopes = output_slopes.contiguous()
        value_slopes = torch.zeros_like(value)
        line, starts = _table_lines(call, table, ctx.lowest)
        table_slopes = torch.zeros(call.sizes[0], -(-_ROWS // ROWS_A_TASK), *line.shape)
        with Threads() as threads:
            for rectangle, (weights, slopes) in _blocks(call, scratches=2):
                part = rectangle.batch, slice(None), rectangle.rows
                scores_of.fill(threads, weights, rectangle)
                sums = statistics[:, *part].contiguous()
                _weigh(threads, call, rectangle, weights, sums, line, starts, known=True)
                out = output_slopes[part].flatten(0, 1)
                torch.bmm(
                    out,
                    value[rectangle.batch].flatten(0, 1)[:, rectangle.cols].transpose(1, 2),
                    out=slopes.flatten(0, 1),
                )
                kept = _kept(call, rectangle)
                if kept is not None:
                    slopes *= kept
                threads.share(
                    slope,
                    tasks(weights),
                    weights.numpy(),
                    slopes.numpy(),
                    table_slopes[rectangle.batch].numpy(),
                    _starts(starts, rectangle),
                )
                if kept is not None:
                    weights *= kept
                value_slopes[rectangle.batch].flatten(0, 1)[:, rectangle.cols].baddbmm_(
                    weights.flatten(0, 1).transpose(1, 2), out
                )
                scores_of.absorb(threads, slopes, rectangle)
        query_slopes, key_slopes, parameter_slopes = scores_of.gradients()
        return (
            *(None, None, None),
            query_slopes,
            key_slopes,
            value_slopes,
            parameter_slopes,
            None if table is None else table_slopes.double().sum((0, 1)).float(),
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


def _blocks(call: Call, scratches: int) -> Iterator[tuple[Rectangle, list[Tensor]]]:
    """The blocks that cover all rows, with room for their scores; blocks without keys are left out.

    The room is used again for the next block.
    """
    batch, heads, q_tokens, k_tokens = call.sizes
    most = _ROWS if call.mask is None else _ROWS_UNDER_MASK
    a_row = max(heads * k_tokens, 1)
    rows = min(max(q_tokens, 1), max(_FEWEST_ROWS, min(most, _BUDGET // a_row)))
    batches = max(1, _BUDGET // (a_row * rows))
    room = [torch.empty(min(batches, batch) * rows * a_row) for _ in range(scratches)]
    for first in range(0, batch, batches):
        for start in range(0, q_tokens, rows):
            here = slice(start, min(start + rows, q_tokens))
            cols = slice(0, k_tokens)
            if call.mask is not None and call.in_order:
                cols = call.mask.span(here, k_tokens)
            rectangle = call.rectangle(here, cols, slice(first, min(first + batches, batch)))
            shape = (
                rectangle.batch.stop - rectangle.batch.start,
                heads,
                here.stop - here.start,
                cols.stop - cols.start,
            )
            numbers = shape[0] * shape[1] * shape[2] * shape[3]
            if numbers:
                yield rectangle, [each[:numbers].view(shape) for each in room]


def _table_lines(call: Call, table: Tensor | None, lowest: int) -> tuple[Tensor, Tensor]:
    """The table, or an empty one, and where key 0 stands in it for each query, (1 or B, Tq)."""
    if table is None or not call.sizes[3]:
        return torch.zeros(0, 0), torch.zeros(1, call.sizes[2], dtype=torch.int64)
    return table.contiguous(), call.key_positions[:, :1] - call.query_positions - lowest


def _starts(starts: Tensor, rectangle: Rectangle) -> Any:
    """`starts` for the rectangle: its rows, its first key."""
    batch = rectangle.batch if starts.shape[0] > 1 else slice(0, 1)
    return (starts[batch, rectangle.rows] + rectangle.cols.start).numpy()


def _weigh(
    threads: Threads,
    call: Call,
    rectangle: Rectangle,
    weights: Tensor,
    sums: Tensor,
    line: Tensor,
    starts: Tensor,
    known: bool,
) -> None:
    seen = rows.allowed(call, rectangle)
    if seen is None:
        seen = torch.zeros(0, 0, 0, 0, dtype=torch.bool)
    else:
        seen = seen.expand(*seen.shape[:3], weights.shape[3]).contiguous()
    threads.share(
        weigh,
        tasks(weights),
        weights.numpy(),
        *sums.numpy(),
        seen.numpy(),
        line.numpy(),
        _starts(starts, rectangle),
        known,
    )


def _kept(call: Call, rectangle: Rectangle) -> Tensor | None:
    """What dropout multiplies the weights by, or None."""
    if not call.dropout or call.seed is None:
        return None
    kept = keep(call.seed, call.dropout, rectangle, call.sizes[1])
    return kept / (1 - call.dropout)
