"""Every format against gensim and fastText's own files, and every kind of damage."""

import gzip
import struct
import warnings
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from gensim.models import FastText, KeyedVectors
from gensim.models.fasttext import load_facebook_model, save_facebook_model
from hypothesis import assume, given
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

from regard.errors import DataError, OptionError, StorageError
from regard.vectors import formats
from regard.vectors.count_file import read_counts, write_counts
from regard.vectors.word_vectors import WordVectors

GENSIM = Path(find_spec("gensim").origin).parent / "test" / "test_data"
NBSP = "New\u00a0York"
WORDS = ["的", "北京", NBSP, "naïve", "\u2028x", "𠮷", "a\u0085b"]


def table(words=WORDS, size=3, dtype=np.float32, seed=0):
    matrix = np.random.default_rng(seed).standard_normal((len(words), size)).astype(dtype)
    return WordVectors(list(words), matrix, np.arange(len(words), 0, -1))


def same(a, b):
    assert a.tokens == b.tokens
    assert a.matrix.dtype == b.matrix.dtype
    np.testing.assert_array_equal(a.matrix, b.matrix)


def message(path, **options):
    with pytest.raises(DataError) as caught:
        WordVectors.load(path, **options)
    text = str(caught.value)
    assert "\n" not in text
    assert path.name in text
    return text


# Round trips

SUFFIXES = [".txt", ".vec", ".bin", ".glove", ".safetensors", "", ".txt.gz", ".bin.zst", ".vec.zst"]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_save_and_load_give_the_same_table(tmp_path, suffix):
    vectors = table()
    vectors.save(tmp_path / f"v{suffix}")
    same(WordVectors.load(tmp_path / f"v{suffix}"), vectors)
    assert [p.name for p in tmp_path.iterdir()] == [f"v{suffix}"]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_one_word(tmp_path, suffix):
    vectors = table(["词"], size=1)
    vectors.save(tmp_path / f"v{suffix}")
    same(WordVectors.load(tmp_path / f"v{suffix}"), vectors)


@pytest.mark.parametrize("suffix", [s for s in SUFFIXES if "glove" not in s])
def test_empty_table(tmp_path, suffix):
    vectors = WordVectors([], np.empty((0, 5), np.float32))
    vectors.save(tmp_path / f"v{suffix}")
    loaded = WordVectors.load(tmp_path / f"v{suffix}")
    assert (len(loaded), loaded.size) == (0, 5)


def test_an_empty_table_has_no_size_in_glove(tmp_path):
    with pytest.raises(DataError, match="empty table cannot be saved without a header"):
        WordVectors([], np.empty((0, 5))).save(tmp_path / "v.glove")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("suffix", [".txt", ".safetensors", ".glove"])
def test_float64_keeps_every_digit(tmp_path, suffix):
    vectors = table(dtype=np.float64)
    vectors.save(tmp_path / f"v{suffix}")
    same(WordVectors.load(tmp_path / f"v{suffix}", dtype="float64"), vectors)


def test_float64_binary_is_asked_for_and_told_apart(tmp_path):
    vectors = table(dtype=np.float64, size=7)
    vectors.save(tmp_path / "single.bin")
    assert WordVectors.load(tmp_path / "single.bin").matrix.dtype == np.float32
    vectors.save(tmp_path / "double.bin", dtype="float64")
    same(WordVectors.load(tmp_path / "double.bin"), vectors)
    assert WordVectors.load(tmp_path / "double.bin", dtype="float32").matrix.dtype == np.float32


def test_text_is_parsed_in_the_target_type(tmp_path):
    (tmp_path / "v.txt").write_text("1 2\nw 0.1234567890123456 1e-30\n")
    double = WordVectors.load(tmp_path / "v.txt", dtype="float64").matrix
    assert double.tolist() == [[0.1234567890123456, 1e-30]]
    single = WordVectors.load(tmp_path / "v.txt").matrix
    np.testing.assert_array_equal(single, np.float32([[0.1234567890123456, 1e-30]]))


finite = st.floats(width=32, allow_nan=False, allow_infinity=False)
word = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters=" \t\n\r\v\f"), min_size=1
)


