"""Reading and writing files of word vectors: regard beside gensim, in turn, in one process.

    python benchmarks/vectors_io.py [--quick] [--rows 50000] [--size 300] [--rounds 3]

Prints the median seconds of each, the numbers a second, and gensim's time over regard's. Files are
in the page cache, as they have just been written; regard waits until what it writes is safe on
disk, gensim does not. Also: how long a search over a memory-mapped
table takes, and how much memory it takes beyond the mapping.
"""

import argparse
import logging
import os
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np


def timed(work):
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def anonymous_megabytes():
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon"):
            return int(line.split()[1]) / 1024
    return float("nan")


def compare(name, ours, theirs, numbers, rounds):
    pairs = [(timed(ours), timed(theirs)) for _ in range(rounds)]
    mine, peer = (statistics.median(column) for column in zip(*pairs, strict=True))
    print(
        f"{name:<36} regard {mine:8.3f} s ({numbers / mine / 1e6:7.1f} M numbers/s)   "
        f"gensim {peer:8.3f} s ({numbers / peer / 1e6:6.1f} M)   {peer / mine:8.1f} times",
        flush=True,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small tables, one round")
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--size", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.rows, arguments.size, arguments.rounds = 3_000, 50, 1
    logging.disable(logging.CRITICAL)

    import gensim
    from gensim.models import FastText, KeyedVectors
    from gensim.models.fasttext import load_facebook_vectors, save_facebook_model

    from regard.vectors.word_vectors import WordVectors

    rows, size, rounds = arguments.rows, arguments.size, arguments.rounds
    print(
        f"{rows} words x {size}, float32; median of {rounds} rounds, regard and gensim "
        f"{gensim.__version__} in turn; {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; "
        "regard reads and writes text on all cores, all else is one thread"
    )
    generator = np.random.default_rng(0)
    matrix = (0.3 * generator.standard_normal((rows, size))).astype(np.float32)
    words = [f"词{i}" for i in range(rows)]
    vectors = WordVectors(words, matrix)
    keyed = KeyedVectors(size)
    keyed.add_vectors(words, matrix)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        numbers = rows * size

        # Numba compiles the few kernels of reading when they are first called.
        small = WordVectors(words[:10], matrix[:10])
        for suffix in ("txt", "bin", "safetensors"):
            small.save(folder / f"small.{suffix}")
            WordVectors.load(folder / f"small.{suffix}")

        for suffix, binary, what in (("txt", False, "text"), ("bin", True, "binary")):
            own, peer = folder / f"own.{suffix}", folder / f"peer.{suffix}"
            compare(
                f"write word2vec {what}",
                lambda own=own: vectors.save(own),
                lambda peer=peer, binary=binary: keyed.save_word2vec_format(peer, binary=binary),
                numbers,
                rounds,
            )
            compare(
                f"read word2vec {what}",
                lambda peer=peer: WordVectors.load(peer),
                lambda peer=peer, binary=binary: KeyedVectors.load_word2vec_format(
                    peer, binary=binary
                ),
                numbers,
                rounds,
            )
        own, peer = folder / "own.safetensors", folder / "peer.kv"
        compare(
            "write each one's own format",
            lambda: vectors.save(own),
            lambda: keyed.save(str(peer)),
            numbers,
            rounds,
        )
        compare(
            "open it (mapped) and look up a word",
            lambda: WordVectors.load(own)["词7"],
            lambda: KeyedVectors.load(str(peer), mmap="r")["词7"],
            numbers,
            rounds,
        )

        grams = min(rows, 20_000)
        model = FastText(vector_size=size, min_count=1, bucket=50_000, epochs=1, workers=1)
        model.build_vocab([words[:grams]])
        save_facebook_model(model, str(folder / "fasttext.bin"))
        WordVectors.load(folder / "fasttext.bin", limit=1)
        compare(
            f"read fastText .bin ({grams} words)",
            lambda: WordVectors.load(folder / "fasttext.bin"),
            lambda: load_facebook_vectors(str(folder / "fasttext.bin")),
            (grams + 50_000) * size,
            rounds,
        )

        query = words[:100]
        mapped = WordVectors.load(own)
        mapped.nearest(query[0])
        compare(
            "10 nearest of each of 100 words",
            lambda: mapped.nearest(query, top=10),
            lambda: [keyed.most_similar(word, topn=10) for word in query],
            numbers * len(query),
            rounds,
        )
        del vectors, keyed, model, matrix
        before = anonymous_megabytes()
        mapped.nearest(query, top=10)
        print(
            f"memory kept after a search over the mapped table of {numbers * 4 / 1e6:.0f} MB: "
            f"{anonymous_megabytes() - before:.0f} MB"
        )


if __name__ == "__main__":
    main()
