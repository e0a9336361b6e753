"""Pooling: s×s entries of a matrix become one pixel, by max, mean or sum.

The last pixels of a matrix whose sides are no multiples of s pool the entries that exist; a mean
divides by how many those are.

>>> import torch
>>> pool(torch.arange(6.0).reshape(2, 3), 2, "sum")
tensor([[8., 7.]])
>>> pool(torch.arange(6.0).reshape(2, 3), 2, "mean")
tensor([[2.0000, 3.5000]])
"""

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import pad

from regard.errors import unknown_name

STATS = ("max", "mean", "sum")


def check_stat(stat: str) -> None:
    """`OptionError` unless `stat` is max, mean or sum."""
    if stat not in STATS:
        raise unknown_name("stat", stat, STATS)


def pool(x: Float[Tensor, "rows cols"], s: int, stat: str) -> Float[Tensor, "high wide"]:
    """A matrix pooled s×s. Rows first: neighbors in memory stay together."""
    if s == 1:
        return x
    rows, cols = x.shape
    pooled = pool_along(pool_along(x, s, 0, stat), s, 1, stat)
    return pooled / counts(rows, cols, s).to(x.device) if stat == "mean" else pooled


def pool_along(x: Tensor, s: int, dim: int, stat: str) -> Tensor:
    """Each `s` neighbors along `dim` become their max or, for any other `stat`, their sum."""
    rest = -x.shape[dim] % s
    if rest:
        sides = [0, 0] * (x.ndim - dim - 1) + [0, rest]
        x = pad(x, sides, value=-torch.inf if stat == "max" else 0.0)
    x = x.unflatten(dim, (-1, s))
    return x.amax(dim + 1) if stat == "max" else x.sum(dim + 1)


def counts(rows: int, cols: int, s: int) -> Float[Tensor, "high wide"]:
    """How many entries each pixel of a (rows, cols) matrix pools."""
    high = (rows - torch.arange(0, rows, s)).clamp(max=s).float()
    wide = (cols - torch.arange(0, cols, s)).clamp(max=s).float()
    return high[:, None] * wide
