"""The encoder: ids → embedding + position → blocks → one vector a token."""

import inspect

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard import positions
from regard.attention import MultiHeadAttention, Tap
from regard.attention.masks import Padding
from regard.models.blocks import Block
from regard.models.settings import EncoderSettings
from regard.positions import Encoding


class Encoder(nn.Module):
    """`vocabulary_size` embeddings and the layers that `settings` describe.

    Embeddings are scaled by √width before positions are added: Vaswani et al., "Attention Is All
    You Need" (2017), section 3.4. `max_tokens` limits encodings that are a table of positions;
    `padding` is the id of padding. The taps `embedded` and `positioned` (B, T, D) show the vectors
    before and after the positions are added.
    """

    def __init__(
        self, vocabulary_size: int, settings: EncoderSettings, max_tokens: int, padding: int = 0
    ):
        super().__init__()
        width, heads = settings.width, settings.heads
        self.embedding = nn.Embedding(vocabulary_size, width, padding_idx=padding)
        nn.init.normal_(self.embedding.weight, std=width**-0.5)
        with torch.no_grad():
            self.embedding.weight[padding].zero_()
        self.scale = width**0.5
        self.position = position_in(settings, max_tokens, {"add"})
        self.blocks = nn.ModuleList(
            Block(
                MultiHeadAttention(
                    width,
                    heads,
                    kv_heads=settings.kv_heads,
                    score=settings.score,
                    normalizer=settings.normalizer,
                    position=position_in(settings, max_tokens, {"rotate", "bias"}),
                    dropout=settings.dropout,
                ),
                settings.hidden or 4 * width,
                settings.dropout,
            )
            for _ in range(settings.layers)
        )
        self.norm = nn.LayerNorm(width)
        self.dropout = nn.Dropout(settings.dropout)
        self.embedded, self.positioned = Tap(), Tap()

    def forward(
        self, ids: Int[Tensor, "batch tokens"], lengths: Int[Tensor, " batch"]
    ) -> Float[Tensor, "batch tokens width"]:
        """One vector a token; rows of `ids` hold `lengths` tokens and padding on the right."""
        x = self.embedded(self.scale * self.embedding(ids))
        x = self.dropout(self.positioned(self.position(x, lengths=lengths)))
        mask = Padding.from_lengths(lengths, ids.shape[1])
        for block in self.blocks:
            x = block(x, mask)
        return self.norm(x)


def position_of(settings: EncoderSettings, max_tokens: int) -> Encoding:
    """The position encoding that `settings` name, made for their sizes."""
    sizes = {
        "width": settings.width,
        "heads": settings.heads,
        "head_width": settings.width // settings.heads,
        "max_length": max_tokens,
    }
    takes = inspect.signature(positions.get(settings.position)).parameters
    return positions.create(
        settings.position, **{name: size for name, size in sizes.items() if name in takes}
    )


def position_in(settings: EncoderSettings, max_tokens: int, places: set[str]) -> Encoding:
    """The settings' position encoding if it acts in one of `places`, else one that does nothing."""
    position = position_of(settings, max_tokens)
    return position if position.places & places else positions.create("none")
