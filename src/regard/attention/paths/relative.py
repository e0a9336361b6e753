"""Relative: dot-like scores plus a table over offsets, in O(T) memory with gradients.

Shaw, Uszkoreit, Vaswani, "Self-Attention with Relative Position Representations" (2018), began the
kind; Raffel et al. (2020, T5), Press et al. (2022, ALiBi) and Chi et al. (2022, KERPLE) make it one
number a head and offset. The loop is `regard.attention.kernels.fused`.
"""

import torch
from torch import Tensor

from regard.attention.call import Call
from regard.attention.paths import _fused
from regard.attention.paths._path import Path
from regard.attention.paths.sdpa import Sdpa
from regard.attention.rows import repeat_heads


class Relative(Path):
    """Softmax over ``scale·q·k + table[k − q]``: tiles that stay in the cache, on the CPU.

    Without a table it serves what PyTorch's own kernel does not: dropout, and long masks.
    """

    def refuses(self, call: Call) -> str | None:
        """Scores that are no dot product, and what the kernels do not do."""
        if not call.score.dot_like:
            return "the score is no dot product"
        return _fused.refuses(call)

    def declines(self, call: Call) -> str | None:
        """A call without a table, if PyTorch's own kernel takes it."""
        if not call.biases and Sdpa().refuses(call) is None:
            return "there is no table over offsets, and PyTorch's own kernel does the rest"
        return None

    def run(self, call: Call) -> Tensor:
        """Features by the score, the rest by the kernel."""
        from regard.attention.kernels import fused
        from regard.attention.kernels.dot import DotScores

        dot = call.score.as_dot(call.query, repeat_heads(call.key, call.group))
        assert dot is not None
        value = repeat_heads(call.value, call.group)
        return fused.run(call, DotScores, dot.query, dot.key, torch.tensor(dot.scale), value)