@given(st.lists(word, min_size=1, max_size=5, unique=True), st.data())
def test_any_words_and_numbers_survive(tmp_path_factory, words, data):
    size = data.draw(st.integers(1, 4))
    rows = data.draw(
        st.lists(
            st.lists(finite, min_size=size, max_size=size),
            min_size=len(words),
            max_size=len(words),
        )
    )
    vectors = WordVectors(words, np.array(rows, np.float32))
    folder = tmp_path_factory.mktemp("any")
    assume(not words[0].startswith("\ufeff"))  # refused by glove, tested below
    for name, form in (
        ("t", "word2vec_text"),
        ("b", "word2vec_binary"),
        ("g", "glove"),
        ("s", "safetensors"),
    ):
        vectors.save(folder / name, format=form)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if form == "glove" and size == 1:
                continue
            same(WordVectors.load(folder / name, format=form), vectors)


# gensim, both ways


@pytest.mark.parametrize("binary", [False, True])
@pytest.mark.parametrize("words", [WORDS, ["词"], []])
def test_gensim_reads_what_regard_writes(tmp_path, binary, words):
    vectors = table(words, size=5)
    path = tmp_path / ("v.bin" if binary else "v.txt")
    vectors.save(path, counts=tmp_path / "counts.txt")
    theirs = KeyedVectors.load_word2vec_format(path, binary=binary)
    assert theirs.index_to_key == vectors.tokens
    np.testing.assert_array_equal(theirs.vectors, vectors.matrix)
    if words != WORDS:
        return
    plain = table(["的", "北京"], size=5)
    plain.save(path, counts=tmp_path / "counts.txt")
    theirs = KeyedVectors.load_word2vec_format(path, tmp_path / "counts.txt", binary=binary)
    assert [theirs.get_vecattr(w, "count") for w in plain.tokens] == [2, 1]


@pytest.mark.parametrize("suffix", [".txt", ".bin", ".txt.gz"])
@pytest.mark.parametrize("words", [WORDS, ["词"], []])
def test_regard_reads_what_gensim_writes(tmp_path, suffix, words):
    theirs = KeyedVectors(5)
    matrix = np.random.default_rng(1).standard_normal((len(words), 5)).astype(np.float32)
    if words:
        theirs.add_vectors(words, matrix)
    path = tmp_path / f"v{suffix}"
    theirs.save_word2vec_format(str(path), binary=".bin" in suffix)
    ours = WordVectors.load(path)
    assert ours.tokens == words
    np.testing.assert_array_equal(ours.matrix, matrix)


# gensim 4.4 leaves the file open when it reads without a header.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_gensim_without_a_header_is_glove(tmp_path):
    theirs = KeyedVectors(4)
    theirs.add_vectors(["的", NBSP], np.random.default_rng(2).standard_normal((2, 4)))
    theirs.save_word2vec_format(str(tmp_path / "v.txt"), write_header=False)
    ours = WordVectors.load(tmp_path / "v.txt")
    assert ours.tokens == ["的", NBSP]
    np.testing.assert_array_equal(ours.matrix, theirs.vectors)
    theirs.save_word2vec_format(str(tmp_path / "back.txt"), write_header=False)
    again = KeyedVectors.load_word2vec_format(str(tmp_path / "back.txt"), no_header=True)
    ours.save(tmp_path / "ours.glove")
    back = KeyedVectors.load_word2vec_format(str(tmp_path / "ours.glove"), no_header=True)
    np.testing.assert_array_equal(back.vectors, again.vectors)


# What could be written but not read back


@pytest.mark.parametrize("name", ["v.safetensors.gz", "v.safetensors.zst", "v.gz"])
def test_the_own_format_is_not_compressed(tmp_path, name):
    packed = Path(name).suffix
    with pytest.raises(OptionError) as caught:
        table().save(tmp_path / name)
    assert "is opened without being read, so it is not compressed" in str(caught.value)
    assert f"leave out {packed}, or save as .txt{packed} or .bin{packed}" in str(caught.value)
    with pytest.raises(OptionError, match="is not compressed"):
        table().save(tmp_path / f"w{packed}", format="safetensors")
    assert list(tmp_path.iterdir()) == []
    table().save(tmp_path / "v.safetensors")
    data = gzip.compress((tmp_path / "v.safetensors").read_bytes())
    (tmp_path / "packed").write_bytes(data)
    assert "is compressed; unpack it first" in message(tmp_path / "packed")


