"""``regard vectors``: what it prints, what it writes, what it refuses."""

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from rich.cells import cell_len

from regard.cli import main
from regard.cli.vectors import app
from regard.errors import DataError, OptionError, StorageError
from regard.vectors.word_vectors import WordVectors

GENSIM = Path(find_spec("gensim").origin).parent / "test" / "test_data"


def run(*arguments):
    app([str(a) for a in arguments], exit_on_error=False, result_action="return_value")


@pytest.fixture
def file(tmp_path):
    words = ["男人", "国王", "女人", "王后", "[bold]苹果", "apple"]
    matrix = np.array(
        [[1, 0, 0], [1, 1, 0], [0, 0, 1], [0, 1, 1], [0.3, -1, 0], [0.2, -1, 0]], np.float32
    )
    WordVectors(words, matrix, np.arange(6, 0, -1)).save(tmp_path / "v.safetensors")
    return tmp_path / "v.safetensors"


def assert_aligned(text):
    """Every line of each table takes the same number of columns, two for a Chinese character."""
    rules = [line for line in text.splitlines() if line and line[0] in "┃│┏├└┡"]
    assert rules
    widths = {cell_len(line) for line in rules}
    assert len(widths) == 1, text


def test_nearest(file, capsys):
    run("nearest", file, "apple", "--top", 2)
    text = capsys.readouterr().out
    assert "[bold]苹果" in text
    assert text.splitlines()[0].strip() == "apple"
    assert text.count("│ ") >= 2
    assert_aligned(text)
    run("nearest", file, "国王", "王后", "--top", 1, "--restrict", 4)
    text = capsys.readouterr().out
    assert [line.strip() for line in text.splitlines() if not set(line) & set("━┃│└┡")] == [
        "国王",
        "王后",
    ]


def test_analogy(file, capsys):
    run("analogy", file, "男人", "国王", "女人", "--top", 1)
    text = capsys.readouterr().out
    assert "男人 : 国王 = 女人 : ?" in text
    assert "│ 1 │ 王后 │" in text
    assert_aligned(text)


def test_unknown_words_and_files(file, tmp_path):
    with pytest.raises(DataError, match="no vector for '国' among 6 words; near spellings: 国王"):
        run("nearest", file, "国")
    with pytest.raises(StorageError, match="cannot be opened"):
        run("nearest", tmp_path / "none", "国")


def test_convert(file, tmp_path, capsys):
    target = tmp_path / "out.txt.gz"
    run("convert", file, target, "--dtype", "float64", "--save-counts", tmp_path / "counts")
    assert capsys.readouterr().out == f"{target}: 6 words x 3\n"
    original, converted = WordVectors.load(file), WordVectors.load(target)
    assert converted.tokens == original.tokens
    np.testing.assert_array_equal(converted.matrix, original.matrix)
    back = tmp_path / "back"
    run("convert", target, back, "--to", "safetensors", "--counts", tmp_path / "counts")
    np.testing.assert_array_equal(WordVectors.load(back).counts, original.counts)
    run("convert", file, tmp_path / "few.bin", "--limit", 2)
    assert WordVectors.load(tmp_path / "few.bin").tokens == ["男人", "国王"]


def test_convert_a_damaged_file(tmp_path, capsys):
    (tmp_path / "v.txt").write_text("5 2\na 1 2\nb 3 nan\nc 5 6\n")
    with pytest.raises(DataError, match="line 3, word 'b': nan is not a finite number"):
        run("convert", tmp_path / "v.txt", tmp_path / "w.bin")
    assert not (tmp_path / "w.bin").exists()
    run("convert", tmp_path / "v.txt", tmp_path / "w.bin", "--errors", "replace")
    warnings = capsys.readouterr().err.splitlines()
    assert len(warnings) == 2
    assert all(line.startswith("regard: warning: ") for line in warnings)
    assert "says 5 rows but it holds 3" in warnings[0]
    assert "1 rows left out (1 not finite)" in warnings[1]


def test_evaluate(file, tmp_path, capsys):
    (tmp_path / "pairs").write_text("男人\t国王\t5\n女人\t王后\t6\n男人\t王后\t1\na\tb\t3\n")
    (tmp_path / "questions").write_text(": 宫廷\n男人 国王 女人 王后\n男人 国王 女人 皇后\n")
    run("evaluate", file, tmp_path / "pairs", tmp_path / "questions")
    text = capsys.readouterr().out
    similarity, analogies = text.split("Analogies: ")
    assert "25.0%" in similarity
    assert "│ 宫廷" in analogies
    assert "100.0%" in analogies
    assert_aligned(similarity)
    assert_aligned(analogies)
    run("evaluate", file, tmp_path / "questions", "--count-unknown")
    assert "50.0%" in capsys.readouterr().out


def test_evaluate_with_the_sets_that_come_along(file, capsys):
    run("evaluate", file, "--chinese")
    text = capsys.readouterr().out
    assert "│ 国家与首都" in text
    assert_aligned(text)
    with pytest.raises(OptionError, match="no set to evaluate on: name files, or give --chinese"):
        run("evaluate", file)


def test_kinds_of_sets_are_told_apart(file, tmp_path):
    vectors = WordVectors(["a"], np.ones((1, 2)))
    vectors.save(tmp_path / "v")
    with pytest.raises(DataError, match="not one of its 999 pairs has two words with vectors"):
        run("evaluate", tmp_path / "v", GENSIM / "simlex999.txt")
    (tmp_path / "prose").write_text("just some prose here, and more\n")
    with pytest.raises(DataError, match="prose is no evaluation set: neither two words"):
        run("evaluate", tmp_path / "v", tmp_path / "prose")


def test_what_is_refused_is_one_line(file, tmp_path, capsys):
    (tmp_path / "v.txt").write_text("3 2\na 1 2\n")
    for arguments, message in (
        (["nearest", file, "国"], "no vector for '国' among 6 words; near spellings: 国王"),
        (["nearest", tmp_path / "v.txt", "a"], "its header says 3 rows but it holds 1"),
        (["nearest", tmp_path / "none", "a"], "cannot be opened: No such file or directory"),
        (["nearest", file, "国王", "--top", 0], "top must be 1 or more, not 0"),
        (["convert", file, tmp_path / "v.pkl"], "the suffix '.pkl' names no vector format"),
        (["convert", file, tmp_path / "w", "--to", "glov"], "did you mean 'glove'?"),
        (["convert", file, tmp_path / "w.txt", "--dtype", "int8"], "dtype must be float16"),
        (["evaluate", file], "no set to evaluate on"),
    ):
        status = main(["vectors", *map(str, arguments)])
        output = capsys.readouterr()
        assert status == 2
        assert output.err.startswith("regard: ")
        assert output.err.count("\n") == 1
        assert message in output.err
        assert output.out == ""
    assert not (tmp_path / "w.txt").exists()
