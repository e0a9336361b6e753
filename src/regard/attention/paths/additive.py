"""Additive: scores that are a weighted sum of tanh, in O(T·d) memory with gradients.

Bahdanau, Cho, Bengio, "Neural Machine Translation by Jointly Learning to Align and Translate"
(2015), appendix A.1.2, for the score; the kernels are `regard.attention.kernels`.
"""

from torch import Tensor

from regard.attention.call import Call
from regard.attention.paths import _fused
from regard.attention.paths._path import Path
from regard.attention.rows import repeat_heads


class Additive(Path):
    """Softmax over ``Σₑ w·tanh(a + b)`` by our own kernels: on the CPU, in float32."""

    def refuses(self, call: Call) -> str | None:
        """Other scores, and what the kernels do not do."""
        if not call.score.tanh_like:
            return "the score is no weighted sum of tanh"
        return _fused.refuses(call)

    def run(self, call: Call) -> Tensor:
        """Features by the score, the rest by the kernel."""
        from regard.attention.kernels import fused
        from regard.attention.kernels.additive import AdditiveScores

        tanh = call.score.as_tanh(call.query, repeat_heads(call.key, call.group))
        assert tanh is not None
        value = repeat_heads(call.value, call.group)
        return fused.run(call, AdditiveScores, tanh.query, tanh.key, tanh.weight, value)