def test_word2vec_binary_holds_no_float16(tmp_path):
    with pytest.raises(OptionError, match=r"holds float32 or float64, not float16; save float16"):
        table().save(tmp_path / "v.bin", dtype="float16")
    assert list(tmp_path.iterdir()) == []
    table(dtype=np.float16).save(tmp_path / "v.bin")
    assert WordVectors.load(tmp_path / "v.bin").matrix.dtype == np.float32
    table().save(tmp_path / "v.safetensors", dtype="float16")
    assert WordVectors.load(tmp_path / "v.safetensors").matrix.dtype == np.float16


@pytest.mark.parametrize("suffix", [".txt", ".bin", ".glove", ".safetensors"])
def test_half_a_surrogate_pair_is_not_saved(tmp_path, suffix):
    with pytest.raises(DataError, match=r"the word '\\ud800' cannot be written as UTF-8"):
        table(["a", "\ud800"]).save(tmp_path / f"v{suffix}")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("compress", [bytes, gzip.compress])
@pytest.mark.parametrize("text", ["2 2\n词 1 2\nb 3 4\n", "词 1 2\nb 3 4\n"])
def test_a_byte_order_mark_is_passed_over(tmp_path, text, compress):
    (tmp_path / "v").write_bytes(compress(text.encode("utf-8-sig")))
    assert WordVectors.load(tmp_path / "v").tokens == ["词", "b"]
    with pytest.raises(DataError, match=r"the first word, .* begins with a byte order mark"):
        table(["\ufeffa", "b"]).save(tmp_path / "w.glove")
    table(["b", "\ufeffa"]).save(tmp_path / "w.glove")
    assert WordVectors.load(tmp_path / "w.glove").tokens == ["b", "\ufeffa"]


# Recognition


def test_each_format_is_recognized_whatever_its_name(tmp_path):
    vectors = table(size=30)
    for name in ("word2vec_text", "word2vec_binary", "glove", "safetensors"):
        vectors.save(tmp_path / "anything.dat", format=name)
        assert type(formats.recognize(tmp_path / "anything.dat")) is formats.get(name)
        same(WordVectors.load(tmp_path / "anything.dat"), vectors)


def test_compression_is_recognized_whatever_its_name(tmp_path):
    vectors = table()
    vectors.save(tmp_path / "v.txt.gz")
    (tmp_path / "v.txt.gz").rename(tmp_path / "v.txt")
    same(WordVectors.load(tmp_path / "v.txt"), vectors)
    two = gzip.compress(b"2 1\na 1\n") + gzip.compress(b"b 2\n")
    (tmp_path / "two").write_bytes(two)
    assert WordVectors.load(tmp_path / "two").tokens == ["a", "b"]


def test_trailing_blanks_tabs_and_windows_line_ends(tmp_path):
    for text in (
        b"2 2\r\na 1 2\r\nb 3 4\r\n",
        b"2 2\na 1 2 \nb 3 4 \n",
        b"2 2\na\t1\t2\nb\t3\t4",
        b"2 2\na  1  2\n\nb 3 +4\n",
        b"2 2\na  1 2\nb   3 4\n",
        b"2 2\na \t1\t2\nb\t3\t4\n",
        b"2 2\n a 1 2\n  b 3 4\n",
    ):
        (tmp_path / "v").write_bytes(text)
        loaded = WordVectors.load(tmp_path / "v")
        assert loaded.tokens == ["a", "b"]
        assert loaded.matrix.tolist() == [[1, 2], [3, 4]]


def test_binary_with_and_without_line_breaks(tmp_path):
    rows = [np.float32([1, -2]).tobytes(), np.float32([3.5, 1e-7]).tobytes()]
    for between in (b"\n", b""):
        body = b"".join(w + b" " + r + between for w, r in zip([b"a", b"bc"], rows, strict=True))
        (tmp_path / "v.bin").write_bytes(b"2 2\n" + body)
        loaded = WordVectors.load(tmp_path / "v.bin")
        assert loaded.tokens == ["a", "bc"]
        np.testing.assert_array_equal(loaded.matrix, np.float32([[1, -2], [3.5, 1e-7]]))


