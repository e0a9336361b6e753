"""The block: self-attention looks over the whole text, fully connected layers over each token.

Vaswani et al., "Attention Is All You Need" (2017), section 3.1, with the norm before each half
(Xiong et al., "On Layer Normalization in the Transformer Architecture", 2020).
"""

from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention import KeyValueCache, MultiHeadAttention, Tap
from regard.attention.masks import Mask


class FullyConnected(nn.Sequential):
    """Two linear maps with GELU between, the same for every token: (B, T, D) → (B, T, D).

    `hidden` is the width between the maps; Vaswani et al. (2017), section 3.3.
    """

    def __init__(self, width: int, hidden: int, dropout: float | int = 0.0):
        super().__init__(
            nn.Linear(width, hidden), nn.GELU(), nn.Dropout(dropout), nn.Linear(hidden, width)
        )


class Block(nn.Module):
    """Self-attention, then fully connected layers, each behind a norm and beside a residual.

    The taps `attended` and `output` (B, T, D) show the residual stream after either half.

    >>> import torch
    >>> Block(MultiHeadAttention(6, 2), hidden=7)(torch.zeros(5, 3, 6)).shape
    torch.Size([5, 3, 6])
    """

    def __init__(self, attention: MultiHeadAttention, hidden: int, dropout: float | int = 0.0):
        super().__init__()
        width = attention.width
        self.attention_norm = nn.LayerNorm(width)
        self.attention = attention
        self.fully_connected_norm = nn.LayerNorm(width)
        self.fully_connected = FullyConnected(width, hidden, dropout)
        self.dropout = nn.Dropout(dropout)
        self.attended, self.output = Tap(), Tap()

    def forward(
        self,
        x: Float[Tensor, "batch tokens width"],
        mask: Mask | None = None,
        *,
        places: Int[Tensor, " tokens"] | None = None,
        cache: KeyValueCache | None = None,
    ) -> Float[Tensor, "batch tokens width"]:
        """The residual stream after this block; `mask` says who may attend to whom.

        `places` are the tokens' positions, 0, 1, 2 … if not given; `cache` holds the tokens before.
        """
        return self.connect(self.attend(x, mask, places, cache))

    def attend(
        self, x: Tensor, mask: Mask | None, places: Tensor | None, cache: KeyValueCache | None
    ) -> Tensor:
        """The first half: self-attention."""
        attended = self.attention(
            self.attention_norm(x), mask=mask, query_positions=places, cache=cache
        )
        return self.attended(x + self.dropout(attended))

    def connect(self, x: Tensor) -> Tensor:
        """The last half: fully connected layers."""
        connected = self.fully_connected(self.fully_connected_norm(x))
        return self.output(x + self.dropout(connected))


class CrossBlock(Block):
    """A block that also looks at another text, between its two halves.

    The tap `crossed` (B, T, D) shows the residual stream after that. Vaswani et al. (2017), section
    3.2.3, "encoder-decoder attention".

    >>> import torch
    >>> block = CrossBlock(MultiHeadAttention(6, 2), MultiHeadAttention(6, 2), hidden=7)
    >>> block(torch.zeros(5, 3, 6), memory=torch.zeros(5, 11, 6)).shape
    torch.Size([5, 3, 6])
    """

    def __init__(
        self,
        attention: MultiHeadAttention,
        cross: MultiHeadAttention,
        hidden: int,
        dropout: float | int = 0.0,
    ):
        super().__init__(attention, hidden, dropout)
        self.cross_norm = nn.LayerNorm(attention.width)
        self.cross = cross
        self.crossed = Tap()

    def forward(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        x: Float[Tensor, "batch tokens width"],
        mask: Mask | None = None,
        *,
        memory: Float[Tensor, "batch read_tokens width"],
        memory_mask: Mask | None = None,
        places: Int[Tensor, " tokens"] | None = None,
        cache: KeyValueCache | None = None,
        memory_cache: KeyValueCache | None = None,
    ) -> Float[Tensor, "batch tokens width"]:
        """The residual stream after this block.

        `memory` are the vectors of the other text, `memory_mask` which of them are real. With a
        `memory_cache` that is filled, `memory` is what is added to it: no token.
        """
        x = self.attend(x, mask, places, cache)
        looked = self.cross(self.cross_norm(x), memory, mask=memory_mask, cache=memory_cache)
        return self.connect(self.crossed(x + self.dropout(looked)))
