"""``regard vectors train``: its flags are the settings of Word2Vec, its result a file."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from regard.cli import main
from regard.vectors import Word2Vec, WordVectors

SMALL = ["--size", "8", "--min-count", "1", "--sample", "0", "--threads", "1", "--quiet"]


@pytest.fixture
def corpus(tmp_path):
    path = tmp_path / "corpus.txt"
    lines = ["北京 是 中国 的 首都", "东京 是 日本 的 首都", "猫 喜欢 吃 鱼", "狗 喜欢 吃 肉"]
    path.write_text("\n".join(lines * 50) + "\n", encoding="utf-8")
    return path


def train(*arguments):
    return main(["vectors", "train", *map(str, arguments)])


def test_flags_are_the_settings(corpus, tmp_path, capsys):
    output = tmp_path / "v.safetensors"
    assert train(corpus, "-o", output, *SMALL, "--mode", "cbow", "--window", 3, "--epochs", 2) == 0
    text = capsys.readouterr().out
    assert "negative sampling, mean loss of each epoch: " in text
    assert f"{output}: 13 words x 8, " in text
    vectors = WordVectors.load(output)
    settings = Word2Vec(
        size=8, min_count=1, sample=0, threads=1, mode="cbow", window=3, epochs=2
    )  # fmt: skip
    same = settings.fit(corpus, progress=False)
    assert vectors.tokens == same.tokens
    np.testing.assert_array_equal(vectors.matrix, same.matrix)
    assert vectors.extra["training"]["settings"]["window"] == 3


def test_other_formats_and_segmenters(tmp_path, capsys):
    (tmp_path / "raw.txt").write_text("我爱北京天安门\n" * 30, encoding="utf-8")
    flags = ["-o", tmp_path / "v.vec.gz", *SMALL, "--segmenter", "characters"]
    assert train(tmp_path / "raw.txt", *flags) == 0
    assert set(WordVectors.load(tmp_path / "v.vec.gz").tokens) == set("我爱北京天安门")
    capsys.readouterr()


def test_going_on_from_vectors(corpus, tmp_path, capsys):
    assert train(corpus, "-o", tmp_path / "a", *SMALL, "--keep-output") == 0
    (tmp_path / "more.txt").write_text("马 吃 草\n" * 50, encoding="utf-8")
    flags = [*SMALL[2:], "--vectors", tmp_path / "a"]
    assert train(tmp_path / "more.txt", "-o", tmp_path / "b", *flags) == 0
    grown = WordVectors.load(tmp_path / "b")
    assert grown.size == 8
    assert grown.tokens[:13] == WordVectors.load(tmp_path / "a").tokens
    assert set(grown.tokens[13:]) == {"马", "草"}
    capsys.readouterr()


def test_what_is_refused_is_one_line(corpus, tmp_path, capsys):
    output = tmp_path / "v.safetensors"
    for arguments, message in (
        ([corpus, "-o", output, "--size", "0"], "size: input should be greater than or equal to 1"),
        ([corpus, "-o", output, "--mode", "cbo"], "unknown mode 'cbo'; did you mean 'cbow'?"),
        ([corpus, "-o", output, "--segmenter", "jeba"], "did you mean 'jieba'?"),
        ([tmp_path / "none.txt", "-o", output], "none.txt"),
        ([corpus, "-o", output, "--min-count", "9999"], "min_count"),
        ([corpus, "-o", output, "--resume"], "needs checkpoint="),
        ([corpus, "-o", output, "--resume", "--checkpoint", tmp_path / "c"], "no checkpoint"),
        ([corpus, "-o", tmp_path / "v.pkl", *SMALL], "the suffix '.pkl' names no vector format"),
        ([corpus, "-o", output, "--average-every", "0"], "average_every must be 1 word or more"),
        ([corpus, "-o", output, "--errors", "ignore"], "known: replace, strict"),
        ([corpus, "-o", output, "--checkpoint", corpus], "would be lost"),
        ([corpus, "-o", tmp_path / "v.safetensors.gz"], "is not compressed"),
        ([corpus], "--output"),
    ):
        status = train(*arguments)
        output_text = capsys.readouterr()
        assert status == 2
        assert output_text.err.startswith("regard: ")
        assert output_text.err.count("\n") == 1
        assert message in output_text.err
    assert not output.exists()


def test_an_output_that_cannot_be_written_is_refused_before_training(corpus, tmp_path, capsys):
    encoded = tmp_path / "encoded"
    assert train(corpus, "-o", tmp_path / "v.pkl", "--encoded", encoded) == 2
    (tmp_path / "folder.bin").mkdir()
    assert train(corpus, "-o", tmp_path / "folder.bin", "--encoded", encoded) == 2
    assert "it is no ordinary file" in capsys.readouterr().err
    before = corpus.read_bytes()
    for source in (corpus, tmp_path, tmp_path / "*.txt"):
        assert train(source, "-o", corpus, "--encoded", encoded) == 2
        assert "is the text to train on, and would be lost" in capsys.readouterr().err
    assert corpus.read_bytes() == before
    assert not encoded.exists()


def test_vectors_that_the_format_cannot_hold_are_kept_beside_it(corpus, tmp_path, capsys):
    output = tmp_path / "v.bin"
    assert train(corpus, "-o", output, *SMALL, "--segmenter", "characters") == 2
    message = capsys.readouterr().err
    assert "the word ' ' holds a space" in message
    assert f"the vectors that were trained are kept in {output}.safetensors" in message
    assert message.count("\n") == 1
    assert not output.exists()
    assert " " in WordVectors.load(f"{output}.safetensors")


def test_text_comes_through_a_pipe(corpus, tmp_path):
    output = tmp_path / "v.safetensors"
    done = subprocess.run(
        [sys.executable, "-m", "regard", "vectors", "train", "-", "-o", str(output), *SMALL],
        input=corpus.read_bytes(),
        capture_output=True,
    )
    assert done.returncode == 0, done.stderr
    assert len(WordVectors.load(output)) == 13


@pytest.mark.skipif(os.name != "posix", reason="sends a signal")
def test_ctrl_c_keeps_the_vectors_so_far(corpus, tmp_path):
    output = tmp_path / "v.safetensors"
    command = [
        sys.executable, "-m", "regard", "vectors", "train", str(corpus), "-o", str(output),
        "--size", "50", "--min-count", "1", "--threads", "1", "--epochs", "1000000",
        "--checkpoint", str(tmp_path / "state"), "--checkpoint-every", "0.3",
    ]  # fmt: skip
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    until = time.monotonic() + 240
    while not (tmp_path / "state").exists() and time.monotonic() < until:
        time.sleep(0.1)
        assert process.poll() is None, process.communicate()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert "stopped early" in out
    assert "Traceback" not in err
    assert len(WordVectors.load(output)) == 13


@pytest.mark.slow
def test_two_processes_write_one_file(corpus, tmp_path):
    output = tmp_path / "v.safetensors"
    command = [
        sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
        "-m", "regard", "vectors", "train", str(corpus), "-o", str(output), *SMALL,
        "--average-every", "200",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("13 words x 8") == 1
    assert len(WordVectors.load(output)) == 13
