"""The tokens of a trace: what a model read, and which characters of the text each stands for.

Byte-level vocabularies cut a Chinese character or an emoji into pieces that are no text by
themselves. A piece is shown as the character it belongs to, with its number: ``你[2/3]``.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from regard.errors import OptionError

NOT_TEXT = "\ufffd"
JOINER = "\u200d"
FIRST_EMOJI = 0x2190
LONGEST_CHARACTER = 16
"""How many byte-level pieces are put together at most until they are text."""


@dataclass(frozen=True)
class Token:
    """One token. `text` is the part of the text that it stands for, or the token's own name.

    `start`, `end`: character offsets into the text it belongs to, None where it stands for none.
    `segment`: 0 for the first text, 1 for the second of a pair, None for tokens put in by the
    tokenizer; those are `special`. `piece` of `pieces`: where several tokens make one character.
    """

    text: str
    start: int | None = None
    end: int | None = None
    segment: int | None = 0
    special: bool = False
    unknown: bool = False
    id: int | None = None
    piece: int = 1
    pieces: int = 1

    @property
    def label(self) -> str:
        """The token on one line: spaces and line breaks shown, pieces numbered."""
        text = self.text.strip(" ").replace("\n", "⏎").replace("\t", "⇥").replace("\r", "␍")
        text = "".join(c if _is_shown(text, i) else ascii(c)[1:-1] for i, c in enumerate(text))
        text = text or "␣" * max(len(self.text), 1)
        if self.unknown and not self.special:
            text += "?"
        return text if self.pieces == 1 else f"{text}[{self.piece}/{self.pieces}]"


def _is_shown(text: str, at: int) -> bool:
    """Whether a character can be seen, or joins two others to one emoji, as in 👨‍👩‍👧."""
    joins = text[at] == JOINER and 0 < at < len(text) - 1
    return text[at].isprintable() or (joins and ord(text[at + 1]) >= FIRST_EMOJI)


def from_encoding(tokenizer: Any, encoding: Any, item: int, texts: Sequence[str]) -> list[Token]:
    """The tokens of one text, or pair of `texts`, from a fast tokenizer's encoding."""
    ids = [int(i) for i in encoding["input_ids"][item]]
    names = tokenizer.convert_ids_to_tokens(ids)
    segments = encoding.sequence_ids(item)
    offsets = encoding["offset_mapping"][item]
    unknown = getattr(tokenizer, "unk_token_id", None)
    tokens = []
    for number, name, segment, (start, end) in zip(ids, names, segments, offsets, strict=True):
        if segment is None:
            tokens.append(Token(name, segment=None, special=True, id=number))
        else:
            start, end = int(start), int(end)
            text = texts[int(segment)][start:end]
            missing = unknown is not None and number == unknown
            text = text or _plain(name, number)
            token = Token(text, start, end, segment, unknown=missing, id=number)
            tokens.append(token)
    return number_pieces(tokens)


def from_ids(tokenizer: Any, ids: Sequence[int]) -> tuple[str, list[Token]]:
    """Text and tokens of ids alone: pieces are decoded together until they are characters."""
    if tokenizer is None:
        return "", [Token(str(i), id=int(i)) for i in ids]
    special = set(tokenizer.all_special_ids)
    text, tokens = "", []
    at = 0
    ids = [int(i) for i in ids]
    names = tokenizer.convert_ids_to_tokens(ids)
    while at < len(ids):
        if ids[at] in special:
            tokens.append(Token(names[at], segment=None, special=True, id=ids[at]))
            at += 1
            continue
        stop, piece = _whole_piece(tokenizer, ids, at, special)
        if text and str(names[at]).startswith("▁") and not piece.startswith(" "):
            piece = " " + piece
        start, end = len(text), len(text) + len(piece)
        text += piece
        for i in range(at, stop):
            tokens.append(Token(piece or _plain(names[i], ids[i]), start, end, 0, id=ids[i]))
        at = stop
    return text, number_pieces(tokens)


def _plain(name: str | None, number: int) -> str:
    """A vocabulary's own name of a token that stands for no text, without its marks for spaces."""
    if name is None:
        return f"<{number}>"
    return name.replace("Ġ", " ").replace("▁", " ").replace("Ċ", "\n")


def _whole_piece(tokenizer: Any, ids: list[int], at: int, special: set[int]) -> tuple[int, str]:
    """The ids from `at` on that are text together, and the text; one id alone if none are."""
    for stop in range(at + 1, min(len(ids), at + LONGEST_CHARACTER) + 1):
        if ids[stop - 1] in special:
            break
        piece = tokenizer.decode(ids[at:stop], clean_up_tokenization_spaces=False)
        if NOT_TEXT not in piece:
            return stop, piece
    return at + 1, tokenizer.decode(ids[at : at + 1], clean_up_tokenization_spaces=False)


def number_pieces(tokens: Sequence[Token]) -> list[Token]:
    """Tokens whose characters overlap are numbered as pieces of one."""
    found = []
    for group in joined_characters(tokens):
        for piece, i in enumerate(group, start=1):
            found.append(replace(tokens[i], piece=piece, pieces=len(group)))
    return found


def joined_characters(tokens: Sequence[Token]) -> Iterator[list[int]]:
    """Indices of tokens in groups that share characters; tokens without offsets are alone."""
    group: list[int] = []
    for i, token in enumerate(tokens):
        before = tokens[group[-1]] if group else None
        shares = (
            before is not None
            and before.segment == token.segment
            and token.start is not None
            and before.end is not None
            and token.start < before.end
            and token.end != token.start
        )
        if group and not shares:
            yield group
            group = []
        group.append(i)
    if group:
        yield group


def require_offsets(tokens: Sequence[Token]) -> None:
    """`OptionError` unless tokens say which characters they stand for."""
    if all(token.special or token.start is None for token in tokens):
        raise OptionError(
            "these tokens do not say which characters they stand for, so they cannot be put "
            "together to words; trace with a tokenizer"
        )
