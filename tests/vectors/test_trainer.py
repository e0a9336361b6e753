"""Long runs: checkpoints, death, Ctrl-C, exact shares."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from regard.errors import DataError, OptionError, StorageError
from regard.vectors import Word2Vec, WordVectors
from regard.vectors.encoding import encode_lists, merge_words
from regard.vectors.kernels.state import DONE
from regard.vectors.trainer import Trainer, _constant, _let_go

TEXTS = [[f"w{(i * j) % 31}" for j in range(20)] for i in range(300)]

SCRIPT = """
import sys
from regard.vectors import Word2Vec
texts = [[f"w{(i * j) % 31}" for j in range(20)] for i in range(3000)]
model = Word2Vec(size=24, epochs=int(sys.argv[2]), threads=1)
print("begin", flush=True)
vectors = model.fit(
    texts, checkpoint=sys.argv[1], checkpoint_every=0.0, resume="resume" in sys.argv
)
vectors.save(sys.argv[1] + ".result.safetensors")
"""


def start(*arguments):
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for(path, process):
    until = time.monotonic() + 120
    while not path.exists():
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < until, "no checkpoint came"
        time.sleep(0.02)


def test_killed_and_resumed_gives_the_same_to_the_bit(tmp_path):
    file = tmp_path / "run"
    process = start(file, 60)
    wait_for(file, process)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert not (tmp_path / "run.result.safetensors").exists()
    resumed = start(file, 60, "resume")
    _, problems = resumed.communicate()
    assert resumed.returncode == 0, problems
    assert not file.exists()
    texts = [[f"w{(i * j) % 31}" for j in range(20)] for i in range(3000)]
    whole = Word2Vec(size=24, epochs=60, threads=1).fit(texts, progress=False)
    loaded = WordVectors.load(tmp_path / "run.result.safetensors")
    np.testing.assert_array_equal(loaded.matrix, whole.matrix)
    losses = [v.extra["training"]["loss"]["negative_sampling"] for v in (loaded, whole)]
    assert losses[0] == losses[1]


def test_interrupt_leaves_usable_vectors_and_a_checkpoint(tmp_path):
    file = tmp_path / "run"
    process = start(file, 100_000)
    wait_for(file, process)
    process.send_signal(signal.SIGINT)
    _, problems = process.communicate()
    assert process.returncode == 0
    assert "the vectors so far are kept" in problems
    loaded = WordVectors.load(tmp_path / "run.result.safetensors")
    assert loaded.extra["training"]["stopped"]
    assert np.isfinite(loaded.matrix).all()
    assert file.exists()


def trainer(texts=TEXTS, **settings):
    corpus = encode_lists(texts)
    model = Word2Vec(**({"size": 5, "epochs": 2, "min_count": 1} | settings))
    return Trainer(model, corpus, merge_words(corpus, 1, None), None, None, 1000)


@pytest.mark.parametrize("threads", [1, 2, 7])
def test_each_word_is_done_once_an_epoch(threads):
    run = trainer(threads=threads)
    assert run.parts[0][0] == 0
    assert run.parts[-1][1] == 6000
    for (_, end), (begin, _) in zip(run.parts, run.parts[1:], strict=False):
        assert end == begin
    run.run(progress=False)
    for worker, (begin, end) in zip(run.workers, run.parts, strict=True):
        assert worker.counts[DONE] == 2 * (end - begin)


def test_more_threads_than_words():
    vectors = Word2Vec(size=5, min_count=1, threads=9, epochs=1).fit([["a", "b"]], progress=False)
    assert len(vectors) == 2


def test_progress_of_a_run_that_is_no_terminal_is_silent_for_a_minute(capsys):
    trainer(threads=1).run(progress=True)
    captured = capsys.readouterr()
    assert captured.out == captured.err == ""


def test_a_checkpoint_fits_only_its_own_run(tmp_path):
    file = tmp_path / "run"
    run = trainer(threads=1)
    run.keep(file, 0.0, resume=False)
    run._write()
    other = trainer(threads=1, window=3)
    with pytest.raises(DataError, match=r"was written with window=5, this run has window=3"):
        other.keep(file, 0.0, resume=True)
    with pytest.raises(StorageError, match=r"no checkpoint to resume from at"):
        run.keep(tmp_path / "none", 0.0, resume=True)
    (tmp_path / "text").write_text("no checkpoint")
    with pytest.raises(DataError, match=r"is no checkpoint of word2vec training"):
        run.keep(tmp_path / "text", 0.0, resume=True)
    save_file({"a": np.zeros(1)}, tmp_path / "tensors")
    with pytest.raises(DataError, match=r"is no checkpoint of word2vec training"):
        run.keep(tmp_path / "tensors", 0.0, resume=True)
    save_file({"a": np.zeros(1)}, tmp_path / "old", {"regard": "word2vec checkpoint 2"})
    with pytest.raises(DataError, match=r"is a checkpoint of another version of regard \("):
        run.keep(tmp_path / "old", 0.0, resume=True)
    backwards = trainer([text[::-1] for text in TEXTS], threads=1)
    assert backwards.words.tokens == run.words.tokens
    with pytest.raises(DataError, match=r"was written for another text; give the same text, or"):
        backwards.keep(file, 0.0, resume=True)
    regrouped = trainer([TEXTS[0] + TEXTS[1], *TEXTS[2:]], threads=1)
    with pytest.raises(DataError, match=r"was written for another text"):
        regrouped.keep(file, 0.0, resume=True)
    trainer(threads=1).keep(file, 0.0, resume=True)


def test_any_tokens_are_resumed(tmp_path):
    texts = [["a\nb", "c", "", "词", "\ud800"]] * 9
    run = trainer(texts, threads=1)
    run.keep(tmp_path / "run", 0.0, resume=False)
    run._write()
    again = trainer(texts, threads=1)
    again.keep(tmp_path / "run", 0.0, resume=True)
    np.testing.assert_array_equal(again.tables.input, run.tables.input)


def test_a_file_that_is_no_checkpoint_is_not_touched(tmp_path):
    precious = tmp_path / "precious.txt"
    precious.write_text("years of work")
    model = Word2Vec(size=5, threads=1)
    read = []
    texts = (read.append(text) or text for text in TEXTS)
    with pytest.raises(DataError, match=r"precious\.txt is no checkpoint .*, and would be lost"):
        model.fit(texts, checkpoint=precious, progress=False)
    save_file({"a": np.zeros(1)}, tmp_path / "tensors")
    with pytest.raises(DataError, match="would be lost"):
        model.fit(texts, checkpoint=tmp_path / "tensors", progress=False)
    with pytest.raises(StorageError, match=r"cannot write .*: it is no ordinary file"):
        model.fit(texts, checkpoint=tmp_path, progress=False)
    assert precious.read_text() == "years of work"
    assert (tmp_path / "tensors").exists()
    assert not read
    run = trainer(threads=1)
    run.keep(tmp_path / "run", 0.0, resume=False)
    run._write()
    model.fit(texts, checkpoint=tmp_path / "run", progress=False)
    assert not (tmp_path / "run").exists()


def test_numbers_beyond_all_bounds_end_the_run():
    model = Word2Vec(size=4, min_count=1, alpha=1e38, epochs=20, sample=0, threads=1)
    with pytest.raises(OptionError, match=r"beyond all bounds in epoch \d+ with alpha=1e\+38"):
        model.fit(TEXTS, progress=False)


def test_a_thread_that_fails_is_heard(monkeypatch):
    run = trainer(threads=2)

    def fail(index, end):
        if end:
            raise MemoryError("no room")

    monkeypatch.setattr(run, "_train", fail)
    with pytest.raises(MemoryError, match="no room"):
        run.run(progress=False)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_text_that_was_read_is_let_go(tmp_path):
    path = tmp_path / "ids.bin"
    np.arange(1 << 20, dtype=np.int32).tofile(path)

    def resident():
        lines = iter(Path("/proc/self/smaps").read_text().splitlines())
        next(line for line in lines if line.endswith(str(path)))
        return int(next(line for line in lines if line.startswith("Rss:")).split()[1])

    ids = _constant(np.asarray(np.memmap(path, np.int32, "r")), np.int32)
    total = int(ids.sum(dtype=np.int64))
    assert resident() == 4096  # KB
    _let_go(ids)
    assert resident() == 0
    assert int(ids.sum(dtype=np.int64)) == total == (1 << 19) * ((1 << 20) - 1)
    _let_go(np.arange(3))
