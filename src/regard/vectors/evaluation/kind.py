"""Which kind of evaluation set a file is: judged pairs, or analogies."""

from pathlib import Path

from regard.errors import DataError
from regard.vectors.evaluation._words import lines


def kind_of_set(path: str | Path, encoding: str = "utf-8") -> str:
    """``"analogies"`` if a section or four words come first, ``"similarity"`` if a number follows.

    `DataError` for a file that is neither.
    """
    path = Path(path)
    for _, line in list(lines(path, encoding))[:2]:
        fields = line.replace(",", " ").split()
        if line.startswith(":"):
            return "analogies"
        if any(_is_number(field) for field in fields[2:]):
            return "similarity"
        if len(line.split()) == 4 and "\t" not in line and "," not in line:
            return "analogies"
    raise DataError(
        f"{path} is no evaluation set: neither two words and a number a line, nor analogies (four "
        "words a line, ': name' before each section)"
    )


def _is_number(field: str) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True
