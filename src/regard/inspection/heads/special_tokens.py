"""Special tokens: the weight on keys that the tokenizer put in, such as [CLS] and [SEP].

Clark et al., "What Does BERT Look At?" (2019), section 3.2: heads that do nothing rest there.
"""

from torch import Tensor

from regard.inspection.heads._measure import Block, Measure


class SpecialTokens(Measure):
    """Share of a row that goes to special tokens."""

    self_attention = False

    def of_block(self, block: Block) -> Tensor:
        """Special columns."""
        return block.where(block.text.special[block.cols][None])
