import os
from contextlib import suppress
from pathlib import Path

import pytest

from regard.errors import StorageError
from regard.text import storage
from regard.text.storage import new_file, new_folder, publish

MINE = frozenset({"x"})


def fill(folder, content):
    (folder / "x").write_text(content)


def same_as(content):
    return lambda folder: (folder / "x").read_text() == content


def write_folder(folder):
    with new_folder(folder) as new:
        fill(new, "x")
        publish(new, folder, lambda _: False, MINE)


def test_a_file_appears_whole_or_not_at_all(tmp_path):
    path = tmp_path / "a" / "x"
    with new_file(path) as new:
        new.write_text("whole")
        assert not path.exists()
    assert path.read_text() == "whole"
    with suppress(ZeroDivisionError), new_file(path) as new:
        new.write_text("half")
        _ = 1 / 0
    assert path.read_text() == "whole"
    assert os.listdir(path.parent) == ["x"]


def test_a_folder_appears_whole_or_not_at_all(tmp_path):
    folder = tmp_path / "a" / "b"
    with suppress(ZeroDivisionError), new_folder(folder) as new:
        fill(new, "half")
        _ = 1 / 0
    assert os.listdir(tmp_path / "a") == []
    with new_folder(folder) as new:
        fill(new, "whole")
        publish(new, folder, same_as("whole"), MINE)
    assert os.listdir(tmp_path / "a") == ["b"]
    assert os.listdir(folder) == ["x"]


def test_the_same_stays_and_another_replaces(tmp_path):
    folder = tmp_path / "b"
    for content in ("one", "one", "two"):
        with new_folder(folder) as new:
            fill(new, content)
            before = folder.stat().st_ino if folder.exists() else None
            kept = folder.exists() and same_as(content)(folder)
            publish(new, folder, same_as(content), MINE)
        assert (folder.stat().st_ino == before) == kept
        assert (folder / "x").read_text() == content
        assert os.listdir(tmp_path) == ["b"]


def test_what_is_not_ours_is_never_removed(tmp_path):
    folder = tmp_path / "b"
    folder.mkdir()
    (folder / "thesis.docx").write_text("years of work")
    with pytest.raises(StorageError, match=r"b holds other things \(thesis.docx\); name a new fol"):
        write_folder(folder)
    assert (folder / "thesis.docx").read_text() == "years of work"
    assert os.listdir(tmp_path) == ["b"]


def test_an_empty_folder_may_be_filled(tmp_path):
    folder = tmp_path / "b"
    folder.mkdir()
    write_folder(folder)
    assert os.listdir(folder) == ["x"]


def test_a_file_in_the_way(tmp_path):
    (tmp_path / "b").write_text("a file")
    with pytest.raises(StorageError, match=r"^cannot write .*b: not a directory; nothing was left"):
        write_folder(tmp_path / "b")
    assert os.listdir(tmp_path) == ["b"]


@pytest.mark.skipif(storage.fcntl is None, reason="no file locks")
def test_abandoned_folders_go_and_others_stay(tmp_path):
    folder = tmp_path / "b"
    abandoned = tmp_path / ".b.dead.new"
    abandoned.mkdir()
    (abandoned / storage.LOCK).touch()
    with new_folder(folder) as first, new_folder(folder) as second:
        assert not abandoned.exists()
        assert first != second
        assert first.exists()


def test_no_disk_at_all():
    with (
        pytest.raises(StorageError, match=r"^cannot write /proc/none/x: no such file or directory"),
        new_file(Path("/proc/none/x")),
    ):
        pass


def test_only_ordinary_files_are_replaced(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with (
        pytest.raises(StorageError, match=r"^cannot write .*pipe: it is no ordinary file$"),
        new_file(tmp_path / "pipe"),
    ):
        pass
    assert os.listdir(tmp_path) == ["pipe"]


def test_a_link_stays_a_link(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with new_file(tmp_path / "link") as new:
        new.write_text("whole")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text() == "whole"
