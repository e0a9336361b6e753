"""Multi-head attention: several attentions in subspaces of their own, concatenated, times W^O.

Vaswani et al., "Attention Is All You Need" (2017), section 3.2.2. Grouped key/value heads: Ainslie
et al., "GQA" (2023); a single one: Shazeer, "Fast Transformer Decoding" (2019). Normalized queries
and keys: Henry et al., "Query-Key Normalization for Transformers" (2020); RMSNorm a head as in
Dehghani et al., "Scaling Vision Transformers to 22 Billion Parameters" (2023).
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.attention import normalizers, paths, scores
from regard.attention.cache import KeyValueCache
from regard.attention.call import make_call
from regard.attention.masks import Mask
from regard.attention.normalizers import Normalizer
from regard.attention.scores import Score
from regard.errors import OptionError, ShapeError


class Tap(nn.Identity):
    """A place where a quantity passes unchanged, so that forward hooks can read and edit it."""

    @property
    def watched(self) -> bool:
        """Whether a hook is set."""
        return bool(self._forward_hooks or self._forward_pre_hooks)


class MultiHeadAttention(nn.Module):
    """Queries, keys and values by linear maps, attention a head, heads concatenated, one map out.

    `width`: D. `heads`: H. `kv_heads`: Hkv, a divisor of H; None means H, 1 a single shared one.
    `head_width`: d, else D / H. `key_width`, `value_width`: widths of key and value inputs, else D.
    `score`, `normalizer`: a name or an object. `position`: an `Encoding` of `regard.positions` that
    rotates or biases. `dropout`: of weights, in training only. `bias`: of the linear maps.
    `qk_norm`: RMSNorm over each head of q and k. `path`: as in `attend`.

    Quantities pass through taps, no-op modules for forward hooks: `q` (B, H, T, d), `k`, `v`
    (B, Hkv, T, d) as the scores see them; `scores`, `weights` (B, H, Tq, Tk), where a hook costs
    the reference path; `mixed` (B, H, Tq, d); `call`, the whole `Call`.

    >>> import torch
    >>> attention = MultiHeadAttention(6, 2)
    >>> attention(torch.randn(5, 3, 6)).shape
    torch.Size([5, 3, 6])
    """

    def __init__(
        self,
        width: int,
        heads: int,
        *,
        kv_heads: int | None = None,
        score: str | Score = "scaled_dot",
        normalizer: str | Normalizer = "softmax",
        position: nn.Module | None = None,
        dropout: float | int = 0.0,
        bias: bool = True,
        head_width: int | None = None,
        key_width: int | None = None,
        value_width: int | None = None,
        qk_norm: bool = False,
        path: str = "auto",
    ):
        super().__init__()
        kv_heads = heads if kv_heads is None else kv_heads
        if heads < 1 or kv_heads < 1 or heads % kv_heads:
            raise OptionError(
                f"heads={heads} must be a multiple of kv_heads={kv_heads}, both at least 1"
            )
        if head_width is None:
            if width % heads:
                raise OptionError(
                    f"width={width} does not divide into heads={heads}; "
                    "choose another number of heads, or say head_width"
                )
            head_width = width // heads
        if not 0 <= dropout < 1:
            raise OptionError(f"dropout is a probability, at least 0 and below 1, not {dropout}")
        if path != "auto":
            paths.family.get(path)
        if position is not None and getattr(position, "places", None) == {"add"}:
            raise OptionError(
                f"{type(position).__name__} is added to the embedding, and attention adds nothing: "
                "call it on the input, x = position(x), and leave position=None here"
            )
        self.width, self.heads, self.kv_heads, self.head_width = width, heads, kv_heads, head_width
        self.dropout, self.path = dropout, path
        self.query = nn.Linear(width, heads * head_width, bias=bias)
        self.key = nn.Linear(key_width or width, kv_heads * head_width, bias=bias)
        self.value = nn.Linear(value_width or width, kv_heads * head_width, bias=bias)
        self.output = nn.Linear(heads * head_width, width, bias=bias)
        self.query_norm = nn.RMSNorm(head_width) if qk_norm else nn.Identity()
        self.key_norm = nn.RMSNorm(head_width) if qk_norm else nn.Identity()
        self.score = (
            scores.create(score, heads=heads, head_width=head_width)
            if isinstance(score, str)
            else scores.resolve(score)
        )
        self.normalizer = (
            normalizers.create(normalizer)
            if isinstance(normalizer, str)
            else normalizers.resolve(normalizer)
        )
        self.position: Any = position
        self.q, self.k, self.v = Tap(), Tap(), Tap()
        self.scores, self.weights, self.mixed = Tap(), Tap(), Tap()
        self.call = Tap()
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Glorot for the four maps, zeros for their biases."""
        for linear in (self.query, self.key, self.value, self.output):
            nn.init.xavier_uniform_(linear.weight)
            if linear.bias is not None:
                nn.init.zeros_(linear.bias)

    def forward(
        self,
        query: Float[Tensor, "batch q_tokens width"] | Tensor,
        key: Float[Tensor, "batch k_tokens key_width"] | Tensor | None = None,
        value: Float[Tensor, "batch k_tokens value_width"] | Tensor | None = None,
        *,
        mask: Mask | Tensor | None = None,
        bias: Any = None,
        query_positions: Tensor | None = None,
        key_positions: Tensor | None = None,
        lengths: Tensor | None = None,
        cache: KeyValueCache | None = None,
    ) -> Float[Tensor, "batch q_tokens width"]:
        """Attend from `query` to `key`, mixing `value`: (B, Tq, D) → (B, Tq, D).

        Self-attention without `key`; cross-attention with one, and `value` is `key` unless given.
        `mask`, `bias` and positions as in `attend`. `cache`: keys and values of earlier calls, to
        which this call's are appended; positions go on where it ends unless given. `lengths`: the
        token counts of the texts, (B,), for rotations that depend on them (``dynamic``,
        ``longrope``), where a row is padded on the right or a piece of its text.
        """
        if key is None and value is not None:
            raise OptionError("value was given without key; give both, or key alone")
        cross = key is not None
        key = query if key is None else key
        value = key if value is None else value
        if key.shape[:2] != value.shape[:2]:
            raise ShapeError(
                f"key and value must have the same batch and tokens; "
                f"got {tuple(key.shape)} and {tuple(value.shape)}"
            )
        self._check_width("query", query, self.query)
        self._check_width("key", key, self.key)
        self._check_width("value", value, self.value)
        if not cross and key_positions is None:
            key_positions = query_positions
        if cache is not None and key_positions is None:
            key_positions = cache.next_positions(key.shape[1], key.device)
        if not cross and query_positions is None:
            query_positions = key_positions

        q = self.query_norm(self._split(self.query(query), self.heads))
        k = self.key_norm(self._split(self.key(key), self.kv_heads))
        v = self._split(self.value(value), self.kv_heads)
        if self._acts("rotate"):
            q = self.position.rotate(q, _or_indices(query_positions, q), lengths)
            k = self.position.rotate(k, _or_indices(key_positions, k), lengths)
        q, k, v = self.q(q), self.k(k), self.v(v)
        if cache is not None:
            k, v, key_positions = cache.append(k, v, _rows(_or_indices(key_positions, k)))

        biases = [] if bias is None else [bias]
        if self._acts("bias"):
            own = self.position.bias(_or_indices(query_positions, q), _or_indices(key_positions, k))
            biases += [] if own is None else [own]
        call = self.call(
            make_call(
                q,
                k,
                v,
                score=self.score,
                normalizer=self.normalizer,
                mask=mask,
                bias=biases or None,
                query_positions=query_positions,
                key_positions=key_positions,
                dropout=self.dropout,
                training=self.training,
                observe_scores=self.scores if self.scores.watched else None,
                observe_weights=self.weights if self.weights.watched else None,
            )
        )
        path = "reference" if call.observed else self.path
        mixed = self.mixed(paths.choose(call, path).run(call))
        # (B, H, Tq, d) → (B, Tq, H·d)
        return self.output(mixed.transpose(1, 2).flatten(2))

    def _acts(self, place: str) -> bool:
        return self.position is not None and place in self.position.places

    @staticmethod
    def _split(x: Tensor, heads: int) -> Tensor:
        # (B, T, H·d) → (B, H, T, d)
        return x.unflatten(-1, (heads, -1)).transpose(1, 2)

    @staticmethod
    def _check_width(name: str, x: Tensor, linear: nn.Linear) -> None:
        if x.ndim != 3 or x.shape[-1] != linear.in_features:
            raise ShapeError(
                f"{name} must be (batch, tokens, {linear.in_features}); got {tuple(x.shape)}"
            )


def _or_indices(positions: Tensor | None, x: Tensor) -> Tensor:
    return torch.arange(x.shape[2], device=x.device) if positions is None else positions


def _rows(positions: Tensor) -> Tensor:
    return positions[None] if positions.ndim == 1 else positions
