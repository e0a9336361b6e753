"""Temperature: scores are divided by a number before softmax; above 1 flattens, below sharpens."""

from torch import Tensor

from regard.errors import OptionError
from regard.inspection.interventions.edits._edit import Edit, Place


class Temperature(Edit):
    """``score / temperature``, biases included."""

    def __init__(self, temperature: float | int):
        if not temperature > 0:
            raise OptionError(f"a temperature is above 0, not {temperature}")
        self.temperature = temperature

    def scores(self, scores: Tensor, place: Place) -> Tensor:
        """Scores over the temperature."""
        return scores / self.temperature
