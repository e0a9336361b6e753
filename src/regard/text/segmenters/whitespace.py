"""Tokens between white space, as `str.split` finds them."""

# pyright: reportAttributeAccessIssue=false
# pyarrow.compute makes its functions when it is imported.

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import regex

from regard.text.counting import SHORT, Dictionary, pack
from regard.text.segmenters._segmenter import (
    Batch,
    Segmenter,
    Tokens,
    refuse_surrogates,
    spans,
)

# What str.isspace accepts; \s alone lacks the separators U+001C to U+001F.
_TOKEN = regex.compile(r"[^\s\x1c-\x1f]+")


class Whitespace(Segmenter):
    """One token per run of characters that are not white space.

    >>> Whitespace()("to be\u3000or not")
    Tokens(tokens=['to', 'be', 'or', 'not'], starts=[0, 3, 6, 9], ends=[2, 5, 8, 12])
    """

    def segment(self, text: str) -> Tokens:
        """The runs of `text` between white space."""
        return spans((match.span() for match in _TOKEN.finditer(text)), text)

    def split(self, texts: Sequence[str]) -> list[list[str]]:
        """The runs of each text between white space."""
        return [self.normalization(text).split() for text in texts]

    def batch(self, texts: Sequence[str]) -> Batch:
        """The tokens of many texts as numbers into a dictionary."""
        page = "\n".join([text.replace("\n", " ") for text in texts])
        return self._batch(page) if texts else super().batch(texts)

    def batch_lines(self, page: str) -> Batch:
        """The tokens of the lines of `page` that are not blank."""
        batch = self._batch(page)
        return batch._replace(lengths=batch.lengths[batch.lengths > 0])

    def _batch(self, page: str) -> Batch:
        """The tokens of all lines, by array kernels that leave Python's lock to other threads."""
        page = self.normalization(page)
        try:
            text = page.encode()
        except UnicodeEncodeError:
            refuse_surrogates(page)
            raise
        newlines = np.flatnonzero(np.frombuffer(text, np.uint8) == ord("\n"))
        spaced = text.translate(_TO_SPACE) + b" " * 8
        data = np.frombuffer(spaced, np.uint8)
        if not text.isascii():
            data = _blank_wide_spaces(data)
            spaced = data.tobytes()
        blank = data == ord(" ")
        edges = np.flatnonzero(blank[:-1] != blank[1:]) + 1
        if not blank[0]:
            edges = np.concatenate([[0], edges])
        starts, ends = edges[::2], edges[1::2]
        dictionary, codes = _code(spaced, starts, ends - starts)
        last = np.concatenate([np.searchsorted(starts, newlines), [len(starts)]])
        return Batch(dictionary, codes, np.diff(last, prepend=0))


def _code(spaced: bytes, starts: np.ndarray, widths: np.ndarray) -> tuple[Dictionary, np.ndarray]:
    """The distinct tokens of a text whose white space is blank, and which of them stands where."""
    is_short = widths <= SHORT
    is_long = ~is_short
    short = pa.array(pack(spaced, starts[is_short], widths[is_short])).dictionary_encode()
    # Each token with the blanks behind it, so that the text itself is Arrow's buffer.
    bounds = np.append(starts, len(spaced) if len(starts) else 0)
    whole = pa.LargeStringArray.from_buffers(
        len(starts), pa.py_buffer(bounds), pa.py_buffer(spaced)
    )
    long = whole.filter(pa.array(is_long)).dictionary_encode()
    codes = np.empty(len(starts), np.int32)
    codes[is_short] = short.indices
    codes[is_long] = long.indices.to_numpy() + len(short.dictionary)
    trimmed = pc.ascii_rtrim(long.dictionary, characters=" ")
    return Dictionary(short.dictionary, trimmed), codes


_TO_SPACE = bytes(32 if chr(b).isspace() and b < 128 else b for b in range(256))
_WIDE_SPACES = [c.encode() for c in map(chr, range(128, 0x3001)) if c.isspace()]


def _blank_wide_spaces(data: np.ndarray) -> np.ndarray:
    """The UTF-8 bytes with every white space past ASCII turned into as many spaces."""
    data = np.append(data, np.zeros(2, np.uint8))
    leads = np.flatnonzero((data >= 0xC2) & (data <= 0xE3))
    for space in _WIDE_SPACES:
        found = leads
        for place, byte in enumerate(space):
            found = found[data[found + place] == byte]
        for place in range(len(space)):
            data[found + place] = ord(" ")
    return data[:-2]
