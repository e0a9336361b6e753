"""The training curve: loss and accuracy after each epoch."""

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from regard.errors import DataError
from regard.plots._figure import new_figure
from regard.plots._fonts import fit_fonts
from regard.training.loop import Epoch


def training(history: Sequence[Epoch], baselines: Mapping[str, float] | None = None) -> Figure:
    """Losses on the left, validation accuracy on the right, with `baselines` as level lines.

    `history` is a run's; `baselines` are accuracies by name. The best epoch is marked.
    """
    if not history:
        raise DataError("the run has no finished epoch to draw")
    epochs = [epoch.epoch for epoch in history]
    accuracy = [epoch.validation_accuracy for epoch in history]
    figure = new_figure(10, 4)
    losses, accuracies = figure.subplots(1, 2)
    losses.plot(
        epochs,
        [e.training_loss for e in history],
        "o-",
        label="training, smoothed and with dropout",
    )
    losses.plot(epochs, [e.validation_loss for e in history], "o-", label="validation")
    losses.set_ylabel("cross-entropy")
    losses.legend()
    accuracies.plot(epochs, accuracy, "o-", color="C1", label="validation")
    best = max(range(len(history)), key=accuracy.__getitem__)
    accuracies.annotate(
        f"{accuracy[best]:.1%}",
        (epochs[best], accuracy[best]),
        xytext=(0, 8),
        textcoords="offset points",
        ha="right" if best == len(history) - 1 else "center",
    )
    for index, (name, value) in enumerate((baselines or {}).items()):
        accuracies.axhline(
            value, linestyle="--", color=f"C{index + 2}", label=f"{name} {value:.1%}"
        )
    accuracies.set_ylabel("accuracy")
    accuracies.yaxis.set_major_formatter(PercentFormatter(1.0))
    accuracies.margins(y=0.15)
    accuracies.legend()
    for axes in (losses, accuracies):
        axes.set_xlabel("epoch")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(alpha=0.3)
    fit_fonts(figure)
    return figure
