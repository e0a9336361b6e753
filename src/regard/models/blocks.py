"""The block: self-attention looks over the whole text, fully connected layers over each token.

Vaswani et al., "Attention Is All You Need" (2017), section 3.1, with the norm before each half
(Xiong et al., "On Layer Normalization in the Transformer Architecture", 2020).
"""

from jaxtyping import Float
from torch import Tensor, nn

from regard.attention import MultiHeadAttention, Tap
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
        self, x: Float[Tensor, "batch tokens width"], mask: Mask | None = None
    ) -> Float[Tensor, "batch tokens width"]:
        """The residual stream after this block; `mask` says who may attend to whom."""
        attended = self.attention(self.attention_norm(x), mask=mask)
        x = self.attended(x + self.dropout(attended))
        connected = self.fully_connected(self.fully_connected_norm(x))
        return self.output(x + self.dropout(connected))
