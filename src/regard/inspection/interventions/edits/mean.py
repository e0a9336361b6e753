"""Mean: a head is switched off, its output the mean over the tokens of the text.

Wang et al., "Interpretability in the Wild" (2023), section 2.1, where the mean is over a data set:
pass that as `value`.
"""

from torch import Tensor

from regard.inspection.interventions.edits._edit import Edit, Place


class Mean(Edit):
    """Output the same for all tokens: `value`, (d,), or the mean over the text without padding."""

    def __init__(self, value: Tensor | None = None):
        self.value = value

    def mixed(self, mixed: Tensor, place: Place) -> Tensor:
        """The mean, at each token."""
        if self.value is not None:
            return self.value.to(mixed).expand_as(mixed)
        if place.real is None:
            return mixed.mean(2, keepdim=True).expand_as(mixed)
        real = place.real[..., None].to(mixed.dtype)
        total = real.sum(2, keepdim=True).clamp(min=1)
        return ((mixed * real).sum(2, keepdim=True) / total).expand_as(mixed)
