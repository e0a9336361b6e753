"""What a call loads: seen in a fresh interpreter."""

import subprocess
import sys

import pytest

PROGRAM = """
import sys
import torch
from regard import MultiHeadAttention, attend, positions
from regard.attention import masks, scores
from regard.attention.bias import RelativeBias

x = torch.randn(2, 3, 5, 4)
{call}
print("numba" in sys.modules)
"""


@pytest.mark.parametrize(
    ("call", "loaded"),
    [
        ("attend(x, x, x, mask=masks.Causal() & masks.Window(2))", False),
        ("MultiHeadAttention(4, 2)(x[0]).sum().backward()", False),
        ("attend(x, x, x, normalizer='sparsemax', dropout=0.5)", False),
        ("attend(x, x, x, bias=RelativeBias(torch.zeros(3, 9), -4))", False),
        ("attend(x, x, x, score=scores.create('additive', heads=3, head_width=4))", True),
    ],
)
def test_only_additive_scores_load_numba(call, loaded):
    program = PROGRAM.format(call=call)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == f"{loaded}\n", done.stderr
