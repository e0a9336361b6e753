"""word2vec's text format: a line ``rows size``, then a line a word, its numbers after it.

Source: Mikolov's word2vec.c (2013); fastText writes its ``.vec`` files the same way, with a blank
at the end of each line.
"""

from pathlib import Path

from regard.vectors.formats import _rows
from regard.vectors.formats._files import Source, writing
from regard.vectors.formats._format import Format, Reading, Table, check_words
from regard.vectors.formats._header import header, read_header


class Word2vecText(Format):
    """Text with a header.

    >>> Word2vecText().recognizes("1 2\\n词 0.5 -1\\n".encode())
    True
    """

    suffixes = (".txt", ".vec", ".w2v")

    def recognizes(self, head: bytes) -> bool:
        """A header, then a row of numbers; or, to name its faults, any text with numbers."""
        found = header(head)
        if found is None:
            return False
        _, size, start = found
        body = head[start:]
        if not body.strip():
            return True
        first = body.split(b"\n", 1)[0].split()
        if len(first) > size and all(map(_rows.is_number, first[len(first) - size :])):
            return True
        return _rows.is_text(body) and _rows.vector_size(body) > 0

    def read(self, path: Path, reading: Reading) -> Table:
        """The table in `path`."""
        with Source(path) as source:
            rows, size = read_header(source)
            return _rows.read_rows(source, size, reading, announced=rows, line=2)

    def write(self, table: Table, path: Path) -> None:
        """Write `table` with its header."""
        check_words(table, path)
        with writing(path) as file:
            file.write(b"%d %d\n" % table.matrix.shape)
            _rows.write_rows(file, table, path)
