"""Queries and keys turned by an angle that grows with the position, so that scores see offsets.

Su et al., "RoFormer: Enhanced Transformer with Rotary Position Embedding" (2021), equations 15 and
34: the dimensions are taken in pairs, and pair i of the token at position m is turned by the angle
m · θ_i, θ_i = base^(−2i / width). Then q_m · k_n depends on the positions through m − n only.
"""

from typing import Any

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from regard.errors import OptionError, unknown_name
from regard.positions._encoding import (
    Encoding,
    check_at_least,
    check_width,
    precise,
    token_lengths,
    token_positions,
)
from regard.positions._scaling import scaling as make_scaling

LAYOUTS = ("half", "interleaved")


class Rotary(Encoding):
    """Turns queries and keys: all their dimensions, or only the first `rotated_width`.

    `layout` says which dimensions are a pair: ``half``, (i, i + rotated_width / 2), as Llama and
    GPT-NeoX have it, or ``interleaved``, (2i, 2i + 1), as the paper and GPT-J have it.
    `scaling` stretches the encoding past the length that a model was trained for, and takes
    settings of its own: ``linear`` and ``ntk`` (factor), ``dynamic``, ``yarn`` and ``llama3``
    (factor, trained_length), ``longrope`` (short, long, factor, trained_length), ``proportional``
    (share).

    >>> import torch
    >>> from regard import positions
    >>> rotary = positions.create("rotary", head_width=4)
    >>> q, k = torch.rand(1, 1, 1, 4), torch.rand(1, 1, 1, 4)
    >>> def score(m, n):
    ...     return rotary.rotate(q, torch.tensor([m])) @ rotary.rotate(k, torch.tensor([n])).mT
    >>> torch.allclose(score(3, 1), score(9, 7))
    True
    """

    places = frozenset({"rotate"})

    def __init__(
        self,
        head_width: int,
        base: float | int = 10000.0,
        rotated_width: int | None = None,
        layout: str = "half",
        scaling: str = "none",
        **scaling_settings: Any,
    ):
        super().__init__()
        check_at_least("head_width", head_width, 2)
        check_at_least("base", base, 2)
        if layout not in LAYOUTS:
            raise unknown_name("rotary layout", layout, LAYOUTS)
        rotated_width = head_width if rotated_width is None else rotated_width
        if rotated_width % 2 or not 2 <= rotated_width <= head_width:
            raise OptionError(
                f"rotary turns pairs of dimensions, so rotated_width must be even and from 2 to "
                f"the head's width {head_width}, got {rotated_width}; "
                f"rotated_width={head_width - head_width % 2} turns as many as there are"
            )
        self.head_width = head_width
        self.base = base
        self.rotated_width = rotated_width
        self.layout = layout
        self.scaling = make_scaling(scaling, **scaling_settings)

    def rotate(
        self,
        x: Float[Tensor, "batch heads tokens head_width"],
        positions: Shaped[Tensor, "..."] | None = None,
        lengths: Shaped[Tensor, "..."] | None = None,
    ) -> Float[Tensor, "batch heads tokens head_width"]:
        """`x` (batch, heads, tokens, head_width) with each token turned by its position.

        `positions` are integers, (tokens,) or (batch, tokens); 0 … tokens − 1 if absent.
        ``dynamic`` and ``longrope`` look at each text's length: its highest position + 1, unless
        `lengths`, (batch,), tells it. Tell it where `x` is a piece of a text, or where padding
        stands past its end.
        """
        check_width(self.head_width, x)
        batch, _, tokens, _ = x.shape
        if tokens == 0:
            return x
        places = token_positions(positions, batch, tokens, x.device)
        if lengths is None:
            lengths = places.amax(-1, keepdim=True) + 1
        else:
            lengths = token_lengths(lengths, batch, tokens)
        theta = self.scaling.frequencies(self.base, self.rotated_width, lengths[..., None])
        phases = places[..., None].to(precise(x.device)) * theta
        dtype = torch.promote_types(x.dtype, torch.float32)
        # (rows, tokens, pairs) against (batch, heads, tokens, pairs)
        cos, sin = (
            (turn[:, None] * self.scaling.multiplier).to(dtype)
            for turn in (phases.cos(), phases.sin())
        )
        turned, rest = x[..., : self.rotated_width].to(dtype), x[..., self.rotated_width :]
        if self.layout == "half":
            first, second = turned.chunk(2, dim=-1)
        else:
            first, second = turned[..., 0::2], turned[..., 1::2]
        pair = (first * cos - second * sin, second * cos + first * sin)
        if self.layout == "half":
            turned = torch.cat(pair, dim=-1)
        else:
            turned = torch.stack(pair, dim=-1).flatten(-2)
        return torch.cat((turned.to(x.dtype), rest), dim=-1)
