"""Score functions: how well a query and a key match. One file a function.

>>> create("scaled_dot")
ScaledDot()
"""

from typing import Any

from regard.attention.scores._score import DotForm, Score, TanhForm
from regard.errors import OptionError
from regard.family import Family

family: Family[Score] = Family("score", __name__)
names = family.names


def create(name: str, **settings: Any) -> Score:
    """Make the score called `name`; every score takes `heads` and `head_width`."""
    return family.create(name, **settings)


def resolve(score: object) -> Score:
    """The score itself, or the one of that name if it has nothing to learn."""
    if isinstance(score, Score):
        return score
    if not isinstance(score, str):
        raise OptionError(
            f"score must be a name or a Score, not {type(score).__name__}; "
            f"known names: {', '.join(names())}"
        )
    if score not in _UNLEARNED and family.get(score).learned:
        raise OptionError(
            f"score {score!r} has parameters to learn, so a name is not enough: create it once, "
            f"score = scores.create({score!r}, heads=…, head_width=…), and pass score=score"
        )
    return _UNLEARNED[score]


# Made once, and here, for a compiled model cannot look for files.
_UNLEARNED = {name: create(name) for name in names() if not family.get(name).learned}


__all__ = ["DotForm", "Score", "TanhForm", "create", "family", "names", "resolve"]
