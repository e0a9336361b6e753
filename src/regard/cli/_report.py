"""What commands print: measurements of a run, scores of labels, tokens and their links."""

from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from regard.inspection import Trace
from regard.training import Metrics, Run

SHOWN_TOKENS = 40


def report_run(run: Run) -> None:
    """Sizes, what was dropped, and the accuracy beside the baselines."""
    console = Console()
    splits = run.splits
    parts = {"train": splits.train, "validate": splits.validation, "test": splits.test}
    sizes = {name: len(part) for name, part in parts.items() if part is not None}
    shares = ", ".join(f"{size:,} to {name}" for name, size in sizes.items())
    console.print(f"texts: {sum(sizes.values()):,}, {shares}; {splits.dropped}", highlight=False)
    if run.truncated:
        limit = run.config.text.max_tokens
        console.print(
            f"{run.truncated:,} training texts were cut to {limit} tokens", highlight=False
        )
    best = max(run.history, key=lambda e: (e.validation_accuracy, -e.validation_loss))
    console.print(
        f"epochs: {len(run.history)}, the best is {best.epoch} "
        f"with {best.validation_accuracy:.1%} on validation",
        highlight=False,
    )
    if run.test is not None:
        table = Table(title="on held-out texts")
        for column in ("", "accuracy", "macro F1"):
            table.add_column(column, justify="left" if not column else "right")
        for name, metrics in (
            ("this model", run.test),
            ("naive Bayes on character bigrams", run.naive_bayes),
            ("the most frequent label", run.majority),
        ):
            assert metrics is not None
            table.add_row(name, f"{metrics.accuracy:.3f}", f"{metrics.macro_f1:.3f}")
        console.print(table)
    if run.folder is not None:
        console.print(f"saved in {run.folder}", highlight=False, markup=False)


def report_metrics(metrics: Metrics) -> None:
    """Accuracy, and precision, recall and F1 of each label."""
    console = Console()
    console.print(
        f"accuracy {metrics.accuracy:.3f}, macro F1 {metrics.macro_f1:.3f} "
        f"on {metrics.count:,} texts",
        highlight=False,
    )
    table = Table()
    table.add_column("label")
    for column in ("precision", "recall", "F1", "texts"):
        table.add_column(column, justify="right")
    for label, score in metrics.labels.items():
        numbers = (f"{value:.3f}" for value in (score.precision, score.recall, score.f1))
        table.add_row(Text(label), *numbers, f"{score.count:,}")
    console.print(table)


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
            Text(f"{trace.tokens[int(found.indices[row])].label} {found.values[row]:.2f}")
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
    if run.naive_bayes is not None and run.majority is not None:
        baselines = {
            "naive Bayes": run.naive_bayes.accuracy,
            "most frequent label": run.majority.accuracy,
        }
    return plots.save(plots.training(run.history, baselines), folder / "training")
