"""Reference: the definition, all rows at once.

Holds (B, H, Tq, Tk) scores and weights, so memory grows with T². Any score, normalizer, mask, bias;
gradients of any order; the only path whose scores and weights can be observed.
"""

from torch import Tensor

from regard.attention.call import Call
from regard.attention.paths._path import Path
from regard.attention.rows import row_output, tensors_of


class Reference(Path):
    """`rows` over the whole rectangle."""

    def refuses(self, call: Call) -> str | None:
        """Nothing is refused."""
        return None

    def run(self, call: Call) -> Tensor:
        """All rows in one go."""
        return row_output(call, tensors_of(call), call.rectangle())
