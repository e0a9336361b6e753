"""Static figures, one a file. The only user of matplotlib, without pyplot: nothing is global.

>>> from regard import plots
>>> figure = plots.positions("sinusoidal", width=20, length=100, dims=range(4, 8))
>>> [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
['dim 4', 'dim 5', 'dim 6', 'dim 7']
"""

from regard.plots._figure import new_figure, save
from regard.plots._fonts import MissingGlyphWarning, fit_fonts
from regard.plots.attention import attention
from regard.plots.positions import positions
from regard.plots.training import training

__all__ = [
    "MissingGlyphWarning",
    "attention",
    "fit_fonts",
    "new_figure",
    "positions",
    "save",
    "training",
]
