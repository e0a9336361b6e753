"""The commands, run as a person runs them: arguments in, text and files out."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from regard.cli import main

FAST = ["--segmenter", "characters", "--width", "12", "--heads", "3", "--layers", "1"]


@pytest.fixture(scope="module")
def run(tmp_path_factory, planted):
    folder = tmp_path_factory.mktemp("cli")
    table = planted(folder / "reviews.tsv", 120)
    flags = [*FAST, "--epochs", "6", "--learning-rate", "0.02", "--warmup", "5"]
    assert main(["train", "classify", str(table), "-o", str(folder / "run"), *flags]) == 0
    return folder / "run"


def test_train_writes_the_run_and_its_picture(run):
    names = {path.name for path in run.iterdir()}
    assert names >= {"config.json", "metrics.json", "model.safetensors", "vocabulary.json"}
    assert names >= {"training.png", "training.svg"}


def test_a_folder_may_be_called_like_markup(run, tmp_path, capsys):
    table, output = str(run.parent / "reviews.tsv"), tmp_path / "[b" / "]"
    assert main(["train", "classify", table, "-o", str(output), *FAST, "--epochs", "1"]) == 0
    assert "[b/]" in "".join(capsys.readouterr().out.split())


def test_predict_prints_a_line_a_text(run, capsys):
    assert main(["predict", str(run), "天地好人", "糟了"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("\t")[2] for line in lines] == ["天地好人", "糟了"]
    assert main(["predict", str(run), "天地好人", "--json", "--attention"]) == 0
    out = capsys.readouterr().out
    found = json.loads(out.splitlines()[0])
    assert sum(found["probabilities"].values()) == pytest.approx(1)
    assert "head 2" in out


def test_predict_reads_files_and_pipes(run, tmp_path):
    (tmp_path / "x.txt").write_text("天地好人\n糟了\n", encoding="utf-8")
    command = [sys.executable, "-m", "regard", "predict", str(run), "--file"]
    file = subprocess.run([*command, str(tmp_path / "x.txt")], capture_output=True, check=True)
    pipe = subprocess.run(
        [*command, "-"], input="天地好人\n糟了\n".encode(), capture_output=True, check=True
    )
    assert file.stdout == pipe.stdout
    assert len(file.stdout.splitlines()) == 2


@pytest.mark.parametrize("command", ["evaluate", "predict"])
def test_a_reader_that_goes_away_is_no_failure(run, command):
    reader, writer = os.pipe()
    os.close(reader)
    what = run / "test.jsonl" if command == "evaluate" else "天地好人"
    arguments = [sys.executable, "-m", "regard", command, str(run), str(what)]
    done = subprocess.run(arguments, stdout=writer, stderr=subprocess.PIPE)
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_terminal_without_chinese_gets_codes(run):
    command = [sys.executable, "-m", "regard", "predict", str(run), "天地好人"]
    environment = os.environ | {"PYTHONIOENCODING": "ascii"}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.rstrip().endswith("\\u5929\\u5730\\u597d\\u4eba")


def test_evaluate(run, capsys):
    table = str(run.parent / "reviews.tsv")
    assert main(["evaluate", str(run), table]) == 0
    assert "accuracy" in capsys.readouterr().out
    assert main(["evaluate", str(run), table, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["count"] == 120


def test_settings_come_from_toml_and_flags_go_before_it(run, tmp_path):
    (tmp_path / "x.toml").write_text(
        '[text]\nsegmenter = "characters"\n'
        "[encoder]\nwidth = 12\nheads = 2\n[training]\nepochs = 1\n"
    )
    table, output = str(run.parent / "reviews.tsv"), tmp_path / "run"
    arguments = ["train", "classify", table, "-o", str(output)]
    assert main([*arguments, "--config", str(tmp_path / "x.toml"), "--heads", "3"]) == 0
    config = json.loads((output / "config.json").read_text())
    assert (config["encoder"]["width"], config["encoder"]["heads"]) == (12, 3)
    assert config["training"]["epochs"] == 1


def test_plot_positions(tmp_path, capsys):
    output = tmp_path / "curve"
    arguments = ["plot", "positions", "--encoding", "sinusoidal", "--width", "20"]
    assert main([*arguments, "--length", "100", "--dims", "4-7", "-o", str(output)]) == 0
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "curve.svg").read_text().count("dim ") >= 4


def bad_input(tmp_path, run):
    """Command lines that cannot work, with what the one line must say."""
    good = str(run.parent / "reviews.tsv")

    def table(name, text):
        (tmp_path / name).write_text(text, encoding="utf-8")
        return str(tmp_path / name)

    train = ["train", "classify", "-o", str(tmp_path / "new"), "--width", "12"]
    unknown = table("unknown.tsv", "text\tlabel\n好\tugly\n")
    return [
        ([*train, good, "--label-column", "stars"], "has no column 'stars'; it has: text, label"),
        ([*train, table("a.tsv", "text\tlabel\na\tx\nb\tx\n")], "has only the label 'x'"),
        ([*train, table("b.tsv", "")], "b.tsv is empty"),
        (
            [*train, table("c.tsv", "text\tlabel\na\tx\nb\n")],
            "line 3 of c.tsv has 1 column, the he",
        ),
        ([*train, good, "--test", unknown], "has the label 'ugly'"),
        ([*train, good, "--position", "sinusoidl"], "did you mean 'sinusoidal'?"),
        ([*train, good, "--segmenter", "spaces"], "unknown segmenter 'spaces'"),
        ([*train, good, "--heads", "5"], "width=12 does not divide into heads=5"),
        ([*train, good, "--epochs", "many"], "epochs"),
        ([*train, good, "--config", str(tmp_path / "no.toml")], "no.toml"),
        ([*train, good, "--config", table("bad.toml", "x")], "bad.toml is not TOML"),
        ([*train, str(tmp_path / "nowhere.tsv")], "nowhere.tsv"),
        (train, "no texts to train on"),
        (["train", "classify", good, "-o", str(run)], "holds a finished run"),
        (["train", "classify", good, "-o", good], "reviews.tsv is a file; name a new folder"),
        (["evaluate", str(run), unknown], "unknown.tsv has the label 'ugly'"),
        (["evaluate", str(tmp_path / "no"), good], "is not a folder"),
        (["predict", str(tmp_path), "好"], "holds no finished model"),
        (["predict", str(run)], "give either texts or --file"),
        (["predict", str(run), ""], "has no tokens"),
        (["predict", str(run), "--file", table("empty.txt", "")], "empty.txt"),
        (["plot", "positions", "--dims", "7-4"], "which ends before it starts"),
        (["plot", "positions", "--dims", "x"], "--dims takes numbers and ranges"),
        (["plot", "positions", "--dims", "4-20"], "dims must be from 0 to 19"),
        (["plot", "positions", "--encoding", "rotary"], "adds nothing to the embedding"),
        (["plot", "positions", "-o", str(tmp_path / "x.gif")], "not '.gif'"),
        (["trian"], "Did you mean"),
        ([*train, good, "--config", table("x.toml", "data = 3")], "x.toml: data: input should be"),
        ([*train, good, "--config", table("y.toml", f"x = {'[' * 3000}")], "y.toml is not TOML"),
        ([*train, good, "--seed", str(2**63)], "seed: input should be less than 4294967296"),
        ([*train, good, "--learning-rate", "inf"], "learning_rate: input should be a finite"),
        ([*train, good, "--subwords", str(10**30)], "subwords: input should be less than"),
        ([*train, good, "--device", "hpu"], "device 'hpu' cannot be used"),
        (["train", "classify", good, "-o", "a" * 300], "file name too long"),
        (["plot", "positions", "--length", str(10**12)], "more than 100,000,000 numbers"),
        (["plot", "positions", "--dims", f"0-{10**12}"], "--dims goes up to 99,999,999"),
        (["plot", "positions", "-o", ""], "--output takes the name of a file"),
        (["predict", str(run), "好", "--column", "text"], "--column names a column of --file"),
        (["predict", "a" * 300, "好"], "file name too long"),
    ]


def test_bad_input_is_one_line_and_leaves_nothing(tmp_path, run, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for arguments, message in bad_input(tmp_path, run):
        before = set(tmp_path.rglob("*"))
        status = main(arguments)
        out, err = capsys.readouterr()
        assert status == 2, (arguments, out, err)
        assert err.startswith("regard: "), (arguments, err)
        assert err.count("\n") == 1, (arguments, err)
        assert message in err, (arguments, err)
        new = {path for path in set(tmp_path.rglob("*")) - before if path.is_file()}
        assert not new, (arguments, new)


@pytest.mark.skipif(sys.platform == "win32", reason="limits on file sizes are of Unix")
def test_a_disk_that_fills_is_one_line_and_leaves_no_half_file(tmp_path, planted):
    table = planted(tmp_path / "x.tsv", 60)
    code = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096)); "
        "from regard.cli import main; sys.exit(main(sys.argv[1:]))"
    )
    output = tmp_path / "run"
    done = subprocess.run(
        [sys.executable, "-c", code, "train", "classify", str(table), "-o", str(output), *FAST],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"},
        check=False,
    )
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith("regard: cannot write"), done.stderr
    assert done.stderr.count("\n") == 1
    assert not list(output.iterdir())


def test_ctrl_c_keeps_finished_epochs_and_says_how_to_go_on(tmp_path, planted):
    table, output = planted(tmp_path / "x.tsv", 100), tmp_path / "run"
    command = [sys.executable, "-m", "regard", "train", "classify", str(table), "-o", str(output)]
    # without an end: a text of its own in each batch, and no early stop
    endless = ["--epochs", "500", "--patience", "500", "--batch-tokens", "1"]
    process = subprocess.Popen(
        [*command, *FAST, *endless],
        stderr=subprocess.PIPE,
        text=True,
        # a shell that runs the tests in the background makes its children deaf to Ctrl-C
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    while not (output / "checkpoint.safetensors").exists():
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate()
    assert process.returncode == 130
    assert err.splitlines()[-2:] == [
        "finished epochs are kept: the same command goes on after them",
        "regard: stopped",
    ]
    assert [path.name for path in output.iterdir()] == ["checkpoint.safetensors"]


def test_the_notes_own_snippet(tmp_path):
    import matplotlib.figure
    import numpy as np
    import torch
    from torch.autograd import Variable

    from regard import PositionalEncoding

    pe = PositionalEncoding(20, 0)
    y = pe(Variable(torch.zeros(1, 100, 20)))
    axes = matplotlib.figure.Figure().add_subplot()
    axes.plot(np.arange(100), y[0, :, 4:8].data.numpy())
    axes.legend([f"dim {p}" for p in [4, 5, 6, 7]])
    assert len(axes.lines) == 4
