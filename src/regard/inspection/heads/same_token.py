"""Same token: the weight on other places where the query's own token stands.

Wang et al., "Interpretability in the Wild: a Circuit for Indirect Object Identification in GPT-2
small" (2023), section 3, "duplicate token heads".
"""

from torch import Tensor

from regard.inspection.heads._measure import Block, Measure, Text


class SameToken(Measure):
    """Share of a row that goes to equal tokens elsewhere; rows without one do not count."""

    def of_block(self, block: Block) -> Tensor:
        """Equal tokens off the diagonal."""
        queries, keys = block.text.queries[block.rows], block.text.keys[block.cols]
        return block.where((queries[:, None] == keys[None]) & (block.offsets != 0))

    def counts(self, text: Text) -> Tensor:
        """Rows whose token stands at another place too."""
        _, which, count = text.queries.unique(return_inverse=True, return_counts=True)
        return count[which] > 1
