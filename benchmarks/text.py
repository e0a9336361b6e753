"""Counting and encoding a text, beside gensim's vocabulary scan of the same file.

    python benchmarks/text.py [FILE] [--rounds 5] [--quick]
    python benchmarks/text.py --memory [--gigabytes 1.0]

The first form reads FILE, or, without one, a synthetic file of 10 million words made on the spot
(Zipf's law, 500,000 types). regard counts all words AND writes every word's id to disk; gensim's
scan counts only, its build_vocab also sorts and cuts the vocabulary; neither encodes. Rounds
interleave; medians count. The second form encodes a synthetic file of that size (0.1 GB of 3
million types, over and over) in a fresh process and reports its peak memory.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

LETTERS = "etaoinshrdlucmfwypvbgkjqxz"
WORDS_A_LINE = 20
PART = 100_000


def spell(rank: int) -> str:
    """A word for each rank: frequent ones are short."""
    letters = []
    rank += 1
    while rank:
        rank, letter = divmod(rank - 1, 26)
        letters.append(LETTERS[letter])
    return "".join(letters)


def write_zipf(path: Path, words: int, types: int, seed: int = 0) -> None:
    """A file of `words` words, 20 a line, type k drawn in proportion to 1 / (k + 2.7)."""
    random = np.random.default_rng(seed)
    spelled = np.array([spell(rank) for rank in range(types)], dtype=object)
    ladder = np.cumsum(1 / (np.arange(types) + 2.7))
    with open(path, "w", encoding="ascii") as file:
        for start in range(0, words, PART):
            count = min(PART, words - start)
            drawn = spelled[np.searchsorted(ladder, random.random(count) * ladder[-1])]
            for line in range(0, count, WORDS_A_LINE):
                file.write(" ".join(drawn[line : line + WORDS_A_LINE]) + "\n")


def seconds(action: Callable[[], object]) -> float:
    """How long one call takes by the clock."""
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def compare(path: Path, rounds: int, folder: Path) -> None:
    """The interleaved rounds and their medians."""
    from gensim.models import Word2Vec

    from regard.text import EncodedCorpus, Vocabulary, read_texts

    def encode() -> None:
        corpora.append(
            EncodedCorpus.build(path, folder / str(len(corpora)), min_count=5, specials=())
        )

    corpora: list[EncodedCorpus] = []
    actions: dict[str, Callable[[], object]] = {
        "regard  count + encode to disk": encode,
        "gensim  scan_vocab": lambda: Word2Vec(min_count=5).scan_vocab(corpus_file=str(path)),
        "gensim  build_vocab": lambda: Word2Vec(min_count=5).build_vocab(corpus_file=str(path)),
    }
    times: dict[str, list[float]] = {name: [] for name in actions}
    for _ in range(rounds):
        for name, action in actions.items():
            times[name].append(seconds(action))
    corpus = corpora[0]
    truth = Vocabulary.count((text.split() for text in read_texts(path)), min_count=5, specials=())
    assert corpus.vocabulary == truth
    words = sum(len(text.split()) for text in read_texts(path))
    cores = len(os.sched_getaffinity(0))
    print(f"{path.name}: {path.stat().st_size / 1e6:.0f} MB, {words / 1e6:.2f}M words")
    print(
        f"{len(corpus.vocabulary):,} types of at least 5; {cores} cores; {rounds} rounds, medians"
    )
    ours = statistics.median(times["regard  count + encode to disk"])
    for name, all_times in times.items():
        median = statistics.median(all_times)
        print(
            f"  {name:32} {median:6.2f} s  {words / median / 1e6:5.1f}M words/s"
            f"  {median / ours:5.2f} times regard's time"
        )


def memory(gigabytes: float, folder: Path) -> None:
    """Peak memory of encoding a file of that size in a fresh process."""
    part, path, words = folder / "part.txt", folder / "zipf.txt", 0
    part_words = int(min(gigabytes, 0.1) * 1e9 / 3.9)
    write_zipf(part, part_words, types=3_000_000)
    with open(path, "wb") as file:
        while file.tell() < gigabytes * 1e9:
            file.write(part.read_bytes())
            words += part_words
    # VmHWM, the peak since the program began; ru_maxrss would count the parent's memory too.
    program = (
        "import re, sys; from regard.text import EncodedCorpus\n"
        "def peak(): return re.search(r'VmHWM:\\s+(\\d+)', open('/proc/self/status').read())[1]\n"
        "before = peak()\n"
        "EncodedCorpus.build(sys.argv[1], sys.argv[2], min_count=5)\n"
        "print(before, peak())"
    )
    start = time.perf_counter()
    found = subprocess.run(
        [sys.executable, "-c", program, path, folder / "corpus"],
        check=True,
        capture_output=True,
        text=True,
    )
    before, peak = (int(number) / 1024 for number in found.stdout.split())
    print(
        f"{path.stat().st_size / 1e9:.2f} GB, {words / 1e6:.0f}M words encoded in "
        f"{time.perf_counter() - start:.1f} s: peak {peak:.0f} MiB, of which {before:.0f} MiB "
        "were there before the first byte was read"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", nargs="?", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="1 million words, 1 round")
    parser.add_argument("--memory", action="store_true", help="peak memory instead of speed")
    parser.add_argument("--gigabytes", type=float, default=1.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if options.memory:
            memory(0.1 if options.quick else options.gigabytes, folder)
            return
        path = options.file
        if path is None:
            path = folder / "zipf.txt"
            write_zipf(path, 1_000_000 if options.quick else 10_000_000, types=500_000)
        compare(path, 1 if options.quick else options.rounds, folder)


if __name__ == "__main__":
    main()
