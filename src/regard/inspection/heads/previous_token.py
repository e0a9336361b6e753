"""Previous token: the weight of each token on the one before it, the mean over rows.

Clark et al., "What Does BERT Look At?" (2019), section 3.1; Elhage et al., "A Mathematical
Framework for Transformer Circuits" (2021), where such heads come before induction heads.
"""

import torch
from torch import Tensor

from regard.inspection.heads._measure import Block, Measure, Text


class PreviousToken(Measure):
    """Share of a row that goes to the token before; the first row has none and does not count."""

    def of_block(self, block: Block) -> Tensor:
        """Offset −1."""
        return block.where(block.offsets == -1)

    def counts(self, text: Text) -> Tensor:
        """All rows but the first."""
        return torch.arange(len(text.queries), device=text.queries.device) > 0
