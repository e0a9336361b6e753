import os
import xml.etree.ElementTree as ElementTree

import pytest

from regard import plots
from regard.errors import OptionError, StorageError


def test_a_figure_is_written_as_png_and_svg(tmp_path):
    paths = plots.save(plots.positions(), tmp_path / "figures" / "curve")
    assert [path.name for path in paths] == ["curve.png", "curve.svg"]
    png = paths[0].read_bytes()
    assert png.startswith(b"\x89PNG")
    # 15 by 5 inches, 150 dots each
    assert (int.from_bytes(png[16:20]), int.from_bytes(png[20:24])) == (2250, 750)
    assert ElementTree.parse(paths[1]).getroot().tag == "{http://www.w3.org/2000/svg}svg"
    assert sorted(p.name for p in paths[0].parent.iterdir()) == ["curve.png", "curve.svg"]


def test_a_suffix_asks_for_one_format(tmp_path):
    assert plots.save(plots.positions(), tmp_path / "curve.svg") == [tmp_path / "curve.svg"]
    assert [p.name for p in tmp_path.iterdir()] == ["curve.svg"]


def test_another_suffix_is_refused(tmp_path):
    with pytest.raises(
        OptionError, match=r"written as \.png or \.svg, not '\.jpg'; leave the suff"
    ):
        plots.save(plots.positions(), tmp_path / "curve.jpg")


def test_a_place_that_is_no_folder_is_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match=r"cannot write .*file.curve\.png: file exists; nothing"):
        plots.save(plots.positions(), tmp_path / "file" / "curve.png")
    assert os.listdir(tmp_path) == ["file"]
