"""Word2Vec from outside: what it learns, what it refuses, what it repeats."""

import os
import subprocess
import sys

import numpy as np
import pytest

from regard.errors import DataError, OptionError
from regard.text import EncodedCorpus
from regard.vectors import Word2Vec, WordVectors

CLUSTERS, MEMBERS = 5, 7


def planted(lines=1500, seed=0):
    """Texts of words of one cluster each, and words that stand anywhere."""
    random = np.random.default_rng(seed)
    texts = []
    for _ in range(lines):
        cluster = random.integers(CLUSTERS)
        text = [f"c{cluster}w{member}" for member in random.integers(MEMBERS, size=9)]
        for place in random.integers(9, size=3):
            text[place] = f"any{random.integers(4)}"
        texts.append(text)
    return texts


def clusters_found(vectors):
    """The share of cluster words whose nearest cluster words are all of their own."""
    words = [f"c{c}w{m}" for c in range(CLUSTERS) for m in range(MEMBERS)]
    rows = np.stack([vectors[word] for word in words])
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    nearest = np.argsort(-(rows @ rows.T), axis=1)[:, :MEMBERS]
    own = np.arange(len(words))[:, None] // MEMBERS
    return (nearest // MEMBERS == own).all(axis=1).mean()


@pytest.mark.parametrize("mode", ["skipgram", "cbow"])
@pytest.mark.parametrize(
    "loss",
    [
        {},
        {"shared_negatives": False},
        {"negatives": 0, "hierarchical_softmax": True},
        {"hierarchical_softmax": True},
    ],
    ids=["negatives", "own-negatives", "tree", "both"],
)
def test_planted_clusters_are_found(mode, loss):
    model = Word2Vec(
        mode=mode, size=20, window=4, epochs=8, sample=0, alpha=0.08, threads=1, **loss
    )
    vectors = model.fit(planted(), progress=False)
    assert clusters_found(vectors) == 1
    training = vectors.extra["training"]
    for losses in training["loss"].values():
        assert len(losses) == 8
        assert losses[-1] < 0.97 * losses[0]
    assert training["words"] == 8 * 9 * 1500
    assert not training["stopped"]


def test_several_threads_find_the_clusters():
    vectors = Word2Vec(size=20, epochs=8, alpha=0.08, sample=0, threads=3).fit(
        planted(), progress=False
    )
    assert clusters_found(vectors) == 1


def test_corrected_gradient_of_cbow():
    model = Word2Vec(
        mode="cbow", size=20, cbow_gradient="mean", epochs=8, alpha=0.3, sample=0, threads=1
    )
    assert clusters_found(model.fit(planted(), progress=False)) == 1


def test_file_lists_and_corpus_give_the_same(tmp_path):
    texts = planted(200)
    file = tmp_path / "texts.txt"
    file.write_text("".join(" ".join(text) + "\n" for text in texts), encoding="utf-8")
    model = Word2Vec(size=11, epochs=2, threads=1)
    corpus = EncodedCorpus.build(file, tmp_path / "corpus", min_count=1, specials=())
    results = [
        model.fit(source, progress=False)
        for source in (file, str(file), texts, (text for text in texts), corpus)
    ]
    for other in results[1:]:
        assert list(other.tokens) == list(results[0].tokens)
        np.testing.assert_array_equal(other.matrix, results[0].matrix)
        np.testing.assert_array_equal(other.counts, results[0].counts)


def test_encoded_folder_is_used_again(tmp_path):
    file = tmp_path / "texts.txt"
    file.write_text("甲 乙 丙 丁\n" * 20, encoding="utf-8")
    model = Word2Vec(size=4, epochs=1, threads=1)
    model.fit(file, encoded=tmp_path / "corpus", progress=False)
    before = (tmp_path / "corpus" / "ids.bin").stat().st_mtime_ns
    model.fit(file, encoded=tmp_path / "corpus", progress=False)
    assert (tmp_path / "corpus" / "ids.bin").stat().st_mtime_ns == before


def test_one_thread_and_a_seed_repeat_to_the_bit_in_another_process():
    script = (
        "import hashlib, sys\n"
        "from regard.vectors import Word2Vec\n"
        "texts = [[f'w{(i * j) % 31}' for j in range(20)] for i in range(300)]\n"
        "for mode in ('skipgram', 'cbow'):\n"
        "    model = Word2Vec(mode=mode, size=24, threads=1, seed=int(sys.argv[1]))\n"
        "    matrix = model.fit(texts, progress=False).matrix\n"
        "    print(hashlib.sha256(matrix.tobytes()).hexdigest())\n"
    )

    def run(seed, order):
        done = subprocess.run(
            [sys.executable, "-c", script, str(seed)],
            env=os.environ | {"PYTHONHASHSEED": order},
            capture_output=True,
            text=True,
        )
        assert not done.stderr
        return done.stdout

    first = run(5, "1")
    assert run(5, "2") == first
    assert run(6, "1") != first


def test_training_continues_and_the_vocabulary_grows():
    first = Word2Vec(size=20, epochs=8, alpha=0.08, sample=0, threads=1, min_count=3).fit(
        planted(), progress=False, keep_output=True
    )
    more = [[*text, "fresh"] if text[0].startswith("c2") else text for text in planted(600, 1)]
    more += [["c1w1", "rare"]] * 2
    again = Word2Vec(size=20, epochs=4, alpha=0.05, sample=0, threads=1, min_count=3).fit(
        more, vectors=first, progress=False
    )
    assert list(again.tokens) == [*first.tokens, "fresh"]
    assert "rare" not in again
    assert clusters_found(again) == 1
    assert [n.token[:2] for n in again.nearest("fresh", top=MEMBERS)] == ["c2"] * MEMBERS
    assert again.counts[0] > first.counts[0]
    # Training went on from where it was: the loss begins far below that of a fresh run.
    fresh = Word2Vec(size=20, epochs=1, threads=1, min_count=3, sample=0).fit(more, progress=False)
    loss = again.extra["training"]["loss"]["negative_sampling"][0]
    assert loss < 0.8 * fresh.extra["training"]["loss"]["negative_sampling"][0]


def test_word_rarer_than_min_count_is_left_out():
    texts = [*planted(100), ["once", "c1w1", "c1w2"]]
    vectors = Word2Vec(size=5, epochs=1, min_count=2, threads=1).fit(texts, progress=False)
    assert "once" not in vectors
    assert "c1w1" in vectors


def test_result_saves_what_was_trained(tmp_path):
    vectors = Word2Vec(size=5, epochs=2, threads=1).fit(planted(100), progress=False)
    vectors.save(tmp_path / "v.safetensors")
    loaded = WordVectors.load(tmp_path / "v.safetensors")
    assert loaded.extra["training"]["settings"]["size"] == 5
    np.testing.assert_array_equal(loaded.matrix, vectors.matrix)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"mode": "skip-gram"}, "unknown mode 'skip-gram'; did you mean 'skipgram'?"),
        ({"windw": 4}, "unknown setting of Word2Vec 'windw'; did you mean 'window'?"),
        ({"cbow_gradient": "sum"}, "unknown cbow_gradient 'sum'; known: mean, word2vec"),
        ({"size": 0}, "size: input should be greater than or equal to 1, got 0"),
        ({"sample": -1.0}, "sample: input should be greater than or equal to 0, got -1.0"),
        ({"negatives": 0}, "negatives=0 without hierarchical_softmax leaves nothing to learn"),
        ({"alpha": 0.01, "min_alpha": 0.1}, "min_alpha=0.1 is above alpha=0.01"),
        ({"alpha": float("inf")}, "alpha: input should be a finite number, got inf"),
    ],
)
def test_settings_are_checked(settings, message):
    with pytest.raises(OptionError) as caught:
        Word2Vec(**settings)
    assert message in str(caught.value)


