import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.errors import DataError
from regard.training.data import Labelled, batches, deduplicate, read_labelled, split


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
