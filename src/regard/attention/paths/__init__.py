"""Paths: the ways to compute one and the same attention. One file a path.

`choose` takes the first path of `PREFERENCE` that neither refuses nor declines; `explain` says for
every path what it answered.
"""

from dataclasses import dataclass

from regard.attention.call import Call
from regard.attention.paths._path import Path
from regard.errors import OptionError, unknown_name
from regard.family import Family

family: Family[Path] = Family("path", __name__)
names = family.names

PREFERENCE = ("additive", "additive_triton", "relative", "sdpa", "blockwise", "reference")
"""Fastest first; `reference` takes what nobody else does."""


@dataclass(frozen=True)
class Explanation:
    """Which path runs, and what every path answered."""

    path: str
    reason: str
    others: dict[str, str]

    def __str__(self) -> str:
        lines = [f"{self.path}: {self.reason}"]
        return "\n".join(lines + [f"  not {name}: {why}" for name, why in self.others.items()])


def choose(call: Call, path: str = "auto") -> Path:
    """The path to run; `OptionError` if the one asked for is unknown or refuses the call."""
    if path != "auto":
        if path not in _KNOWN:
            raise unknown_name("path", path, ["auto", *_KNOWN])
        if reason := _KNOWN[path].refuses(call):
            raise OptionError(
                f"path {path!r} cannot compute this call: {reason}; "
                'path="auto" chooses one that can'
            )
        return _KNOWN[path]
    for one in _KNOWN.values():
        if one.refuses(call) is None and one.declines(call) is None:
            return one
    return _KNOWN["reference"]


def explain(call: Call, path: str = "auto") -> Explanation:
    """Which path `choose` takes, why, and why not the others."""
    chosen = choose(call, path)
    if path == "auto":
        reason, rest = "the first in order of preference that can", "comes later"
    else:
        reason, rest = "asked for", "can, but was not asked for"
    others = {}
    for name, one in _KNOWN.items():
        if one is chosen:
            path = name
        elif refusal := one.refuses(call):
            others[name] = f"cannot: {refusal}"
        elif decline := one.declines(call):
            others[name] = f"leaves it: {decline}"
        else:
            others[name] = rest
    return Explanation(path, reason, others)


def _in_order() -> dict[str, Path]:
    """Every path by name, in order of preference."""
    found = names()
    order = [n for n in PREFERENCE if n in found] + [n for n in found if n not in PREFERENCE]
    return {name: family.create(name) for name in order}


# Made once, for they have no state, and here, for a compiled model cannot look for files.
_KNOWN = _in_order()

__all__ = ["PREFERENCE", "Call", "Explanation", "Path", "choose", "explain", "family", "names"]
