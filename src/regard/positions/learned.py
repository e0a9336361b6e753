"""One vector for each position, learned, added to the embedding.

Gehring et al., "Convolutional Sequence to Sequence Learning" (2017), section 3.1; compared with
sinusoids by Vaswani et al., "Attention Is All You Need" (2017), section 3.5 and table 3 row E; used
by BERT and GPT-2. There is no vector for a position past those that were learned.
"""

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from regard.errors import ShapeError
from regard.positions._encoding import Encoding, check_at_least, check_width, token_positions


class Learned(Encoding):
    """Adds row `position` of a learned table of `max_length` rows.

    A position outside 0 … max_length − 1 is a `ShapeError`.

    >>> import torch
    >>> from regard import positions
    >>> encode = positions.create("learned", width=5, max_length=7)
    >>> torch.equal(encode(torch.zeros(2, 3, 5))[1], encode.table[:3])
    True
    """

    places = frozenset({"add"})

    def __init__(self, width: int, max_length: int):
        super().__init__()
        check_at_least("width", width, 1)
        check_at_least("max_length", max_length, 1)
        self.table = nn.Parameter(torch.empty(max_length, width))
        nn.init.normal_(self.table, std=0.02)

    def forward(
        self,
        x: Float[Tensor, "batch tokens width"],
        positions: Shaped[Tensor, "..."] | None = None,
        lengths: Shaped[Tensor, "..."] | None = None,
    ) -> Float[Tensor, "batch tokens width"]:
        """`x` (batch, tokens, width) with the vector of each position added."""
        max_length, width = self.table.shape
        check_width(width, x)
        places = token_positions(positions, x.shape[0], x.shape[1], x.device)
        # Without given positions the highest is known, and no device has to be waited for.
        if positions is None:
            lowest, highest = 0, x.shape[1] - 1
        elif places.numel() == 0:
            return x
        else:
            lowest, highest = int(places.min()), int(places.max())
        if lowest < 0 or highest >= max_length:
            raise ShapeError(
                f"positions from {lowest} to {highest} do not fit the {max_length} learned ones, "
                f"0 to {max_length - 1}; shorten the text, make the encoding with a greater "
                "max_length, or take one without a table (sinusoidal, rotary, alibi); give padding "
                "the position 0"
            )
        return x + nn.functional.embedding(places, self.table).to(x.dtype)
