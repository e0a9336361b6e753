"""Biases: what is added to the scores before the mask.

Three kinds, and `as_biases` makes them of what the caller has:

`RelativeBias`
    a table over offsets (ALiBi, T5, KERPLE): ``table[h, key position − query position − lowest]``.
`DenseBias`
    a float tensor by index, broadcastable to (B, H, Tq, Tk).
`RowRule`
    a callable on query rows and keys (Shaw, CoPE, FIRE).

Each evaluates any rectangle on demand.
"""

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from regard.attention.masks import Rectangle
from regard.errors import OptionError, ShapeError


class Bias:
    """Something added to the scores of a rectangle, (B, H, tq, tk) or broadcastable to it."""

    positional: ClassVar[bool] = False
    """Whether the bias compares positions."""

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """The tensors whose gradients the bias gives."""
        return ()

    whole_rows: bool = False
    """Whether the bias of one key depends on the other keys, so that it must see all of them."""

    def values(
        self,
        rectangle: Rectangle,
        query_rows: Tensor,
        keys: Tensor,
        allowed: Tensor | None = None,
    ) -> Tensor:
        """What to add to the scores of the rectangle; query rows and keys are cut to it.

        `allowed`, True where a query may attend, is read by a bias of `whole_rows` alone.
        """
        raise NotImplementedError

    def allows(self, rectangle: Rectangle) -> Tensor | None:
        """True for the pairs that the bias does not forbid, or None if it never forbids."""
        return None

    def pair_width(self, head_width: int) -> int:
        """How many numbers `values` holds for one pair at a time: blocks are sized by it."""
        return 1

    def check(self, batch: int, heads: int, q_tokens: int, k_tokens: int) -> None:
        """`ShapeError` if the bias was made for other sizes."""

    @property
    def learned(self) -> bool:
        """Whether a gradient is wanted."""
        return any(t.requires_grad for t in self.tensors)


class RelativeBias(Bias):
    """A table over offsets: pair (i, j) of head h gets ``table[h, k_pos[j] − q_pos[i] − lowest]``.

    `table`: (H, n), one row a head. `lowest`: the offset, key − query, of its first column. The
    table holds 2T−1 numbers a head for T tokens; no T×T tensor is made.

    >>> import torch
    >>> RelativeBias(torch.tensor([[-1.0, 0.0, -1.0]]), lowest=-1)
    RelativeBias(1 heads, offsets -1 … 1)
    """

    positional: ClassVar[bool] = True

    def __init__(self, table: Float[Tensor, "heads offsets"] | Tensor, lowest: int):
        if table.ndim != 2 or not table.dtype.is_floating_point:
            raise ShapeError(
                "a relative bias is a float table (heads, offsets), "
                f"but got {table.dtype} of shape {tuple(table.shape)}"
            )
        self.table, self.lowest = table, int(lowest)

    @property
    def highest(self) -> int:
        """The offset of the last column."""
        return self.lowest + self.table.shape[1] - 1

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """The table."""
        return (self.table,)

    def values(
        self,
        rectangle: Rectangle,
        query_rows: Tensor,
        keys: Tensor,
        allowed: Tensor | None = None,
    ) -> Tensor:
        """Table values of the rectangle's offsets, (1 or B, H, tq, tk)."""
        columns = rectangle.offsets - self.lowest
        # Picked flat: indexing by a matrix is ten times slower.
        picked = self.table.index_select(1, columns.flatten())
        return picked.unflatten(1, columns.shape).transpose(0, 1)

    def check(self, batch: int, heads: int, q_tokens: int, k_tokens: int) -> None:
        """One row a head."""
        if self.table.shape[0] != heads:
            raise ShapeError(
                f"the relative bias has {self.table.shape[0]} heads, the call has {heads}"
            )

    def check_offsets(self, lowest: int, highest: int) -> None:
        """`ShapeError` unless the table covers the offsets from `lowest` to `highest`."""
        if lowest < self.lowest or highest > self.highest:
            raise ShapeError(
                f"the relative bias covers offsets {self.lowest} … {self.highest}, but the "
                f"positions need {lowest} … {highest}; make the table for these positions"
            )

    def __repr__(self) -> str:
        return f"RelativeBias({self.table.shape[0]} heads, offsets {self.lowest} … {self.highest})"


