"""What commands print: measurements of a run, scores of labels, tokens and their links."""

from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from regard.cli._console import Console
from regard.inspection import Trace
from regard.models.language_model import perplexity_of
from regard.training import LanguageMetrics, Metrics, Run, WrittenMetrics

SHOWN_TOKENS = 40
COLUMNS: dict[type, dict[str, str]] = {
    Metrics: {"accuracy": "accuracy", "macro_f1": "macro F1"},
    LanguageMetrics: {"perplexity": "perplexity", "accuracy": "next token right"},
    WrittenMetrics: {"exact": "exactly right", "chrf": "chrF"},
}
"""What is shown of each kind of measurement, by field."""
BASELINES = {
    "naive_bayes": "naive Bayes on character bigrams",
    "majority": "the most frequent label",
    "frequent_tags": "the most frequent tag of each word",
    "bigrams": "counts of pairs of tokens",
    "unigrams": "counts of tokens",
    "copy": "the text itself, copied",
    "most_frequent": "the most frequent text",
}


def report_run(run: Run) -> None:
    """Sizes, what was dropped, and the measures beside the baselines."""
    console = Console()
    splits, noun = run.splits, run.splits.train.noun
    parts = {"train": splits.train, "validate": splits.validation, "test": splits.test}
    sizes = {name: len(part) for name, part in parts.items() if part is not None}
    shares = ", ".join(f"{size:,} to {name}" for name, size in sizes.items())
    console.print(f"{noun}: {sum(sizes.values()):,}, {shares}; {splits.dropped}", highlight=False)
    if run.truncated:
        limit = run.config.text.max_tokens
        done = "read in pieces of" if run.config.task == "tag" else "cut to"
        console.print(
            f"{run.truncated:,} training {noun} were {done} {limit} tokens", highlight=False
        )
    reached = f"{run.best.validation_accuracy:.1%}"
    if run.config.task in ("tag", "sequence"):
        reached += " of tokens right"
    if run.config.task == "language":
        reached = f"perplexity {perplexity_of(run.best.validation_loss):.2f}"
    console.print(
        f"epochs: {len(run.history)}, the best is {run.best.epoch} with {reached} on validation",
        highlight=False,
    )
    if run.test is not None:
        table = Table(title=f"on held-out {noun}")
        table.add_column("")
        for column in COLUMNS[type(run.test)].values():
            table.add_column(column, justify="right")
        table.add_row("this model", *_numbers(run.test))
        for name, metrics in run.baselines.items():
            table.add_row(BASELINES[name], *_numbers(metrics))
        console.print(table)
    if run.folder is not None:
        console.print(f"saved in {run.folder}", highlight=False, markup=False)


def report_metrics(metrics: Any) -> None:
    """The measures; of labels and tags also precision, recall and F1 of each."""
    console = Console()
    shown = COLUMNS[type(metrics)].values()
    numbers = ", ".join(f"{n} {x}" for n, x in zip(shown, _numbers(metrics), strict=True))
    console.print(f"{numbers} on {metrics.count:,} {_counted(metrics)}", highlight=False)
    if not isinstance(metrics, Metrics):
        return
    table = Table()
    table.add_column("label")
    for column in ("precision", "recall", "F1", "count"):
        table.add_column(column, justify="right")
    for label, score in metrics.labels.items():
        values = (f"{value:.3f}" for value in (score.precision, score.recall, score.f1))
        table.add_row(Text(label), *values, f"{score.count:,}")
    console.print(table)


def _numbers(metrics: Any) -> list[str]:
    return [
        f"{getattr(metrics, name):.{2 if name == 'perplexity' else 3}f}"
        for name in COLUMNS[type(metrics)]
    ]


def _counted(metrics: Any) -> str:
    """What the measures are over."""
    if isinstance(metrics, LanguageMetrics):
        return f"tokens, {metrics.unknown:.1%} of them unknown"
    return "answers" if isinstance(metrics, Metrics) else "texts"


def report_attention(trace: Trace) -> None:
    """For each token, what each head of the last layer attends to most."""
    last = trace.layers - 1
    table = Table(title=f"layer {last}: each token's strongest link, by head")
    table.add_column("token")
    for head in range(trace.heads):
        table.add_column(f"head {head}")
    tokens = trace.tokens[:SHOWN_TOKENS]
    strongest = [trace.weights(last, head).max(-1) for head in range(trace.heads)]
    for row, token in enumerate(tokens):
        links = (
            Text(f"{trace.key_tokens[int(found.indices[row])].label} {found.values[row]:.2f}")
            for found in strongest
        )
        table.add_row(Text(token.label), *links)
    console = Console()
    console.print(table)
    if len(tokens) < len(trace.tokens):
        console.print(
            f"the first {len(tokens)} of {len(trace.tokens)} tokens; regard trace shows all",
            highlight=False,
        )


def write_figures(run: Run, folder: Path) -> list[Path]:
    """The training curve, as PNG and SVG."""
    from regard import plots

    baselines = {}
    if run.config.task in ("classify", "tag", "language"):
        baselines = {BASELINES[name]: found.accuracy for name, found in run.baselines.items()}
    return plots.save(plots.training(run.history, baselines), folder / "training")
