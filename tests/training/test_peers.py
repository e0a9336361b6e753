"""Word vectors trained by two real processes."""

import subprocess
import sys

import numpy as np
import pytest

from regard.errors import OptionError
from regard.training.peers import TorchPeers, started_by_torchrun
from regard.vectors import WordVectors

SCRIPT = """
import sys
import numpy as np
from regard.training.peers import TorchPeers
from regard.vectors import Word2Vec

random = np.random.default_rng(0)
texts = []
for _ in range(2000):
    cluster = random.integers(5)
    texts.append([f"c{cluster}w{member}" for member in random.integers(7, size=9)])
with TorchPeers() as peers:
    table = np.full((3, 5), 1.0 + peers.rank, np.float32)
    peers.average(table)
    assert (table == 1.5).all()
    assert peers.total(np.array([1.0, peers.rank])).tolist() == [2.0, 1.0]
    model = Word2Vec(size=20, epochs=8, alpha=0.08, sample=0, threads=1)
    vectors = model.fit(texts, progress=False, peers=peers, average_every=3000)
    vectors.save(f"{sys.argv[1]}/{peers.rank}.safetensors")
"""


def test_two_processes_learn_what_one_does(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
         str(script), str(tmp_path)],
        capture_output=True,
        text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    first, second = (WordVectors.load(tmp_path / f"{rank}.safetensors") for rank in (0, 1))
    np.testing.assert_array_equal(first.matrix, second.matrix)
    words = [f"c{cluster}w{member}" for cluster in range(5) for member in range(7)]
    rows = np.stack([first[word] for word in words])
    rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    nearest = np.argsort(-(rows @ rows.T), axis=1)[:, :7]
    assert (nearest // 7 == np.arange(35)[:, None] // 7).all()
    # Both halves of the words were trained, and the loss is that of all of them.
    assert [v.extra["training"]["words"] for v in (first, second)] == [8 * 9000, 8 * 9000]
    assert first.extra["training"]["loss"] == second.extra["training"]["loss"]


def test_without_torchrun(monkeypatch):
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    assert not started_by_torchrun()
    with pytest.raises(OptionError, match=r"RANK and WORLD_SIZE are not set"):
        TorchPeers()
