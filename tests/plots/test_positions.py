import math
import threading

import pytest
import torch

from regard import plots, positions
from regard.errors import OptionError


def curves(figure):
    return {line.get_label(): line for line in figure.axes[0].get_lines()}


def test_the_figure_of_the_notes():
    figure = plots.positions("sinusoidal", width=20, length=100, dims=range(4, 8))
    assert list(curves(figure)) == ["dim 4", "dim 5", "dim 6", "dim 7"]
    legend = figure.axes[0].get_legend()
    assert [text.get_text() for text in legend.get_texts()] == list(curves(figure))
    line = curves(figure)["dim 6"]
    assert line.get_xdata().tolist() == list(range(100))
    expected = [math.sin(p / 10000 ** (6 / 20)) for p in range(100)]
    assert line.get_ydata().tolist() == pytest.approx(expected, abs=1e-13)


def test_the_defaults_are_the_figure_of_the_notes():
    default, named = plots.positions(), plots.positions("sinusoidal", 20, 100, [4, 5, 6, 7])
    assert curves(default).keys() == curves(named).keys()
    assert all(
        (curves(default)[label].get_ydata() == curves(named)[label].get_ydata()).all()
        for label in curves(named)
    )


@pytest.mark.parametrize("name", ["index", "learned", "unit_interval"])
def test_every_encoding_that_adds_has_curves(name):
    figure = plots.positions(name, width=5, length=9, dims=[0, 4])
    assert list(curves(figure)) == ["dim 0", "dim 4"]


def test_an_encoding_made_before():
    learned = positions.create("learned", width=5, max_length=9).double()
    figure = plots.positions(learned, width=5, length=9, dims=[3])
    table = learned.table.detach()[:, 3]
    assert torch.equal(torch.tensor(curves(figure)["dim 3"].get_ydata()), table)


def test_nothing_of_pyplot_is_touched():
    import matplotlib.pyplot as plt

    before = plt.get_fignums()
    plots.positions()
    assert plt.get_fignums() == before


def test_figures_of_several_threads(tmp_path):
    written = []

    def draw(n):
        figure = plots.positions(width=8, length=5 + n, dims=[n], language="zh")
        written.extend(plots.save(figure, tmp_path / f"{n}.png"))

    threads = [threading.Thread(target=draw, args=(n,)) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(path.name for path in written) == ["0.png", "1.png", "2.png"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"dims": [4, 20, -1]}, r"dims must be from 0 to 19, the width's last, got 20, -1"),
        ({"dims": []}, r"dims must be from 0 to 19, the width's last, got none"),
        ({"length": 0}, r"length must be 1 or more, got 0"),
        ({"encoding": "alibi"}, r"'alibi' adds nothing .* those that do: index, learned, sinus"),
        ({"encoding": "sinusoid"}, r"'sinusoid'; did you mean 'sinusoidal'"),
        ({"language": "de"}, r"unknown language 'de'"),
    ],
)  # fmt: skip
def test_what_cannot_be_drawn_is_refused(arguments, message):
    with pytest.raises(OptionError, match=message):
        plots.positions(**arguments)
