"""Uniform: a head attends to all keys it may attend to alike."""

import torch
from torch import Tensor

from regard.inspection.interventions.edits._edit import Edit, Place


class Uniform(Edit):
    """Weight 1/n on each of the n allowed keys; a row without any stays 0."""

    def weights(self, weights: Tensor, place: Place) -> Tensor:
        """One over the number of allowed keys."""
        allowed = torch.ones_like(weights)
        if place.allowed is not None:
            allowed = allowed * place.allowed
        return allowed / allowed.sum(-1, keepdim=True).clamp(min=1)
