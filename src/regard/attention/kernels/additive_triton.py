"""Additive attention on CUDA in Triton, forward and backward, in O(T·d) memory.

The form is that of `regard.attention.kernels.additive`: ``tanh(a + b) = 1 − 2r`` with
``r = 1 / (1 + A·B)``. A product that overflows gives r = 0, which is right; only a factor that
does would not be, and then `FAR` takes one exponential a pair and dimension instead.

Three kernels: forward, by blocks of queries with a running softmax; gradients of queries and of the
weight, by blocks of queries; gradients of keys and values, by blocks of keys. No atomic additions,
so results repeat. Features are stored (batch · heads, width, tokens): tokens are contiguous.

The tests run the kernels in Triton's interpreter and compile them for CUDA; their block size has
not been tuned on a GPU.
"""

from typing import Any, no_type_check

import torch
import triton  # pyright: ignore[reportMissingImports]
import triton.language as tl  # pyright: ignore[reportMissingImports]
from torch import Tensor

from regard.errors import RegardError

_BLOCK = 32
# Beyond this, exp(2a) or its reciprocal leaves float32.
_LARGEST_FEATURE = 40.0


@triton.jit
@no_type_check
def _r(a, b, FAR: tl.constexpr):
    """r of some queries and some keys, for one dimension."""
    if FAR:
        return 1.0 / (1.0 + tl.exp(2.0 * (a[:, None] + b[None, :])))
    else:
        return 1.0 / (1.0 + a[:, None] * b[None, :])


@triton.jit
@no_type_check
def _scores(A, B, W, i, j, q_tokens, k_tokens, width, CAUSAL: tl.constexpr, FAR: tl.constexpr):
    """The scores of queries i against keys j but for a constant; −inf where j may not be seen."""
    scores = tl.zeros([i.shape[0], j.shape[0]], dtype=tl.float32)
    for e in range(width):
        a = tl.load(A + e * q_tokens + i, mask=i < q_tokens, other=0.0)
        b = tl.load(B + e * k_tokens + j, mask=j < k_tokens, other=0.0)
        scores -= 2.0 * tl.load(W + e) * _r(a, b, FAR)
    seen = (i < q_tokens)[:, None] & (j < k_tokens)[None, :]
    if CAUSAL:
        seen = seen & (j[None, :] <= i[:, None])
    return tl.where(seen, scores, float("-inf"))


@triton.jit
@no_type_check
def _slopes(
    scores, V, O_SLOPE, LOGSUM, BALANCE, i, j, v, q_tokens, k_tokens, value_width
):  # fmt: skip
    """Weights of a tile, its gradients of the scores, and the rows of the output's gradient."""
    inside = i < q_tokens
    logsum = tl.load(LOGSUM + i, mask=inside, other=0.0)
    balance = tl.load(BALANCE + i, mask=inside, other=0.0)
    weights = tl.exp(scores - logsum[:, None])
    out = tl.load(
        O_SLOPE + i[:, None] * value_width + v[None, :],
        mask=inside[:, None] & (v < value_width)[None, :],
        other=0.0,
    )
    values = tl.load(
        V + j[:, None] * value_width + v[None, :],
        mask=(j < k_tokens)[:, None] & (v < value_width)[None, :],
        other=0.0,
    )
    slopes = tl.dot(out, tl.trans(values), input_precision="ieee")
    return weights, weights * (slopes - balance[:, None]), out


@triton.jit
@no_type_check
def _forward(
    A, B, W, V, OUT, LOGSUM, heads, q_tokens, k_tokens, width, value_width,
    CAUSAL: tl.constexpr, FAR: tl.constexpr, BLOCK: tl.constexpr, VALUES: tl.constexpr,
):  # fmt: skip
    unit = tl.program_id(0).to(tl.int64)
    i = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    v = tl.arange(0, VALUES)
    A += unit * width * q_tokens
    B += unit * width * k_tokens
    V += unit * k_tokens * value_width
    W += unit % heads * width
    largest = tl.full([BLOCK], float("-inf"), dtype=tl.float32)
    total = tl.zeros([BLOCK], dtype=tl.float32)
    mixed = tl.zeros([BLOCK, VALUES], dtype=tl.float32)
    end = k_tokens
    if CAUSAL:
        end = tl.minimum(k_tokens, (tl.program_id(1) + 1) * BLOCK)
    for start in range(0, end, BLOCK):
        j = start + tl.arange(0, BLOCK)
        scores = _scores(A, B, W, i, j, q_tokens, k_tokens, width, CAUSAL, FAR)
        # Rows beyond the last have no keys; 0 for their largest keeps nan out.
        now = tl.maximum(largest, tl.max(scores, 1))
        shift = tl.where(now == float("-inf"), 0.0, now)
        weights = tl.exp(scores - shift[:, None])
        shrink = tl.exp(largest - shift)
        values = tl.load(
            V + j[:, None] * value_width + v[None, :],
            mask=(j < k_tokens)[:, None] & (v < value_width)[None, :],
            other=0.0,
        )
        total = total * shrink + tl.sum(weights, 1)
        mixed = mixed * shrink[:, None] + tl.dot(weights, values, input_precision="ieee")
        largest = now
    inside = i < q_tokens
    total = tl.where(inside, total, 1.0)
    tl.store(
        OUT + unit * q_tokens * value_width + i[:, None] * value_width + v[None, :],
        mixed / total[:, None],
        mask=inside[:, None] & (v < value_width)[None, :],
    )
    tl.store(LOGSUM + unit * q_tokens + i, largest + tl.log(total), mask=inside)


