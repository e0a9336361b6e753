"""WordPiece (Schuster & Nakajima 2012), as BERT uses it: longest piece first, word by word.

Words end at white space, which is left out; marks and Chinese characters are words by themselves.
"""

from typing import Any

from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers

from regard.text.segmenters._subword import UNKNOWN, Subword


class Wordpiece(Subword):
    """Pieces of words; one that does not begin its word starts with ``##``.

    A word with a character that was not seen in training is ``<unk>`` as a whole.

    >>> segmenter = Wordpiece().train(["low lower lowest slow"] * 9, size=20)
    >>> segmenter("slower 我").tokens
    ['sl', '##ow', '##e', '##r', '<unk>']
    """

    def untrained(self) -> Tokenizer:
        """Words, marks, Chinese characters."""
        tokenizer = Tokenizer(models.WordPiece(unk_token=UNKNOWN, max_input_chars_per_word=1000))  # type: ignore[call-arg]
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.WhitespaceSplit(),
                pre_tokenizers.Split(Regex(r"\p{Han}|\p{P}|\p{S}"), "isolated"),
            ]
        )
        return tokenizer

    def trainer(self, size: int) -> Any:
        """``<unk>`` is one of the pieces."""
        return trainers.WordPieceTrainer(
            vocab_size=size, special_tokens=[UNKNOWN], show_progress=False
        )
