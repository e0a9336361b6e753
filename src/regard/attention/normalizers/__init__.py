"""Normalizers: how the scores of a row become weights. One file a normalizer.

>>> create("softmax", softcap=50.0)
Softmax(softcap=50.0)
"""

from typing import Any

from regard.attention.normalizers._normalizer import Normalizer
from regard.errors import OptionError
from regard.family import Family

family: Family[Normalizer] = Family("normalizer", __name__)
names = family.names


def create(name: str, **settings: Any) -> Normalizer:
    """Make the normalizer called `name`."""
    return family.create(name, **settings)


def resolve(normalizer: object) -> Normalizer:
    """The normalizer itself, or the one of that name with default options."""
    if isinstance(normalizer, Normalizer):
        return normalizer
    if not isinstance(normalizer, str):
        raise OptionError(
            f"normalizer must be a name or a Normalizer, not {type(normalizer).__name__}; "
            f"known names: {', '.join(names())}"
        )
    return _PLAIN[normalizer] if normalizer in _PLAIN else family.create(normalizer)


# Made once, and here, for a compiled model cannot look for files.
_PLAIN = {name: create(name) for name in names()}


__all__ = ["Normalizer", "create", "family", "names", "resolve"]
