"""What every mask has in common: True = may attend, evaluated on any rectangle on demand."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from regard.errors import OptionError


@dataclass(frozen=True, eq=False)
class Rectangle:
    """Some query rows against some key columns: their indices, and the positions they stand for.

    `batch`, `rows`, `cols` are slices with start and stop; masks given as data are cut by them.
    Positions are (1 or B, tokens) integers; masks given as rules compare them.
    """

    batch: slice
    rows: slice
    cols: slice
    query_positions: Int[Tensor, "_ q_tokens"]
    key_positions: Int[Tensor, "_ k_tokens"]

    @property
    def offsets(self) -> Int[Tensor, "_ q_tokens k_tokens"]:
        """Key position − query position of every pair."""
        return self.key_positions[:, None, :] - self.query_positions[:, :, None]


class Mask:
    """Which keys a query may attend to: compose with ``&`` (both), ``|`` (either), ``~`` (not)."""

    positional: ClassVar[bool] = False
    """Whether the mask compares positions."""

    def allows(self, rectangle: Rectangle) -> Bool[Tensor, "_ _ _ _"]:
        """True where a query may attend, broadcastable to (B, H, tq, tk)."""
        raise NotImplementedError

    def span(self, rows: slice, tokens: int) -> slice:
        """The columns outside of which no row of `rows` may attend, where positions are indices."""
        return slice(0, tokens)

    def check(self, batch: int, heads: int, q_tokens: int, k_tokens: int) -> None:
        """`ShapeError` if the mask was made for other sizes."""

    def dense(
        self,
        query_positions: Int[Tensor, " q_tokens"],
        key_positions: Int[Tensor, " k_tokens"],
    ) -> Bool[Tensor, "_ _ _ _"]:
        """The whole mask for these positions, broadcastable to (B, H, Tq, Tk): to look at."""
        queries, keys = len(query_positions), len(key_positions)
        return self.allows(
            Rectangle(
                slice(0, self.batch_size),
                slice(0, queries),
                slice(0, keys),
                query_positions[None],
                key_positions[None],
            )
        )

    @property
    def batch_size(self) -> int:
        """How many sequences the mask tells apart, 1 if it treats all alike."""
        return 1

    def __and__(self, other: "Mask | Tensor") -> "Mask":
        return _Both(self, as_mask(other))

    def __or__(self, other: "Mask | Tensor") -> "Mask":
        return _Either(self, as_mask(other))

    def __invert__(self) -> "Mask":
        return _Not(self)

    __rand__ = __and__
    __ror__ = __or__

    def __bool__(self) -> bool:
        raise OptionError("a mask is not a truth value; compose masks with &, | and ~, not and/or")


class _Pair(Mask):
    def __init__(self, first: Mask, second: Mask):
        self.first, self.second = first, second

    @property
    def positional(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.first.positional or self.second.positional

    @property
    def batch_size(self) -> int:
        return max(self.first.batch_size, self.second.batch_size)

    def check(self, batch: int, heads: int, q_tokens: int, k_tokens: int) -> None:
        self.first.check(batch, heads, q_tokens, k_tokens)
        self.second.check(batch, heads, q_tokens, k_tokens)


class _Both(_Pair):
    def allows(self, rectangle: Rectangle) -> Bool[Tensor, "_ _ _ _"]:
        return self.first.allows(rectangle) & self.second.allows(rectangle)

    def span(self, rows: slice, tokens: int) -> slice:
        a, b = self.first.span(rows, tokens), self.second.span(rows, tokens)
        start = max(a.start, b.start)
        return slice(start, max(start, min(a.stop, b.stop)))

    def __repr__(self) -> str:
        return f"({self.first!r} & {self.second!r})"


class _Either(_Pair):
    def allows(self, rectangle: Rectangle) -> Bool[Tensor, "_ _ _ _"]:
        return self.first.allows(rectangle) | self.second.allows(rectangle)

    def span(self, rows: slice, tokens: int) -> slice:
        a, b = self.first.span(rows, tokens), self.second.span(rows, tokens)
        return slice(min(a.start, b.start), max(a.stop, b.stop))

    def __repr__(self) -> str:
        return f"({self.first!r} | {self.second!r})"


class _Not(Mask):
    def __init__(self, mask: Mask):
        self.mask = mask

    @property
    def positional(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.mask.positional

    @property
    def batch_size(self) -> int:
        return self.mask.batch_size

    def check(self, batch: int, heads: int, q_tokens: int, k_tokens: int) -> None:
        self.mask.check(batch, heads, q_tokens, k_tokens)

    def allows(self, rectangle: Rectangle) -> Bool[Tensor, "_ _ _ _"]:
        return ~self.mask.allows(rectangle)

    def __repr__(self) -> str:
        return f"~{self.mask!r}"


def require_boolean(name: str, tensor: Tensor) -> None:
    """`OptionError` unless the tensor is Boolean, with what to do about it."""
    if tensor.dtype == torch.bool:
        return
    if tensor.dtype.is_floating_point:
        advice = (
            "a float tensor that is added to the scores goes in bias=; "
            "for one of 0 and 1 where 1 = may attend, pass mask == 1"
        )
    else:
        advice = "if 1 = may attend, pass mask.bool(); if 1 = hide (as in PyTorch), ~mask.bool()"
    raise OptionError(
        f"{name} must be Boolean, True = may attend, but it is {tensor.dtype}; {advice}"
    )


def as_mask(mask: object) -> Mask:
    """The mask itself, or a Boolean tensor (Tq, Tk) or (B, H, Tq, Tk) as one."""
    from regard.attention.masks.arbitrary import Arbitrary

    if isinstance(mask, Mask):
        return mask
    if isinstance(mask, Tensor):
        return Arbitrary(mask)
    raise OptionError(
        f"mask must be a mask or a Boolean tensor, not {type(mask).__name__}; "
        "see regard.attention.masks: Causal, Window, Padding, Documents, Prefix, Arbitrary"
    )
