"""What both kinds of evaluation share: which words count as known, and reading lines."""

from collections.abc import Iterator
from pathlib import Path

from regard.errors import DataError, OptionError
from regard.vectors.formats._files import Source
from regard.vectors.word_vectors import WordVectors


def known_words(vectors: WordVectors, restrict: int | None, ignore_case: bool) -> dict[str, int]:
    """The row of each word among the first `restrict`; folded to capitals if case is ignored.

    Of words that fold to the same, the first in the table, hence the most frequent, is meant.
    """
    if restrict is not None and restrict < 1:
        raise OptionError(f"restrict must be 1 or more, not {restrict}")
    tokens = vectors.tokens[:restrict]
    names = [token.upper() for token in tokens] if ignore_case else tokens
    return {names[row]: row for row in range(len(names) - 1, -1, -1)}


def lines(path: Path, encoding: str) -> Iterator[tuple[int, str]]:
    """The lines of a file that are neither blank nor comments, with their numbers."""
    with Source(path) as source:
        data = source.read()
    try:
        text = data.decode("utf-8-sig" if encoding.lower() in ("utf8", "utf-8") else encoding)
    except (UnicodeDecodeError, LookupError) as error:
        raise DataError(f"{path} cannot be read as {encoding}: {error}") from None
    for number, line in enumerate(text.split("\n"), 1):
        line = line.rstrip("\r")
        if line.strip() and not line.startswith("#"):
            yield number, line


def check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    """`OptionError` unless `value` is one of `choices`."""
    if value not in choices:
        raise OptionError(f"{name} must be one of {', '.join(choices)}; not {value!r}")
