"""Induction: the weight on tokens that followed earlier places of the query's own token.

Olsson et al., "In-context Learning and Induction Heads" (2022), "Argument 4": on random text that
is repeated, an induction head attends from each token of the repetition to the one that followed
its first occurrence. `repeated_random` makes such text; on it the measure is the paper's score.
"""

import torch
from torch import Tensor

from regard.errors import OptionError
from regard.inspection.heads._measure import Block, Measure, Text


class Induction(Measure):
    """Share of a row that goes right behind earlier equal tokens; rows without one do not count."""

    def of_block(self, block: Block) -> Tensor:
        """Columns up to the row whose token before equals the row's token."""
        before = _before(block.text.keys)[block.cols]
        follows = block.text.queries[block.rows][:, None] == before[None]
        return block.where(follows & (block.offsets <= 0))

    def counts(self, text: Text) -> Tensor:
        """Rows whose token stands somewhere before."""
        _, which = text.queries.unique(return_inverse=True)
        rows = torch.arange(len(which), device=which.device)
        first = torch.full_like(which, len(which)).scatter_reduce(0, which, rows, "amin")
        return first[which] < rows


def _before(tokens: Tensor) -> Tensor:
    """The token before each; a number that no token has before the first."""
    return torch.cat([tokens.min()[None] - 1, tokens[:-1]])


def repeated_random(vocabulary_size: int, period: int, repeats: int = 2, seed: int = 0) -> Tensor:
    """Ids of random text of `period` different tokens, said `repeats` times: (period · repeats,).

    >>> repeated_random(100, 3).tolist()[:3] == repeated_random(100, 3).tolist()[3:]
    True
    """
    if not 1 <= period <= vocabulary_size or repeats < 1:
        raise OptionError(
            f"repeated text of period={period}, repeats={repeats} from {vocabulary_size} tokens: "
            "the period is from 1 to the size of the vocabulary, repeats at least 1"
        )
    generator = torch.Generator().manual_seed(seed)
    return torch.randperm(vocabulary_size, generator=generator)[:period].repeat(repeats)
