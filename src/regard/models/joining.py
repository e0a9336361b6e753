"""Tokens back to text: what each segmenter left out is put between them again, as far as known.

>>> join("words", ["It", "rains", ",", "again", ".", "好", "吧"])
'It rains, again. 好吧'
>>> join("bpe", ["low", " ", "<0xE6>", "<0xB4>", "<0x8B>"])
'low 洋'
"""

from collections.abc import Sequence

import regex

_BYTE = regex.compile(r"<0x([0-9A-F]{2})>")
_NO_SPACE_BEFORE = regex.compile(
    r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Pe}\p{Pf}.,;:!?%，。；：！？、…·]"
)
_NO_SPACE_AFTER = regex.compile(r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Ps}\p{Pi}，。；：！？、…·]")


def join(segmenter: str, tokens: Sequence[str]) -> str:
    """The text that the segmenter of this name would cut into `tokens`.

    Exact where white space is part of the tokens (characters, bpe, unigram). Words get a space
    between them, but not beside Chinese and Japanese characters nor before a closing mark.
    """
    if segmenter in ("characters", "unigram"):
        return "".join(tokens)
    if segmenter == "bpe":
        return _text_of_bytes(tokens)
    if segmenter == "whitespace":
        return " ".join(tokens)
    text = ""
    for token in tokens:
        if segmenter == "wordpiece" and token.startswith("##"):
            text += token.removeprefix("##")
        elif not text or _NO_SPACE_AFTER.match(text[-1]) or _NO_SPACE_BEFORE.match(token):
            text += token
        else:
            text += f" {token}"
    return text


def joined_after(segmenter: str, before: Sequence[str], tokens: Sequence[str]) -> str:
    """What `tokens` add to the text that `before` makes.

    >>> joined_after("words", ["It", "rains"], ["again", "."])
    ' again.'
    """
    return join(segmenter, [*before, *tokens])[len(join(segmenter, before)) :]


def offsets(segmenter: str, tokens: Sequence[str]) -> list[tuple[int, int]]:
    """Where in their joined text each token stands, in characters.

    >>> offsets("words", ["so", "it", "is"])
    [(0, 2), (3, 5), (6, 8)]
    """
    ends = [len(join(segmenter, tokens[:count])) for count in range(len(tokens) + 1)]
    found = []
    for token, before, end in zip(tokens, ends, ends[1:], strict=False):
        whole = segmenter in ("characters", "unigram", "bpe")
        start = before if whole else max(before, end - len(token.removeprefix("##")))
        found.append((start, max(start, end)))
    return found


def _text_of_bytes(tokens: Sequence[str]) -> str:
    """Pieces of characters, ``<0xE6>``, put together; what makes no character is �."""
    raw = b"".join(
        bytes([int(byte, 16)]) if part % 2 else byte.encode()
        for token in tokens
        for part, byte in enumerate(_BYTE.split(token))
    )
    return raw.decode("utf-8", "replace")
