"""The encoder: ids → embedding + position → blocks → one vector a token."""

from jaxtyping import Float, Int
from torch import Tensor

from regard.attention.masks import Padding
from regard.models._stack import Stack, attention_of, hidden_of
from regard.models.blocks import Block
from regard.models.settings import EncoderSettings


class Encoder(Stack):
    """Each token attends to the whole text. Arguments as in `Stack`."""

    def __init__(
        self, vocabulary_size: int, settings: EncoderSettings, max_tokens: int, padding: int = 0
    ):
        super().__init__(
            vocabulary_size,
            settings,
            max_tokens,
            padding,
            lambda: Block(
                attention_of(settings, max_tokens, causal=False),
                hidden_of(settings),
                settings.dropout,
            ),
            causal=False,
        )

    def forward(
        self, ids: Int[Tensor, "batch tokens"], lengths: Int[Tensor, " batch"]
    ) -> Float[Tensor, "batch tokens width"]:
        """One vector a token; rows of `ids` hold `lengths` tokens and padding on the right."""
        x = self.embed(ids, lengths)
        mask = Padding.from_lengths(lengths, ids.shape[1])
        for block in self.blocks:
            x = block(x, mask)
        return self.norm(x)
