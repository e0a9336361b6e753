"""Looking up, comparing and searching, against plain NumPy and against gensim."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from gensim.models import KeyedVectors
from hypothesis import given
from hypothesis import strategies as st

from regard.errors import DataError, OptionError, ShapeError
from regard.vectors import word_vectors
from regard.vectors.subwords import Subwords
from regard.vectors.word_vectors import UnknownWordError, WordVectors

WORDS = ["的", "北京", "上海", "中国", "Paris", "paris", "巴黎", "法国", "东京", "日本", "大阪"]


@pytest.fixture
def vectors():
    matrix = np.random.default_rng(0).standard_normal((len(WORDS), 7)).astype(np.float32)
    return WordVectors(list(WORDS), matrix, np.arange(len(WORDS), 0, -1))


@pytest.fixture
def theirs(vectors):
    keyed = KeyedVectors(vectors.size)
    keyed.add_vectors(vectors.tokens, np.array(vectors.matrix))
    return keyed


def units(vectors):
    matrix = vectors.matrix.astype(np.float64)
    return matrix / np.linalg.norm(matrix, axis=1, keepdims=True)


# A cosine of unit vectors of D = 7 in float32: some D + 3 roundings of 2^-24.
ATOL = 10 * 2**-24


def test_look_up(vectors):
    assert len(vectors) == 11
    assert vectors.size == 7
    assert "北京" in vectors
    assert "北" not in vectors
    assert list(vectors) == WORDS
    np.testing.assert_array_equal(vectors["上海"], vectors.matrix[2])
    np.testing.assert_array_equal(vectors[["上海", "的"]], vectors.matrix[[2, 0]])
    assert vectors.get("北") is None
    assert repr(vectors) == "WordVectors(11 words x 7, float32)"
    with pytest.raises(ValueError, match="read-only"):
        vectors.matrix[0] = 0


def test_unknown_word_names_near_spellings(vectors):
    with pytest.raises(UnknownWordError) as caught:
        vectors["北京市"]
    assert str(caught.value) == "no vector for '北京市' among 11 words; near spellings: 北京"
    with pytest.raises(KeyError, match="near spellings: Paris, paris"):
        vectors.nearest("PARIS")
    with pytest.raises(UnknownWordError) as caught:
        vectors.similarity(["zzz", "的"], ["的", "qqq"])
    assert str(caught.value) == "no vector for 'zzz' among 11 words"
    with pytest.raises(UnknownWordError, match="and 2 more"):
        vectors[["a1", "a2", "a3", "a4", "a5", "a6", "a7"]]


def test_similarity(vectors, theirs):
    unit = units(vectors)
    assert vectors.similarity("北京", "上海") == pytest.approx(unit[1] @ unit[2], abs=ATOL)
    assert vectors.similarity("北京", "上海") == pytest.approx(
        float(theirs.similarity("北京", "上海")), abs=ATOL
    )
    pairs = vectors.similarity(["北京", "的"], ["上海", "的"])
    np.testing.assert_allclose(pairs, [unit[1] @ unit[2], 1], atol=ATOL)
    assert vectors.similarity(np.ones(7), np.ones(7)) == pytest.approx(1, abs=ATOL)
    with pytest.raises(ShapeError, match="1 words on one side, 2 on the other"):
        vectors.similarity("的", ["的", "北京"])


def test_nearest_as_gensim(vectors, theirs):
    for word in WORDS:
        ours, gensim = vectors.nearest(word, top=4), theirs.most_similar(word, topn=4)
        assert [n.token for n in ours] == [w for w, _ in gensim]
        np.testing.assert_allclose([n.similarity for n in ours], [s for _, s in gensim], atol=ATOL)
    batch = vectors.nearest(WORDS, top=4)
    for some, word in zip(batch, WORDS, strict=True):
        alone = vectors.nearest(word, top=4)
        assert [n.token for n in some] == [n.token for n in alone]
        np.testing.assert_allclose(
            [n.similarity for n in some], [n.similarity for n in alone], atol=ATOL
        )


def test_nearest_of_a_vector_and_more_than_there_are(vectors):
    found = vectors.nearest(vectors["东京"], top=50)
    assert found[0].token == "东京"
    assert found[0].similarity == pytest.approx(1, abs=ATOL)
    assert len(found) == 11
    assert len(vectors.nearest("东京", top=50)) == 10
    assert len(vectors.nearest(np.ones((3, 7)), top=2)) == 3


def test_restrict(vectors, theirs):
    for n in (1, 3, 5, 99):
        ours = vectors.nearest("日本", top=3, restrict=n)
        gensim = theirs.most_similar("日本", topn=3, restrict_vocab=n)
        assert [x.token for x in ours] == [w for w, _ in gensim]
    assert {n.token for n in vectors.nearest("日本", restrict=["大阪", "的", "日本"])} == {
        "大阪",
        "的",
    }
    assert vectors.nearest("日本", restrict=np.int64(5)) == vectors.nearest("日本", restrict=5)
    with pytest.raises(OptionError, match="restrict must be 1 or more"):
        vectors.nearest("日本", restrict=0)
    with pytest.raises(OptionError, match="top must be 1 or more"):
        vectors.nearest("日本", top=0)


def test_analogy_as_gensim(vectors, theirs):
    ours = vectors.analogy("日本", "东京", "法国", top=4)
    gensim = theirs.most_similar(positive=["东京", "法国"], negative=["日本"], topn=4)
    assert [n.token for n in ours] == [w for w, _ in gensim]
    np.testing.assert_allclose([n.similarity for n in ours], [s for _, s in gensim], atol=ATOL)
    assert vectors.analogy(positive=["东京", "法国"], negative=["日本"], top=4) == ours
    for wrong in ({"a": "日本"}, {}, {"a": "日本", "b": "东京", "c": "法国", "negative": ["的"]}):
        with pytest.raises(OptionError, match="an analogy takes three words"):
            vectors.analogy(**wrong)


def test_planted_analogy():
    matrix = np.array([[1, 0, 0], [1, 1, 0], [0, 0, 1], [0, 1, 1], [0.3, -1, 0]])
    vectors = WordVectors(["man", "king", "woman", "queen", "apple"], matrix)
    assert vectors.analogy("man", "king", "woman")[0].token == "queen"


def test_odd_one_out(vectors, theirs):
    for some in (WORDS[:4], WORDS[3:8], WORDS):
        assert vectors.odd_one_out(some) == theirs.doesnt_match(some)
    with pytest.raises(OptionError, match="needs words"):
        vectors.odd_one_out([])
    with pytest.warns(UserWarning, match="left out: xx"):
        assert vectors.doesnt_match([*WORDS[:4], "xx"]) == vectors.odd_one_out(WORDS[:4])


def test_most_similar_takes_what_gensim_takes(vectors, theirs):
    for arguments in (
        {"positive": "北京"},
        {"positive": ["北京", "日本"], "negative": "中国", "topn": 3},
        {"positive": [("北京", 0.5), "日本"], "negative": [("中国", -2.0)]},
        {"positive": [3, "日本"]},
        {"positive": [np.arange(7.0), "日本"]},
        {"positive": np.arange(7.0)},
        {"positive": "北京", "restrict_vocab": 4},
        {"positive": "北京", "clip_start": 3, "clip_end": 8},
        {"positive": "北京", "topn": 0},
    ):
        ours, gensim = vectors.most_similar(**arguments), theirs.most_similar(**arguments)
        assert [w for w, _ in ours] == [w for w, _ in gensim]
        np.testing.assert_allclose([s for _, s in ours], [s for _, s in gensim], atol=ATOL)
    np.testing.assert_allclose(
        vectors.most_similar("北京", topn=None), theirs.most_similar("北京", topn=None), atol=ATOL
    )
    with pytest.raises(OptionError, match="most_similar needs words"):
        vectors.most_similar()
    for row in (11, -12, 10**6):
        with pytest.raises(OptionError, match=f"no row {row} in a table of 11 words"):
            vectors.most_similar(row)
    with pytest.raises(ShapeError, match=r"has 7 numbers; what was given is of shape \(6,\)"):
        vectors.most_similar(np.ones(6))


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf, 1e300])
def test_a_query_that_is_not_finite_is_refused(vectors, number):
    query = np.full(7, number)
    for ask in (vectors.nearest, vectors.most_similar):
        with pytest.raises(DataError, match="the vector asked for holds a number that is not fin"):
            ask(query)
    with pytest.raises(DataError, match="is not finite in float32"):
        vectors.similarity(np.ones((2, 7)), np.stack([np.ones(7), query]))
    vectors["北京"] = np.full(7, np.nan)
    with pytest.raises(DataError, match="the vector of '北京' holds a number that is not finite"):
        vectors.nearest(["上海", "北京"])


@given(st.data())
def test_blocks_change_nothing(data):
    rows, size = data.draw(st.integers(1, 23)), data.draw(st.integers(1, 5))
    generator = np.random.default_rng(data.draw(st.integers(0, 99)))
    matrix = generator.integers(-2, 3, (rows, size)).astype(np.float64)
    vectors = WordVectors([f"w{i}" for i in range(rows)], matrix)
    queries = generator.integers(-2, 3, (3, size)).astype(np.float64)
    top = data.draw(st.integers(1, 7))
    block = word_vectors._BLOCK
    try:
        word_vectors._BLOCK = data.draw(st.integers(1, 30))
        vectors.refresh()
        found = vectors.nearest(queries, top=top)
    finally:
        word_vectors._BLOCK = block
    lengths = np.linalg.norm(matrix, axis=1) * np.linalg.norm(queries, axis=1)[:, None]
    cosines = queries @ matrix.T / np.where(lengths > 0, lengths, 1)
    for some, truth in zip(found, cosines, strict=True):
        expected = np.sort(truth)[::-1][:top]
        np.testing.assert_allclose([n.similarity for n in some], expected, atol=1e-12)
        own = [truth[int(n.token[1:])] for n in some]
        np.testing.assert_allclose([n.similarity for n in some], own, atol=1e-12)
        assert len({n.token for n in some}) == len(some)


def test_equal_words_stand_in_the_order_of_the_rows():
    vectors = WordVectors(["a", "b", "c", "d"], np.ones((4, 2)))
    assert [n.token for n in vectors.nearest("c", top=3)] == ["a", "b", "d"]
    assert [n.token for n in vectors.nearest("c", top=2)] == ["a", "b"]


def test_zero_vectors_are_similar_to_nothing():
    vectors = WordVectors(["a", "b"], np.array([[0, 0], [1, 2.0]]))
    assert vectors.similarity("a", "b") == 0
    assert vectors.nearest("a") == [("b", 0)]


def test_nothing_to_find():
    empty = WordVectors([], np.empty((0, 3), np.float32))
    assert empty.nearest(np.ones(3)) == []
    assert empty.tokens == []
    assert "a" not in empty
    one = WordVectors(["a"], np.ones((1, 3)))
    assert one.nearest("a") == []
    assert one.nearest([]) == []


def test_norms_follow_updates(vectors):
    before = vectors.norms
    assert vectors.norms is before
    vectors["上海"] = 3 * vectors["北京"]
    assert vectors.norms[2] == pytest.approx(3 * before[1], rel=1e-6)
    assert vectors.nearest("北京", top=1)[0] == ("上海", pytest.approx(1, abs=ATOL))
    vectors.update(["大阪", "天津"], np.stack([vectors["的"], vectors["北京"]]))
    assert vectors.tokens[-1] == "天津"
    assert len(vectors) == len(vectors.norms) == len(vectors.counts) == 12
    assert vectors.counts[-1] == 0
    assert {n.token for n in vectors.nearest("北京", top=2)} == {"上海", "天津"}
    assert vectors.nearest("的", top=1)[0].token == "大阪"
    with pytest.raises(ShapeError, match=r"of 2 words must be of shape \(2, 7\); they are of"):
        vectors.update(["a", "b"], np.ones((2, 6)))


def test_a_word_stands_in_a_table_once():
    with pytest.raises(DataError, match="2 rows repeat a word, such as 'a'; keep one row of each"):
        WordVectors(["a", "a", "b", "b"], np.ones((4, 2)))


def test_a_new_word_goes_behind_all_rows(tmp_path):
    """A mapped file of another writer may repeat a word: no row of it is overwritten."""
    path = tmp_path / "v.safetensors"
    WordVectors(["a", "x", "b"], np.eye(3)).save(path)
    path.write_bytes(path.read_bytes().replace(b"axb", b"aab"))
    vectors = WordVectors.load(path)
    with pytest.warns(UserWarning, match="1 of 3 rows repeat a word; a word means the first row"):
        vectors["c"] = np.array([4, 5, 6])
    assert vectors.tokens == ["a", "a", "b", "c"]
    assert vectors["a"].tolist() == [1, 0, 0]
    assert vectors["b"].tolist() == [0, 0, 1]
    assert vectors["c"].tolist() == [4, 5, 6]
    vectors["d"] = np.array([7, 8, 9])
    assert vectors[["c", "d"]].tolist() == [[4, 5, 6], [7, 8, 9]]


def test_the_callers_array_is_kept_and_may_be_changed_by_them():
    matrix = np.eye(3)
    vectors = WordVectors(["a", "b", "c"], matrix)
    assert np.shares_memory(vectors.matrix, matrix)
    vectors.nearest("a")
    matrix[1] = [5, 0, 0]
    vectors.refresh()
    assert vectors.nearest("a", top=1)[0] == ("b", pytest.approx(1))


def test_a_mapped_table_is_searched_without_a_copy(tmp_path):
    """Peak memory of a search over a table of 240 MB stays far under a second copy of it."""
    script = """
