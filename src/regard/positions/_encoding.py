"""What a position encoding is: a module that acts in one or more of three places.

``add`` puts a vector on the embedding, ``rotate`` turns queries and keys, ``bias`` shifts the
scores. A place where an encoding does not act leaves its input alone, so that a model may call all
three of any encoding. Positions are integers given from outside: a cache gives an offset, left
padding and packed documents give each row its own.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor, nn

from regard.errors import OptionError, ShapeError

# A longer table comes of positions that are none: ids, or a marker for padding.
LARGEST_SPAN = 2**24


@dataclass(frozen=True)
class OffsetTable:
    """A bias that depends on the head and on the offset, key position − query position.

    `table` is (heads, offsets); its column c is the bias at offset `lowest` + c.
    """

    table: Float[Tensor, "heads offsets"]
    lowest: int


@dataclass(frozen=True)
class RowRule:
    """A bias that no table of offsets holds: it depends on the content, or on where the query is.

    Called with query rows (batch, heads, q_tokens, head_width), keys (batch, kv_heads, k_tokens,
    head_width) and the positions of both, it gives (batch or 1, heads, q_tokens, k_tokens).
    `parameters_used` are the tensors, apart from queries and keys, that it has gradients for, and
    `function` takes them last: whoever calls again later computes with the same ones.
    `pair_width` is how many numbers it holds at a time for a query and a key of one head.
    A rule of `whole_rows` counts keys: it must see all of them at once, and `allowed`, True where a
    query may attend, broadcastable to the result.
    """

    function: Callable[..., Tensor]
    parameters_used: tuple[Tensor, ...]
    pair_width: int
    whole_rows: bool = False

    def __call__(
        self,
        query_rows: Float[Tensor, "batch heads q_tokens head_width"],
        keys: Float[Tensor, "batch kv_heads k_tokens head_width"],
        query_positions: Shaped[Tensor, "..."],
        key_positions: Shaped[Tensor, "..."],
        allowed: Bool[Tensor, "..."] | None = None,
    ) -> Float[Tensor, "rows heads q_tokens k_tokens"]:
        batch, _, q_tokens, _ = query_rows.shape
        return self.function(
            query_rows,
            keys,
            token_positions(query_positions, batch, q_tokens, query_rows.device),
            token_positions(key_positions, batch, keys.shape[2], keys.device),
            allowed,
            *self.parameters_used,
        )


class Encoding(nn.Module):
    """The base of every position encoding: acts nowhere until a member says where.

    `places` is a subset of {"add", "rotate", "bias"}.
    """

    places: ClassVar[frozenset[str]] = frozenset()

    def extra_repr(self) -> str:
        """The settings, for printing."""
        settings = {k: v for k, v in vars(self).items() if not k.startswith("_")}
        return ", ".join(f"{k}={v!r}" for k, v in settings.items() if k != "training")

    def forward(
        self,
        x: Float[Tensor, "batch tokens width"],
        positions: Shaped[Tensor, "..."] | None = None,
        lengths: Shaped[Tensor, "..."] | None = None,
    ) -> Float[Tensor, "batch tokens width"]:
        """Embeddings with their positions added; unchanged where nothing is added.

        `positions` are integers, (tokens,) or (batch, tokens); 0 … tokens − 1 if absent.
        `lengths` are the token counts of the texts, (batch,), or (batch, tokens) where a row packs
        several; only an encoding that depends on the length reads them.
        """
        return x

    def rotate(
        self,
        x: Float[Tensor, "batch heads tokens head_width"],
        positions: Shaped[Tensor, "..."] | None = None,
        lengths: Shaped[Tensor, "..."] | None = None,
    ) -> Float[Tensor, "batch heads tokens head_width"]:
        """Queries or keys turned by their positions; unchanged where nothing turns."""
        return x

    def bias(
        self, query_positions: Shaped[Tensor, "..."], key_positions: Shaped[Tensor, "..."]
    ) -> OffsetTable | RowRule | None:
        """What is added to the scores, as a table over offsets or as a rule for rows."""
        return None


def token_positions(
    positions: Tensor | None, batch: int, tokens: int, device: torch.device
) -> Int[Tensor, "rows tokens"]:
    """The positions of `tokens` tokens, one row for all texts or one for each of `batch` texts."""
    if positions is None:
        return torch.arange(tokens, device=device)[None]
    check_integers("positions", positions)
    if positions.shape not in ((tokens,), (1, tokens), (batch, tokens)):
        raise ShapeError(
            f"positions of shape {tuple(positions.shape)} do not fit {batch} texts of {tokens} "
            f"tokens; give ({tokens},), the same for every text, or ({batch}, {tokens})"
        )
    positions = positions.to(device, torch.long)
    return positions if positions.ndim == 2 else positions[None]


def token_lengths(lengths: Tensor, batch: int, tokens: int) -> Int[Tensor, "rows #tokens"]:
    """The length of each text, or of the text that each token belongs to."""
    check_integers("lengths", lengths)
    if lengths.shape == (batch, tokens):
        return lengths
    if lengths.shape == (batch,):
        return lengths[:, None]
    raise ShapeError(
        f"lengths of shape {tuple(lengths.shape)} do not fit {batch} texts of {tokens} tokens; "
        f"give ({batch},), a length for each text, or ({batch}, {tokens}), one for each token"
    )


def check_integers(what: str, tensor: Tensor) -> None:
    """`ShapeError` unless the tensor holds integers."""
    if tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool:
        raise ShapeError(f"{what} must be integers, got {tensor.dtype}; convert with .long()")


def check_width(width: int, x: Tensor) -> None:
    """`ShapeError` unless the last dimension of `x` is `width`."""
    if x.shape[-1] != width:
        raise ShapeError(
            f"this encoding was made for width {width}, and {tuple(x.shape)} has width "
            f"{x.shape[-1]}; make it with width={x.shape[-1]}"
        )


def check_at_least(what: str, value: float | int, least: int) -> None:
    """`OptionError` if a setting is below the least that is allowed."""
    if value < least:
        raise OptionError(f"{what} must be {least} or more, got {value}")


def offsets(query_positions: Tensor, key_positions: Tensor) -> Int[Tensor, "offsets"]:
    """Every offset, key position − query position, from the lowest to the highest that occurs."""
    check_integers("query positions", query_positions)
    check_integers("key positions", key_positions)
    device = query_positions.device
    if query_positions.numel() == 0 or key_positions.numel() == 0:
        return torch.zeros(1, dtype=torch.long, device=device)
    lowest = int(key_positions.min()) - int(query_positions.max())
    highest = int(key_positions.max()) - int(query_positions.min())
    if highest - lowest >= LARGEST_SPAN:
        raise ShapeError(
            f"offsets from {lowest} to {highest} are more than the {LARGEST_SPAN} that a bias "
            "table may hold; give padding the position 0, it is masked anyway"
        )
    return torch.arange(lowest, highest + 1, device=device)


def precise(device: torch.device) -> torch.dtype:
    """The type that phases are computed in: float64 where the device has it."""
    return torch.float32 if device.type == "mps" else torch.float64
