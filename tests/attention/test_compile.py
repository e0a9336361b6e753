"""torch.compile gives equal results, layer and function, on every path.

In a process of its own, where the type checks of the test run do not wrap what is compiled.
"""

import os
import shutil
import subprocess
import sys

import pytest

PROGRAM = """
import torch
from regard import positions
from regard.attention import MultiHeadAttention, masks

torch.manual_seed(0)
x = torch.randn(2, 5, 12)
mask = masks.Causal() & masks.Padding(torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]]).bool())
for options in (
    {},
    {"kv_heads": 1, "position": positions.create("rotary", head_width=4)},
    {"position": positions.create("t5", heads=3)},
    {"score": "cosine", "normalizer": "entmax15"},
    {"score": "additive", "path": "blockwise"},
    {"score": "additive"},
):
    layer = MultiHeadAttention(12, 3, **options)
    compiled = torch.compile(layer, backend="aot_eager")
    results = []
    for each in (compiled, layer):  # nothing is warm yet when it is compiled
        output = each(x, mask=mask)
        results.append((output, *torch.autograd.grad(output.square().sum(), layer.parameters())))
    for found, expected in zip(*results, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
print("equal")
"""


INDUCTOR = """
import torch
from regard.attention import MultiHeadAttention, masks

torch.manual_seed(0)
x, mask = torch.randn(2, 5, 12, requires_grad=True), masks.Causal()
layer = MultiHeadAttention(12, 3)
compiled = torch.compile(layer, fullgraph=True)
for training in (False, True):
    layer.train(training)
    results = []
    for each in (compiled, layer):
        output = each(x, mask=mask)
        leaves = [x, *layer.parameters()]
        results.append((output, *torch.autograd.grad(output.square().sum(), leaves)))
    for found, expected in zip(*results, strict=True):
        # Sums of at most 12 · 10 float32 numbers of size 1, in another order.
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
print("equal")
"""


NAMES = """
import torch
from regard.attention import attend, masks

x = torch.randn(1, 2, 5, 4)
for score in ("scaled_dot", "dot"):
    for normalizer in ("softmax", "sparsemax"):

        def mix(x, score=score, normalizer=normalizer):
            return attend(x, x, x, score=score, normalizer=normalizer, mask=masks.Causal())

        compiled = torch.compile(mix, backend="aot_eager", fullgraph=normalizer == "softmax")
        found = compiled(x)  # nothing has been called by name before it is compiled
        torch.testing.assert_close(found, mix(x), rtol=1e-5, atol=1e-6)
try:
    torch.compile(lambda x: attend(x, x, x, score="additive"), backend="aot_eager")(x)
except ValueError as error:
    assert "has parameters to learn" in str(error), error
print("equal")
"""


def run(program, **environment):
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        capture_output=True,
        text=True,
        env=os.environ | environment,
    )
    assert done.stdout == "equal\n", done.stderr


@pytest.mark.slow
def test_names_in_a_compiled_function_that_nothing_called_before():
    run(NAMES)


@pytest.mark.slow
def test_compiled_equals_eager():
    run(PROGRAM)


@pytest.mark.slow
@pytest.mark.skipif(
    shutil.which(os.environ.get("CXX", "g++")) is None,
    reason="torch.compile's own backend needs a C++ compiler",
)
def test_compiled_to_machine_code_equals_eager(tmp_path):
    run(INDUCTOR, TORCHINDUCTOR_CACHE_DIR=str(tmp_path), TORCHINDUCTOR_COMPILE_THREADS="1")
