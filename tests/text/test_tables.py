import gzip

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.errors import DataError, OptionError, StorageError
from regard.text import read_table

REVIEWS = 'text\tlabel\n好吃\tpos\na "b" c\tneg\n'


def write(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def read(path, content, columns=("text", "label"), **options):
    return list(read_table(write(path, content), columns, **options))


def test_tsv_has_no_quotes(tmp_path):
    expected = [(2, ("好吃", "pos")), (3, ('a "b" c', "neg"))]
    assert read(tmp_path / "reviews.tsv", REVIEWS) == expected
    assert read(tmp_path / "crlf.tsv", REVIEWS.replace("\n", "\r\n")) == expected
    assert read(tmp_path / "bom.tsv", REVIEWS.encode("utf-8-sig")) == expected
    assert read(tmp_path / "gbk.tsv", REVIEWS.encode("gbk")) == expected


def test_csv_has_quotes_and_counts_lines(tmp_path):
    content = 'label,text,more\npos,"a, ""b""\nc",1\n\nneg,"d\u2028e",2\n'
    expected = [(2, ('a, "b"\nc', "pos")), (5, ("d\u2028e", "neg"))]
    assert read(tmp_path / "x.csv", content) == expected
    assert read(tmp_path / "x.csv", content.replace("\n", "\r\n")) == expected


def test_jsonl(tmp_path):
    content = '{"text": "a\\nb", "label": 1}\n\n{"label": true, "text": "洋葱", "more": {}}\n'
    assert read(tmp_path / "x.jsonl", content) == [(1, ("a\nb", "1")), (3, ("洋葱", "true"))]


def test_parquet(tmp_path):
    table = pa.table({"label": [1, 2], "text": ["a", "洋葱"], "other": [[1], [2]]})
    pq.write_table(table, tmp_path / "x.parquet")
    rows = list(read_table(tmp_path / "x.parquet", ["text", "label", "text"]))
    assert rows == [(1, ("a", "1", "a")), (2, ("洋葱", "2", "洋葱"))]


def test_compressed(tmp_path):
    write(tmp_path / "x.tsv.gz", gzip.compress(REVIEWS.encode()))
    write(tmp_path / "x.tsv.zst", pa.compress(REVIEWS.encode(), "zstd", asbytes=True))
    expected = read(tmp_path / "x.tsv", REVIEWS)
    assert list(read_table(tmp_path / "x.tsv.gz", ["text", "label"])) == expected
    assert list(read_table(tmp_path / "x.tsv.zst", ["text", "label"])) == expected


fields = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r"))


@given(rows=st.lists(st.tuples(fields, fields), max_size=5))
def test_csv_gives_back_what_was_written(rows, tmp_path_factory):
    path = tmp_path_factory.getbasetemp() / "round.csv"
    quoted = ['"' + a.replace('"', '""') + '","' + b.replace('"', '""') + '"' for a, b in rows]
    write(path, "text,label\n" + "".join(row + "\n" for row in quoted))
    assert [values for _, values in read_table(path, ["text", "label"], encoding="utf-8")] == rows


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("r.tsv", "text\tlabel\na\tb\nc\n", "line 3 of r.tsv has 1 column, the header has 2"),
        ("r.tsv", "text\tlabel\na\tb\tc\n", "line 2 of r.tsv has 3 columns, the header has 2"),
        ("r.csv", 'text,label\n"a\n",b\nc\n', "line 4 of r.csv has 1 column, the header has 2"),
        ("r.tsv", "text\tstars\na\tb\n", "r.tsv has no column 'label'; it has: text, stars"),
        ("r.csv", "text;label\na;b\n", "r.csv has no column 'text'; it has: text;label"),
        ("r.tsv", "", "r.tsv is empty; its first line must name the columns"),
        ("r.csv", "\ufeff\n\n", "r.csv is empty; its first line must name the columns"),
        ("r.tsv", "text\tlabel\ttext\n", "r.tsv has two columns named 'text'"),
        ("r.csv", 'text,label\na,b\n"c,d\ne', "line 3 of r.csv: the quoted field is never closed"),
        ("r.csv", 'text,label\n"a"b,c\n', "line 2 of r.csv is not CSV: ',' expected after '\"'"),
        ("r.jsonl", "", "r.jsonl is empty; each line must be a JSON object"),
        ("r.jsonl", '{"text": "a"}\n', "line 1 of r.jsonl has no column 'label'; it has: text"),
        ("r.jsonl", "{}\n", "line 1 of r.jsonl has no column 'text'; it has: nothing"),
        ("r.jsonl", "\n[1, 2]\n", "line 2 of r.jsonl is not a JSON object: [1, 2]"),
        (
            "r.jsonl",
            '{"text" "a"}\n',
            "line 1 of r.jsonl is not JSON: Expecting ':' delimiter at character 9",
        ),
        (
            "r.jsonl",
            '{"text": "a", "label": null}\n',
            "line 1 of r.jsonl: column 'label' is null, not a string",
        ),
        (
            "r.jsonl",
            '{"text": "a\\ud800", "label": 1}\n',
            "line 1 of r.jsonl: column 'text' has the lone surrogate \\ud800, half of a UTF-16 "
            'pair; read on with errors="replace"',
        ),
        ("r.jsonl", "[" * 100_000, "line 1 of r.jsonl is not JSON: "),
        ("r.txt", "a", "r.txt is no table; known endings: .csv, .tsv, .jsonl, .parquet"),
        ("r.parquet", "PAR1junk", "r.parquet is not a whole Parquet file: "),
        ("r.parquet.gz", "x", "r.parquet.gz: Parquet is compressed inside; store it without .gz"),
    ],
)
def test_messages(name, content, message, tmp_path):
    with pytest.raises(DataError) as caught:
        read(tmp_path / name, content)
    assert str(caught.value).startswith(message)
    assert message.endswith(" ") or str(caught.value) == message
    assert "\n" not in str(caught.value)