def test_texts_are_checked(tmp_path):
    model = Word2Vec(size=5, threads=1)
    with pytest.raises(DataError, match=r"item 0 is the string 'one two', not a list of tokens"):
        model.fit(["one two", "three"], progress=False)
    with pytest.raises(DataError, match=r"no word occurs min_count=5 times \(the most frequent"):
        model.fit([["a", "b", "a"]], progress=False)
    vectors = WordVectors(["a"], np.ones((1, 3), np.float32))
    with pytest.raises(OptionError, match=r"set size=3 to continue"):
        model.fit([["a"] * 9], vectors=vectors, progress=False)
    with pytest.raises(OptionError, match=r"resume=True needs checkpoint="):
        model.fit([["a"] * 9], resume=True, progress=False)
    with pytest.raises(OptionError, match=r"average_every must be 1 word or more, not 0"):
        model.fit([["a"] * 9], average_every=0, progress=False)
    for seconds in (-1.0, float("nan")):
        with pytest.raises(OptionError, match=r"checkpoint_every must be 0 seconds or more, not"):
            model.fit([["a"] * 9], checkpoint_every=seconds, progress=False)


def test_what_is_no_text_is_told_in_one_line():
    """In another process, since annotations are checked in this one."""
    script = (
        "from regard.errors import RegardError\n"
        "from regard.vectors import Word2Vec, WordVectors\n"
        "model = Word2Vec(size=3, min_count=1, threads=1, epochs=1)\n"
        "for source in (None, 3, b'a b', [3], [b'a b'], [[1, 'a']], [[None, 'a']], [[1, 2]],\n"
        "               [[b'a']], [[['a']]]):\n"
        "    try: model.fit(source, progress=False)\n"
        "    except RegardError as error: print(error)\n"
        "try: WordVectors.load('none', limit='3')\n"
        "except RegardError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert not done.stderr
    wrong = "a token that is no string but"
    for line, message in zip(
        done.stdout.splitlines(),
        (
            "nothing to train on in None; give a path, an encoded corpus, or lists of tokens",
            "nothing to train on in 3; ",
            "nothing to train on in b'a b'; ",
            "item 0 is 3, not a list of tokens",
            "item 0 is b'a b', not a list of tokens",
            f"a text holds 1, {wrong} int; turn tokens into strings first",
            f"a text holds None, {wrong} NoneType; ",
            f"a text holds 1, {wrong} int; ",
            f"a text holds b'a', {wrong} bytes; ",
            "item 0 is no list of strings: ",
            "limit must be a whole number, 0 or more, not '3'",
        ),
        strict=True,
    ):
        assert line.startswith(message)


def test_one_word_and_empty_lines():
    vectors = Word2Vec(size=5, threads=2, min_count=1, hierarchical_softmax=True).fit(
        [[], ["only", "only"], [], ["only"]], progress=False
    )
    assert list(vectors.tokens) == ["only"]
    assert np.isfinite(vectors.matrix).all()
