"""``regard evaluate``: how well a trained model does on texts that it has not seen."""

from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

app = App(name="evaluate", help="Measure a trained model on texts.")


@app.default
def evaluate(
    run: Path,
    data: Path,
    /,
    *,
    text_column: str = "text",
    label_column: str = "label",
    source_column: str = "source",
    target_column: str = "target",
    column: str | None = None,
    json: Annotated[bool, Parameter(negative=())] = False,
) -> None:
    """Measure a trained model on texts: of the same form as those that it was trained on.

    Parameters
    ----------
    run
        The folder that regard train wrote.
    data
        For a classifier and an encoder–decoder a .csv, .tsv, .jsonl or .parquet file; for a tagger
        a .jsonl file or word, tab, tag lines; for a language model any text.
    text_column
        The column that holds a classifier's text.
    label_column
        The column that holds its label.
    source_column
        The column that holds the text that an encoder–decoder reads.
    target_column
        The column that holds the text that it should write.
    column
        The column of a table that holds a language model's text.
    json
        Print JSON.
    """
    from dataclasses import asdict
    from json import dumps

    from regard.cli._report import report_metrics
    from regard.models import load
    from regard.training import (
        evaluate,
        read_labelled,
        read_lines,
        read_pairs,
        read_sentences,
    )

    model = load(run)
    task = model.settings.task
    if task == "classify":
        items = read_labelled(data, text_column, label_column)
    elif task == "tag":
        items = read_sentences(data)
    elif task == "language":
        items = read_lines(data, column)
    else:
        items = read_pairs(data, source_column, target_column)
    metrics = evaluate(model, items)
    if json:
        print(dumps(asdict(metrics), ensure_ascii=False))
    else:
        report_metrics(metrics)
