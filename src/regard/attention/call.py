"""One call of attention: everything that decides its result, checked and made explicit."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.attention.bias import Bias, RelativeBias, as_biases
from regard.attention.masks import Mask, Rectangle, as_mask
from regard.attention.normalizers import Normalizer
from regard.attention.normalizers import resolve as resolve_normalizer
from regard.attention.scores import Score
from regard.attention.scores import resolve as resolve_score
from regard.errors import OptionError, ShapeError


@dataclass(frozen=True, eq=False, kw_only=True)
class Call:
    """What `attend` was asked, in the form that every path reads.

    `in_order`: query and key positions are one and the same run of integers, n, n+1, n+2 …, so that
    comparing positions is comparing indices. `seed`: a whole number as a tensor, if there is
    dropout. `observe_scores`, `observe_weights`: functions that see, and may replace, the scores
    and weights of all rows; only the reference path calls them.
    """

    query: Float[Tensor, "batch heads q_tokens head_width"]
    key: Float[Tensor, "batch kv_heads k_tokens head_width"]
    value: Float[Tensor, "batch kv_heads k_tokens value_width"]
    score: Score
    normalizer: Normalizer
    mask: Mask | None
    biases: tuple[Bias, ...]
    query_positions: Int[Tensor, "_ q_tokens"]
    key_positions: Int[Tensor, "_ k_tokens"]
    in_order: bool
    dropout: float | int = 0.0
    seed: Tensor | None = None
    observe_scores: Callable[[Tensor], Tensor] | None = None
    observe_weights: Callable[[Tensor], Tensor] | None = None

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """Batch, heads, query tokens, key tokens."""
        batch, heads, q_tokens, _ = self.query.shape
        return batch, heads, q_tokens, self.key.shape[2]

    @property
    def group(self) -> int:
        """How many query heads share one key/value head: head h reads h // group."""
        return self.query.shape[1] // max(self.key.shape[1], 1)

    @property
    def observed(self) -> bool:
        """Whether somebody watches the scores or weights."""
        return self.observe_scores is not None or self.observe_weights is not None

    def rectangle(
        self, rows: slice | None = None, cols: slice | None = None, batch: slice | None = None
    ) -> Rectangle:
        """The rectangle of these rows and columns; what is left out is whole."""
        whole = self.sizes
        batch = batch or slice(0, whole[0])
        rows = rows or slice(0, whole[2])
        cols = cols or slice(0, whole[3])
        q, k = self.query_positions, self.key_positions
        return Rectangle(
            batch,
            rows,
            cols,
            q[batch if q.shape[0] > 1 else slice(0, 1), rows],
            k[batch if k.shape[0] > 1 else slice(0, 1), cols],
        )


def make_call(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    score: str | Score = "scaled_dot",
    normalizer: str | Normalizer = "softmax",
    mask: Mask | Tensor | None = None,
    bias: Any = None,
    query_positions: Tensor | None = None,
    key_positions: Tensor | None = None,
    dropout: float | int = 0.0,
    training: bool = True,
    observe_scores: Callable[[Tensor], Tensor] | None = None,
    observe_weights: Callable[[Tensor], Tensor] | None = None,
) -> Call:
    """Check the arguments of `attend` and make the call; `OptionError`, `ShapeError`."""
    _check_tensors(query, key, value)
    batch, heads, q_tokens, _ = query.shape
    k_tokens = key.shape[2]
    if not 0 <= dropout < 1:
        raise OptionError(f"dropout is a probability, at least 0 and below 1, not {dropout}")
    mask = None if mask is None else as_mask(mask)
    biases = as_biases(bias)
    for part in biases if mask is None else (mask, *biases):
        part.check(batch, heads, q_tokens, k_tokens)

    given = query_positions is not None, key_positions is not None
    positional = (mask is not None and mask.positional) or any(b.positional for b in biases)
    if positional and q_tokens != k_tokens and not all(given):
        raise OptionError(
            f"the mask or bias compares positions, and {q_tokens} queries meet {k_tokens} keys, so "
            "which positions they stand for cannot be known: pass query_positions and "
            "key_positions, for instance torch.arange(past, past + queries) and torch.arange(keys)"
        )
    q_positions = _positions("query_positions", query_positions, batch, q_tokens, query.device)
    k_positions = _positions("key_positions", key_positions, batch, k_tokens, query.device)
    in_order = q_tokens == k_tokens and (not any(given) or _same_run(q_positions, k_positions))
    for one in biases:
        if isinstance(one, RelativeBias) and batch and q_tokens and k_tokens:
            _check_offsets(one, q_positions, k_positions, any(given))
    dropped = dropout if training else 0.0
    return Call(
        query=query,
        key=key,
        value=value,
        score=resolve_score(score),
        normalizer=resolve_normalizer(normalizer),
        mask=mask,
        biases=biases,
        query_positions=q_positions,
        key_positions=k_positions,
        in_order=in_order,
        dropout=dropped,
        seed=torch.randint(2**31 - 1, ()) if dropped else None,
        observe_scores=observe_scores,
        observe_weights=observe_weights,
    )