def test_many_blocks(tmp_path, monkeypatch):
    monkeypatch.setattr("regard.vectors.formats._rows._BLOCK", 64)
    monkeypatch.setattr("regard.vectors.formats.word2vec_binary._BLOCK", 64)
    monkeypatch.setattr("regard.vectors.formats._rows._NUMBERS", 7)
    vectors = table([f"词{i}" for i in range(101)], size=3)
    for suffix in (".txt", ".bin", ".glove"):
        vectors.save(tmp_path / f"v{suffix}")
        same(WordVectors.load(tmp_path / f"v{suffix}"), vectors)
        assert WordVectors.load(tmp_path / f"v{suffix}", limit=50).tokens == vectors.tokens[:50]


@pytest.mark.parametrize("suffix", [".txt", ".bin", ".glove", ".safetensors"])
def test_limit(tmp_path, suffix):
    vectors = table(size=5)
    vectors.save(tmp_path / f"v{suffix}")
    for limit in (0, 1, 4, 7, 100):
        some = WordVectors.load(tmp_path / f"v{suffix}", limit=limit)
        assert some.tokens == WORDS[:limit]
        np.testing.assert_array_equal(some.matrix, vectors.matrix[:limit])


def test_unknown_formats_and_suffixes(tmp_path):
    with pytest.raises(OptionError) as caught:
        table().save(tmp_path / "v.pkl")
    assert "the suffix '.pkl' names no vector format; known: .bin, .glove" in str(caught.value)
    with pytest.raises(OptionError, match="unknown vector format 'word2vec_txt'; did you mean"):
        table().save(tmp_path / "v", format="word2vec_txt")
    with pytest.raises(OptionError, match="read only"):
        table().save(tmp_path / "v", format="fasttext_binary")
    with pytest.raises(StorageError, match=r"nothing\.txt cannot be opened: No such file"):
        WordVectors.load(tmp_path / "nothing.txt")
    with pytest.raises(StorageError, match="it is a folder"):
        WordVectors.load(tmp_path)
    (tmp_path / "folder.txt").mkdir()
    with pytest.raises(StorageError, match=r"cannot write .*folder\.txt"):
        table().save(tmp_path / "folder.txt")
    with pytest.raises(OptionError, match="dtype must be float16, float32 or float64"):
        WordVectors.load(tmp_path / "v", dtype="int8")
    with pytest.raises(OptionError, match="limit must be a whole number, 0 or more, not -1"):
        WordVectors.load(tmp_path / "v", limit=-1)
    with pytest.raises(OptionError, match="'strict', 'replace' or 'ignore'"):
        WordVectors.load(tmp_path / "v", errors="lenient")


# Bad files


def test_header_above_the_rows(tmp_path):
    path = tmp_path / "v.txt"
    path.write_text("5 2\na 1 2\nb 3 4\n")
    assert "its header says 5 rows but it holds 2" in message(path)
    with pytest.warns(UserWarning, match="says 5 rows but it holds 2; the rows that are there"):
        assert WordVectors.load(path, errors="replace").tokens == ["a", "b"]
    assert WordVectors.load(path, limit=2).tokens == ["a", "b"]


@pytest.mark.parametrize("text", ["5 3\n", "5 3", "5 3\n\n"])
def test_header_alone(tmp_path, text):
    path = tmp_path / "v.txt"
    path.write_text(text)
    assert "its header says 5 rows but it holds 0" in message(path)
    path.write_text(text.replace("5", "0"))
    assert WordVectors.load(path).matrix.shape == (0, 3)


def test_header_below_the_rows(tmp_path):
    path = tmp_path / "v.txt"
    path.write_text("1 2\na 1 2\nb 3 4\nc 5 6\n")
    assert "its header says 1 rows but it holds 3" in message(path)
    with pytest.warns(UserWarning, match="says 1 rows but it holds 3"):
        assert WordVectors.load(path, errors="ignore").tokens == ["a", "b", "c"]


def test_binary_header_above_and_below_the_rows(tmp_path):
    path = tmp_path / "v.bin"
    vectors = table(size=11)
    vectors.save(path)
    data = path.read_bytes()
    path.write_bytes(b"9" + data[1:])
    assert "its header says 9 rows but it holds 7" in message(path)
    path.write_bytes(b"4" + data[1:])
    assert "its header says 4 rows but it holds 7" in message(path)
    with pytest.warns(UserWarning, match="says 4 rows but it holds 7"):
        same(WordVectors.load(path, errors="replace"), vectors)


