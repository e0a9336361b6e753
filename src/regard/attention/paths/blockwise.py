"""Blockwise: a loop over blocks of rows, in memory that does not grow with T².

Forward keeps query, key, value and output; backward computes each block's rows again and
differentiates them, so the definition in `regard.attention.rows` is the only one. Recomputing whole
rows needs no row statistics. After Chen et al., "Training Deep Nets with Sublinear Memory Cost"
(2016), section 4, and Rabe and Staats, "Self-attention Does Not Need O(n²) Memory" (2021).
"""

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from regard.attention.call import Call
from regard.attention.masks import Rectangle
from regard.attention.paths._path import Path
from regard.attention.rows import Tensors, row_output, tensors_of
from regard.errors import RegardError

BLOCK_BYTES = 64 * 2**20
"""What one block may hold while it is computed and differentiated."""


class Blockwise(Path):
    """Any score, normalizer, mask and bias; gradients of first order."""

    def refuses(self, call: Call) -> str | None:
        """Only what must be seen whole."""
        if call.observed:
            return "scores or weights are observed, and it never holds them whole"
        return None

    def declines(self, call: Call) -> str | None:
        """A call that fits one block: computing it again in backward gains nothing."""
        batch, _, q_tokens, _ = call.sizes
        if batch * q_tokens <= block_rows(call):
            return f"all {batch} × {q_tokens} rows fit one block"
        return None

    def run(self, call: Call) -> Tensor:
        """The loop, with its own backward."""
        return run_in_blocks(call, block_rows(call))  # pyright: ignore[reportCallIssue]


def block_rows(call: Call) -> int:
    """How many rows of one sequence make a block of at most `BLOCK_BYTES`; at least one."""
    heads, head_width, k_tokens = call.query.shape[1], call.query.shape[3], call.key.shape[2]
    numbers = 2 + call.score.pair_width(head_width) + call.normalizer.pair_width()
    numbers += sum(2 * b.pair_width(head_width) for b in call.biases) + 3 * bool(call.dropout)
    row = heads * max(k_tokens, 1) * numbers * max(call.query.element_size(), 4)
    return max(BLOCK_BYTES // row, 1)


@torch.compiler.disable
def run_in_blocks(call: Call, rows: int) -> Tensor:
    """The output of the call, computed `rows` rows of one sequence at a time."""
    tensors = tensors_of(call)
    every = (
        *tensors.score_parameters,
        *tensors.normalizer_parameters,
        *(t for bias in call.biases for t in bias.tensors),
    )
    # One tensor used twice is one input, or its gradient would count twice.
    learned = tuple({id(t): t for t in every}.values())
    job = _Job(call, learned, tensors.score_parameters, tensors.normalizer_parameters, rows)
    return _Blocks.apply(job, *tensors[:5], *learned)  # pyright: ignore[reportReturnType]


@dataclass(frozen=True, eq=False)
class _Job:
    """What forward hands to backward besides the saved tensors."""

    call: Call
    learned: tuple[Tensor, ...]
    score_parameters: tuple[Tensor, ...]
    normalizer_parameters: tuple[Tensor, ...]
    rows: int

    def tensors(self, inputs: tuple[Tensor, ...]) -> Tensors:
        """The five per-token tensors with the learned ones of the rules."""
        query, key, value, query_features, key_features = inputs[:5]
        return Tensors(
            query,
            key,
            value,
            query_features,
            key_features,
            self.score_parameters,
            self.normalizer_parameters,
        )

    def rectangles(self) -> Iterator[Rectangle]:
        """The blocks, each with the columns that its rows may attend to at all."""
        call = self.call
        batch, _, q_tokens, k_tokens = call.sizes
        for b in range(batch):
            for start in range(0, q_tokens, self.rows):
                rows = slice(start, min(start + self.rows, q_tokens))
                cols = slice(0, k_tokens)
                if (
                    call.in_order
                    and call.mask is not None
                    and not any(b.whole_rows for b in call.biases)
                ):
                    cols = call.mask.span(rows, k_tokens)
                yield call.rectangle(rows, cols, slice(b, b + 1))


class _Blocks(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, job: _Job, *inputs: Tensor) -> Tensor:
        ctx.job = job
        ctx.save_for_backward(*inputs)
        device = inputs[0].device.type
        # Backward runs outside of the caller's autocast, and must compute what forward did.
        ctx.autocast = nullcontext()
        if torch.amp.is_autocast_available(device):
            ctx.autocast = torch.autocast(
                device, torch.get_autocast_dtype(device), torch.is_autocast_enabled(device)
            )
        tensors = job.tensors(inputs)
        value = tensors.value
        output = value.new_empty(*tensors.query.shape[:3], value.shape[-1])
        for rectangle in job.rectangles():
            output[rectangle.batch, :, rectangle.rows] = row_output(
                job.call, tensors.cut(rectangle), rectangle
            )
        return output

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> Any:
        if torch.is_grad_enabled():
            raise RegardError(
                "the blockwise path has gradients of first order only, and create_graph=True asks "
                'for more; pass path="reference"'
            )
        job: _Job = ctx.job
        inputs: tuple[Tensor, ...] = ctx.saved_tensors
        wanted = ctx.needs_input_grad[1:]
        # Sums over blocks are kept in float32 or better.
        sums = [
            torch.zeros_like(x, dtype=torch.promote_types(x.dtype, torch.float32)) if want else None
            for x, want in zip(inputs, wanted, strict=True)
        ]
        tensors = job.tensors(inputs)
        with ctx.autocast:
            for rectangle in job.rectangles():
                _add_gradients(job, tensors.cut(rectangle), rectangle, upstream[0], wanted, sums)
        return None, *(
            None if total is None else total.to(x.dtype)
            for x, total in zip(inputs, sums, strict=True)
        )


def _add_gradients(
    job: _Job,
    cut: Tensors,
    rectangle: Rectangle,
    upstream: Tensor,
    wanted: tuple[bool, ...],
    sums: list[Tensor | None],
) -> None:
    """Compute one block again, differentiate it, and add to the sums."""
    batch, rows, cols = rectangle.batch, rectangle.rows, rectangle.cols
    leaves = [x.detach().requires_grad_(w) for x, w in zip(cut[:5], wanted[:5], strict=True)]
    with torch.enable_grad():
        output = row_output(job.call, job.tensors((*leaves,)), rectangle)
    if not output.requires_grad:
        return
    asked = [i for i, want in enumerate(wanted) if want]
    everything = (*leaves, *job.learned)
    gradients = torch.autograd.grad(
        output, [everything[i] for i in asked], upstream[batch, :, rows], allow_unused=True
    )
    for i, gradient in zip(asked, gradients, strict=True):
        total = sums[i]
        if gradient is None or total is None:
            continue
        if i < len(leaves):
            total[batch, :, rows if i in _QUERY_SIDE else cols] += gradient
        else:
            total += gradient


_QUERY_SIDE = (0, 3)
"""Which of the five per-token tensors run along the queries."""
