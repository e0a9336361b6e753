"""What the paths that run `regard.attention.kernels` refuse.

It stands apart from the kernels, so that asking does not load Numba: a path imports its kernels
when it runs.
"""

import torch

from regard.attention.bias import RelativeBias
from regard.attention.call import Call


def refuses(call: Call) -> str | None:
    """Why the kernels cannot compute the call, whatever its score; None if they can."""
    if call.query.device.type != "cpu":
        return f"the kernel runs on the CPU, and the tensors are on {call.query.device}"
    if call.query.dtype not in (torch.float32, torch.bfloat16, torch.float16):
        return f"the kernel computes in float32, and the tensors are {call.query.dtype}"
    if call.observed:
        return "scores or weights are observed, and the kernel holds a few rows of them at a time"
    if not call.normalizer.plain_softmax:
        return "the normalizer is not softmax without options"
    if len(call.biases) > 1 or not all(isinstance(b, RelativeBias) for b in call.biases):
        return "the bias is not one table over offsets"
    if call.biases and not call.in_order:
        for side, positions in ("query", call.query_positions), ("key", call.key_positions):
            if bool((positions.diff(dim=-1) != 1).any()):
                return (
                    f"the bias reads a table over offsets, and {side} positions are not consecutive"
                )
    if not all(call.sizes):
        return "there is nothing to attend to, or nobody to attend"
    return None
