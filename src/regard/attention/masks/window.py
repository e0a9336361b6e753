"""Window: a query attends to the W positions that end with its own.

Beltagy, Peters, Cohan, "Longformer" (2020), section 3.1; in the causal form of Jiang et al.,
"Mistral 7B" (2023), section 2, where W counts the query's own position.
"""

from typing import ClassVar

from jaxtyping import Bool
from torch import Tensor

from regard.attention.masks._mask import Mask, Rectangle
from regard.errors import OptionError


class Window(Mask):
    """Exactly `width` keys: positions from query − width + 1 to query.

    ``Window(width, after=n)`` attends to n positions after the query as well, for encoders.

    >>> import torch
    >>> Window(2).dense(torch.arange(3), torch.arange(3)).int()
    tensor([[[[1, 0, 0],
              [1, 1, 0],
              [0, 1, 1]]]], dtype=torch.int32)
    """

    positional: ClassVar[bool] = True

    def __init__(self, width: int, *, after: int = 0):
        if width < 1 or after < 0:
            raise OptionError(
                f"Window got width={width}, after={after}; width counts the query's own position "
                "and must be at least 1, after at least 0"
            )
        self.width, self.after = width, after

    def allows(self, rectangle: Rectangle) -> Bool[Tensor, "_ _ _ _"]:
        """Offsets above −width and at most `after`."""
        offsets = rectangle.offsets
        return ((offsets > -self.width) & (offsets <= self.after))[:, None]

    def span(self, rows: slice, tokens: int) -> slice:
        """Columns from the first row's oldest key to the last row's newest."""
        stop = min(rows.stop + self.after, tokens)
        return slice(min(max(rows.start - self.width + 1, 0), stop), stop)

    def __repr__(self) -> str:
        return f"Window({self.width}{f', after={self.after}' if self.after else ''})"
