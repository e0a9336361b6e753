"""Unicode normalization that keeps the way back to the original text.

NFKC (Unicode Standard Annex 15) turns ``ﬁ`` into ``fi``, ``Ａ`` into ``A`` and ``e`` + ``◌́`` into
``é``; lower-casing turns ``İ`` into two characters. `Normalization.align` says for each normalized
character which stretch of the original text it stands for.
"""

import unicodedata
from dataclasses import dataclass
from functools import cache

from regard.errors import OptionError

FORMS = ("none", "nfkc")


@dataclass(frozen=True)
class Aligned:
    """A normalized text; character i stands for ``original[starts[i]:ends[i]]``."""

    text: str
    starts: list[int]
    ends: list[int]


@dataclass(frozen=True)
class Normalization:
    """NFKC or nothing, then lower case or not.

    >>> Normalization("nfkc", lowercase=True)("ﬁＡ")
    'fia'
    >>> Normalization("nfkc").align("aﬁ")
    Aligned(text='afi', starts=[0, 1, 1], ends=[1, 2, 2])
    """

    form: str = "none"
    lowercase: bool = False

    def __post_init__(self):
        if self.form not in FORMS:
            raise OptionError(f"unknown normalization {self.form!r}; known: {', '.join(FORMS)}")

    @property
    def changes_nothing(self) -> bool:
        """Whether every text comes back as it is."""
        return self.form == "none" and not self.lowercase

    def __call__(self, text: str) -> str:
        """The normalized text."""
        if self.form == "nfkc":
            text = unicodedata.normalize("NFKC", text)
        return text.lower() if self.lowercase else text

    def align(self, text: str) -> Aligned:
        """The normalized text with, for each character, its stretch of the original."""
        aligned = Aligned(text, list(range(len(text))), list(range(1, len(text) + 1)))
        if self.form == "nfkc" and not unicodedata.is_normalized("NFKC", text):
            aligned = _align_nfkc(text)
        return _align_lower(aligned) if self.lowercase else aligned


def _align_nfkc(text: str) -> Aligned:
    pieces, starts, ends = [], [], []
    bounds = [i for i, c in enumerate(text) if i == 0 or not _joins_previous(c)]
    for start, end in zip(bounds, [*bounds[1:], len(text)], strict=True):
        piece = unicodedata.normalize("NFKC", text[start:end])
        pieces.append(piece)
        if piece == text[start:end]:
            starts.extend(range(start, end))
            ends.extend(range(start + 1, end + 1))
        else:
            starts.extend([start] * len(piece))
            ends.extend([end] * len(piece))
    return Aligned("".join(pieces), starts, ends)


def _align_lower(aligned: Aligned) -> Aligned:
    lower = aligned.text.lower()
    if len(lower) == len(aligned.text):
        return Aligned(lower, aligned.starts, aligned.ends)
    widths = [len(c.lower()) for c in aligned.text]
    starts = [s for s, width in zip(aligned.starts, widths, strict=True) for _ in range(width)]
    ends = [e for e, width in zip(aligned.ends, widths, strict=True) for _ in range(width)]
    return Aligned(lower, starts, ends)


@cache
def _joins_previous(character: str) -> bool:
    """Whether normalization may merge or reorder this character with the one before it."""
    first = unicodedata.normalize("NFKD", character)[0]
    return unicodedata.combining(first) != 0 or first in _second_halves()


@cache
def _second_halves() -> frozenset[str]:
    """Characters that stand second in some canonical composition, Hangul vowels and finals too."""
    found = {chr(c) for c in (*range(0x1161, 0x1176), *range(0x11A8, 0x11C3))}
    for code in range(0x30000):  # no character past the second supplementary plane composes
        parts = unicodedata.decomposition(chr(code)).split()
        if len(parts) == 2 and not parts[0].startswith("<"):
            found.add(chr(int(parts[1], 16)))
    return frozenset(found)
