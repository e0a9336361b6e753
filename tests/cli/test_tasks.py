"""The commands for taggers, language models and encoder–decoders."""

import json
import subprocess
import sys

import pytest

from regard.cli import main

FAST = ["--width", "12", "--heads", "3", "--layers", "1", "--epochs", "2", "--warmup", "2"]
WORDS = {"天": "sky", "地": "earth", "人": "man", "大": "big"}


def made(folder, task):
    """A small file for a task."""
    path = folder / {"tag": "x.conll", "language": "x.txt", "sequence": "x.csv"}[task]
    chars = list(WORDS)
    texts = [
        "".join(chars[(i * 7 + j * j + i // 4) % 4] for j in range(3 + i % 5)) + chars[i % 4]
        for i in range(60)
    ]
    texts = list(dict.fromkeys(texts))
    if task == "tag":
        lines = ["".join(f"{c}\t{'n' if c < '天' else 'a'}\n" for c in text) for text in texts]
    elif task == "language":
        lines = texts
    else:
        lines = ["source,target", *(f"{t},{' '.join(map(WORDS.get, t))}" for t in texts)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tasks")
    for task in ("tag", "language", "sequence"):
        flags = {"sequence": ["--target.segmenter", "words"]}.get(task, [])
        flags += ["--segmenter", "characters"] if task == "tag" else []
        command = ["train", task, str(made(folder, task)), "-o", str(folder / task)]
        assert main([*command, *FAST, *flags]) == 0
    return folder


@pytest.mark.parametrize("task", ["tag", "language", "sequence"])
def test_train_writes_the_run_and_says_how_good_it_is(runs, task, tmp_path, capsys):
    names = {path.name for path in (runs / task).iterdir()}
    assert names >= {"config.json", "metrics.json", "model.safetensors", "vocabulary.json"}
    assert names >= {"training.png", "training.svg", "test.jsonl"}
    assert json.loads((runs / task / "config.json").read_text())["task"] == task
    command = ["train", task, str(made(tmp_path, task)), "-o", str(tmp_path / "run"), *FAST]
    flags = ["--segmenter", "characters"] if task == "tag" else []
    assert main([*command, *flags]) == 0
    out = capsys.readouterr().out
    baseline = {
        "tag": "the most frequent tag of each word",
        "language": "counts of pairs of tokens",
        "sequence": "the text itself, copied",
    }[task]
    assert baseline in out
    assert {"tag": "accuracy", "language": "perplexity", "sequence": "chrF"}[task] in out


@pytest.mark.parametrize("task", ["tag", "language", "sequence"])
def test_evaluate_measures_what_the_run_has_kept(runs, task, capsys):
    kept = str(runs / task / "test.jsonl")
    assert main(["evaluate", str(runs / task), kept, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found == json.loads((runs / task / "metrics.json").read_text())["test"]
    assert main(["evaluate", str(runs / task), kept]) == 0
    assert f"{found['count']:,}" in capsys.readouterr().out


def test_a_tagger_prints_a_line_a_token(runs, capsys):
    assert main(["predict", str(runs / "tag"), "天地", "人"]) == 0
    blocks = capsys.readouterr().out.split("\n\n")
    assert [line.split("\t")[0] for line in blocks[0].splitlines()] == ["天", "地"]
    assert [line.split("\t")[0] for line in blocks[1].splitlines()] == ["人"]
    assert main(["predict", str(runs / "tag"), "天地", "--json", "--attention"]) == 0
    out = capsys.readouterr().out
    found = json.loads(out.splitlines()[0])
    assert (found["tokens"], found["spans"]) == (["天", "地"], [[0, 1], [1, 2]])
    assert len(found["tags"]) == len(found["probabilities"]) == 2
    assert "head 2" in out


def test_an_encoder_decoder_prints_what_it_writes(runs, capsys):
    run = str(runs / "sequence")
    assert main(["predict", run, "天地", "人"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    assert main(["predict", run, "天地", "--json", "--beams", "3", "--attention"]) == 0
    out = capsys.readouterr().out
    found = json.loads(out.splitlines()[0])
    assert found["text"] == "天地"
    assert found.keys() == {"text", "target", "tokens", "log_probability", "ended"}
    assert "head 2" in out


def test_a_language_model_writes_on(runs, capsys):
    run = str(runs / "language")
    arguments = ["generate", run, "天地", "--tokens", "9", "--seed", "4"]
    assert main(arguments) == 0
    first = capsys.readouterr().out
    assert first.startswith("天地")
    assert main(arguments) == 0
    assert capsys.readouterr().out == first
    assert main([*arguments, "--json", "--temperature", "0", "--top", "2"]) == 0
    assert json.loads(capsys.readouterr().out).keys() == {"text", "generated"}
    assert main(["generate", run, "--tokens", "400", "--slide"]) == 0


def test_a_language_model_learns_from_a_pipe(tmp_path):
    path = made(tmp_path, "language")
    command = [sys.executable, "-m", "regard", "train", "language", "-", "-o", str(tmp_path / "r")]
    done = subprocess.run(
        [*command, *FAST], input=path.read_bytes(), capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert b"perplexity" in done.stdout


def test_settings_come_from_toml(tmp_path):
    (tmp_path / "x.toml").write_text(
        '[target]\nsegmenter = "words"\n[encoder]\nwidth = 12\nheads = 2\nlayers = 1\n'
        "[training]\nepochs = 1\n"
    )
    command = ["train", "sequence", str(made(tmp_path, "sequence")), "-o", str(tmp_path / "run")]
    flags = ["--config", str(tmp_path / "x.toml"), "--heads", "3", "--target.max-tokens", "11"]
    assert main([*command, *flags]) == 0
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert (config["encoder"]["heads"], config["text"]["segmenter"]) == (3, "characters")
    assert (config["target"]["segmenter"], config["target"]["max_tokens"]) == ("words", 11)
    assert config["training"]["label_smoothing"] == 0


def bad_input(tmp_path, runs):
    def file(name, text):
        (tmp_path / name).write_text(text, encoding="utf-8")
        return str(tmp_path / name)

    def train(task, *rest):
        return ["train", task, *rest, "-o", str(tmp_path / "new"), *FAST]

    tag, language, sequence = (str(runs / task) for task in ("tag", "language", "sequence"))
    return [
        (train("tag"), "no texts to train on; name a .jsonl file with lists tokens and tags"),
        (train("tag", file("a.conll", "天\tn\tx\n")), "line 1 of a.conll has 3 columns"),
        (train("tag", str(runs / "x.conll"), "--segmenter", "bpe"), "would cut new texts into"),
        (train("tag", file("b.conll", "")), "b.conll has no sentence"),
        (train("language", file("a.txt", "")), "a.txt has no text"),
        (train("language", str(runs / "x.csv")), "name one with column="),
        (train("language", str(runs / "x.txt"), "--max-tokens", "1"), "max_tokens of 2 or more"),
        (train("language", file("one.txt", "天\n")), "one.txt has 1 lines, too few to split off"),
        (train("sequence", str(runs / "x.csv"), "--source-column", "en"), "has no column 'en'"),
        (train("sequence", str(runs / "x.csv"), "--score", "location"), "take another score"),
        (train("sequence", file("a.csv", "source,target\na,\n")), "has an empty 'target'"),
        (
            train("sequence", str(runs / "x.csv"), "--normalizer", "hard"),
            "unknown normalizer 'hard'",
        ),
        (["predict", language, "天"], "holds a language model, which writes on: regard generate"),
        (["predict", tag, "天", "--beams", "2"], "--beams is for encoder–decoders"),
        (["predict", sequence, "天", "--beams", "0"], "beams"),
        (["predict", sequence, "天", "--beams", "99"], "less than the"),
        (["generate", tag, "天"], "holds a tagger, which does not write on: regard predict"),
        (["generate", language, "天", "--tokens", "300"], "reads 256 at once; ask for 255 at most"),
        (["generate", language, "天", "--tokens", "0"], "tokens= is at least 1"),
        (["generate", language, "天", "--temperature", "-1"], "temperature is 0 or more"),
        (["evaluate", sequence, str(runs / "x.txt")], "x.txt is no table"),
        (["evaluate", tag, str(runs / "x.csv")], "x.csv is no tagged text"),
    ]


def test_bad_input_is_one_line_and_leaves_nothing(tmp_path, runs, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for arguments, message in bad_input(tmp_path, runs):
        before = set(tmp_path.rglob("*"))
        status = main(arguments)
        out, err = capsys.readouterr()
        assert status == 2, (arguments, out, err)
        assert err.startswith("regard: "), (arguments, err)
        assert err.count("\n") == 1, (arguments, err)
        assert message in err, (arguments, err)
        new = {path for path in set(tmp_path.rglob("*")) - before if path.is_file()}
        assert not new, (arguments, new)
