"""Lines out of a text that comes in pieces: they end with ``\\n``, ``\\r\\n`` or ``\\r`` alone."""

from collections.abc import Iterable, Iterator


def pages(pieces: Iterable[str]) -> Iterator[str]:
    """A text that comes in pieces, again in pieces, each of whole lines that end with ``\\n``.

    Only the last may lack that end.
    """
    held: list[str] = []
    for piece in pieces:
        cut = max(piece.rfind("\n"), piece.rfind("\r", 0, -1)) + 1
        if cut == 0 and held and held[-1].endswith("\r"):
            yield _one_line_end("".join(held))
            held = []
        if cut:
            yield _one_line_end("".join([*held, piece[:cut]]))
            held = []
        if cut < len(piece):
            held.append(piece[cut:])
    if held:
        yield _one_line_end("".join(held))


def lines(pieces: Iterable[str]) -> Iterator[str]:
    """The lines of a text that comes in pieces, without their ends."""
    for page in pages(pieces):
        yield from page.removesuffix("\n").split("\n")


def _one_line_end(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text