def test_row_with_too_few_numbers(tmp_path):
    path = tmp_path / "v.txt"
    path.write_text("3 3\na 1 2 3\n北京 3 4\nc 5 6 7\n")
    assert "line 3, word '北京': 2 numbers where 3 are expected; repair it" in message(path)
    with pytest.warns(UserWarning, match=r"1 rows left out \(1 with too few numbers\)"):
        assert WordVectors.load(path, errors="replace").tokens == ["a", "c"]
    path.write_text("a 1 2 3\nb 3 4\nc 5 6 7\n")
    assert "line 2, word 'b': 2 numbers where 3 are expected" in message(path)
    path.write_text("1 3\na 1 2\n")
    assert "line 2, word 'a': 2 numbers where 3 are expected" in message(path)


def test_word_that_is_no_number(tmp_path):
    path = tmp_path / "v.txt"
    for wrong in ("x2", "1_0", "0x10"):
        path.write_text(f"2 3\na 1 2 3\nb 1 {wrong} 3\n")
        assert f"line 3, word 'b': '{wrong}' is not a number" in message(path)


@pytest.mark.parametrize("bad", ["nan", "NaN", "inf", "-Infinity", "1e999"])
def test_numbers_that_are_not_finite(tmp_path, bad):
    path = tmp_path / "v.txt"
    path.write_text(f"2 2\na 1 2\nb 3 {bad}\n")
    assert f"line 3, word 'b': {bad} is not a finite number" in message(path)
    with pytest.warns(UserWarning, match="1 not finite"):
        assert WordVectors.load(path, errors="replace").tokens == ["a"]


def test_nan_in_binary(tmp_path):
    path = tmp_path / "v.bin"
    rows = np.float32([[1, 2], [3, np.nan], [5, 6]])
    path.write_bytes(
        b"3 2\n" + b"".join(b"w%d " % i + row.tobytes() + b"\n" for i, row in enumerate(rows))
    )
    assert "row 2, word 'w1': nan is not a finite number" in message(path)
    with pytest.warns(UserWarning, match="1 not finite"):
        loaded = WordVectors.load(path, errors="replace")
    assert loaded.tokens == ["w0", "w2"]
    assert loaded.matrix.tolist() == [[1, 2], [5, 6]]


@pytest.mark.parametrize("suffix", [".txt", ".bin", ".glove"])
@pytest.mark.parametrize(
    ("token", "what"),
    [("New York", "holds a space"), ("a\nb", "line break"), ("", "is empty"), ("a\tb", "tab")],
)
def test_words_that_a_format_cannot_hold_are_not_saved(tmp_path, suffix, token, what):
    path = tmp_path / f"v{suffix}"
    path.write_text("before")
    with pytest.raises(DataError) as caught:
        table(["a", token]).save(path)
    assert what in str(caught.value)
    assert repr(token) in str(caught.value)
    assert path.read_text() == "before"
    assert len(list(tmp_path.iterdir())) == 1
    table(["a", token]).save(tmp_path / "v.safetensors")
    assert WordVectors.load(tmp_path / "v.safetensors").tokens == ["a", token]


@pytest.mark.parametrize("suffix", [".txt", ".bin", ".glove", ".safetensors"])
def test_numbers_that_are_not_finite_are_not_saved(tmp_path, suffix):
    vectors = table()
    vectors[WORDS[2]] = np.array([1, np.inf, 2])
    with pytest.raises(DataError, match="holds a number that is not finite"):
        vectors.save(tmp_path / f"v{suffix}")
    assert list(tmp_path.iterdir()) == []


def test_a_word_with_spaces_is_all_before_the_last_numbers(tmp_path):
    path = tmp_path / "v.txt"
    path.write_text("a 1 2\n. . . 3 4\nb 7 8\nat name@domain.com 5 6\n")
    with pytest.warns(UserWarning, match=r"2 words hold a space, such as '\. \. \.'"):
        loaded = WordVectors.load(path)
    assert loaded.tokens == ["a", ". . .", "b", "at name@domain.com"]
    assert loaded.matrix.tolist() == [[1, 2], [3, 4], [7, 8], [5, 6]]


