from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.errors import DataError, OptionError, ShapeError, StorageError
from regard.text import Vocabulary
from regard.text.counting import SHARDS, Census, Dictionary, pack, unpack
from regard.text.segmenters._segmenter import to_arrow

tokens = st.text(st.characters(exclude_categories=["Cs"]), max_size=9) | st.sampled_from(
    ["a", "b", "", "a\0", "\0", "1234567", "12345678", "洋葱洋", "<unk>", "<pad>"]
)
token_lists = st.lists(st.lists(tokens, max_size=9), max_size=5)


@given(token_lists, st.integers(1, 3), st.none() | st.integers(3, 6))
def test_counting_agrees_with_a_counter(texts, min_count, max_size):
    vocabulary = Vocabulary.count(iter(map(iter, texts)), min_count, max_size)
    truth = Counter(token for text in texts for token in text)
    ordinary = [(-n, t) for t, n in truth.items() if n >= min_count and t not in ("<unk>", "<pad>")]
    kept = [t for _, t in sorted(ordinary)][: None if max_size is None else max_size - 2]
    assert vocabulary.tokens == ["<pad>", "<unk>", *kept]
    assert vocabulary.counts[2:].tolist() == [truth[token] for token in kept]
    assert vocabulary.counts.sum() == truth.total()
    assert vocabulary.counts[0] == truth["<pad>"]


@given(token_lists)
def test_tokens_and_ids_are_one_to_one(texts):
    vocabulary = Vocabulary.count(texts)
    assert [vocabulary[token] for token in vocabulary.tokens] == list(range(len(vocabulary)))
    for text in texts:
        ids = vocabulary.encode(text)
        assert ids.dtype == np.int32
        assert vocabulary.decode(ids) == text
        assert all(token in vocabulary for token in text)


def test_unknown_tokens_with_and_without_unk():
    keeping = Vocabulary(["a", "b"], specials=("<pad>", "<unk>"))
    dropping = Vocabulary(["a", "b"])
    assert keeping.encode(["a", "x", "b"]).tolist() == [2, 1, 3]
    assert dropping.encode(["a", "x", "b"]).tolist() == [0, 1]
    assert (keeping.unknown, keeping.padding) == (1, 0)
    assert (dropping.unknown, dropping.padding) == (None, None)
    assert keeping["x"] == 1
    with pytest.raises(DataError, match=r"^token 'x' is not in the vocabulary of 2 tokens$"):
        dropping["x"]
    assert "x" not in keeping


@given(texts=token_lists)
def test_saved_and_loaded_it_is_the_same(texts, tmp_path_factory):
    path = tmp_path_factory.getbasetemp() / "vocabulary.json"
    vocabulary = Vocabulary.count(texts, specials=("<unk>", "<s>"))
    vocabulary.save(path)
    again = Vocabulary.load(path)
    assert again == vocabulary
    assert again.fingerprint() == vocabulary.fingerprint()


def test_equality_and_fingerprint_see_order_specials_and_counts():
    vocabulary = Vocabulary(["a", "b"], [2, 1])
    assert vocabulary == Vocabulary(["a", "b"], [2, 1])
    assert vocabulary != Vocabulary(["a", "b"], [2, 2])
    for other in (Vocabulary(["b", "a"], [2, 1]), Vocabulary(["b"], [2, 1], specials=["a"])):
        assert vocabulary != other
        assert vocabulary.fingerprint() != other.fingerprint()


@pytest.mark.parametrize(
    "content",
    ["", "{}", "[]", '{"tokens": ["a", "a"], "counts": [1, 1], "specials": []}', '{"tokens": 1}'],
)
def test_a_file_that_is_no_vocabulary(content, tmp_path):
    (tmp_path / "v.json").write_text(content)
    with pytest.raises(DataError, match=r"v\.json is not a vocabulary of regard: "):
        Vocabulary.load(tmp_path / "v.json")


def test_no_file(tmp_path):
    with pytest.raises(StorageError, match=r"^cannot read .*v\.json: no such file or directory$"):
        Vocabulary.load(tmp_path / "v.json")


