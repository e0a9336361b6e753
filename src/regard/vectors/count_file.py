"""Files of words and how often each occurred: ``word count`` a line, most frequent first.

Source: the ``-save-vocab`` file of Mikolov's word2vec.c (2013), gensim's ``fvocab``.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from regard.errors import DataError
from regard.vectors.formats._files import Source, writing
from regard.vectors.formats._format import Table, check_words


def read_counts(path: str | Path, errors: str = "strict") -> dict[str, int]:
    """The count of each word in the file `path`; `DataError` names the first line that is wrong."""
    path = Path(path)
    counts: dict[str, int] = {}
    with Source(path) as source:
        lines = source.read().split(b"\n")
    for number, line in enumerate(lines, 1):
        fields = line.rsplit(None, 1)
        if not fields:
            continue
        if len(fields) < 2 or not fields[1].isdigit():
            raise DataError(
                f"{path}, line {number}: {line.decode('utf-8', 'replace')!r} where a word and a "
                "whole number are expected"
            )
        try:
            word = fields[0].decode("utf-8", errors=errors)
        except UnicodeDecodeError:
            raise DataError(
                f"{path}, line {number}: the word {fields[0]!r} is not UTF-8; load with "
                "errors='replace' to read it all the same"
            ) from None
        counts.setdefault(word, int(fields[1]))
    return counts


def write_counts(path: str | Path, tokens: Sequence[str], counts: np.ndarray) -> None:
    """Write each word with its count to `path`, whole or not at all."""
    path = Path(path)
    check_words(Table(tokens, np.empty((0, 0))), path)
    with writing(path) as file:
        pairs = zip(tokens, counts, strict=True)
        file.write("".join(f"{token} {int(count)}\n" for token, count in pairs).encode())