@pytest.mark.parametrize("suffix", [".txt", ".bin"])
def test_of_repeated_words_the_first_is_kept(tmp_path, suffix):
    path = tmp_path / f"v{suffix}"
    matrix = np.arange(8, dtype=np.float32).reshape(4, 2)
    WordVectors(["a", "b", "c", "d"], matrix).save(path)
    path.write_bytes(path.read_bytes().replace(b"\nc ", b"\na ").replace(b"\nd ", b"\na "))
    with pytest.warns(UserWarning, match="2 rows repeat a word, such as 'a'; the first"):
        loaded = WordVectors.load(path)
    assert loaded.tokens == ["a", "b"]
    assert loaded.matrix.tolist() == [[0, 1], [2, 3]]


@pytest.mark.parametrize("binary", [False, True])
def test_words_cut_within_a_character(tmp_path, binary):
    path = tmp_path / "v"
    cut = "北京".encode()[:-1]
    row = np.float32([1, 2]).tobytes() if binary else b"1 2"
    path.write_bytes(b"2 2\na " + row + b"\n" + cut + b" " + row + b"\n")
    text = message(path)
    assert f"the word {cut!r} is not UTF-8 (unexpected end of data at byte 3)" in text
    assert ("row 2" if binary else "line 3") in text
    assert WordVectors.load(path, errors="replace").tokens == ["a", "北\ufffd"]
    assert WordVectors.load(path, errors="ignore").tokens == ["a", "北"]


def test_truncated_binary(tmp_path):
    path = tmp_path / "v.bin"
    vectors = table(size=11)
    vectors.save(path)
    path.write_bytes(path.read_bytes()[:-60])
    assert "says 7 rows but it holds 5 whole; it ends within the word '𠮷'" in message(path)
    with pytest.warns(UserWarning, match="holds 5 whole"):
        assert WordVectors.load(path, errors="replace").tokens == WORDS[:5]


def test_truncated_compression(tmp_path):
    path = tmp_path / "v.txt.gz"
    table([f"w{i}" for i in range(500)], size=7).save(path)
    path.write_bytes(path.read_bytes()[:2000])
    text = message(path)
    assert "cannot be decompressed" in text or "its header says 500 rows" in text


def test_files_that_hold_no_vectors(tmp_path):
    path = tmp_path / "v.bin"
    for data in (
        b"\x89PNG\r\n\x1a\n" + bytes(100),
        b"plain prose, no numbers\n",
    ):
        path.write_bytes(data)
        assert f"is no file of word vectors: it begins with {data[:16]!r}" in message(path)
    path.write_bytes(b"\x80\x04pickled")
    assert "is a Python pickle, such as gensim's save() writes" in message(path)
    path.write_bytes(b"")
    assert "is empty" in message(path)
    path.write_bytes(b"2 0\n")
    assert "a vector holds 0 numbers" in message(path, format="word2vec_text")
    path.write_bytes(b"the 0.1 0.2\n")
    assert "where a header 'rows size' is expected" in message(path, format="word2vec_text")
    path.write_bytes(b"3 4\n" + b"\x00" * 200_000)
    assert "is no word2vec binary" in message(path, format="word2vec_binary")
    path.write_bytes(b"the 5000\nof 300\n")
    assert "a list of counts, not vectors" in message(path)


# safetensors


def test_own_format_is_a_safetensors_file(tmp_path):
    vectors = table()
    vectors.extra = {"output": np.ones((7, 3), np.float32), "window": 5}
    vectors.save(tmp_path / "v.safetensors")
    tensors = load_file(tmp_path / "v.safetensors")
    np.testing.assert_array_equal(tensors["vectors"], vectors.matrix)
    assert tensors["tokens"].tobytes().decode() == "".join(WORDS)
    loaded = WordVectors.load(tmp_path / "v.safetensors")
    assert loaded.counts.tolist() == vectors.counts.tolist()
    assert loaded.extra["window"] == 5
    np.testing.assert_array_equal(loaded.extra["output"], np.ones((7, 3)))


def test_own_format_refuses_what_it_cannot_hold(tmp_path):
    for extra, what in (({"a": {1, 2}}, "set"), ({"b": np.ones(2, complex)}, "complex128")):
        vectors = WordVectors(["a"], np.ones((1, 2)), extra=extra)
        with pytest.raises(DataError, match=f"cannot be saved: .*{what}"):
            vectors.save(tmp_path / "v.safetensors")
    assert list(tmp_path.iterdir()) == []