@triton.jit
@no_type_check
def _query_slopes(
    A, B, W, V, O_SLOPE, LOGSUM, BALANCE, A_SLOPE, W_SLOPE,
    heads, q_tokens, k_tokens, width, value_width,
    CAUSAL: tl.constexpr, FAR: tl.constexpr, BLOCK: tl.constexpr, VALUES: tl.constexpr,
):  # fmt: skip
    unit = tl.program_id(0).to(tl.int64)
    i = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    v = tl.arange(0, VALUES)
    A += unit * width * q_tokens
    A_SLOPE += unit * width * q_tokens
    B += unit * width * k_tokens
    V += unit * k_tokens * value_width
    O_SLOPE += unit * q_tokens * value_width
    W += unit % heads * width
    W_SLOPE += (unit * tl.num_programs(1) + tl.program_id(1)) * width
    end = k_tokens
    if CAUSAL:
        end = tl.minimum(k_tokens, (tl.program_id(1) + 1) * BLOCK)
    for start in range(0, end, BLOCK):
        j = start + tl.arange(0, BLOCK)
        scores = _scores(A, B, W, i, j, q_tokens, k_tokens, width, CAUSAL, FAR)
        _, slopes, _ = _slopes(
            scores, V, O_SLOPE, LOGSUM + unit * q_tokens, BALANCE + unit * q_tokens,
            i, j, v, q_tokens, k_tokens, value_width,
        )  # fmt: skip
        for e in range(width):
            a = tl.load(A + e * q_tokens + i, mask=i < q_tokens, other=0.0)
            b = tl.load(B + e * k_tokens + j, mask=j < k_tokens, other=0.0)
            r = _r(a, b, FAR)
            here = A_SLOPE + e * q_tokens + i
            so_far = tl.load(here, mask=i < q_tokens, other=0.0)
            tl.store(here, so_far + tl.sum(slopes * r * (1.0 - r), 1), mask=i < q_tokens)
            tl.store(W_SLOPE + e, tl.load(W_SLOPE + e) + tl.sum(slopes * (1.0 - 2.0 * r)))
        # The sums so far are read again by whichever thread comes to them.
        tl.debug_barrier()


@triton.jit
@no_type_check
def _key_slopes(
    A, B, W, V, O_SLOPE, LOGSUM, BALANCE, B_SLOPE, V_SLOPE,
    heads, q_tokens, k_tokens, width, value_width,
    CAUSAL: tl.constexpr, FAR: tl.constexpr, BLOCK: tl.constexpr, VALUES: tl.constexpr,
):  # fmt: skip
    unit = tl.program_id(0).to(tl.int64)
    j = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    v = tl.arange(0, VALUES)
    A += unit * width * q_tokens
    B += unit * width * k_tokens
    B_SLOPE += unit * width * k_tokens
    V += unit * k_tokens * value_width
    O_SLOPE += unit * q_tokens * value_width
    W += unit % heads * width
    v_slopes = tl.zeros([BLOCK, VALUES], dtype=tl.float32)
    first = 0
    if CAUSAL:
        first = tl.program_id(1) * BLOCK
    for start in range(first, q_tokens, BLOCK):
        i = start + tl.arange(0, BLOCK)
        scores = _scores(A, B, W, i, j, q_tokens, k_tokens, width, CAUSAL, FAR)
        weights, slopes, out = _slopes(
            scores, V, O_SLOPE, LOGSUM + unit * q_tokens, BALANCE + unit * q_tokens,
            i, j, v, q_tokens, k_tokens, value_width,
        )  # fmt: skip
        v_slopes += tl.dot(tl.trans(weights), out, input_precision="ieee")
        for e in range(width):
            a = tl.load(A + e * q_tokens + i, mask=i < q_tokens, other=0.0)
            b = tl.load(B + e * k_tokens + j, mask=j < k_tokens, other=0.0)
            r = _r(a, b, FAR)
            here = B_SLOPE + e * k_tokens + j
            so_far = tl.load(here, mask=j < k_tokens, other=0.0)
            tl.store(here, so_far + tl.sum(slopes * r * (1.0 - r), 0), mask=j < k_tokens)
        tl.debug_barrier()
    tl.store(
        V_SLOPE + unit * k_tokens * value_width + j[:, None] * value_width + v[None, :],
        v_slopes,
        mask=(j < k_tokens)[:, None] & (v < value_width)[None, :],
    )


