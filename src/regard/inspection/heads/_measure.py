"""What every measure of a head has in common: rows of weights become one number a head."""

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.inspection.atlas import Head


@dataclass(frozen=True, eq=False)
class Text:
    """What the rows and columns stand for.

    `queries`, `keys`: a whole number a token, equal for equal tokens. `special`: True for keys that
    the tokenizer put in. `same`: whether rows and columns are tokens of one text.
    """

    queries: Int[Tensor, " q_tokens"]
    keys: Int[Tensor, " k_tokens"]
    special: Bool[Tensor, " k_tokens"]
    same: bool = True


@dataclass(frozen=True, eq=False)
class Block:
    """The weights of some rows against some columns, and what they stand for."""

    weights: Float[Tensor, "rows cols"]
    rows: slice
    cols: slice
    text: Text
    query_positions: Int[Tensor, " rows"]
    key_positions: Int[Tensor, " cols"]

    @cached_property
    def offsets(self) -> Int[Tensor, "rows cols"]:
        """Key position − query position."""
        return self.key_positions[None] - self.query_positions[:, None]

    def where(self, pairs: Bool[Tensor, "#rows #cols"]) -> Float[Tensor, " rows"]:
        """Each row's sum of the weights of these pairs."""
        return (self.weights * pairs).sum(1)


class Measure:
    """One number a head: the mean over the rows that count, each row's summed over blocks.

    `unit`: what is counted. `self_attention`: whether it needs rows and columns of one text.
    """

    unit: ClassVar[str] = "share"
    self_attention: ClassVar[bool] = True

    def of_block(self, block: Block) -> Float[Tensor, " rows"]:
        """What the block adds to each row."""
        raise NotImplementedError

    def counts(self, text: Text) -> Bool[Tensor, " q_tokens"]:
        """The rows that the mean is over: those where there is something to measure."""
        return torch.ones_like(text.queries, dtype=torch.bool)

    def of_head(self, head: Head) -> float | None:
        """The number itself, for a measure that does not go over rows of weights."""
        return None
