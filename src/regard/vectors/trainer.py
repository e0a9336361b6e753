"""Threads over an encoded corpus: progress, checkpoints, stops and averages between processes.

Every epoch each process has its share of the words and each of its threads a part of that, exactly
once. Threads write to the same tables without locks (Recht et al. 2011, "Hogwild!"). They can be
halted between two pieces of text and go on as if nothing had been, which is how checkpoints are
taken.
"""

import hashlib
import math
import mmap
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from threading import Thread, current_thread, main_thread
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np

from regard.errors import DataError, OptionError
from regard.progress import Bar
from regard.vectors.checkpoint import Checkpoint, read_checkpoint, write_checkpoint
from regard.vectors.encoding import Encoded, Words
from regard.vectors.kernels.state import (
    ALIGNMENT,
    DONE,
    EXAMPLES,
    LOSS_NEGATIVES,
    LOSS_TREE,
    POSITION,
    RATE,
    Corpus,
    Noise,
    Rules,
    Tables,
    Tree,
    aligned,
    make_worker,
)
from regard.vectors.sampling import alias_table, huffman_tree, keep_thresholds
from regard.vectors.word_vectors import WordVectors

if TYPE_CHECKING:
    from regard.vectors.word2vec import Word2Vec

_TICK = 0.25
_BLOCK = 1 << 14
_HASHED = 1 << 24


@runtime_checkable
class Peers(Protocol):
    """The processes that train together; ``regard.training.peers`` has them over torch."""

    rank: int
    size: int

    def average(self, table: np.ndarray) -> None:
        """Replace `table` by its mean over all processes."""
        ...

    def total(self, numbers: np.ndarray) -> np.ndarray:
        """The sum of `numbers` over all processes."""
        ...


