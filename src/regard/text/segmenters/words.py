"""Words and punctuation marks by Unicode word boundaries (Unicode Standard Annex 29).

``can't`` and ``3.14`` are one token each; a Chinese character is a token by itself (use ``jieba``
for Chinese words). White space is left out.
"""

from collections.abc import Sequence

import regex

from regard.text.segmenters._segmenter import Segmenter, Tokens, spans

_BETWEEN_BOUNDARIES = regex.compile(r"(?w).+?(?:\b|\Z)", regex.DOTALL)


class Words(Segmenter):
    """One token per stretch between Unicode word boundaries.

    >>> Words()("It can't be 3.14!").tokens
    ['It', "can't", 'be', '3.14', '!']
    """

    def segment(self, text: str) -> Tokens:
        """The words and punctuation marks of `text`."""
        return spans((match.span() for match in _BETWEEN_BOUNDARIES.finditer(text)), text)

    def split(self, texts: Sequence[str]) -> list[list[str]]:
        """The words and punctuation marks of each text."""
        return [
            [w for w in _BETWEEN_BOUNDARIES.findall(self.normalization(text)) if not w.isspace()]
            for text in texts
        ]
