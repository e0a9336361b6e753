"""The Triton kernels: run in Triton's interpreter, and compiled for CUDA without a GPU.

Both need a fresh process: the interpreter is chosen when the kernels are defined.
"""

import os
import subprocess
import sys

import pytest

pytest.importorskip("triton", reason="pip install triton runs the GPU kernels in its interpreter")


def run(script, **environment):
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


INTERPRETED = """
import torch
from regard.attention import attend, masks, scores

torch.manual_seed(0)
EPS = torch.finfo(torch.float32).eps
cases = [
    # batch, kv heads, group, queries, keys, width, value width, mask, size of every third query
    (2, 3, 1, 5, 7, 11, 13, None, 1.0),
    (1, 1, 2, 70, 70, 3, 5, masks.Causal(), 1.0),
    (1, 2, 1, 33, 40, 4, 3, None, 60.0),
    (1, 2, 1, 3, 3, 2, 17, masks.Causal(), 1e4),
    (1, 1, 1, 1, 1, 1, 1, None, 1.0),
]
for batch, kv_heads, group, q_tokens, k_tokens, width, value_width, mask, far in cases:
    heads = kv_heads * group
    q = torch.randn(batch, heads, q_tokens, width)
    q[:, :, ::3] *= far
    k = torch.randn(batch, kv_heads, k_tokens, width)
    v = torch.randn(batch, kv_heads, k_tokens, value_width)
    upstream = torch.randn(batch, heads, q_tokens, value_width)
    score = scores.create("additive", heads=heads, head_width=width)

    def results(path, dtype):
        own = score.to(dtype)
        leaves = [x.to(dtype).requires_grad_() for x in (q, k, v)]
        output = attend(*leaves, score=own, mask=mask, path=path)
        wanted = [*leaves, *own.parameters()]
        return [output.detach(), *torch.autograd.grad(output, wanted, upstream.to(dtype))]

    truth = results("reference", torch.float64)
    plain = results("reference", torch.float32)
    found = results("additive_triton", torch.float32)
    largest = max(float(x.abs().max()) for x in truth)
    for true, other, own in zip(truth, plain, found):
        # Four times what plain float32 loses, and the roundings of sums in another order.
        bound = 4 * float((other - true).abs().max())
        bound += 8 * max(q_tokens, k_tokens) ** 0.5 * EPS * largest
        assert float((own - true).abs().max()) <= bound
    assert all(torch.equal(x, y) for x, y in zip(found, results("additive_triton", torch.float32)))
print("agree")
"""


def test_output_and_all_gradients_in_the_interpreter():
    assert run(INTERPRETED, TRITON_INTERPRET="1") == "agree\n"


COMPILED = """
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from regard.attention.kernels import additive_triton as kernels

whole = {"heads", "q_tokens", "k_tokens", "width", "value_width"}
for capability, causal, far in ((80, True, False), (90, False, True)):
    for kernel in (kernels._forward, kernels._query_slopes, kernels._key_slopes):
        chosen = {"CAUSAL": causal, "FAR": far, "BLOCK": kernels._BLOCK, "VALUES": 64}
        names = kernel.arg_names
        kinds = {n: "constexpr" if n in chosen else "i32" if n in whole else "*fp32" for n in names}
        constants = {(names.index(name),): value for name, value in chosen.items()}
        source = ASTSource(fn=kernel, signature=kinds, constexprs=constants)
        compiled = triton.compile(source, target=GPUTarget("cuda", capability, 32))
        assert compiled.asm["cubin"]
print("compiled")
"""


@pytest.mark.slow
def test_the_kernels_compile_for_cuda():
    assert run(COMPILED, TRITON_INTERPRET="0") == "compiled\n"
