"""Segmenters: text → tokens with offsets into the original text. One file a member.

>>> from regard.text import segmenters
>>> segmenters.create("words")("Hello, world").tokens
['Hello', ',', 'world']
"""

from pathlib import Path
from typing import Any

from regard.errors import OptionError
from regard.family import Family
from regard.text.segmenters._segmenter import FILE, Segmenter, Tokens

family: Family[Segmenter] = Family("segmenter", __name__)
create = family.create
names = family.names

__all__ = ["FILE", "Segmenter", "Tokens", "create", "family", "from_settings", "names"]


def from_settings(settings: dict[str, Any], folder: str | Path | None = None) -> Segmenter:
    """The segmenter that `settings` describe, as `Segmenter.settings` gave them.

    A trained segmenter is read from its file, which a relative name places in `folder`.
    """
    settings = dict(settings)
    name = settings.pop("name", None)
    if name is None:
        raise OptionError(f"segmenter settings need a 'name'; they have: {', '.join(settings)}")
    member = family.get(name)
    return member.from_settings(settings, Path(folder) if folder is not None else None)
