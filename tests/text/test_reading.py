import gzip
import io
import os
import subprocess
import sys
import threading

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from regard.errors import DataError, OptionError, StorageError
from regard.text import read_texts

TEXT = "我喜欢吃洋葱\n\n  \nsecond line\u2028still second\r\nthird"
LINES = ["我喜欢吃洋葱", "second line\u2028still second", "third"]


def write(path, content=TEXT):
    path.parent.mkdir(exist_ok=True, parents=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.mark.parametrize("name", ["x.txt", "x.TXT", "x", "x.md", "x.2024"])
def test_plain_text_gives_its_lines(name, tmp_path):
    assert list(read_texts(write(tmp_path / name))) == LINES
    assert list(read_texts(str(tmp_path / name))) == LINES


def test_archives(tmp_path):
    content = TEXT.encode()
    half = len(content) // 2
    write(tmp_path / "one.txt.gz", gzip.compress(content))
    write(tmp_path / "two.gz", gzip.compress(content[:half]) + gzip.compress(content[half:]))
    write(tmp_path / "x.zst", pa.compress(content, "zstd", asbytes=True))
    for name in ("one.txt.gz", "two.gz", "x.zst"):
        assert list(read_texts(tmp_path / name)) == LINES


@pytest.mark.parametrize("ending", [".gz", ".zst"])
def test_damaged_archives(ending, tmp_path):
    content = os.urandom(100_000).hex().encode()
    whole = gzip.compress(content) if ending == ".gz" else pa.compress(content, "zstd").to_pybytes()
    message = rf"^x{ending} cannot be decompressed \(.*\); the file is damaged or cut short$"
    for damaged in (whole[:-20], whole[:20], whole + b"more", b"not an archive"):
        with pytest.raises(DataError, match=message):
            list(read_texts(write(tmp_path / f"x{ending}", damaged)))


def test_columns_of_tables(tmp_path):
    write(tmp_path / "x.csv", 'text,n\n"a\nb",1\n" ",2\nc,3\n')
    write(tmp_path / "x.tsv", "n\treview\n1\ta\n2\tb\n")
    write(tmp_path / "one.tsv", "review\na\nb\n")
    write(tmp_path / "x.jsonl", '{"text": "a"}\n{"text": "b"}\n')
    pq.write_table(pa.table({"text": ["a", "b"], "n": [1, 2]}), tmp_path / "x.parquet")
    assert list(read_texts(tmp_path / "x.csv")) == ["a\nb", "c"]
    assert list(read_texts(tmp_path / "x.csv", column="n")) == ["1", "2", "3"]
    assert list(read_texts(tmp_path / "x.tsv", "review")) == ["a", "b"]
    assert list(read_texts(tmp_path / "one.tsv")) == ["a", "b"]
    assert list(read_texts(tmp_path / "x.jsonl")) == ["a", "b"]
    assert list(read_texts(tmp_path / "x.parquet")) == ["a", "b"]
    with pytest.raises(
        DataError, match=r"^x.tsv has no column 'text'; it has: n, review; name one"
    ):
        list(read_texts(tmp_path / "x.tsv"))


def test_plain_text_has_no_columns(tmp_path):
    with pytest.raises(OptionError, match=r"^x.txt is plain text and has no column 'review'$"):
        list(read_texts(write(tmp_path / "x.txt"), column="review"))


def test_a_folder_gives_its_text_files_in_order(tmp_path):
    write(tmp_path / "b.txt", "2")
    write(tmp_path / "a" / "z.txt.gz", gzip.compress(b"1"))
    write(tmp_path / "c.csv", "text\n3\n")
    for other in (".hidden.txt", "picture.png", ".git/x.txt", "d.txt~"):
        write(tmp_path / other, "no")
    assert list(read_texts(tmp_path)) == ["1", "2", "3"]
    assert list(read_texts(tmp_path / "*.txt")) == ["2"]
    assert list(read_texts(str(tmp_path / "**" / "*.gz"))) == ["1"]


def test_a_name_with_brackets_is_a_name_if_there_is_such_a_file(tmp_path):
    assert list(read_texts(write(tmp_path / "x[1].txt"))) == LINES


def test_nothing_to_read(tmp_path):
    write(tmp_path / "picture.png", "no")
    with pytest.raises(
        StorageError, match=r"^folder .* holds no text file; known endings: \.txt, "
    ):
        list(read_texts(tmp_path))
    with pytest.raises(StorageError, match=r"^no file matches '.*\*\.txt'$"):
        list(read_texts(tmp_path / "*.txt"))
    with pytest.raises(StorageError, match=r"^cannot read .*none\.txt: no such file or directory$"):
        list(read_texts(tmp_path / "none.txt"))
    with pytest.raises(StorageError, match=r"^the source is an empty name"):
        list(read_texts(""))
    with pytest.raises(StorageError, match=r"^cannot read .*a\\0b: embedded null byte$"):
        list(read_texts("a\0b"))
    with pytest.raises(StorageError, match=r"^cannot read aaa.*…: file name too long$"):
        list(read_texts("a" * 5000))


def test_standard_input(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(TEXT.encode("gb18030"))))
    assert list(read_texts("-")) == LINES


def test_a_pipe(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(target=write, args=(tmp_path / "pipe",))
    writer.start()
    assert list(read_texts(tmp_path / "pipe")) == LINES
    writer.join()


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
def test_no_permission(tmp_path):
    path = write(tmp_path / "secret.txt")
    path.chmod(0)
    if os.geteuid() == 0:  # root may read everything: ask as nobody
        tmp_path.chmod(0o711)
        program = (
            "import os, sys; from regard.text import read_texts; os.setuid(65534)\n"
            "try: list(read_texts('secret.txt'))\nexcept Exception as error: print(error)"
        )
        found = subprocess.run(
            [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True
        )
        assert found.stdout == "cannot read secret.txt: permission denied\n"
    else:
        with pytest.raises(StorageError, match=r"^cannot read .*secret.txt: permission denied$"):
            list(read_texts(path))


def test_one_very_long_line(tmp_path):
    long = "洋葱 " * 1_000_000
    assert list(read_texts(write(tmp_path / "x.txt", long))) == [long]


def test_reading_is_lazy(tmp_path):
    path = write(tmp_path / "x.txt", b"fine\n" * 500_000 + b"\xff")
    texts = read_texts(path)
    assert next(texts) == "fine"
    with pytest.raises(
        DataError, match=r"^line 500001 of x.txt: byte 0xff at offset 2500000 is no"
    ):
        list(texts)
