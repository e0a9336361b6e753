"""What encoder and decoder share: embedding, position, blocks, a last norm."""

import inspect
from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard import positions
from regard.attention import MultiHeadAttention, Tap, scores
from regard.attention.scores import Score
from regard.models.blocks import Block
from regard.models.settings import EncoderSettings
from regard.positions import Encoding


class Stack(nn.Module):
    """`vocabulary_size` embeddings and `settings.layers` blocks, each made by `block`.

    Embeddings are scaled by √width before positions are added: Vaswani et al., "Attention Is All
    You Need" (2017), section 3.4. `max_tokens` limits encodings that are a table of positions;
    `padding` is the id of padding. The taps `embedded` and `positioned` (B, T, D) show the vectors
    before and after the positions are added.
    """

    def __init__(
        self,
        vocabulary_size: int,
        settings: EncoderSettings,
        max_tokens: int,
        padding: int,
        block: Callable[[], Block],
        causal: bool,
    ):
        super().__init__()
        width = settings.width
        self.embedding = nn.Embedding(vocabulary_size, width, padding_idx=padding)
        nn.init.normal_(self.embedding.weight, std=width**-0.5)
        with torch.no_grad():
            self.embedding.weight[padding].zero_()
        self.scale = width**0.5
        self.position = position_in(settings, max_tokens, {"add"}, causal)
        self.blocks = nn.ModuleList(block() for _ in range(settings.layers))
        self.norm = nn.LayerNorm(width)
        self.dropout = nn.Dropout(settings.dropout)
        self.embedded, self.positioned = Tap(), Tap()

    def embed(
        self,
        ids: Int[Tensor, "batch tokens"],
        lengths: Int[Tensor, " batch"],
        places: Int[Tensor, " tokens"] | None = None,
    ) -> Float[Tensor, "batch tokens width"]:
        """The vectors that enter the blocks; `places` are positions, 0, 1, 2 … if not given."""
        x = self.embedded(self.scale * self.embedding(ids))
        return self.dropout(self.positioned(self.position(x, places, lengths)))


def attention_of(settings: EncoderSettings, max_tokens: int, causal: bool) -> MultiHeadAttention:
    """The self-attention that `settings` describe."""
    return MultiHeadAttention(
        settings.width,
        settings.heads,
        kv_heads=settings.kv_heads,
        score=score_of(settings, max_tokens),
        normalizer=settings.normalizer,
        position=position_in(settings, max_tokens, {"rotate", "bias"}, causal),
        dropout=settings.dropout,
    )


def hidden_of(settings: EncoderSettings) -> int:
    """The width inside the fully connected layers."""
    return settings.hidden or 4 * settings.width


def score_of(settings: EncoderSettings, max_tokens: int) -> str | Score:
    """The score that `settings` name; one with a table of positions is made long enough."""
    table = inspect.signature(scores.family.get(settings.score)).parameters.get("max_length")
    if table is None or max_tokens <= table.default:
        return settings.score
    return scores.create(
        settings.score,
        heads=settings.heads,
        head_width=settings.width // settings.heads,
        max_length=max_tokens,
    )


def position_of(settings: EncoderSettings, max_tokens: int, causal: bool = False) -> Encoding:
    """The position encoding that `settings` name, made for their sizes."""
    sizes = {
        "width": settings.width,
        "heads": settings.heads,
        "head_width": settings.width // settings.heads,
        "max_length": max_tokens,
        "bidirectional": not causal,
    }
    takes = inspect.signature(positions.get(settings.position)).parameters
    return positions.create(
        settings.position, **{name: size for name, size in sizes.items() if name in takes}
    )


def position_in(
    settings: EncoderSettings, max_tokens: int, places: set[str], causal: bool
) -> Encoding:
    """The settings' position encoding if it acts in one of `places`, else one that does nothing."""
    position = position_of(settings, max_tokens, causal)
    return position if position.places & places else positions.create("none")
