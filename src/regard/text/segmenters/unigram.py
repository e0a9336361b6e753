"""Unigram language model (Kudo 2018): the most probable way to cut the text into pieces."""

from typing import Any

from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers

from regard.text.segmenters._subword import UNKNOWN, Subword


class Unigram(Subword):
    """Pieces with probabilities; a space belongs to the word behind it.

    A character that was not seen in training is ``<unk>``.

    >>> segmenter = Unigram().train(["low lower lowest slow"] * 9, size=20)
    >>> "".join(segmenter("slower low").tokens)
    'slower low'
    """

    def untrained(self) -> Tokenizer:
        """Letters, numbers, marks and white space apart from one another."""
        tokenizer = Tokenizer(models.Unigram())
        pattern = r" ?[\p{L}\p{M}]+| ?\p{N}+| ?[^\s\p{L}\p{M}\p{N}]+|\s+"
        tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(pattern), "isolated")
        return tokenizer

    def trainer(self, size: int) -> Any:
        """``<unk>`` is one of the pieces."""
        return trainers.UnigramTrainer(
            vocab_size=size, unk_token=UNKNOWN, special_tokens=[UNKNOWN], show_progress=False
        )
