"""Rank of the score matrix: how many directions q and k really use.

The effective rank of Roy, Vetterli, "The effective rank: a measure of effective dimensionality"
(2007): e to the power of the entropy of the singular values, each divided by their sum. Scores are
q kᵀ, so that the singular values are those of a small matrix: with q = Q₁R₁ and k = Q₂R₂ they are
those of R₁R₂ᵀ, and no T×T matrix is formed.
"""

import torch

from regard.inspection.atlas import Head
from regard.inspection.atlas.head import DotHead
from regard.inspection.heads._measure import Measure


class ScoreRank(Measure):
    """Between 1 and the head's width; nan where scores are no dot products."""

    unit = "dimensions"
    self_attention = False

    def of_head(self, head: Head) -> float:
        """Of scores before bias, softcap and mask."""
        if not isinstance(head, DotHead):
            return torch.nan
        query = torch.linalg.qr(head.query.double(), mode="r").R
        key = torch.linalg.qr(head.key.double(), mode="r").R
        sizes = torch.linalg.svdvals(query @ key.T)
        if sizes[0] == 0:
            return 0.0
        return float(torch.special.entr(sizes / sizes.sum()).sum().exp())
