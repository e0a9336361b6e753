"""A band of the matrix: the causal mask and windows, as the offsets that they allow.

Reading the band off a mask lets the empty half of a causal map, and all that lies outside of a
window, be skipped, and the mask be applied on the blocks at its edges only.

>>> from regard.attention.masks import Causal, Window
>>> band_of(Causal() & Window(4))
(Band(lowest=-3, highest=0), None)
"""

from typing import NamedTuple

import torch
from torch import Tensor

from regard.attention.masks import Causal, Mask, Window
from regard.attention.masks._mask import _Both


class Band(NamedTuple):
    """Pairs whose offset, key index − query index, is from `lowest` to `highest`; None: no end."""

    lowest: int | None = None
    highest: int | None = None

    def __and__(self, other: "Band") -> "Band":
        lows = [x for x in (self.lowest, other.lowest) if x is not None]
        highs = [x for x in (self.highest, other.highest) if x is not None]
        return Band(max(lows, default=None), min(highs, default=None))

    def shifted(self, by: int) -> "Band":
        """The band where queries stand `by` places further on."""
        return Band(*(None if end is None else end + by for end in self))

    def span(self, rows: slice, keys: int) -> slice:
        """The columns outside of which no row of `rows` may attend."""
        i = _range(rows)
        start = 0 if self.lowest is None else max(i[0] + self.lowest, 0)
        stop = keys if self.highest is None else max(min(i[-1] + self.highest + 1, keys), 0)
        return slice(min(start, stop), stop)

    def holds(self, rows: slice, cols: slice) -> bool:
        """Whether every pair of the rectangle is in the band."""
        i, j = _range(rows), _range(cols)
        return (self.lowest is None or j[0] - i[-1] >= self.lowest) and (
            self.highest is None or j[-1] - i[0] <= self.highest
        )

    def outside(self, rows: slice, cols: slice, device: torch.device) -> Tensor:
        """True for the rectangle's pairs that are not in the band, (rows, cols)."""
        i = torch.arange(rows.start, rows.stop, rows.step or 1, device=device)[:, None]
        j = torch.arange(cols.start, cols.stop, device=device)[None]
        out = torch.zeros(i.shape[0], j.shape[1], dtype=torch.bool, device=device)
        if self.lowest is not None:
            out |= j < i + self.lowest
        if self.highest is not None:
            out |= j > i + self.highest
        return out


def band_of(mask: Mask | None) -> tuple[Band, Mask | None]:
    """The band that a mask is, where positions are indices, and the rest that no band says."""
    if mask is None:
        return Band(), None
    if isinstance(mask, Causal):
        return Band(highest=0), None
    if isinstance(mask, Window):
        return Band(1 - mask.width, mask.after), None
    if isinstance(mask, _Both):
        (first, rest), (second, other) = band_of(mask.first), band_of(mask.second)
        if rest is not None and other is not None:
            return first & second, rest & other
        return first & second, rest if other is None else other
    return Band(), mask


def _range(span: slice) -> range:
    return range(span.start, span.stop, span.step or 1)
