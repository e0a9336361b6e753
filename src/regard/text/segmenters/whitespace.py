"""Tokens between white space, as `str.split` finds them."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import regex

from regard.text.segmenters._segmenter import Batch, Segmenter, Tokens, spans, to_arrow

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
        """The same by Arrow's kernels, which leave Python's lock to other threads."""
        if not self.normalization.changes_nothing:
            texts = [self.normalization(text) for text in texts]
        array = to_arrow(texts)
        ascii_only = pc.all(pc.string_is_ascii(array)).as_py() is not False
        split = pc.ascii_split_whitespace if ascii_only else pc.utf8_split_whitespace
        lists: pa.ListArray = split(pc.utf8_trim_whitespace(array))
        tokens, lengths = lists.flatten(), np.diff(lists.offsets.to_numpy()).astype(np.int64)
        blank = pc.equal(tokens, "")  # what Arrow makes of a text without any token
        if pc.any(blank).as_py():
            lengths[np.isin(lists.offsets.to_numpy()[:-1], np.flatnonzero(blank))] = 0
            tokens = tokens.filter(pc.invert(blank))
        return Batch(tokens.dictionary_encode(), lengths)
