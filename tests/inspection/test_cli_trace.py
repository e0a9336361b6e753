"""``regard trace``: what it prints and writes, and what it refuses in one line."""

import io
import json

import pytest
from rich.cells import cell_len

from regard.cli import main
from regard.inspection import Trace


@pytest.fixture
def folder(tmp_path, small_model, words_tokenizer):
    folder = tmp_path / "model"
    small_model("bert", vocab_size=120, max_position_embeddings=40).save_pretrained(folder)
    words_tokenizer.save_pretrained(folder)
    return folder


def run(*arguments):
    return main([str(a) for a in arguments])


TEXT = "the fox 我喜欢吃洋葱"


def test_tokens_and_links_line_up(folder, capsys):
    assert run("trace", folder, TEXT, "--layer", 1, "--head", 3, "--verify") == 0
    out = capsys.readouterr().out
    assert "2 layers, 6 heads, 10 tokens" in out
    assert "layer 1, head 3" in out
    for token in ("[CLS]", "fox", "我", "葱"):
        assert token in out
    bars = [line for line in out.splitlines() if line.startswith(("│", "├", "└", "┏", "┡"))]
    widths = {cell_len(line) for line in bars if line.count("│") == 4 and "." in line}
    assert len(bars) > 20
    assert len(widths) <= 2  # the two tables, each of one width
    assert "verified: 96 rows in float64" in out


def test_words_without_special_tokens(folder, capsys):
    assert run("trace", folder, TEXT, "--units", "words", "--hide-special", "--renormalize") == 0
    out = capsys.readouterr().out
    assert "喜欢" in out
    assert "洋葱" in out
    assert "[CLS]" not in out
    assert "rows scaled to sum to one without them" in out


def test_arithmetic_of_one_weight(folder, capsys):
    assert run("trace", folder, TEXT, "--layer", 0, "--head", 2, "--arithmetic", "3,5") == 0
    out = capsys.readouterr().out
    assert "× scale" in out
    assert "weight · v" in out


def test_files_are_written(folder, tmp_path, capsys):
    names = ["a.png", "a.svg", "a.json", "a.html", "a.safetensors"]
    saves = [x for name in names for x in ("--save", tmp_path / name)]
    assert run("trace", folder, TEXT + " <b>&", *saves, "--head", 5, "--tokens", "1-9") == 0
    capsys.readouterr()
    assert {p.name for p in tmp_path.iterdir()} == {"model", *names}
    found = json.loads((tmp_path / "a.json").read_text(encoding="utf-8"))
    assert found["rows"][:4] == ["the", "fox", "我", "喜"]
    assert (found["layer"], found["head"], found["first_row"]) == (1, 5, 1)
    assert len(found["weights"]) == len(found["weights"][0]) == len(found["rows"]) == 9
    again = Trace.load(tmp_path / "a.safetensors")
    assert float(again.weights(1, 5, 2, 3)) == pytest.approx(found["weights"][1][2], abs=1e-5)
    page = (tmp_path / "a.html").read_text(encoding="utf-8")
    assert "<td" in page
    assert "<b>" not in page
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    drawing = (tmp_path / "a.svg").read_text(encoding="utf-8")
    assert "layer 1, head 5" in drawing  # matplotlib writes its texts beside their outlines
    assert "layer 0" not in drawing
    assert run("trace", tmp_path / "a.safetensors", "--head", 5) == 0
    assert "洋" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["TEXT", "--layer", "2"], "layer 2 is asked for"),
        (["TEXT", "--head", "6"], "head 6 is asked for"),
        (["  "], "the text is empty"),
        (["👩‍👩‍👧‍👦 " * 60], "the model reads at most 40; shorten it"),
        (["fox " * 60], "the text has 62 tokens, but the model reads at most 40; shorten it"),
        ([], "give a text"),
        (["TEXT", "--save", "a.gif"], "--save writes .png, .svg, .json, .html, .safetensors, not"),
        (["TEXT", "--tokens", "x"], "--tokens takes a range such as 10-40, got 'x'"),
        (["TEXT", "--tokens", "30-40"], "there are 0 … 9"),
        (["TEXT", "--arithmetic", "3"], "--arithmetic takes a row and a column such as 3,5"),
        (["TEXT", "--renormalize"], "--renormalize is for rows without special tokens"),
        (["TEXT", "--part", "cross"], "part 'cross' is asked for; the model has self"),
        (["TEXT", "--top", "-3"], "--top is a number of links, 0 or more, not -3"),
        (["TEXT", "--generate", "-1"], "generate= is a number of tokens, not -1"),
        (["\udcff a"], "the text is not valid Unicode"),
        (["TEXT", "--save", "/proc/a.json"], "/proc/a.json"),
        (["TEXT", "--target", "x"], "target= is for encoder–decoder models"),
    ],
)
def test_bad_input_is_one_line(folder, capsys, arguments, message):
    arguments = [TEXT if a == "TEXT" else a for a in arguments]
    assert run("trace", folder, *arguments) == 2
    said = capsys.readouterr()
    assert said.err.startswith("regard: ")
    assert message in said.err
    assert said.err.count("\n") == 1