def test_half_a_pair_can_be_replaced(tmp_path):
    content = '{"text": "a\\ud800b", "label": "\\ud83d\\udc4d"}\n'
    rows = read(tmp_path / "r.jsonl", content, errors="replace")
    assert rows == [(1, ("a\ufffdb", "👍"))]


def test_parquet_messages(tmp_path):
    pq.write_table(pa.table({"text": ["a", None], "n": [[1], [2]]}), tmp_path / "x.parquet")
    with pytest.raises(DataError, match=r"^row 2 of x.parquet: column 'text' is null, not a str"):
        list(read_table(tmp_path / "x.parquet", ["text"]))
    with pytest.raises(DataError, match=r"^column 'n' of x.parquet holds list.*, which is no text"):
        list(read_table(tmp_path / "x.parquet", ["n"]))
    with pytest.raises(DataError, match=r"^x.parquet has no column 'z'; it has: text, n$"):
        list(read_table(tmp_path / "x.parquet", ["z"]))
    whole = (tmp_path / "x.parquet").read_bytes()
    (tmp_path / "x.parquet").write_bytes(whole[:20] + b"\xff" * 20 + whole[40:])
    with pytest.raises(DataError, match=r"^x.parquet is damaged: "):
        list(read_table(tmp_path / "x.parquet", ["text"]))
    (tmp_path / "x.parquet").write_bytes(whole[:-9])
    with pytest.raises(DataError, match=r"is not a whole Parquet file"):
        list(read_table(tmp_path / "x.parquet", ["text"]))


def test_no_file_and_no_list_of_columns(tmp_path):
    with pytest.raises(StorageError, match=r"^cannot read .*none\.tsv: no such file or directory$"):
        list(read_table(tmp_path / "none.tsv", ["text"]))
    with pytest.raises(StorageError, match=r"^cannot read .*none\.parquet: "):
        list(read_table(tmp_path / "none.parquet", ["text"]))
    with pytest.raises(OptionError, match=r"^columns= takes a list of names; it got the string"):
        read_table(tmp_path / "none.tsv", "text")


def test_long_fields(tmp_path):
    long = "x" * 300_000
    assert read(tmp_path / "x.csv", f"text,label\n{long},1\n") == [(2, (long, "1"))]
