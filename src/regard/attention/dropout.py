"""Dropout of weights by a counter-based generator: each pair's fate is a hash of where it stands.

Whether the weight of (batch, head, query, key) is kept depends on the seed and these four indices
alone, so forward and backward, and blocks of any size, see the same mask.

The hash is the 32-bit finalizer of Appleby's MurmurHash3 (2011), on the sum of one hashed word a
row and one a column, so that a pair costs a handful of integer operations.
"""

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from regard.attention.masks import Rectangle

_MULTIPLIERS = (0x85EBCA6B - 2**32, 0xC2B2AE35 - 2**32)


def _mix(x: Int[Tensor, "..."]) -> Int[Tensor, "..."]:
    """MurmurHash3's finalizer on int32 words, in place; shifts are logical."""
    x ^= (x >> 16) & 0xFFFF
    x *= _MULTIPLIERS[0]
    x ^= (x >> 13) & 0x7FFFF
    x *= _MULTIPLIERS[1]
    x ^= (x >> 16) & 0xFFFF
    return x


def _words(seed: Tensor, indices: slice, salt: int, device: torch.device) -> Tensor:
    """One well-mixed word an index."""
    counted = torch.arange(indices.start, indices.stop, dtype=torch.int32, device=device)
    start = _mix(seed.to(device=device, dtype=torch.int32).reshape(1) + salt)
    return _mix(_mix(counted + salt) ^ start)


def keep(
    seed: Tensor, dropout: float | int, rectangle: Rectangle, heads: int
) -> Bool[Tensor, "batch heads q_rows k_cols"]:
    """True where the weight is kept: with probability 1 − `dropout`."""
    device = rectangle.query_positions.device
    batch = _words(seed, rectangle.batch, 1, device)[:, None, None]
    head = _words(seed, slice(0, heads), 2, device)[:, None]
    row = _words(seed, rectangle.rows, 3, device)
    rows = _mix(_mix(batch + head) + row)
    cols = _words(seed, rectangle.cols, 4, device)
    return _mix(rows[..., None] + cols) >= int(dropout * 2**32) - 2**31
