"""Block tokens: nobody may attend to these keys; the others share what they had.

Geva et al., "Dissecting Recall of Factual Associations in Auto-Regressive Language Models" (2023),
section 5, "attention knockout".
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from regard.errors import OptionError
from regard.inspection.interventions.edits._edit import Edit, Place


class BlockTokens(Edit):
    """Keys at these indices are masked; a row that has no other key gets zeros."""

    def __init__(self, tokens: Sequence[int]):
        self.tokens = list(tokens)

    def scores(self, scores: Tensor, place: Place) -> Tensor:
        """The lowest number at the blocked keys."""
        lowest = torch.finfo(scores.dtype).min
        return scores.index_fill(-1, self._columns(scores), lowest)

    def weights(self, weights: Tensor, place: Place) -> Tensor:
        """Exactly 0 at the blocked keys."""
        return weights.index_fill(-1, self._columns(weights), 0)

    def _columns(self, x: Tensor) -> Tensor:
        for token in self.tokens:
            if not 0 <= token < x.shape[-1]:
                raise OptionError(
                    f"token {token} is to be blocked; there are 0 … {x.shape[-1] - 1}"
                )
        return torch.tensor(self.tokens, device=x.device)