def test_what_does_not_fit_a_picture_is_refused_before_anything_is_written(
    tmp_path, small_model, words_tokenizer, capsys
):
    folder = tmp_path / "model"
    small_model("bert", vocab_size=120).save_pretrained(folder)
    words_tokenizer.save_pretrained(folder)
    text, page = "fox " * 80, tmp_path / "a.json"
    assert run("trace", folder, text, "--save", page, "--save", tmp_path / "a.png") == 2
    said = capsys.readouterr()
    assert "82 × 82 cells are too many for a picture: it holds 64 a side; choose some" in said.err
    assert "(--tokens 0-63)" in said.err
    assert not page.exists()
    assert run("trace", folder, text, "--save", tmp_path / "a.png", "--tokens", "20-40") == 0


def test_a_folder_that_is_no_model(tmp_path, capsys):
    assert run("trace", tmp_path, "a") == 2
    assert "is not a model: it has no config.json" in capsys.readouterr().err
    assert run("trace", tmp_path / "none.safetensors") == 2
    assert "there is no file" in capsys.readouterr().err


def test_what_heads_do(folder, capsys):
    assert run("trace", folder, TEXT, "--summary") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split()[:4] == ["layer", "head", "diagonal", "entropy"]
    assert [line.split()[:2] for line in lines[2:]] == [
        [str(layer), str(head)] for layer in range(2) for head in range(6)
    ]


def test_texts_that_are_written(tmp_path, small_model, bytes_tokenizer, capsys):
    for family, settings in (("gpt2", ()), ("t5", ("--part", "cross"))):
        folder = tmp_path / family
        small_model(family, vocab_size=320).save_pretrained(folder)
        bytes_tokenizer.save_pretrained(folder)
        assert run("trace", folder, "the fox", "--generate", 3, *settings) == 0
        out = capsys.readouterr().out
        assert "note: the last generated token was written, not read, so it has no row" in out
    assert "cross of encoder, decoder, cross" in out
    assert run("trace", tmp_path / "t5", "the fox", "--target", "a dog", "--part", "decoder") == 0
    assert "decoder, layer 1, head 0" in capsys.readouterr().out


def test_texts_from_standard_input_and_texts_that_begin_with_a_hyphen(folder, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("the fox\n"))
    assert run("trace", folder, "-", "--top", 0) == 0
    assert "2 layers, 6 heads, 4 tokens" in capsys.readouterr().out
    assert run("trace", folder, "-5 fox", "--top", 0) == 0
    assert "layer 1, head 0" in capsys.readouterr().out
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    assert run("trace", folder, "-") == 2
    assert "the text is empty" in capsys.readouterr().err
    assert run("trace", folder, "the fox", "--heads", 3) == 2
    assert "--heads" in capsys.readouterr().err


def test_windows(folder, capsys):
    assert run("trace", folder, "the lazy dog jumps " * 20, "--windows", "--top", 1) == 0
    out = capsys.readouterr().out
    assert out.count("note: window of characters") > 2
