"""Diagonal: the weight of each token on itself, the mean over rows.

Clark et al., "What Does BERT Look At?" (2019), section 3.1.
"""

from torch import Tensor

from regard.inspection.heads._measure import Block, Measure


class Diagonal(Measure):
    """Share of a row that goes to its own token."""

    def of_block(self, block: Block) -> Tensor:
        """Offset 0."""
        return block.where(block.offsets == 0)
