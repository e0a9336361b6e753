"""What every path has in common: it says what it cannot do, and does the rest."""

from jaxtyping import Float
from torch import Tensor

from regard.attention.call import Call


class Path:
    """One way to compute a call. The result is that of `regard.attention.rows`, whatever the path.

    A path has no state; one object serves all calls.
    """

    def refuses(self, call: Call) -> str | None:
        """Why the path cannot compute the call, as a phrase; None if it can."""
        raise NotImplementedError

    def declines(self, call: Call) -> str | None:
        """Why the path, though it can, leaves the call to a later one when the choice is auto."""
        return None

    def run(self, call: Call) -> Float[Tensor, "batch heads q_tokens value_width"]:
        """The mixed values, for a call that the path does not refuse."""
        raise NotImplementedError
