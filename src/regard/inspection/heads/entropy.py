"""Entropy: ``−Σⱼ wᵢⱼ ln wᵢⱼ``, the mean over rows; e to its power is how many keys a row looks at.

Used to tell focused from broad heads by Clark et al., "What Does BERT Look At?" (2019), section
3.2.
"""

from torch import Tensor
from torch.special import entr

from regard.inspection.heads._measure import Block, Measure


class Entropy(Measure):
    """Nats a row: 0 where all goes to one key, ln n where n keys share alike."""

    unit = "nats"
    self_attention = False

    def of_block(self, block: Block) -> Tensor:
        """``−w ln w``, 0 for w ≤ 0."""
        return entr(block.weights.clamp(min=0)).sum(1)
