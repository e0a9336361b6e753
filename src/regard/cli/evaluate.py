"""``regard evaluate``: how well a trained model does on labelled texts."""

from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

app = App(name="evaluate", help="Measure a trained model on labelled texts.")


@app.default
def evaluate(
    run: Path,
    data: Path,
    /,
    *,
    text_column: str = "text",
    label_column: str = "label",
    json: Annotated[bool, Parameter(negative=())] = False,
) -> None:
    """Measure a trained model on labelled texts.

    Parameters
    ----------
    run
        The folder that regard train wrote.
    data
        A .csv, .tsv, .jsonl or .parquet file.
    text_column
        The column that holds the text.
    label_column
        The column that holds the label.
    json
        Print JSON.
    """
    from dataclasses import asdict
    from json import dumps

    from regard.cli._report import report_metrics
    from regard.models import load
    from regard.training import evaluate, read_labelled

    model = load(run)
    metrics = evaluate(model, read_labelled(data, text_column, label_column))
    if json:
        print(dumps(asdict(metrics), ensure_ascii=False))
    else:
        report_metrics(metrics)
