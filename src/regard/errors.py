"""The errors that regard raises: what was asked, what arrived, what is allowed, what to do.

Every error of the package is a `RegardError`. On the command line its message is printed as one
line, ``regard: …``, and the exit status is 2.
"""

from collections.abc import Iterable
from difflib import get_close_matches


class RegardError(Exception):
    """Anything regard refuses, with a message that says how to go on."""


class OptionError(RegardError, ValueError):
    """A setting or argument that is not allowed."""


class ShapeError(RegardError, ValueError):
    """A tensor whose shape or type does not fit the others."""


class DataError(RegardError, ValueError):
    """A file or text that cannot be read as asked."""


class StorageError(RegardError, OSError):
    """A file or folder that cannot be opened or written."""


class MissingExtraError(RegardError, ImportError):
    """An optional dependency that is not installed."""

    def __init__(self, package: str, extra: str):
        super().__init__(f'{package} is not installed; run: pip install "regard[{extra}]"')


def unknown_name(kind: str, name: str, known: Iterable[str]) -> OptionError:
    """The error for a name that no member bears: lists the known ones, nearest offered first.

    >>> str(unknown_name("score", "aditive", ["additive", "dot"]))
    "unknown score 'aditive'; did you mean 'additive'? known: additive, dot"
    """
    known = sorted(known)
    near = get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return OptionError(f"unknown {kind} {name!r}; {hint}known: {', '.join(known)}")