class Trainer:
    """One training run: tables, workers, and where they stand."""

    def __init__(
        self,
        settings: "Word2Vec",
        corpus: Encoded,
        words: Words,
        vectors: WordVectors | None,
        peers: Peers | None,
        average_every: int,
    ):
        self.settings, self.words, self.peers = settings, words, peers
        self.rank, self.size = (peers.rank, peers.size) if peers else (0, 1)
        self.total_words = len(corpus.ids)
        self.rounds = max(
            1, math.ceil(self.total_words / (average_every * self.size) * bool(peers))
        )
        threads = settings.threads or _cores()
        begin, end = _cut(self.rank, self.size, 0, self.total_words)
        self.parts = [_cut(i, threads, begin, end) for i in range(threads)]
        self.epoch, self.round = 0, 0
        self.losses: dict[str, list[float]] = {}
        self.stopped = False
        self.seconds = 0.0
        self._interrupted = False
        self._file: Path | None = None
        self._text = ""
        self._every, self._saved = math.inf, time.monotonic()

        width = -(-settings.size // ALIGNMENT) * ALIGNMENT
        size = len(words.tokens)
        self.corpus = Corpus(
            _constant(corpus.ids, np.int32),
            _constant(corpus.offsets, np.int64),
            _constant(words.rows, np.int32),
            _constant(keep_thresholds(words.fresh, settings.sample), np.uint32),
        )
        with_tree = settings.hierarchical_softmax
        self.tables = Tables(
            aligned((size, width)),
            aligned((size if settings.negatives else 0, width)),
            aligned((max(0, size - 1) if with_tree else 0, width)),
        )
        self._begin_tables(vectors)
        self.noise = Noise(alias_table(words.counts))
        nothing = np.zeros(1, np.int64), np.zeros(0, np.int64), np.zeros(0, np.float32)
        self.tree = Tree(*(huffman_tree(words.counts) if with_tree else nothing))
        self.rules = Rules(
            cbow=int(settings.mode == "cbow"),
            window=settings.window,
            shrink_window=int(settings.shrink_window),
            negatives=settings.negatives,
            tree=int(with_tree),
            shared=int(settings.shared_negatives),
            mean=int(settings.cbow_mean),
            divide=int(settings.cbow_gradient == "mean"),
            alpha=float(settings.first_rate),
            min_alpha=float(settings.min_alpha),
            total=float(max(1, (end - begin) * settings.epochs)),
        )
        seeds = np.random.SeedSequence([settings.seed, self.rank]).generate_state(
            threads, np.uint64
        )
        self.workers = [
            make_worker(width, settings.window, settings.negatives, int(seed)) for seed in seeds
        ]
        for worker, (first, _) in zip(self.workers, self.parts, strict=True):
            worker.counts[POSITION] = first
        self.halt = np.zeros(1, np.int64)
        self.done = np.zeros((threads, 8))  # a cache line a thread

    def _begin_tables(self, vectors: WordVectors | None) -> None:
        """Input rows are small random numbers, or those of `vectors`; output rows are zero."""
        size = self.settings.size
        random = np.random.default_rng(self.settings.seed)
        rows = self.tables.input
        for first in range(0, len(rows), _BLOCK):
            block = rows[first : first + _BLOCK, :size]
            block[:] = (random.random(block.shape, np.float32) - 0.5) / size
        if vectors is None:
            return
        rows[: len(vectors), :size] = vectors.matrix
        if (output := vectors.extra.get("output")) is not None and len(self.tables.output):
            self.tables.output[: len(output), :size] = output

    # Checkpoints

    def keep(self, file: Path, every: float, resume: bool) -> None:
        """Write checkpoints to `file` every so many seconds; with `resume`, begin from it."""
        self._file, self._every = file, every
        self._text = self._digest()
        if resume:
            self._restore(read_checkpoint(self._file))
            self._check_peers()

    def _digest(self) -> str:
        """Of the ids of this process, in their lines: the same for the same text only."""
        digest = hashlib.blake2b(digest_size=16)
        begin, end = self.parts[0][0], self.parts[-1][1]
        for array in (self.corpus.ids[begin:end], self.corpus.offsets, self.corpus.rows):
            for first in range(0, len(array), _HASHED):
                digest.update(array[first : first + _HASHED].data)
                _let_go(array)
        return digest.hexdigest()

    def _about(self) -> dict[str, Any]:
        """What must be the same for a checkpoint to fit."""
        settings = self.settings.model_dump() | {"threads": len(self.workers)}
        return {**settings, "words": self.total_words, "processes": self.size}

    def _checkpoint(self) -> Checkpoint:
        return Checkpoint(
            about=self._about(),
            text=self._text,
            tokens=self.words.tokens,
            epoch=self.epoch,
            round=self.round,
            seconds=self.seconds,
            losses=self.losses,
            tables=dict(zip(Tables._fields, self.tables, strict=True)),
            counts=np.stack([worker.counts for worker in self.workers]),
            numbers=np.stack([worker.numbers for worker in self.workers]),
            random=np.stack([worker.random for worker in self.workers]),
            drawn=np.stack([worker.drawn for worker in self.workers]),
        )

    def _restore(self, saved: Checkpoint) -> None:
        for name, mine in self._about().items():
            if saved.about.get(name) != mine:
                raise DataError(
                    f"{self._file} was written with {name}={saved.about.get(name)!r}, this run has "
                    f"{name}={mine!r}; give the same settings and text, or start anew"
                )
        if saved.text != self._text or saved.tokens != self.words.tokens:
            raise DataError(
                f"{self._file} was written for another text; give the same text, or start anew"
            )
        for name, table in zip(Tables._fields, self.tables, strict=True):
            table[:] = saved.tables[name]
        self.epoch, self.round, self.losses = saved.epoch, saved.round, saved.losses
        self.seconds = saved.seconds
        for i, worker in enumerate(self.workers):
            worker.counts[:] = saved.counts[i]
            worker.numbers[:] = saved.numbers[i]
            worker.random[:] = saved.random[i]
            worker.drawn[:] = saved.drawn[i]
            self.done[i, 0] = worker.counts[DONE]

    def _check_peers(self) -> None:
        if self.peers is None:
            return
        mine = float(self.epoch * self.rounds + self.round)
        if self.peers.total(np.array([mine]))[0] != mine * self.size:
            raise DataError(
                f"the checkpoints of the processes at {self._file} are not of one moment; "
                "start anew"
            )

    # Training

    def run(self, progress: bool) -> None:
        """Train to the end, or until Ctrl-C here or at one of the peers."""
        self._train(0, 0)  # no word: the kernel is compiled, or loaded, before the clock starts
        bar = Bar("training", int(self.rules.total))
        with self._interruptible(), bar if progress else nullcontext():
            while self.epoch < self.settings.epochs and not self.stopped:
                while self.round < self.rounds and not self.stopped:
                    due = self._train_round(bar if progress else None)
                    if self.peers is not None:
                        due = self._meet(self.peers, due)
                    self.round += not self.stopped
                    if self._file is not None and (self.stopped or due):
                        self._write()
                self._check_finite()
                if not self.stopped:
                    self._end_epoch()
        if self.stopped and progress:
            share = self._words_done() / self.rules.total
            print(f"stopped at {share:.0%}; the vectors so far are kept", file=sys.stderr)
        if self._file is not None and not self.stopped:
            self._file.unlink(missing_ok=True)

    @contextmanager
    def _interruptible(self) -> Iterator[None]:
        """Let Ctrl-C end the training; a second one ends the program."""

        def interrupt(*_: Any) -> None:
            if self._interrupted:
                raise KeyboardInterrupt
            self._interrupted = True
            self.halt[0] = 1

        if current_thread() is not main_thread():
            yield
            return
        before = signal.signal(signal.SIGINT, interrupt)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    def _train_round(self, bar: Bar | None) -> bool:
        """Train to the end of the round; whether a checkpoint is due then."""
        ends = [_cut(self.round, self.rounds, *part)[1] for part in self.parts]
        started = time.monotonic()
        before, spent = self._words_done(), self.seconds
        threads = self._start(ends)
        while any(thread.is_alive() for thread in threads):
            next((t for t in threads if t.is_alive()), threads[0]).join(_TICK)
            now = time.monotonic()
            self.seconds = spent + now - started
            if bar is not None:
                words = self._words_done()
                rate = (words - before) / max(now - started, 1e-9) * self.size
                bar.advance(int(words) - bar.done, self._details(rate))
            _let_go(self.corpus.ids)
            if self._is_due() and self.peers is None and not self._interrupted:
                self._stop(threads)
                self._write()
                threads = self._start(ends)
        self._stop(threads)
        self.seconds = spent + time.monotonic() - started
        self.stopped = self._interrupted
        return self._is_due()

    def _is_due(self) -> bool:
        return self._file is not None and time.monotonic() - self._saved >= self._every

    def _write(self) -> None:
        assert self._file is not None
        write_checkpoint(self._file, self._checkpoint())
        self._saved = time.monotonic()

    def _start(self, ends: list[int]) -> list[Thread]:
        self.halt[0] = int(self._interrupted)
        self._failure: BaseException | None = None
        threads = [Thread(target=self._work, args=(i, end)) for i, end in enumerate(ends)]
        for thread in threads:
            thread.start()
        return threads

    def _train(self, index: int, end: int) -> None:
        from regard.vectors.kernels.training import train_words

        train_words(
            self.rules,
            self.corpus,
            self.tables,
            self.noise,
            self.tree,
            self.workers[index],
            self.done,
            index,
            end,
            self.halt,
        )

    def _work(self, index: int, end: int) -> None:
        try:
            self._train(index, end)
        except BaseException as error:
            self._failure = error

    def _stop(self, threads: list[Thread]) -> None:
        """Wait for the threads, halted if they have not come to their end."""
        self.halt[0] = 1
        for thread in threads:
            thread.join()
        if self._failure is not None:
            raise self._failure

    def _meet(self, peers: Peers, due: bool) -> bool:
        """Average with the others; all stop if one does, all write if the first is due to."""
        mine = np.array([float(self.stopped), float(due and self.rank == 0)])
        stopped, due_anywhere = peers.total(mine)
        self.stopped = bool(stopped)
        for table in self.tables:
            if len(table):
                peers.average(table)
        return bool(due_anywhere)

    def _words_done(self) -> float:
        return float(self.done[:, 0].sum())

    def _objectives(self) -> list[tuple[str, int]]:
        names = [("negative_sampling", LOSS_NEGATIVES)] if self.settings.negatives else []
        return names + ([("hierarchical_softmax", LOSS_TREE)] if self.rules.tree else [])

    def _loss(self, place: int) -> tuple[float, int]:
        loss = sum(float(worker.numbers[place]) for worker in self.workers)
        return loss, sum(int(worker.counts[EXAMPLES]) for worker in self.workers)

    def _details(self, rate: float) -> str:
        parts = [f"{rate:,.0f} words/s", f"rate {self.workers[0].numbers[RATE]:.5f}"]
        for _, place in self._objectives():
            loss, examples = self._loss(place)
            parts.append(f"loss {loss / max(1, examples):.4f}")
        return "  ".join(parts)

    def _check_finite(self) -> None:
        """Refuse to go on, or to end, with numbers that grew beyond all bounds."""
        for table in self.tables:
            for first in range(0, len(table), _BLOCK):
                if not np.isfinite(table[first : first + _BLOCK]).all():
                    raise OptionError(
                        f"the numbers grew beyond all bounds in epoch {self.epoch + 1} with "
                        f"alpha={self.settings.first_rate}; lower alpha"
                    )

    def _end_epoch(self) -> None:
        for name, place in self._objectives():
            sums = np.array(self._loss(place))
            if self.peers is not None:
                sums = self.peers.total(sums)
            self.losses.setdefault(name, []).append(float(sums[0] / max(1.0, sums[1])))
        for worker, (begin, _) in zip(self.workers, self.parts, strict=True):
            worker.counts[EXAMPLES] = 0
            worker.numbers[LOSS_NEGATIVES] = worker.numbers[LOSS_TREE] = 0.0
            worker.counts[POSITION] = begin
        self.epoch, self.round = self.epoch + 1, 0

    def finish(self, keep_output: bool) -> tuple[np.ndarray, dict[str, Any]]:
        """The matrix (V, size) and what is saved along; the tables are given up."""
        size = self.settings.size
        words = self._words_done()
        about: dict[str, Any] = {
            "training": {
                "settings": self.settings.model_dump(),
                "loss": self.losses,
                "epochs": self.epoch,
                "words": int(words),
                "words_per_second": words / max(self.seconds, 1e-9),
                "stopped": self.stopped,
            }
        }
        matrix, output = self.tables.input[:, :size], self.tables.output[:, :size]
        del self.tables
        if keep_output and len(output):
            about["output"] = np.ascontiguousarray(output)
        del output
        return np.ascontiguousarray(matrix), about


def _cut(part: int, parts: int, begin: int, end: int) -> tuple[int, int]:
    """The begin and end of one of so many parts, which together are the whole exactly."""
    words = end - begin
    return begin + words * part // parts, begin + words * (part + 1) // parts


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _let_go(array: np.ndarray) -> None:
    """Count what was read of a mapped array as memory of ours no longer; it stays in the cache."""
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    if isinstance(base, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
        base.madvise(mmap.MADV_DONTNEED)


def _constant(array: np.ndarray, kind: type[np.generic]) -> np.ndarray:
    """A read-only view: one kind of array for the compiled kernel, mapped from a file or not."""
    view = np.ascontiguousarray(array, kind).view(np.ndarray)
    view.flags.writeable = False
    return view
