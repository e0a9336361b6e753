"""GloVe's text format: word2vec's without a header.

Source: Pennington, Socher and Manning, "GloVe: Global Vectors for Word Representation" (EMNLP
2014), and the files that its authors publish.
"""

from pathlib import Path

from regard.errors import DataError
from regard.vectors.formats import _rows
from regard.vectors.formats._files import Source, head, writing
from regard.vectors.formats._format import Format, Reading, Table, check_words


class Glove(Format):
    """Text without a header; the size of the vectors is that of most of its first lines.

    >>> Glove().recognizes("词 0.5 -1\\n中 1 2\\n".encode())
    True
    """

    suffixes = (".glove",)

    def recognizes(self, head: bytes) -> bool:
        """Text whose first lines end in numbers."""
        return _rows.is_text(head) and _rows.vector_size(head) > 0

    def read(self, path: Path, reading: Reading) -> Table:
        """The table in `path`; `DataError` for a list of counts, which looks like vectors of 1."""
        beginning = head(path)
        size = _rows.vector_size(beginning)
        if size == 0:
            raise DataError(f"{path}: its first lines are no words with numbers after them")
        if size == 1 and all(line.split()[-1].isdigit() for line in beginning.split(b"\n")[:-1]):
            raise DataError(
                f"{path} holds a word and a whole number a line: a list of counts, not vectors; "
                "give it as counts=… beside a file of vectors"
            )
        with Source(path) as source:
            return _rows.read_rows(source, size, reading, announced=None, line=1)

    def write(self, table: Table, path: Path) -> None:
        """Write `table`; `DataError` if it is empty, since no line would tell the size."""
        check_words(table, path)
        if len(table.tokens) == 0:
            raise DataError(
                f"{path}: an empty table cannot be saved without a header; save as .txt, .bin "
                "or .safetensors"
            )
        if str(table.tokens[0]).startswith("\ufeff"):
            raise DataError(
                f"{path}: the first word, {str(table.tokens[0])!r}, begins with a byte order mark, "
                "which is passed over at the start of a file; save as .txt, .bin or .safetensors"
            )
        with writing(path) as file:
            _rows.write_rows(file, table, path)
