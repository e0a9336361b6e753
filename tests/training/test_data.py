import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.errors import DataError
from regard.training.data import (
    Labelled,
    Pairs,
    Sentences,
    batches,
    deduplicate,
    read_labelled,
    read_lines,
    read_pairs,
    read_sentences,
    split,
)


def test_duplicates_and_contradictions_go_before_anything_else():
    texts = ["a", "b", "a", "c", "c", "d"]
    kept, dropped = deduplicate(Labelled(texts, ["+", "-", "+", "+", "-", "+"], "x"))
    assert (kept.texts, kept.labels) == (["a", "b", "d"], ["+", "-", "+"])
    assert str(dropped) == "2 repeated and 1 contradictory texts dropped"


@given(st.lists(st.sampled_from("abc"), min_size=30, max_size=200), st.integers(0, 5))
def test_a_split_keeps_every_text_once_and_labels_in_proportion(labels, seed):
    data = Labelled([str(i) for i in range(len(labels))], labels, "x")
    parts = split(data, {"validation": 0.2, "test": 0.3}, seed)
    together = [text for part in parts.values() for text in part.texts]
    assert sorted(together, key=int) == data.texts
    for name, share in (("validation", 0.2), ("test", 0.3)):
        for label in "abc":
            assert parts[name].labels.count(label) == round(share * labels.count(label))
    assert split(data, {"validation": 0.2, "test": 0.3}, seed) == parts


def test_too_few_to_split():
    with pytest.raises(
        DataError, match=r"x has 2 texts, too few to split off a 0\.1 share for val"
    ):
        split(Labelled(["a", "b"], ["+", "-"], "x"), {"validation": 0.1}, 0)


@given(
    st.lists(st.integers(1, 40), min_size=1, max_size=300), st.integers(1, 100), st.integers(0, 9)
)
def test_batches_hold_every_text_once_within_the_limit(lengths, limit, seed):
    found = batches(lengths, limit, np.random.default_rng(seed))
    assert sorted(i for batch in found for i in batch) == list(range(len(lengths)))
    for batch in found:
        assert len(batch) == 1 or max(lengths[i] for i in batch) * len(batch) <= limit


def write(path, text):
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "x.tsv is empty"),
        ("text\tlabel\n", "x.tsv has a header and no rows; it needs labelled texts"),
        ("text\tstars\n好\t5\n", "x.tsv has no column 'label'; it has: text, stars"),
        ("text\tlabel\n好\t5\n好\n", "line 3 of x.tsv has 1 column, the header has 2"),
        ("text\tlabel\n好\t5\n好\t \n", "line 3 of x.tsv has an empty 'label'; fill or remove it"),
    ],
)
def test_bad_tables_are_one_line(tmp_path, text, message):
    with pytest.raises(DataError, match=message):
        read_labelled(write(tmp_path / "x.tsv", text), "text", "label")


def test_tagged_lines_and_objects_say_the_same(tmp_path):
    lines = write(tmp_path / "x.conll", "\n我\tr\n吃\tv\n\n\n好 吧\tx\n")
    objects = write(
        tmp_path / "x.jsonl",
        '{"tokens": ["我", "吃"], "tags": ["r", "v"]}\n\n{"tokens": ["好 吧"], "tags": ["x"]}\n',
    )
    found = read_sentences(lines)
    assert found == Sentences([["我", "吃"], ["好 吧"]], [["r", "v"], ["x"]], "x.conll")
    assert found.columns() == read_sentences(objects).columns()


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("x.conll", "我\tr\n吃\n", r"line 2 of x\.conll has 1 column; it must be a word, a tab"),
        ("x.conll", "我\tr\tz\n", "line 1 of x.conll has 3 columns; it must be a word, a tab"),
        ("x.conll", "我\tr\n\tv\n", "line 2 of x.conll has an empty word"),
        ("x.conll", "我\tr\n吃\t\n", "line 2 of x.conll has an empty tag"),
        ("x.conll", "\n\n", "x.conll has no sentence"),
        ("x.jsonl", '{"tokens": ["我"], "tags": []}', "line 1 of x.jsonl has 1 tokens and 0 tags"),
        ("x.jsonl", '{"tokens": ["我"]}', "line 1 of x.jsonl: 'tags' must be a list of strings"),
        ("x.jsonl", '{"tokens": [3], "tags": ["n"]}', "'tokens' must be a list .*; got \\[3\\]"),
        ("x.jsonl", '\n["我"]', "line 2 of x.jsonl: 'tokens' must be a list of strings"),
        ("x.jsonl", '{"tokens": [], "tags": []}', "line 1 of x.jsonl has no tokens"),
        ("x.jsonl", "{", "line 1 of x.jsonl is not JSON"),
        ("x.csv", "a,b", "x.csv is no tagged text; it is a .jsonl file with lists tokens and tags"),
    ],
)
def test_bad_tagged_text_is_one_line(tmp_path, name, text, message):
    with pytest.raises(DataError, match=message):
        read_sentences(write(tmp_path / name, text))


def test_pairs_and_lines(tmp_path):
    table = write(tmp_path / "x.csv", "en,zh\nyes,是\nno,不\n")
    assert read_pairs(table, "en", "zh") == Pairs(["yes", "no"], ["是", "不"], "x.csv")
    with pytest.raises(DataError, match=r"x\.csv has no column 'source'; it has: en, zh"):
        read_pairs(table, "source", "zh")
    assert read_lines(write(tmp_path / "x.txt", "a \n\n b\n")).lines == ["a", "b"]
    assert read_lines(table, "zh").lines == ["是", "不"]
    with pytest.raises(DataError, match=r"y\.txt has no text"):
        read_lines(write(tmp_path / "y.txt", "\n"))


def test_a_text_to_read_keeps_its_first_text_to_write():
    kept, dropped = deduplicate(Pairs(["a", "b", "a", "a"], ["x", "y", "x", "z"], "t"))
    assert (kept.sources, kept.targets) == (["a", "b"], ["x", "y"])
    assert str(dropped) == "2 repeated and 0 contradictory texts dropped"
