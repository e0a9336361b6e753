import subprocess
import sys

import pytest
from matplotlib import font_manager

from regard import plots
from regard.plots._fonts import _characters

TEXT = "我喜欢吃洋葱"
# in the standard since 2020 (extension G, its last), and in hardly any font
RARE = "\U0003134a"


def chinese_fonts():
    return [p for p in font_manager.findSystemFonts() if set(TEXT) <= _characters(p)]


needs_chinese_font = pytest.mark.skipif(
    not chinese_fonts(), reason="no installed font has Chinese characters"
)


def figure_with(text):
    figure = plots.new_figure(4, 3)
    figure.add_subplot().set_title(text)
    return figure


@needs_chinese_font
def test_a_chinese_title_gets_a_font_that_has_it(tmp_path):
    figure = figure_with(f"attention of {TEXT}")
    own = figure.axes[0].title.get_fontfamily()
    assert plots.fit_fonts(figure) == set()
    families = figure.axes[0].title.get_fontfamily()
    assert families[: len(own)] == own
    behind = [font_manager.findfont(name) for name in families[len(own) :]]
    assert set(TEXT) <= set().union(*map(_characters, behind))
    # a glyph that is missing after all would be matplotlib's warning, and so an error here
    plots.save(figure, tmp_path / "title")


@needs_chinese_font
def test_tick_labels_and_legends_get_it_too(tmp_path):
    figure = plots.new_figure(4, 3)
    axes = figure.add_subplot()
    axes.plot(range(6), label="洋葱")
    axes.set_xticks(range(6), list(TEXT))
    axes.set_yticks([0, 5], ["真", "的"])
    axes.legend()
    plots.save(figure, tmp_path / "ticks")


@needs_chinese_font
def test_a_font_installed_after_matplotlib_listed_them_is_found():
    script = """
from matplotlib import font_manager
from regard import plots
from regard.plots._fonts import _characters

known = font_manager.fontManager.ttflist
known[:] = [entry for entry in known if "我" not in _characters(entry.fname)]
figure = plots.new_figure(4, 3)
figure.add_subplot().set_title("我")
assert plots.fit_fonts(figure) == set()
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_plain_text_keeps_its_font():
    figure = figure_with("attention")
    before = figure.axes[0].title.get_fontfamily()
    assert plots.fit_fonts(figure) == set()
    assert figure.axes[0].title.get_fontfamily() == before


def test_invisible_characters_need_no_font():
    assert plots.fit_fonts(figure_with("two\nlines\u3000and\u200ba\tjoiner")) == set()


def test_what_no_font_has_is_said_once_with_what_to_install(tmp_path):
    figure = figure_with(f"a {RARE}")
    with pytest.warns(plots.MissingGlyphWarning) as said:
        paths = plots.save(figure, tmp_path / "rare")
    assert len(said) == 1
    message = str(said[0].message)
    assert message.startswith(f"no installed font has {RARE}, drawn as boxes; a Chinese font comes")
    assert "apt install fonts-wqy-microhei" in message
    assert all(path.exists() for path in paths)


def test_what_is_not_chinese_gets_no_chinese_advice():
    with pytest.warns(
        plots.MissingGlyphWarning, match="has \U0010abcd, drawn as boxes; install one"
    ):
        assert plots.fit_fonts(figure_with("\U0010abcd")) == {"\U0010abcd"}