class DenseBias(Bias):
    """A float tensor broadcastable to (B, H, Tq, Tk), cut by index.

    −inf, and the type's smallest number that stands for it in many models, mean may not attend: as
    numbers to add, two of them overflow.
    """

    def __init__(self, tensor: Float[Tensor, "..."] | Tensor):
        if not tensor.dtype.is_floating_point:
            raise OptionError(
                f"bias is added to the scores and must be float, but it is {tensor.dtype}; "
                "a Boolean mask goes in mask=, True = may attend"
            )
        if tensor.ndim not in (2, 3, 4):
            raise ShapeError(
                "bias is (queries, keys), (heads, queries, keys) or (batch, heads, queries, keys), "
                f"where each may be 1; got shape {tuple(tensor.shape)}"
            )
        self.tensor = tensor.reshape((1,) * (4 - tensor.ndim) + tuple(tensor.shape))

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """The tensor itself."""
        return (self.tensor,)

    @property
    def _forbidding(self) -> float:
        return torch.finfo(self.tensor.dtype).min / 2

    def _cut(self, rectangle: Rectangle) -> Tensor:
        batch, _, queries, keys = self.tensor.shape
        return self.tensor[
            rectangle.batch if batch > 1 else slice(0, 1),
            :,
            rectangle.rows if queries > 1 else slice(0, 1),
            rectangle.cols if keys > 1 else slice(0, 1),
        ]

    def values(
        self,
        rectangle: Rectangle,
        query_rows: Tensor,
        keys: Tensor,
        allowed: Tensor | None = None,
    ) -> Tensor:
        """The rectangle's cut, 0 where it forbids."""
        cut = self._cut(rectangle)
        return cut.masked_fill(cut <= self._forbidding, 0)

    def allows(self, rectangle: Rectangle) -> Tensor | None:
        """Where the cut does not forbid."""
        return ~(self._cut(rectangle) <= self._forbidding)  # a nan forbids nothing and is seen

    def check(self, batch: int, heads: int, q_tokens: int, k_tokens: int) -> None:
        """Each axis is 1 or the call's."""
        sizes = (batch, heads, q_tokens, k_tokens)
        if any(a not in (1, b) for a, b in zip(self.tensor.shape, sizes, strict=True)):
            raise ShapeError(
                f"bias has shape {tuple(self.tensor.shape)}, but (batch, heads, queries, keys) are "
                f"{sizes}; each axis must agree or be 1"
            )

    def __repr__(self) -> str:
        return f"DenseBias({'×'.join(map(str, self.tensor.shape))})"


class RowRule(Bias):
    """A callable ``rule(query_rows, keys, query_positions, key_positions) -> (B, H, tq, tk)``.

    Query rows (B, H, tq, d) and keys (B, H, tk, d) are those that the score sees before it
    projects them; positions are (1 or B, tokens). The rule may bring `parameters_used`, the tensors
    that want gradients; `pair_width`, how many numbers it holds for one pair; and `whole_rows`,
    True if it must see all keys at once: then its fifth argument is the mask, broadcastable to
    (B, H, tq, tk), True where a query may attend, or None.
    """

    positional: ClassVar[bool] = True

    def __init__(self, rule: Any):
        self.rule = rule
        self.whole_rows = bool(getattr(rule, "whole_rows", False))

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """The tensors that the rule says it uses."""
        return tuple(getattr(self.rule, "parameters_used", ()))

    def values(
        self,
        rectangle: Rectangle,
        query_rows: Tensor,
        keys: Tensor,
        allowed: Tensor | None = None,
    ) -> Tensor:
        """The rule on the rectangle's rows."""
        asked = (query_rows, keys, rectangle.query_positions, rectangle.key_positions)
        return self.rule(*asked, allowed) if self.whole_rows else self.rule(*asked)

    def pair_width(self, head_width: int) -> int:
        """What the rule says, else as for a vector of the head's width."""
        return int(getattr(self.rule, "pair_width", 3 * head_width))

    def __repr__(self) -> str:
        return f"RowRule({self.rule!r})"


def as_biases(bias: Any) -> tuple[Bias, ...]:
    """One bias, several in a list, or None, as a tuple of `Bias`.

    A float tensor is a `DenseBias`; anything with `.table` and `.lowest` a `RelativeBias`; any
    other callable a `RowRule`.
    """
    if bias is None:
        return ()
    if isinstance(bias, Bias):
        return (bias,)
    if isinstance(bias, Tensor):
        return (DenseBias(bias),)
    if hasattr(bias, "table") and hasattr(bias, "lowest"):
        return (RelativeBias(bias.table, bias.lowest),)
    if isinstance(bias, Sequence) and not isinstance(bias, str):
        return tuple(each for one in bias for each in as_biases(one))
    if callable(bias):
        return (RowRule(bias),)
    raise OptionError(
        "bias must be a float tensor, a table over offsets (.table and .lowest), a row rule "
        f"(callable), or a list of these; not {type(bias).__name__}"
    )