class AdditiveTriton(torch.autograd.Function):
    """``apply(causal, query, key, value, weight)``: the mixed values.

    Tensors are float32 and (batch, heads, tokens, width), with as many key as query heads; weight
    is (heads, width). `causal`: key index ≤ query index.
    """

    @staticmethod
    def forward(
        ctx: Any, causal: bool, query: Tensor, key: Tensor, value: Tensor, weight: Tensor
    ) -> Tensor:
        """One pass over the keys for each block of queries."""
        launch = _Launch(causal, query, key, value, weight)
        output = value.new_empty(*query.shape[:3], value.shape[-1])
        logsum = query.new_empty(query.shape[:3])
        launch(_forward, query.shape[2], launch.value, output, logsum)
        ctx.save_for_backward(query, key, value, weight, output, logsum)
        ctx.causal = causal
        return output

    @staticmethod
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, output_slopes: Tensor
    ) -> tuple[Tensor | None, ...]:
        """One pass over the keys for each block of queries, one the other way round."""
        if torch.is_grad_enabled():
            raise RegardError(
                "the kernels have gradients of first order only, and create_graph=True asks for "
                'more; pass path="reference"'
            )
        query, key, value, weight, output, logsum = ctx.saved_tensors
        launch = _Launch(ctx.causal, query, key, value, weight)
        output_slopes = output_slopes.contiguous()
        balance = (output * output_slopes).sum(-1)
        shared = launch.value, output_slopes, logsum, balance
        a_slopes, b_slopes = torch.zeros_like(launch.a), torch.zeros_like(launch.b)
        v_slopes = torch.empty_like(launch.value)
        blocks = triton.cdiv(query.shape[2], _BLOCK)
        w_slopes = weight.new_zeros(query.shape[0], query.shape[1], blocks, weight.shape[1])
        launch(_query_slopes, query.shape[2], *shared, a_slopes, w_slopes)
        launch(_key_slopes, key.shape[2], *shared, b_slopes, v_slopes)
        factor = 4 * weight[:, None]
        return (
            None,
            a_slopes.transpose(2, 3) * factor,
            b_slopes.transpose(2, 3) * factor,
            v_slopes,
            w_slopes.sum((0, 2)),
        )


class _Launch:
    """The inputs as the kernels read them, and the grid."""

    def __init__(self, causal: bool, query: Tensor, key: Tensor, value: Tensor, weight: Tensor):
        query, key = query.detach(), key.detach()
        self.far = bool(max(query.abs().amax(), key.abs().amax()) > _LARGEST_FEATURE)
        self.a, self.b = (x.transpose(2, 3).contiguous() for x in (query, key))
        if not self.far:
            self.a, self.b = torch.exp(2 * self.a), torch.exp(2 * self.b)
        self.value, self.weight = value.detach().contiguous(), weight.detach().contiguous()
        self.causal = causal

    def __call__(self, kernel: Any, tokens: int, *tensors: Tensor) -> None:
        """Run `kernel` over blocks of `tokens` and all batches and heads."""
        batch, heads, width, q_tokens = self.a.shape
        value_width = self.value.shape[-1]
        kernel[batch * heads, triton.cdiv(tokens, _BLOCK)](
            self.a,
            self.b,
            self.weight,
            *tensors,
            heads,
            q_tokens,
            self.b.shape[3],
            width,
            value_width,
            CAUSAL=self.causal,
            FAR=self.far,
            BLOCK=_BLOCK,
            VALUES=max(16, triton.next_power_of_2(value_width)),
        )
