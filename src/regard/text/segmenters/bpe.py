"""Byte-pair encoding on bytes (Sennrich et al. 2016; on bytes: Radford et al. 2019).

No text is unknown: a character that was not seen in training comes out as its bytes.
"""

from typing import Any

from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from regard.text.segmenters._subword import Subword


class Bpe(Subword):
    """Pieces merged from frequent pairs; a space belongs to the word behind it.

    A piece that holds part of a character shows the bytes, ``<0xE6>``, and has the offsets of the
    whole character.

    >>> segmenter = Bpe().train(["low lower lowest"] * 9, size=270)
    >>> segmenter("low 洋").tokens
    ['low', ' ', '<0xE6>', '<0xB4>', '<0x8B>']
    """

    least_size = 256

    def untrained(self) -> Tokenizer:
        """Pairs within words, numbers and runs of marks."""
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        return tokenizer

    def trainer(self, size: int) -> Any:
        """Starts from the 256 bytes."""
        return trainers.BpeTrainer(
            vocab_size=size,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )

    def shown(self, piece: str) -> str:
        """The text of the piece's bytes."""
        text = bytes(_BYTE_OF[c] for c in piece).decode("utf-8", "surrogateescape")
        return "".join(
            f"<0x{ord(c) - 0xDC00:02X}>" if "\udc80" <= c <= "\udcff" else c for c in text
        )


# The model writes a byte as the character of that number where it is visible, and the others, in
# order, as the characters from 256 on.
_VISIBLE = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
_OTHERS = [byte for byte in range(256) if byte not in _VISIBLE]
_BYTE_OF = {chr(byte): byte for byte in _VISIBLE} | {
    chr(256 + place): byte for place, byte in enumerate(_OTHERS)
}
