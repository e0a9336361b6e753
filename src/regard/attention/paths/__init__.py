"""Paths: the ways to compute one and the same attention. One file a path.

`choose` takes the first path of `PREFERENCE` that neither refuses nor declines; `explain` says for
every path what it answered.
"""

from dataclasses import dataclass

from regard.attention.call import Call
from regard.attention.paths._path import Path
from regard.errors import OptionError
from regard.family import Family

family: Family[Path] = Family("path", __name__)
names = family.names

PREFERENCE = ("additive", "relative", "sdpa", "blockwise", "reference")
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
        chosen = family.create(path)
        if reason := chosen.refuses(call):
            raise OptionError(
                f"path {path!r} cannot compute this call: {reason}; "
                'path="auto" chooses one that can'
            )
        return chosen
    for name in _preferred():
        chosen = family.create(name)
        if chosen.refuses(call) is None and chosen.declines(call) is None:
            return chosen
    return family.create("reference")


def explain(call: Call, path: str = "auto") -> Explanation:
    """Which path `choose` takes, why, and why not the others."""
    answers = {}
    for name in _preferred():
        one = family.create(name)
        if refusal := one.refuses(call):
            answers[name] = f"cannot: {refusal}"
        elif decline := one.declines(call):
            answers[name] = f"leaves it: {decline}"
    chosen = choose(call, path)
    name = next(n for n in names() if family.get(n) is type(chosen))
    if path == "auto":
        reason, rest = "the first in order of preference that can", "comes later"
    else:
        reason, rest = "asked for", "can, but was not asked for"
    others = {n: answers.get(n, rest) for n in _preferred() if n != name}
    return Explanation(name, reason, others)


def _preferred() -> list[str]:
    known = names()
    return [n for n in PREFERENCE if n in known] + [n for n in known if n not in PREFERENCE]


__all__ = ["PREFERENCE", "Call", "Explanation", "Path", "choose", "explain", "family", "names"]
