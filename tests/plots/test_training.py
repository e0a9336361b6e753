import pytest

from regard import plots
from regard.errors import DataError
from regard.training.loop import Epoch


def test_the_curve_shows_both_losses_the_best_epoch_and_the_baselines():
    history = [Epoch(1, 0.7, 0.6, 0.5, 1.0), Epoch(2, 0.5, 0.4, 0.8, 1.0)]
    figure = plots.training(history, {"naive Bayes": 0.75})
    losses, accuracies = figure.axes
    assert [line.get_ydata().tolist() for line in losses.lines] == [[0.7, 0.5], [0.6, 0.4]]
    assert [text.get_text() for text in accuracies.get_legend().get_texts()] == [
        "validation",
        "naive Bayes 75.0%",
    ]
    assert accuracies.texts[0].get_text() == "80.0%"


def test_no_epoch_is_an_error():
    with pytest.raises(DataError, match="no finished epoch to draw"):
        plots.training([])
