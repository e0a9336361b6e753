"""Key/value cache: what decoding one token at a time need not compute again."""

from dataclasses import dataclass

import torch
from torch import Tensor

from regard.errors import ShapeError


@dataclass
class KeyValueCache:
    """Keys and values so far, (B, Hkv, T, d), with the positions they stand for, (1 or B, T).

    Belongs to one layer and one sequence of calls; a fresh one is empty. Keys are kept as the
    scores see them, rotated where the position encoding rotates.

    >>> len(KeyValueCache())
    0
    """

    key: Tensor | None = None
    value: Tensor | None = None
    positions: Tensor | None = None

    def __len__(self) -> int:
        return 0 if self.key is None else self.key.shape[2]

    def next_positions(self, tokens: int, device: torch.device) -> Tensor:
        """The positions after the last one in the cache, (1 or B, tokens)."""
        new = torch.arange(tokens, device=device)[None]
        return new if self.positions is None else self.positions[:, -1:] + 1 + new

    def append(
        self, key: Tensor, value: Tensor, positions: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Add new tokens; returns all keys, values and positions. `ShapeError` if they differ."""
        if self.key is None or self.value is None or self.positions is None:
            self.key, self.value, self.positions = key, value, positions
        else:
            if self.key.shape[:2] != key.shape[:2] or self.key.shape[3] != key.shape[3]:
                raise ShapeError(
                    f"the cache holds keys {tuple(self.key.shape)}, the new ones are "
                    f"{tuple(key.shape)}; batch, heads and width must agree: one cache serves one "
                    "layer and one batch"
                )
            batch = max(self.positions.shape[0], positions.shape[0])
            self.key = torch.cat([self.key, key], 2)
            self.value = torch.cat([self.value, value], 2)
            self.positions = torch.cat(
                [self.positions.expand(batch, -1), positions.expand(batch, -1)], 1
            )
        return self.key, self.value, self.positions
