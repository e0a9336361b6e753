"""Chinese words by the jieba dictionary and its hidden Markov model, through rjieba.

White space is left out; Latin words and numbers come out whole.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import rjieba

from regard.errors import OptionError
from regard.text.segmenters._segmenter import Segmenter, Tokens, refuse_surrogates, spans


class Jieba(Segmenter):
    """One token per word of jieba's dictionary, or per new word that its HMM guesses (`hmm`).

    `words` are further dictionary entries, preferred to the parts they are made of.

    >>> Jieba()("我喜欢吃洋葱").tokens
    ['我', '喜欢', '吃', '洋葱']
    """

    def __init__(
        self,
        normalization: str = "none",
        lowercase: bool = False,
        hmm: bool = True,
        words: Sequence[str] = (),
    ) -> None:
        super().__init__(normalization, lowercase)
        if isinstance(words, str):
            raise OptionError(f"words= takes a list of words; it got the string {words!r}")
        self.hmm = hmm
        self.words = tuple(words)

    @cached_property
    def _engine(self) -> Any:
        if not self.words:
            return rjieba
        engine = rjieba.Jieba()
        for word in self.words:
            engine.add_word(word, engine.suggest_freq(word), "n")
        return engine

    def segment(self, text: str) -> Tokens:
        """The words of `text`."""
        found = self._engine.tokenize(text, "default", self.hmm)
        return spans(((start, end) for _, start, end in found), text)

    def split(self, texts: Sequence[str]) -> list[list[str]]:
        """The words of each text."""
        cut, hmm = self._engine.cut, self.hmm
        normal = [self.normalization(text) for text in texts]
        try:
            return [[w for w in cut(text, hmm) if not w.isspace()] for text in normal]
        except UnicodeEncodeError:
            for text in texts:
                refuse_surrogates(text)
            raise

    def settings(self, folder: Any = None) -> dict[str, Any]:
        """Plain settings; see `Segmenter.settings`."""
        return super().settings(folder) | {"hmm": self.hmm, "words": list(self.words)}