def _check_tensors(query: Tensor, key: Tensor, value: Tensor) -> None:
    named = {"query": query, "key": key, "value": value}
    shapes = ", ".join(f"{name} {tuple(t.shape)}" for name, t in named.items())
    if any(t.ndim != 4 for t in named.values()):
        raise ShapeError(f"attend takes (batch, heads, tokens, width); got {shapes}")
    if len({t.dtype for t in named.values()}) > 1 or not query.dtype.is_floating_point:
        kinds = ", ".join(f"{name} {t.dtype}" for name, t in named.items())
        raise ShapeError(f"query, key and value must be of one float type; got {kinds}")
    if not query.shape[0] == key.shape[0] == value.shape[0]:
        raise ShapeError(f"query, key and value must have one batch size; got {shapes}")
    if key.shape[1:3] != value.shape[1:3]:
        raise ShapeError(f"key and value must have the same heads and tokens; got {shapes}")
    if query.shape[3] != key.shape[3]:
        raise ShapeError(f"query and key must have the same head width; got {shapes}")
    if key.shape[1] == 0 or query.shape[1] % key.shape[1]:
        raise ShapeError(
            f"the {query.shape[1]} query heads must be a multiple of the {key.shape[1]} key/value "
            "heads: head h reads key/value head h // (heads / kv_heads)"
        )


def _positions(
    name: str, positions: Tensor | None, batch: int, tokens: int, device: torch.device
) -> Tensor:
    if positions is None:
        return torch.arange(tokens, device=device)[None]
    if positions.dtype.is_floating_point or positions.dtype == torch.bool:
        raise OptionError(f"{name} must be integers, but they are {positions.dtype}")
    positions = positions.long()  # differences of unsigned numbers would wrap around
    if positions.ndim == 1:
        positions = positions[None]
    if positions.ndim != 2 or positions.shape[0] not in (1, batch) or positions.shape[1] != tokens:
        raise ShapeError(
            f"{name} must be ({tokens},) or ({batch}, {tokens}); got {tuple(positions.shape)}"
        )
    return positions


def _same_run(q_positions: Tensor, k_positions: Tensor) -> bool:
    """Whether both are one run n, n+1, …; not looked into where that would wait for a device."""
    if q_positions.shape != k_positions.shape or torch.compiler.is_compiling():
        return False
    if q_positions.device.type != "cpu" or k_positions.device.type != "cpu":
        return False
    return torch.equal(q_positions, k_positions) and bool((q_positions.diff(dim=-1) == 1).all())


def _check_offsets(
    bias: RelativeBias, q_positions: Tensor, k_positions: Tensor, given: bool
) -> None:
    if not given:
        bias.check_offsets(1 - q_positions.shape[1], k_positions.shape[1] - 1)
    elif q_positions.device.type == "cpu" and not torch.compiler.is_compiling():
        bias.check_offsets(
            int((k_positions.amin(-1) - q_positions.amax(-1)).min()),
            int((k_positions.amax(-1) - q_positions.amin(-1)).max()),
        )
