"""What the trained segmenters share: training, one JSON file, pieces with true offsets."""

import hashlib
import json
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from tokenizers import Tokenizer

from regard.errors import DataError, OptionError, StorageError
from regard.text.counting import Dictionary
from regard.text.segmenters._segmenter import (
    FILE,
    Batch,
    Segmenter,
    Tokens,
    refuse_surrogates,
    to_arrow,
)
from regard.text.storage import new_file

UNKNOWN = "<unk>"


class Subword(Segmenter):
    """A segmenter that learns its pieces from text: `train` it or `load` it before use."""

    least_size: ClassVar[int] = 2

    def __init__(self, normalization: str = "none", lowercase: bool = False) -> None:
        super().__init__(normalization, lowercase)
        self._tokenizer: Tokenizer | None = None
        self._model = ""
        self._names: list[str] = []

    @abstractmethod
    def untrained(self) -> Tokenizer:
        """The model and its pre-tokenizer."""

    @abstractmethod
    def trainer(self, size: int) -> Any:
        """The trainer for `size` pieces."""

    def shown(self, piece: str) -> str:
        """The token that stands for a piece of the model."""
        return piece

    def train(self, texts: Iterable[str], size: int = 8000) -> "Subword":
        """Learn at most `size` pieces from `texts`, read once; gives the segmenter itself.

        `DataError` when the texts hold nothing to learn from.
        """
        if isinstance(texts, str):
            raise OptionError("train takes many texts (any iterable of strings); it got one string")
        if size < self.least_size:
            raise OptionError(
                f"{self.name} needs a size of at least {self.least_size}; it is {size}"
            )
        tokenizer = self.untrained()
        seen = False

        def normal() -> Iterator[str]:
            nonlocal seen
            for text in texts:
                refuse_surrogates(text)
                seen = seen or bool(text.strip())
                yield self.normalization(text)

        tokenizer.train_from_iterator(normal(), self.trainer(size))
        if not seen:
            raise DataError(f"{self.name} has nothing to learn from: the texts are empty or blank")
        # Through Python's JSON, which keeps every digit: what is saved is what is used.
        self._use(json.dumps(json.loads(tokenizer.to_str())))
        return self

    @property
    def pieces(self) -> list[str]:
        """All tokens that the segmenter can give, but for ``<unk>``."""
        self._trained()
        return [name for name in self._names if name != UNKNOWN]

    def segment(self, text: str) -> Tokens:
        """The pieces of `text`; a piece that is part of a character has the whole one's offsets."""
        encoding = self._trained().encode(text, add_special_tokens=False)
        starts, ends = zip(*encoding.offsets, strict=True) if encoding.offsets else ((), ())
        return Tokens([self._names[i] for i in encoding.ids], list(starts), list(ends))

    def split(self, texts: Sequence[str]) -> list[list[str]]:
        """The pieces of each text, all texts at once on all cores."""
        return [[self._names[i] for i in ids] for ids in self._ids(texts)]

    def batch(self, texts: Sequence[str]) -> Batch:
        """The pieces of many texts as numbers into the list of all pieces."""
        ids = self._ids(texts)
        lengths = np.fromiter(map(len, ids), np.int64, len(ids))
        codes = np.fromiter(chain.from_iterable(ids), np.int32, lengths.sum())
        dictionary, places = Dictionary.of(to_arrow(self._names))
        return Batch(dictionary, places[codes], lengths)

    def save(self, path: str | Path) -> None:
        """Write everything to one JSON file, which appears whole or not at all."""
        self._trained()
        content = super().settings() | {"tokenizer": json.loads(self._model)}
        with new_file(path) as new:
            new.write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path) -> "Subword":
        """Read a segmenter that `save` wrote; `DataError` for any other file."""
        name = cls.__module__.rpartition(".")[2]
        try:
            content = json.loads(Path(path).read_text(encoding="utf-8"))
            if content["name"] != name:
                raise DataError(f"{path} holds a {content['name']} segmenter, not {name}")
            made = cls(content["normalization"], content["lowercase"])
            made._use(json.dumps(content["tokenizer"]))
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise StorageError(f"cannot read {path}: {reason}") from None
        except DataError:
            raise
        except Exception as error:  # the tokenizers library raises bare Exception
            raise DataError(f"{path} is no segmenter of regard: {error}") from None
        return made

    def settings(self, folder: str | Path | None = None) -> dict[str, Any]:
        """Plain settings; with `folder`, the pieces are saved there and the file is named."""
        if folder is None:
            return super().settings()
        self.save(Path(folder) / FILE)
        return super().settings() | {"file": FILE}

    @classmethod
    def from_settings(cls, settings: dict[str, Any], folder: Path | None = None) -> Segmenter:
        """The segmenter that `settings` describe, read from the file that they name."""
        if "file" not in settings:
            return super().from_settings(settings, folder)
        return cls.load((folder or Path()) / settings["file"])

    def fingerprint(self) -> str:
        """A text that is equal for two segmenters exactly when they segment alike."""
        self._trained()
        return hashlib.sha256((super().fingerprint() + self._model).encode()).hexdigest()

    def _use(self, model: str) -> None:
        tokenizer = Tokenizer.from_str(model)
        tokenizer.encode_special_tokens = True  # "<unk>" in a text is text
        self._tokenizer, self._model = tokenizer, model
        number_of = tokenizer.get_vocab()
        pieces = sorted(number_of, key=number_of.__getitem__)
        self._names = [piece if piece == UNKNOWN else self.shown(piece) for piece in pieces]

    def _trained(self) -> Tokenizer:
        if self._tokenizer is None:
            raise OptionError(
                f"this {self.name} segmenter has no pieces yet; train(texts, size=…) or load a file"
            )
        return self._tokenizer

    def _ids(self, texts: Sequence[str]) -> list[list[int]]:
        tokenizer = self._trained()
        normal = [self.normalization(text) for text in texts]
        try:
            found = tokenizer.encode_batch_fast(normal, add_special_tokens=False)
        except TypeError:
            for text in texts:
                refuse_surrogates(text)
            raise
        return [encoding.ids for encoding in found]
