"""Mean distance: ``Σⱼ wᵢⱼ |i − j|``, the mean over rows.

Vig, Belinkov, "Analyzing the Structure of Attention in a Transformer Language Model" (2019),
section 4.3.
"""

from torch import Tensor

from regard.inspection.heads._measure import Block, Measure


class MeanDistance(Measure):
    """Tokens between a query and what it attends to."""

    unit = "tokens"

    def of_block(self, block: Block) -> Tensor:
        """Weights times distances."""
        return (block.weights * block.offsets.abs()).sum(1)
