"""First token: the weight on the first key, where many heads leave what they do not need.

Xiao et al., "Efficient Streaming Language Models with Attention Sinks" (2024), section 3.1.
"""

import torch
from torch import Tensor

from regard.inspection.heads._measure import Block, Measure, Text


class FirstToken(Measure):
    """Share of a row that goes to the first key; the first row does not count."""

    self_attention = False

    def of_block(self, block: Block) -> Tensor:
        """Column 0."""
        return block.weights[:, 0] if block.cols.start == 0 else 0 * block.weights[:, 0]

    def counts(self, text: Text) -> Tensor:
        """All rows but the first, which in a causal model has no other key."""
        rows = torch.arange(len(text.queries), device=text.queries.device)
        return rows > 0 if text.same else rows >= 0
