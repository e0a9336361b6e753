"""Additive on CUDA: scores that are a weighted sum of tanh, in O(T·d) memory with gradients.

Bahdanau, Cho, Bengio, "Neural Machine Translation by Jointly Learning to Align and Translate"
(2015), appendix A.1.2, for the score; the kernels are `regard.attention.kernels.additive_triton`.
"""

import os
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from regard.attention.call import Call
from regard.attention.masks import Causal
from regard.attention.paths._path import Path
from regard.attention.rows import repeat_heads


class AdditiveTriton(Path):
    """Softmax over ``Σₑ w·tanh(a + b)``, causal or without mask, by Triton kernels in float32."""

    def refuses(self, call: Call) -> str | None:
        """Other scores and devices, and what the kernels do not do."""
        if not call.score.tanh_like:
            return "the score is no weighted sum of tanh"
        if call.query.device.type != "cuda" and os.environ.get("TRITON_INTERPRET") != "1":
            return f"the kernel runs on CUDA, and the tensors are on {call.query.device}"
        if find_spec("triton") is None:
            return "triton is not installed"
        if call.query.dtype not in (torch.float32, torch.bfloat16, torch.float16):
            return f"the kernel computes in float32, and the tensors are {call.query.dtype}"
        if call.observed:
            return "scores or weights are observed, and the kernel never holds them whole"
        if not call.normalizer.plain_softmax:
            return "the normalizer is not softmax without options"
        if call.mask is not None and not (isinstance(call.mask, Causal) and call.in_order):
            return "the mask is not causal order alone"
        if call.biases or call.dropout:
            return "there is a bias or dropout"
        if not all(call.sizes):
            return "there is nothing to attend to, or nobody to attend"
        return None

    def run(self, call: Call) -> Tensor:
        """Features by the score, the rest by the kernel."""
        tanh = call.score.as_tanh(call.query, repeat_heads(call.key, call.group))
        assert tanh is not None
        value = repeat_heads(call.value, call.group)
        tensors = (x.float() for x in (tanh.query, tanh.key, value, tanh.weight))
        return _apply(call.mask is not None, *tensors).to(call.value.dtype)


def _kernel(causal: bool, *tensors: Tensor) -> Any:
    from regard.attention.kernels.additive_triton import AdditiveTriton

    return AdditiveTriton.apply(causal, *tensors)


# A compiled model steps out of its graph here.
_apply: Any = torch.compiler.disable(_kernel)
