"""The decoder: each token attends to itself and those before, and may look at another text."""

from dataclasses import dataclass, field

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.attention import KeyValueCache, MultiHeadAttention
from regard.attention.masks import Causal, Mask
from regard.attention.scores.location import Location
from regard.errors import OptionError
from regard.models._stack import Stack, attention_of, hidden_of
from regard.models.blocks import Block, CrossBlock
from regard.models.settings import EncoderSettings


@dataclass
class DecoderCache:
    """Keys and values of the tokens so far, a layer each; `memory` those of the other text."""

    own: list[KeyValueCache] = field(default_factory=list)
    memory: list[KeyValueCache] = field(default_factory=list)

    @classmethod
    def empty(cls, layers: int) -> "DecoderCache":
        """A cache for so many layers that holds nothing."""
        return cls(*([KeyValueCache() for _ in range(layers)] for _ in range(2)))

    def __len__(self) -> int:
        return len(self.own[0])

    def take(self, rows: Int[Tensor, " rows"]) -> None:
        """Go on from these rows of the batch; the other text of each row must stay the same."""
        for cache in self.own:
            if cache.key is not None and cache.value is not None:
                cache.key, cache.value = cache.key[rows], cache.value[rows]


class Decoder(Stack):
    """Each token attends to itself and those before; with `cross`, also to another text.

    `settings` and the other arguments are as in `Stack`. Positions act within the own text alone.
    An encoding that depends on the length of the text gets `max_tokens`, since how long a text will
    be is not known while it is written.
    """

    def __init__(
        self,
        vocabulary_size: int,
        settings: EncoderSettings,
        max_tokens: int,
        padding: int = 0,
        *,
        cross: bool = False,
    ):
        def block() -> Block:
            attention = attention_of(settings, max_tokens, causal=True)
            if not cross:
                return Block(attention, hidden_of(settings), settings.dropout)
            return CrossBlock(attention, _cross(settings), hidden_of(settings), settings.dropout)

        super().__init__(vocabulary_size, settings, max_tokens, padding, block, causal=True)
        self.max_tokens = max_tokens

    @property
    def caches(self) -> bool:
        """Whether tokens can be read one at a time; the location score must see all at once."""
        return not any(isinstance(block.attention.score, Location) for block in self.blocks)  # pyright: ignore[reportAttributeAccessIssue]

    def new_cache(self) -> DecoderCache | None:
        """An empty cache, or None where every call must read the whole text."""
        return DecoderCache.empty(len(self.blocks)) if self.caches else None

    def forward(
        self,
        ids: Int[Tensor, "batch tokens"],
        cache: DecoderCache | None = None,
        memory: Float[Tensor, "batch read_tokens width"] | None = None,
        memory_mask: Mask | None = None,
    ) -> Float[Tensor, "batch tokens width"]:
        """One vector a token, which knows of the tokens before it alone.

        With a `cache`, `ids` go on where it ends. Padding stands on the right, where no real token
        looks. `memory`: the vectors of the other text.
        """
        batch, tokens = ids.shape
        places = None
        if cache is not None and len(cache):
            places = torch.arange(len(cache), len(cache) + tokens, device=ids.device)
        x = self.embed(ids, torch.full((batch,), self.max_tokens, device=ids.device), places)
        for layer, block in enumerate(self.blocks):
            own = None if cache is None else cache.own[layer]
            if memory is None:
                x = block(x, Causal(), places=places, cache=own)
                continue
            read = None if cache is None else cache.memory[layer]
            x = block(
                x,
                Causal(),
                memory=memory[:, :0] if read is not None and len(read) else memory,
                memory_mask=memory_mask,
                places=places,
                cache=own,
                memory_cache=read,
            )
        return self.norm(x)

    def logits(
        self, x: Float[Tensor, "batch tokens width"]
    ) -> Float[Tensor, "batch tokens vocabulary"]:
        """How well each token of the vocabulary would go on, by its own embedding.

        Press and Wolf, "Using the Output Embedding to Improve Language Models" (2017).
        """
        return x @ self.embedding.weight.T


def _cross(settings: EncoderSettings) -> MultiHeadAttention:
    """Attention to another text: as the self-attention, without positions."""
    if settings.score == "location":
        raise OptionError(
            "the location score reads query and key of the same step, and cross-attention has no "
            "such step; take another score for an encoder–decoder"
        )
    return MultiHeadAttention(
        settings.width,
        settings.heads,
        kv_heads=settings.kv_heads,
        score=settings.score,
        normalizer=settings.normalizer,
        dropout=settings.dropout,
    )
