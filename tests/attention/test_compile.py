"""torch.compile gives equal results, layer and function, on every path.

In a process of its own, where the type checks of the test run do not wrap what is compiled.
"""

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
):
    layer = MultiHeadAttention(12, 3, **options)
    compiled = torch.compile(layer, backend="aot_eager")
    results = []
    for each in (layer, compiled):
        output = each(x, mask=mask)
        results.append((output, *torch.autograd.grad(output.square().sum(), layer.parameters())))
    for found, expected in zip(*results, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
print("equal")
"""


@pytest.mark.slow
def test_compiled_equals_eager():
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM], capture_output=True, text=True
    )
    assert done.stdout == "equal\n", done.stderr
