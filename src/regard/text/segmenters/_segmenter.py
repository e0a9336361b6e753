"""What all segmenters share: normalization, true offsets, batches, settings."""

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from regard.errors import DataError
from regard.text.counting import Dictionary
from regard.text.normalization import Normalization

FILE = "segmenter.json"


@dataclass(frozen=True)
class Tokens:
    """The tokens of one text; token i stands for the original ``text[starts[i]:ends[i]]``."""

    tokens: list[str]
    starts: list[int]
    ends: list[int]

    def __len__(self) -> int:
        return len(self.tokens)


class Batch(NamedTuple):
    """The tokens of many texts, end to end: token t is entry ``codes[t]`` of the dictionary.

    Text i has ``lengths[i]`` tokens. An entry of the dictionary may occur twice.
    """

    dictionary: Dictionary
    codes: np.ndarray
    lengths: np.ndarray


class Segmenter(ABC):
    """Splits a text into tokens.

    `normalization` is ``"none"`` or ``"nfkc"``; `lowercase` comes after it. Offsets count
    characters (code points) of the text as it was given, before either.
    """

    def __init__(self, normalization: str = "none", lowercase: bool = False) -> None:
        self.normalization = Normalization(normalization, lowercase)

    @property
    def name(self) -> str:
        """The member's name in the family."""
        return type(self).__module__.rpartition(".")[2]

    @abstractmethod
    def segment(self, text: str) -> Tokens:
        """The tokens of an already normalized text, with offsets into that text."""

    def split(self, texts: Sequence[str]) -> list[list[str]]:
        """The tokens of each text, without offsets: quicker than calling text by text."""
        return [self.segment(self.normalization(text)).tokens for text in texts]

    def __call__(self, text: str) -> Tokens:
        """The tokens of `text` and the stretch of `text` each stands for."""
        refuse_surrogates(text)
        if self.normalization.changes_nothing:
            return self.segment(text)
        aligned = self.normalization.align(text)
        found = self.segment(aligned.text)
        return Tokens(
            found.tokens,
            [aligned.starts[start] for start in found.starts],
            [aligned.ends[end - 1] for end in found.ends],
        )

    def batch(self, texts: Sequence[str]) -> Batch:
        """The tokens of many texts as numbers into a dictionary."""
        split = self.split(texts)
        coded = to_arrow([token for tokens in split for token in tokens]).dictionary_encode()
        lengths = np.fromiter(map(len, split), np.int64, len(split))
        dictionary, places = Dictionary.of(coded.dictionary)
        return Batch(dictionary, places[coded.indices], lengths)

    def batch_lines(self, page: str) -> Batch:
        """The tokens of the lines of `page` that are not blank."""
        return self.batch([line for line in page.split("\n") if line and not line.isspace()])

    def settings(self, folder: str | Path | None = None) -> dict[str, Any]:
        """A plain description from which `segmenters.from_settings` makes this segmenter again.

        A trained segmenter writes its file into `folder` and names it in the description.
        """
        return {
            "name": self.name,
            "normalization": self.normalization.form,
            "lowercase": self.normalization.lowercase,
        }

    @classmethod
    def from_settings(cls, settings: dict[str, Any], folder: Path | None = None) -> "Segmenter":
        """The segmenter that `settings` (without the name) describe."""
        from regard.text.segmenters import create

        return create(cls.__module__.rpartition(".")[2], **settings)  # type: ignore[return-value]

    def fingerprint(self) -> str:
        """A text that is equal for two segmenters exactly when they segment alike."""
        return json.dumps(self.settings(), sort_keys=True)

    def __repr__(self) -> str:
        settings = self.settings()
        name = settings.pop("name")
        return f"{name}({', '.join(f'{key}={value!r}' for key, value in settings.items())})"


def spans(pairs: Iterable[tuple[int, int]], text: str) -> Tokens:
    """`Tokens` from (start, end) pairs; stretches of white space alone are left out."""
    kept = [(start, end) for start, end in pairs if not text[start:end].isspace()]
    return Tokens(
        [text[start:end] for start, end in kept],
        [start for start, _ in kept],
        [end for _, end in kept],
    )


def refuse_surrogates(text: object) -> None:
    """`DataError` when half of a UTF-16 pair stands alone in the text: no file can hold it."""
    if not isinstance(text, str):
        raise DataError(f"a text must be a string; it got {text!r:.40}, {type(text).__name__}")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise DataError(
            f"character {error.start} of the text is the lone surrogate "
            f"\\u{ord(text[error.start]):04x}, half of a UTF-16 pair; replace it first"
        ) from None


def to_arrow(strings: Sequence[Any]) -> pa.Array:
    """An Arrow array of strings; `DataError` for lone surrogates."""
    try:
        array = pa.array(strings, pa.string())
    except (UnicodeEncodeError, pa.ArrowTypeError):
        array = None
    if array is None or array.null_count:
        for string in strings:
            refuse_surrogates(string)
    assert array is not None
    return array
