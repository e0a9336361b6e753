"""``regard predict``: a model's answer to texts, from the command line, a file or a pipe."""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Parameter, validators

from regard.errors import DataError, OptionError

app = App(name="predict", help="Label, tag or rewrite texts with a trained model.")
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
    beams: Annotated[int, Parameter(validator=validators.Number(gte=1))] = 1,
) -> None:
    """Answer texts with a trained model.

    A classifier prints a line a text: label, probability, text. A tagger prints a line a token,
    word and tag, and a blank line behind each text; an encoder–decoder the line that it writes.

    Parameters
    ----------
    run
        The folder that regard train wrote.
    texts
        The texts.
    file
        Answer the texts of this file instead, one a line, or - for standard input; tables need
        --column.
    column
        The column of a table that holds the text.
    json
        Print one JSON object a line, with probabilities.
    attention
        Also print what each token attends to; of an encoder–decoder, what it looks at in the text.
    beams
        How many beginnings an encoder–decoder keeps side by side.
    """
    from regard.cli._report import report_attention
    from regard.inspection import trace
    from regard.models import load
    from regard.text import read_texts

    if bool(texts) == (file is not None):
        raise OptionError("give either texts or --file; for texts from a pipe, --file -")
    if column is not None and file is None:
        raise OptionError("--column names a column of --file; the texts given here have none")
    model = load(run)
    task = model.settings.task
    if task == "language":
        raise OptionError(f"{run} holds a language model, which writes on: regard generate {run}")
    if beams > 1 and task != "sequence":
        raise OptionError(f"--beams is for encoder–decoders; {run} holds {model.kind}")
    settings = {"beams": beams} if task == "sequence" else {}
    part = "cross" if task == "sequence" else None
    rest: Iterator[str] = iter(texts) if file is None else read_texts(file, column=column)
    count = 0
    while some := list(islice(rest, AT_A_TIME)):
        count += len(some)
        for text, answer in zip(some, model.predict(some, **settings), strict=True):
            print(_as_json(task, text, answer) if json else _as_text(task, text, answer))
            if attention:
                report_attention(trace(model, text, part=part))
    if not count:
        raise DataError(f"{file} has no text")


def _as_text(task: str, text: str, answer: Any) -> str:
    if task == "classify":
        return f"{answer.label}\t{answer.probability:.3f}\t{text}"
    if task == "tag":
        return "".join(f"{one.token}\t{one.tag}\n" for one in answer)
    return answer.text


def _as_json(task: str, text: str, answer: Any) -> str:
    from dataclasses import asdict
    from json import dumps

    found: dict[str, Any] = {"text": text}
    if task == "classify":
        found |= {"label": answer.label, "probabilities": answer.probabilities}
    elif task == "tag":
        found["tokens"] = [one.token for one in answer]
        found["tags"] = [one.tag for one in answer]
        found["probabilities"] = [one.probability for one in answer]
        found["spans"] = [[one.start, one.end] for one in answer]
    else:
        found |= {"target": answer.text} | asdict(answer)
        found["text"] = text
    return dumps(found, ensure_ascii=False)
