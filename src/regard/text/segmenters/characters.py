r"""Characters as readers see them: extended grapheme clusters (Unicode Standard Annex 29).

``e`` + ``◌́`` is one token, so is 👨‍👩‍👧, so is 🇨🇳, so is a Hangul syllable written in jamo.
White space is kept: every character of the text is in exactly one token.
"""

from collections.abc import Sequence
from itertools import accumulate

import regex

from regard.text.segmenters._segmenter import Segmenter, Tokens

_CLUSTER = regex.compile(r"\X")
# Runs of these never form clusters with one another: each character stands alone.
_PLAIN = regex.compile(
    r"[\t\n\x20-\x7e\u2010-\u2027\u3001-\u3029\u3041-\u3096\u30a1-\u30fa\u3400-\u4dbf"
    r"\u4e00-\u9fff\uac00-\ud7a3\uff01-\uff60]*"
)


class Characters(Segmenter):
    """One token per grapheme cluster, white space too.

    >>> Characters()("洋葱 👨‍👩‍👧").tokens
    ['洋', '葱', ' ', '👨\\u200d👩\\u200d👧']
    """

    def segment(self, text: str) -> Tokens:
        """The grapheme clusters of `text`."""
        tokens = _clusters(text)
        ends = list(accumulate(map(len, tokens)))
        return Tokens(tokens, [0, *ends[:-1]] if ends else [], ends)

    def split(self, texts: Sequence[str]) -> list[list[str]]:
        """The grapheme clusters of each text."""
        return [_clusters(self.normalization(text)) for text in texts]


def _clusters(text: str) -> list[str]:
    return list(text) if _PLAIN.fullmatch(text) else _CLUSTER.findall(text)