import resource, sys
import numpy as np
from regard.vectors.word_vectors import WordVectors

rows, size = 200_000, 300
matrix = np.memmap(sys.argv[1], np.float32, "w+", shape=(rows, size))
for start in range(0, rows, 10_000):
    matrix[start:start + 10_000] = np.random.default_rng(start).standard_normal((10_000, size))
matrix.flush()
del matrix
matrix = np.memmap(sys.argv[1], np.float32, "r", shape=(rows, size))
vectors = WordVectors([str(i) for i in range(rows)], matrix)
vectors.nearest("0", top=1)
anonymous = lambda: int(next(l for l in open("/proc/self/status") if "RssAnon" in l).split()[1])
import threading, time
peak, done = [anonymous()], False
start = peak[0]
def watch():
    while not done:
        peak[0] = max(peak[0], anonymous()); time.sleep(0.001)
thread = threading.Thread(target=watch); thread.start()
vectors.refresh()
found = vectors.nearest(["0", "199999"], top=3)
done = True; thread.join()
print((peak[0] - start) // 1024)
"""
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "table")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert int(done.stdout) < 100


def test_subwords_answer_for_unknown_words():
    buckets = np.random.default_rng(1).standard_normal((13, 4)).astype(np.float32)
    vectors = WordVectors(
        ["北京"], np.ones((1, 4), np.float32), subwords=Subwords(buckets, shortest=2, longest=3)
    )
    assert "南京" not in vectors
    assert vectors["南京"].shape == (4,)
    assert vectors.get("南京") is not None
    assert vectors.nearest("南京")[0].token == "北京"
    assert "with subwords" in repr(vectors)


def test_shapes_and_types_are_checked():
    for matrix, message in (
        (np.ones((2, 3)), r"of 1 words must be of shape \(1, size\); it is of shape \(2, 3\)"),
        (np.ones(3), r"it is of shape \(3,\)"),
        (np.ones((1, 3), int), "must hold floating-point numbers, not int64"),
    ):
        with pytest.raises(ShapeError, match=message):
            WordVectors(["a"], matrix)
    assert WordVectors(["a"], [[1.0, 2.0]], [3])["a"].tolist() == [1, 2]
    with pytest.raises(ShapeError, match=r"must be an array \(V, D\), or a list of V lists"):
        WordVectors(["a", "b"], [[1.0, 2.0], [3.0]])
    with pytest.raises(ShapeError, match="counts must be one number for each of 1 words"):
        WordVectors(["a"], np.ones((1, 3)), np.ones(2))
    with pytest.raises(ShapeError, match=r"has 3 numbers; what was given is of shape \(2,\)"):
        WordVectors(["a"], np.ones((1, 3))).nearest(np.ones(2))


def test_embedding_follows_a_vocabulary(vectors):
    layer = vectors.to_embedding()
    np.testing.assert_array_equal(layer.weight.detach().numpy(), vectors.matrix)
    assert layer.weight.requires_grad
    layer = vectors.to_embedding(["东京", "无", "的"], missing="zeros", freeze=True)
    assert not layer.weight.requires_grad
    np.testing.assert_array_equal(layer.weight[0], vectors["东京"])
    np.testing.assert_array_equal(layer.weight[2], vectors["的"])
    assert not layer.weight[1].any()
    layer = vectors.to_embedding(["无", "的"], missing="mean")
    np.testing.assert_allclose(layer.weight[0].detach(), vectors.matrix.mean(0), atol=1e-6)
    first, second = (vectors.to_embedding(["无", "有"], seed=5).weight for _ in range(2))
    assert torch.equal(first, second)
    assert not torch.equal(first, vectors.to_embedding(["无", "有"], seed=6).weight)
    with pytest.raises(OptionError, match="missing must be one of normal, zeros, mean"):
        vectors.to_embedding(missing="random")


def test_embedding_of_missing_words_has_the_spread_of_the_table():
    generator = np.random.default_rng(0)
    matrix = generator.standard_normal((500, 3)) * [1, 5, 0.2] + [4, 0, -1]
    vectors = WordVectors([f"w{i}" for i in range(500)], matrix)
    weight = vectors.to_embedding([f"x{i}" for i in range(4000)]).weight.detach().numpy()
    # Means and spreads of 4000 draws: within 5 standard errors, 1/63 and 1/89 of the spread.
    spread = matrix.std(0)
    assert (np.abs(weight.mean(0) - matrix.mean(0)) < 5 * spread / 63).all()
    assert (np.abs(weight.std(0) - spread) < 5 * spread / 89).all()


def test_embedding_padding_is_zero_and_stays(vectors):
    class Vocabulary:
        tokens = ("<pad>", "<unk>", "北京")
        padding = 0

    layer = vectors.to_embedding(Vocabulary())
    assert layer.padding_idx == 0
    assert not layer.weight[0].any()
    layer(torch.tensor([0, 2])).sum().backward()
    assert not layer.weight.grad[0].any()


def test_import_needs_no_torch():
    script = (
        "import sys; sys.modules['torch'] = None; "
        "import regard.vectors.word_vectors, regard.vectors.evaluation"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
