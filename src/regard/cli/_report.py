"""What commands print: measurements of a run, scores of labels, tokens and their links."""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text
from torch import Tensor

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
        console.print(f"saved in {run.folder}", highlight=False)


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


def report_attention(tokens: Sequence[str], weights: Tensor) -> None:
    """For each token, what each head of the last layer attends to most: (layers, heads, T, T)."""
    table = Table(title=f"layer {len(weights) - 1}: each token's strongest link, by head")
    table.add_column("token")
    for head in range(weights.shape[1]):
        table.add_column(f"head {head}")
    strongest = weights[-1].max(-1)
    for row, token in enumerate(tokens[:SHOWN_TOKENS]):
        links = (
            Text(f"{tokens[int(strongest.indices[head, row])]} {strongest.values[head, row]:.2f}")
            for head in range(weights.shape[1])
        )
        table.add_row(Text(token), *links)
    console = Console()
    console.print(table)
    if len(tokens) > SHOWN_TOKENS:
        console.print(f"the first {SHOWN_TOKENS} of {len(tokens)} tokens", highlight=False)


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