def test_own_format_is_mapped_not_read(tmp_path):
    table().save(tmp_path / "v.safetensors")
    loaded = WordVectors.load(tmp_path / "v.safetensors")
    base = loaded.matrix
    while not isinstance(base, np.memmap):
        base = base.base
    assert not loaded.matrix.flags.owndata
    loaded["的"] = np.zeros(3)
    same(WordVectors.load(tmp_path / "v.safetensors"), table())


def test_mapped_words_are_found_before_and_after_they_are_numbered(tmp_path):
    words = [f"词{i}" for i in range(70)]
    table(words).save(tmp_path / "v.safetensors")
    loaded = WordVectors.load(tmp_path / "v.safetensors")
    assert [loaded.row(word) for word in words] == list(range(70))
    for mapped in (WordVectors.load(tmp_path / "v.safetensors"), loaded):
        assert mapped.row("无") is None
        assert mapped.row("\ud800") is None
        assert "词69" in mapped
        assert 5 not in mapped
        assert mapped.nearest("词7", top=1) == loaded.nearest("词7", top=1)
        with pytest.raises(KeyError, match="no vector for '词70'"):
            mapped["词70"]


def test_foreign_and_damaged_safetensors(tmp_path):
    path = tmp_path / "v.safetensors"
    save_file({"weight": np.ones((2, 3), np.float32)}, path)
    assert "holds tensors (weight) but no words" in message(path)
    table(size=50).save(path)
    data = path.read_bytes()
    path.write_bytes(data[:-1])
    assert "is cut: its tensor" in message(path)
    path.write_bytes(data[:100])
    assert "its header is damaged or cut" in message(path)
    path.write_bytes(data.replace(b'"version\\": 1', b'"version\\": 9'))
    assert "saved by a newer regard (format 9, this one knows up to 1)" in message(path)


# fastText


@pytest.fixture(scope="module")
def fasttext(tmp_path_factory):
    sentences = [["北京", "是", "中国", "首都"], ["naïve", "Bayes", "是", "分类器"]] * 20
    model = FastText(
        sentences, vector_size=7, min_count=1, bucket=53, min_n=2, max_n=4, epochs=2, seed=3,
        workers=1,
    )  # fmt: skip
    path = tmp_path_factory.mktemp("fasttext") / "model.bin"
    save_facebook_model(model, str(path))
    return path


def test_fasttext_binary_as_gensim_reads_it(fasttext):
    theirs = load_facebook_model(str(fasttext)).wv
    ours = WordVectors.load(fasttext)
    assert ours.tokens == theirs.index_to_key
    assert ours.counts.tolist() == [theirs.get_vecattr(w, "count") for w in ours.tokens]
    # A mean of at most 12 numbers of size under 1 in float32: 12 roundings of 2^-24 each.
    np.testing.assert_allclose(ours.matrix, theirs.vectors, rtol=0, atol=12 * 2**-24)
    for unknown in ("北京市", "naïveté", "𠮷野家", "x"):
        assert unknown not in ours
        np.testing.assert_allclose(ours[unknown], theirs[unknown], rtol=0, atol=12 * 2**-24)
    assert ours.nearest("北京市", top=1)[0].token in ours


def test_fasttext_line_end_has_no_ngrams(tmp_path):
    sentences = [["北京", "是", "首都", "</s>"]] * 9
    model = FastText(sentences, vector_size=5, min_count=1, bucket=53, epochs=1, workers=1)
    save_facebook_model(model, str(tmp_path / "v.bin"))
    own_row = model.wv.vectors_vocab[model.wv.key_to_index["</s>"]]
    np.testing.assert_array_equal(WordVectors.load(tmp_path / "v.bin")["</s>"], own_row)


def test_fasttexts_own_files_agree():
    """The .bin and the .vec of one run of Facebook's program, in Russian and English."""
    binary = WordVectors.load(GENSIM / "crime-and-punishment.bin")
    text = WordVectors.load(GENSIM / "crime-and-punishment.vec")
    assert binary.tokens == text.tokens
    # The .vec has five significant digits of numbers below 1.
    np.testing.assert_allclose(binary.matrix, text.matrix, rtol=0, atol=0.51e-5)


def test_fasttext_survives_the_own_format(fasttext, tmp_path):
    ours = WordVectors.load(fasttext)
    ours.save(tmp_path / "v.safetensors")
    back = WordVectors.load(tmp_path / "v.safetensors")
    same(back, ours)
    np.testing.assert_array_equal(back["北京市"], ours["北京市"])


