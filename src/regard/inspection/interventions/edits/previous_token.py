"""Previous token: a head attends to the token before, wholly."""

from torch import Tensor

from regard.inspection.interventions.edits._edit import Edit, Place


class PreviousToken(Edit):
    """Weight 1 on the key at the position before; on the first key where there is none."""

    def weights(self, weights: Tensor, place: Place) -> Tensor:
        """Ones beside the diagonal."""
        call = place.call
        before = (call.query_positions - 1).maximum(call.key_positions[:, :1])
        hit = call.key_positions[:, None, :] == before[:, :, None]
        return hit[:, None].to(weights.dtype).expand_as(weights).clone()
