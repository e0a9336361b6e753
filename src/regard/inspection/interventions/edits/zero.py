"""Zero: a head is switched off, its output nought.

Michel, Levy, Neubig, "Are Sixteen Heads Really Better than One?" (2019), section 3.
"""

import torch
from torch import Tensor

from regard.inspection.interventions.edits._edit import Edit, Place


class Zero(Edit):
    """Output 0."""

    def mixed(self, mixed: Tensor, place: Place) -> Tensor:
        """Zeros."""
        return torch.zeros_like(mixed)
