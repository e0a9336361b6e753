"""Peak memory at 8192 keys, four heads of width 64, over the inputs, in a process of its own.

The naive additive form holds (rows, keys, 64) numbers a head: 64 GiB for all rows. Blockwise holds
one block of rows whatever their number, so a few of them show the peak of any; what grows with the
rows is inputs, outputs and gradients.
"""

import subprocess
import sys

import pytest

PROGRAM = """
import resource, sys, torch
from regard.attention import attend, masks, scores
from regard.attention.bias import RelativeBias
torch.set_num_threads(1)
KEYS = 8192

def run(rows, keys):
    q, k, v = (torch.randn(1, 4, n, 64, requires_grad=True) for n in (rows, keys, keys))
    table = torch.zeros(4, 2 * keys, requires_grad=True)
    bias = RelativeBias(table, -keys) if {bias} else None
    score = scores.create({score!r}, heads=4, head_width=64)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    out = attend(q, k, v, score=score, bias=bias, normalizer={normalizer!r}, path="blockwise",
                 query_positions=torch.arange(rows), key_positions=torch.arange(keys))
    out.square().sum().backward()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before

run(4, 64)
print(run({rows}, KEYS) / 1024)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("score", "normalizer", "bias", "rows"),
    [
        ("additive", "softmax", False, 6),
        ("scaled_dot", "softmax", True, 128),
        ("scaled_dot", "entmax15", False, 64),
    ],
)
def test_blockwise_stays_below_400_mib(score, normalizer, bias, rows):
    program = PROGRAM.format(score=score, normalizer=normalizer, bias=bias, rows=rows)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert float(done.stdout) < 400
