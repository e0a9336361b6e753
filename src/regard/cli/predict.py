"""``regard predict``: the label of texts, from the command line, a file or standard input."""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from regard.errors import DataError, OptionError

app = App(name="predict", help="Label texts with a trained model.")
AT_A_TIME = 1024


@app.default
def predict(
    run: Path,
    texts: Annotated[tuple[str, ...], Parameter(negative=())] = (),
    /,
    *,
    file: Annotated[str | None, Parameter(name=["--file", "-f"], allow_leading_hyphen=True)] = None,
    column: str | None = None,
    json: Annotated[bool, Parameter(negative=())] = False,
    attention: Annotated[bool, Parameter(negative=())] = False,
) -> None:
    """Label texts with a trained model: one line a text, label, probability, text.

    Parameters
    ----------
    run
        The folder that regard train wrote.
    texts
        The texts.
    file
        Label the texts of this file instead, one a line, or - for standard input; tables need
        --column.
    column
        The column of a table that holds the text.
    json
        Print one JSON object a line, with the probability of every label.
    attention
        Also print what each token attends to.
    """
    from json import dumps

    from regard.cli._report import report_attention
    from regard.inspection import trace
    from regard.models import load
    from regard.text import read_texts

    if bool(texts) == (file is not None):
        raise OptionError("give either texts or --file; for texts from a pipe, --file -")
    if column is not None and file is None:
        raise OptionError("--column names a column of --file; the texts given here have none")
    model = load(run)
    rest: Iterator[str] = iter(texts) if file is None else read_texts(file, column=column)
    count = 0
    while part := list(islice(rest, AT_A_TIME)):
        count += len(part)
        for text, prediction in zip(part, model.predict(part), strict=True):
            if json:
                found = {"text": text, "label": prediction.label}
                found |= {"probabilities": prediction.probabilities}
                print(dumps(found, ensure_ascii=False))
            else:
                print(f"{prediction.label}\t{prediction.probability:.3f}\t{text}")
            if attention:
                report_attention(trace(model, text))
    if not count:
        raise DataError(f"{file} has no text")
