"""Fonts that have the characters a figure needs: Chinese labels must not come out as boxes."""

import unicodedata
import warnings
from collections.abc import Iterable
from functools import cache

from matplotlib import font_manager
from matplotlib.figure import Figure
from matplotlib.ft2font import FT2Font
from matplotlib.text import Text

PREFERRED = (
    "Noto Sans CJK SC",
    "Noto Sans SC",
    "Source Han Sans SC",
    "WenQuanYi Micro Hei",
    "WenQuanYi Zen Hei",
    "PingFang SC",
    "Hiragino Sans GB",
    "Heiti SC",
    "Microsoft YaHei",
    "SimHei",
    "Noto Sans CJK JP",
)
INVISIBLE = ("Cc", "Cf", "Cs")
BOXES = "Last Resort"
"""The font that matplotlib brings to draw boxes with; it claims to have every character."""
CHINESE_FONTS = (
    "a Chinese font comes with: Debian, Ubuntu: apt install fonts-wqy-microhei; "
    "Fedora: dnf install google-noto-sans-cjk-fonts; "
    "macOS: brew install --cask font-noto-sans-cjk-sc; "
    "Windows: Settings, Optional features, Chinese (Simplified) Supplemental Fonts"
)


class MissingGlyphWarning(UserWarning):
    """Characters of a figure that no installed font has."""


def fit_fonts(figure: Figure) -> set[str]:
    """Give every text of the figure fonts that have its characters; return those that none has.

    A text keeps its own font, and others stand behind it for what it lacks. `MissingGlyphWarning`
    names the characters that no installed font has and the package that brings one.
    """
    lacking = {text: _lacking(text) for text in _texts(figure)}
    wanted = set().union(*lacking.values())
    if not wanted:
        return set()
    behind, missing = _fonts_for(frozenset(wanted))
    for text, characters in lacking.items():
        if characters:
            families = [f for f in text.get_fontfamily() if f not in behind]
            text.set_fontfamily([*families, *behind])
    if missing:
        warnings.warn(_message(missing), MissingGlyphWarning, stacklevel=2)
    return missing


def _texts(figure: Figure) -> list[Text]:
    for axes in figure.get_axes():
        # tick labels get their text when they are asked for
        axes.get_xticklabels()
        axes.get_yticklabels()
    return [t for t in figure.findobj(Text) if isinstance(t, Text) and t.get_text()]


def _lacking(text: Text) -> set[str]:
    """The characters that the text's own fonts do not have."""
    needed = {
        c for c in text.get_text() if not (c.isspace() or unicodedata.category(c) in INVISIBLE)
    }
    families = text.get_fontfamily()
    for family in families:
        properties = text.get_fontproperties().copy()
        properties.set_family(family)
        needed -= _characters(font_manager.findfont(properties))
    return needed


def _fonts_for(wanted: frozenset[str]) -> tuple[list[str], set[str]]:
    """Installed fonts that have the characters, best first, and the characters that none has."""
    chosen, left = [], set(wanted)
    for name, path in _installed():
        if not left:
            break
        found = left & _characters(path)
        if found:
            chosen.append(name)
            left -= found
    return chosen, left


def _installed() -> Iterable[tuple[str, str]]:
    """Names and files of the installed fonts, preferred ones first."""
    known = {entry.fname for entry in font_manager.fontManager.ttflist}
    for path in font_manager.findSystemFonts():
        if path not in known:
            # matplotlib remembers the fonts of its first run; this one was installed since
            try:
                font_manager.fontManager.addfont(path)
            except (OSError, RuntimeError):  # a file that is no font it can read
                continue
    entries = {entry.name: entry.fname for entry in reversed(font_manager.fontManager.ttflist)}
    rank = {name: place for place, name in enumerate(PREFERRED)}
    return sorted(
        ((name, path) for name, path in entries.items() if not name.startswith(BOXES)),
        key=lambda item: (rank.get(item[0], len(rank)), item[0]),
    )


@cache
def _characters(path: str) -> frozenset[str]:
    """The characters that a font file has, none if it cannot be drawn from."""
    try:
        font = FT2Font(path)
    except (OSError, RuntimeError):
        return frozenset()
    return frozenset(map(chr, font.get_charmap())) if font.scalable else frozenset()


def _message(missing: set[str]) -> str:
    shown = " ".join(sorted(missing)[:8])
    more = f" and {len(missing) - 8} more" if len(missing) > 8 else ""
    advice = "install one that has them"
    if any("CJK" in unicodedata.name(c, "") for c in missing):
        advice = CHINESE_FONTS
    return f"no installed font has {shown}{more}, drawn as boxes; {advice}"