def test_fasttext_compressed_limited_and_converted(fasttext, tmp_path):
    whole = WordVectors.load(fasttext)
    (tmp_path / "v.bin.gz").write_bytes(gzip.compress(fasttext.read_bytes()))
    same(WordVectors.load(tmp_path / "v.bin.gz"), whole)
    some = WordVectors.load(fasttext, limit=2, dtype="float64")
    assert some.tokens == whole.tokens[:2]
    np.testing.assert_array_equal(some.matrix, whole.matrix[:2].astype(np.float64))


def test_bad_fasttext_files(fasttext, tmp_path):
    data = fasttext.read_bytes()
    path = tmp_path / "v.bin"
    path.write_bytes(data[:70])
    assert "is cut: it ends after 70 bytes, within its settings" in message(path)
    path.write_bytes(data[:110])
    assert "within its dictionary, after" in message(path)
    path.write_bytes(b"")
    assert "lacks the mark at its start" in message(path, format="fasttext_binary")
    for entries in (-1, 2**31 - 1):
        path.write_bytes(data[:64] + struct.pack("<i", entries) + data[68:])
        assert f"among {entries} entries, in {len(data)} bytes" in message(path)
    path.write_bytes(data[:400])
    assert "rows of its matrix" in message(path)
    path.write_bytes(data[:-1])
    assert "ends within its output matrix, which vectors do not need" in message(path)
    same(WordVectors.load(path, errors="replace"), WordVectors.load(fasttext))
    path.write_bytes(data[:4] + struct.pack("<i", 99) + data[8:])
    assert "fastText format version 99; known: 11, 12" in message(path)
    path.write_bytes(data[8:])
    assert "a fastText model of a version older than 11, of before 2017" in message(path)
    assert "known: 11, 12" in message(path)
    path.write_bytes(data[8:30])
    assert "is no file of word vectors" in message(path)
    words = sum(len(w.encode()) + 10 for w in WordVectors.load(fasttext).tokens)
    path.write_bytes(data[: 92 + words] + b"\x01" + data[93 + words :])
    assert "is a quantized fastText model (.ftz)" in message(path)
    path.write_bytes(data.replace("首都".encode(), "首".encode() + b"\xe9\x83\xfd"))
    assert "is not UTF-8" in message(path)
    assert "首\ufffd" in "".join(WordVectors.load(path, errors="replace").tokens)


# Counts


def test_counts_beside_vectors(tmp_path):
    vectors = table(["的", NBSP, "北京"])
    vectors.save(tmp_path / "v.txt", counts=tmp_path / "counts.gz")
    loaded = WordVectors.load(tmp_path / "v.txt", counts=tmp_path / "counts.gz")
    assert loaded.counts.tolist() == [3, 2, 1]
    write_counts(tmp_path / "few", ["的"], np.array([3]))
    with pytest.raises(DataError, match="no count for 2 of the 3 words, such as 'New"):
        WordVectors.load(tmp_path / "v.txt", counts=tmp_path / "few")
    lenient = WordVectors.load(tmp_path / "v.txt", counts=tmp_path / "few", errors="replace")
    assert lenient.counts.tolist() == [3, 0, 0]
    spaced = table(["New York"])
    with pytest.raises(DataError, match="the word 'New York' holds a space"):
        spaced.save(tmp_path / "x.safetensors", counts=tmp_path / "c")
    with pytest.raises(StorageError, match=r"cannot write .*: it is no ordinary file"):
        vectors.save(tmp_path / "x.safetensors", counts=tmp_path)
    assert not (tmp_path / "x.safetensors").exists()
    with pytest.raises(OptionError, match="no counts to write"):
        WordVectors(["a"], np.ones((1, 2))).save(tmp_path / "x.txt", counts=tmp_path / "c")


def test_bad_count_files(tmp_path):
    path = tmp_path / "counts"
    path.write_text("的 5\n北京\n")
    with pytest.raises(DataError, match="line 2: '北京' where a word and a whole number"):
        read_counts(path)
    path.write_bytes("的 5\n".encode() + b"\xe5 3\n")
    with pytest.raises(DataError, match="is not UTF-8"):
        read_counts(path)
    assert read_counts(path, "replace") == {"的": 5, "\ufffd": 3}