def test_what_is_refused():
    with pytest.raises(OptionError, match=r"^min_count must be at least 1; it is 0$"):
        Vocabulary.count([["a"]], min_count=0)
    with pytest.raises(OptionError, match=r"^max_size must be more than the 2 special tokens; it"):
        Vocabulary.count([["a"]], max_size=2)
    with pytest.raises(OptionError, match=r"^specials= names a token twice: <s>, <s>$"):
        Vocabulary.count([["a"]], specials=("<s>", "<s>"))
    with pytest.raises(OptionError, match=r"^specials= takes a list of tokens; it got the string"):
        Vocabulary(["a"], specials="<unk>")
    with pytest.raises(OptionError, match=r"^id 3 is not in the vocabulary of 3 tokens$"):
        Vocabulary(["a", "b", "c"]).decode([0, 3])
    with pytest.raises(OptionError, match=r"^id -1 is not in the vocabulary of 3 tokens$"):
        Vocabulary(["a", "b", "c"]).decode([0, -1])
    with pytest.raises(DataError, match=r"^token 'a' stands twice in a vocabulary$"):
        Vocabulary(["a", "b", "a"])
    with pytest.raises(DataError, match=r"is the lone surrogate \\udc80"):
        Vocabulary.count([["a", "\udc80"]])
    with pytest.raises(DataError, match=r"^a text must be a string; it got 1, int$"):
        Vocabulary.count(iter([["a", 1]]))
    with pytest.raises(
        ShapeError, match=r"^decode takes a row of whole numbers; it got float64 of"
    ):
        Vocabulary(["a"]).decode([0.5])


def test_repr():
    assert repr(Vocabulary(["a"])) == "Vocabulary(1 tokens: 'a')"
    assert repr(Vocabulary(list("abcdefgh"))).endswith("'e', 'f', …)")


@given(st.lists(st.lists(st.tuples(tokens, st.integers(1, 9)), max_size=20), max_size=6))
def test_the_census_numbers_for_ever(batches):
    census = Census(merge_at=7)
    asked, numbers = [], []
    for batch in batches:
        dictionary, places = Dictionary.of(to_arrow([token for token, _ in batch]))
        counts = np.zeros(len(batch), np.int64)
        counts[places] = [count for _, count in batch]
        asked.extend(dictionary.tokens().to_pylist())
        numbers.extend(census.add(dictionary, counts))
    numbers.extend(census.finish())
    seen, distinct = census.seen, len(census)
    found, counts, all_numbers = census.total()
    truth = Counter()
    for batch in batches:
        for token, count in batch:
            truth[token] += count
    assert dict(zip(found.to_pylist(), counts.tolist(), strict=True)) == truth
    assert len(found) == distinct == len(truth)
    assert seen == truth.total()
    name_of = dict(zip(all_numbers.tolist(), found.to_pylist(), strict=True))
    assert [name_of[n] for n in np.concatenate([*numbers, []]).astype(int).tolist()] == asked


@pytest.mark.parametrize("form", ["w{}", "{}x", "a longer word, {}", "{} is longer", "洋葱洋葱{}"])
def test_the_shards_share_the_work(form):
    census = Census()
    dictionary, places = Dictionary.of(to_arrow([form.format(i) for i in range(16_000)]))
    census.add(dictionary, np.ones(len(places), np.int64))
    census.finish()
    sizes = np.bincount(census.total()[2] % SHARDS, minlength=SHARDS)
    # 1000 in each of the 16 for its kind; the memory of merging is that of the largest.
    assert sizes.max() < 2000


@given(st.lists(tokens.filter(lambda token: len(token.encode()) <= 7)))
def test_packing_loses_nothing(short):
    strings = [token.encode() for token in short]
    widths = np.array([len(s) for s in strings], np.int64)
    keys = pack(b"".join(strings) + bytes(8), np.cumsum(widths) - widths, widths)
    assert unpack(pa.array(keys)).to_pylist() == short
    assert len(set(keys.tolist())) == len(set(short))
