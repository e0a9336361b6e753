"""Given weights: a head attends as a matrix says."""

import torch
from torch import Tensor

from regard.errors import ShapeError
from regard.inspection.interventions.edits._edit import Edit, Place


class GivenWeights(Edit):
    """Weights (Tq, Tk), or (H, Tq, Tk) for all heads of a layer, taken as they are."""

    def __init__(self, matrix: Tensor):
        self.matrix = matrix

    def weights(self, weights: Tensor, place: Place) -> Tensor:
        """The matrix, for each text of the batch."""
        fits = self.matrix.shape[-2:] == weights.shape[-2:] and self.matrix.ndim in (2, 3)
        if not fits or (self.matrix.ndim == 3 and len(self.matrix) != weights.shape[1]):
            raise ShapeError(
                f"layer {place.layer} has weights of {tuple(weights.shape[1:])} (heads, queries, "
                f"keys); the given matrix is {tuple(self.matrix.shape)}"
            )
        return torch.broadcast_to(self.matrix.to(weights), weights.shape).clone()
