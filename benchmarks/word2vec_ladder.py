"""How the word2vec kernels came to their speed, rung by rung, and what limits each mode now.

    python benchmarks/word2vec_ladder.py CORPUS.txt [--quick] [--words 1000000] [--sizes 100,300]

CORPUS.txt holds one paragraph a line, words between blanks. The tables are those of all its words,
trained on are the first ``--words``. All on one thread, words per second of training alone, by
processor time; rungs take turns and the middle of ``--repeats`` counts.

The ladder, for every mode:

- gensim: its compiled loop over a file (corpus_file), one epoch.
- plain: the loop as the formulas say it, compiled by Numba: for every output row a dot product, the
  sigmoid, two updates.
- fast math: the same loop, compiled with ``error_model="numpy"`` and ``fastmath=True``, so that
  sums may be reordered and divisions do not keep loops from being vectorized.
- shared: one set of negatives a window (skip-gram; in the others there is nothing to share).
- tiles: regard's kernel without asking for rows ahead: dot products of a block of rows in
  registers, a vector sigmoid, both updates in one pass, negatives drawn 256 at a time.
- ahead: regard's kernel: the rows of the next words and negatives are on their way into the second
  cache.

Each rung is checked before it is timed: from the same random numbers it must come to the same
tables as regard's kernel, up to rounding.

What limits: the kernel once more, first with negatives among 256 words only, whose rows stay in the
cache (not for the tree, which draws none), then with all words among 256. The speed that is left to
gain there is what waiting for memory costs; the rest is arithmetic.
"""

import argparse
import importlib
import statistics
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
from numba import njit

MODES = {
    "skip-gram": {},
    "skip-gram, own negatives a pair": {"shared": 0},
    "skip-gram, hierarchical softmax": {"negatives": 0, "tree": 1},
    "cbow": {"cbow": 1, "shared": 0},
}
GENSIM = {
    "skip-gram": {"sg": 1},
    "skip-gram, own negatives a pair": {"sg": 1},
    "skip-gram, hierarchical softmax": {"sg": 1, "hs": 1, "negative": 0},
    "cbow": {"sg": 0},
}
FAST = {"error_model": "numpy", "fastmath": True}
FEW = 256


def plain_loop(**options):
    """The formulas as loops, with the same random numbers as regard's kernel."""
    compiled = njit(nogil=True, **options)

    @compiled
    def bits(random, which):
        x = random[which]
        x ^= x << np.uint64(13)
        x ^= x >> np.uint64(7)
        x ^= x << np.uint64(17)
        random[which] = x
        return x

    @compiled
    def draw_rows(random, alias, negatives, rows):
        count = 1
        for _ in range(negatives):
            x = bits(random, 1)
            word = (np.int64(x >> np.uint64(32)) * len(alias)) >> 32
            if np.int64(x & np.uint64(0xFFFFFFFF)) > alias[word, 0]:
                word = np.int64(alias[word, 1])
            if not (rows[:count] == word).any():
                rows[count] = word
                count += 1
        return count

    @compiled
    def learn(old, change, contexts, table, rows, signs, count, rate):
        """All contexts against `count` rows; a row moves when all have met it."""
        size = old.shape[1]
        moved = np.empty(size, np.float32)
        for j in range(count):
            row = table[rows[j]]
            for k in range(size):
                moved[k] = row[k]
            for i in range(contexts):
                score = np.float32(0)
                for k in range(size):
                    score += old[i, k] * row[k]
                x = min(max(signs[j] * score, np.float32(-16)), np.float32(16))
                step = np.float32(rate * signs[j] / (1 + np.exp(x)))
                for k in range(size):
                    change[i, k] += step * row[k]
                    moved[k] += step * old[i, k]
            for k in range(size):
                row[k] = moved[k]

    @compiled
    def walk(rules, corpus, tables, noise, tree, random):
        size = tables.input.shape[1]
        kept = np.empty(1 << 16, np.int64)
        windows = 2 * rules.window
        rows = np.empty(rules.negatives + 1, np.int64)
        signs = np.full(rules.negatives + 1, np.float32(-1))
        signs[0] = 1
        old, change = np.empty((windows, size), np.float32), np.empty((windows, size), np.float32)
        for line in range(len(corpus.offsets) - 1):
            words = 0
            for place in range(corpus.offsets[line], corpus.offsets[line + 1]):
                word = corpus.ids[place]
                if np.int64(bits(random, 0) >> np.uint64(32)) <= corpus.keep[word]:
                    kept[words] = word
                    words += 1
            for center in range(words):
                shrink = (np.int64(bits(random, 0) >> np.uint64(32)) * rules.window) >> 32
                reach = rules.window - shrink
                first, end = max(0, center - reach), min(words, center + reach + 1)
                contexts = end - first - 1
                if contexts == 0:
                    continue
                change[:] = 0
                if rules.cbow:
                    old[0] = 0
                    for place in range(first, end):
                        if place != center:
                            old[0] += tables.input[kept[place]]
                    old[0] /= np.float32(contexts)
                else:
                    for i in range(contexts):
                        old[i] = tables.input[kept[first + i + (first + i >= center)]]
                examples = 1 if rules.cbow else contexts
                rows[0] = kept[center]
                if rules.negatives and (rules.cbow or rules.shared):
                    count = draw_rows(random, noise.alias, rules.negatives, rows)
                    learn(old, change, examples, tables.output, rows, signs, count, rules.alpha)
                elif rules.negatives:
                    for i in range(contexts):
                        count = draw_rows(random, noise.alias, rules.negatives, rows)
                        own, due = old[i : i + 1], change[i : i + 1]
                        learn(own, due, 1, tables.output, rows, signs, count, rules.alpha)
                if rules.tree:
                    begin, stop = tree.starts[kept[center]], tree.starts[kept[center] + 1]
                    path, turns = tree.points[begin:stop], tree.signs[begin:stop]
                    learn(old, change, examples, tables.inner, path, turns, len(path), rules.alpha)
                for i in range(contexts):
                    word = kept[first + i + (first + i >= center)]
                    tables.input[word] += change[0 if rules.cbow else i]

    return walk


def kernel_without_asking():
    """regard's kernel, compiled from a second copy of its modules that ask for no rows ahead."""
    package = "regard.vectors.kernels"
    kept = {name: sys.modules.pop(name) for name in list(sys.modules) if name.startswith(package)}
    try:
        simd = importlib.import_module(f"{package}.simd")
        nothing = importlib.import_module(f"{package}.compiled").compiled(lambda table, row: None)
        simd.prefetch = nothing
        return importlib.import_module(f"{package}.training")._compile("without asking")
    finally:
        sys.modules.update(kept)


class Text:
    """The corpus as ids, and the arrays that the kernels take."""

    def __init__(self, corpus, words):
        from regard.vectors.kernels.state import PIECE, Corpus, Noise, Tree
        from regard.vectors.sampling import alias_table, huffman_tree, keep_thresholds

        counts = np.asarray(corpus.vocabulary.counts)
        self.counts = counts
        self.tokens = corpus.vocabulary.tokens
        lines = np.searchsorted(corpus.offsets, words)
        self.words = int(corpus.offsets[min(lines, len(corpus))])
        self.corpus = Corpus(
            *map(
                constant,
                (
                    np.array(corpus.ids),
                    np.array(corpus.offsets),
                    np.zeros(0, np.int32),
                    keep_thresholds(counts, 1e-3),
                ),
            )
        )
        trained = self.corpus.offsets[self.corpus.offsets <= self.words]
        assert np.diff(trained).max() <= PIECE, "lines of one piece only"
        self.noise, self.few_noise = Noise(alias_table(counts)), Noise(alias_table(np.ones(FEW)))
        self.tree = Tree(*huffman_tree(counts))
        few = constant(self.corpus.ids % FEW)
        share = np.average(self.corpus.keep / 2**32, weights=counts)
        keep = constant(np.full(len(counts), int(share * (2**32 - 1)), np.uint32))
        self.few_corpus = self.corpus._replace(ids=few, keep=keep)

    def start(self, mode, size):
        """The rules, and tables as training begins with them."""
        from regard.vectors.kernels.state import ALIGNMENT, Rules, Tables, aligned

        chosen = {"cbow": 0, "negatives": 5, "tree": 0, "shared": 1} | MODES[mode]
        rate = 0.05 if chosen["cbow"] else 0.025
        rules = Rules(
            **chosen, window=5, shrink_window=1, mean=1, divide=0,
            alpha=rate, min_alpha=rate, total=float(self.words),
        )  # fmt: skip
        width = -(-size // ALIGNMENT) * ALIGNMENT
        rows = len(self.counts)
        tables = Tables(
            aligned((rows, width)),
            aligned((rows if rules.negatives else 0, width)),
            aligned((rows - 1 if rules.tree else 0, width)),
        )
        random = np.random.default_rng(1)
        tables.input[:, :size] = (random.random((rows, size), np.float32) - 0.5) / size
        for table in tables[1:]:
            table[:] = 0  # touched, so that no page is made while the clock runs
        return rules, tables

    def run_kernel(self, kernel, mode, size, words, corpus=None, noise=None):
        """Seconds of processor time, and the tables afterwards."""
        from regard.vectors.kernels.state import make_worker

        rules, tables = self.start(mode, size)
        worker = make_worker(tables.input.shape[1], rules.window, rules.negatives, 1)
        done, halt = np.zeros((1, 8)), np.zeros(1, np.int64)
        state = (rules, corpus or self.corpus, tables, noise or self.noise, self.tree, worker, done)
        kernel(*state, 0, 0, halt)
        started = time.process_time()
        kernel(*state, 0, words, halt)
        return time.process_time() - started, tables

    def run_plain(self, walk, mode, size, words, shared=None):
        """The same for a plain loop; with `shared`, instead of what the mode says."""
        from regard.vectors.kernels.state import seeds

        rules, tables = self.start(mode, size)
        if shared is not None:
            rules = rules._replace(shared=shared)
        lines = np.searchsorted(self.corpus.offsets, words)
        few = self.corpus._replace(offsets=self.corpus.offsets[: lines + 1])
        none = self.corpus._replace(offsets=self.corpus.offsets[:1])
        walk(rules, none, tables, self.noise, self.tree, seeds(1))
        started = time.process_time()
        walk(rules, few, tables, self.noise, self.tree, seeds(1))
        return time.process_time() - started, tables


def constant(array):
    array.flags.writeable = False
    return array


def run_gensim(file, mode, size, text):
    from gensim.models import Word2Vec

    alpha = 0.05 if mode == "cbow" else 0.025
    model = Word2Vec(vector_size=size, workers=1, min_count=5, alpha=alpha, **GENSIM[mode])
    model.build_vocab_from_freq(dict(zip(text.tokens, text.counts.tolist(), strict=True)))
    lines = int(np.searchsorted(text.corpus.offsets, text.words))
    started = time.process_time()
    model.train(corpus_file=str(file), total_words=text.words, total_examples=lines, epochs=1)
    return time.process_time() - started


def rungs_of(text, file, mode, size, loops, kernels):
    """Each rung by name: words, and what runs them and gives seconds and tables."""
    plain, fast = loops
    without, whole = kernels
    words = text.words
    few = int(text.corpus.offsets[np.searchsorted(text.corpus.offsets, words // 4)])
    own = {"shared": 0} if mode == "skip-gram" else {}
    rungs = {
        "gensim": (words, lambda n: (run_gensim(file, mode, size, text), None)),
        "plain": (few, lambda n: text.run_plain(plain, mode, size, n, **own)),
        "fast math": (few, lambda n: text.run_plain(fast, mode, size, n, **own)),
        "shared": (few, lambda n: text.run_plain(fast, mode, size, n)),
        "tiles": (words, lambda n: text.run_kernel(without, mode, size, n)),
        "ahead": (words, lambda n: text.run_kernel(whole, mode, size, n)),
    }
    if not own:
        del rungs["shared"]
    return rungs


def check(text, mode, size, rungs):
    """Every rung but gensim comes to the tables of the last, from the same random numbers."""
    few = int(text.corpus.offsets[np.searchsorted(text.corpus.offsets, min(20_000, text.words))])
    _, expected = rungs["ahead"][1](few)
    for name, (_, run) in rungs.items():
        if name == "gensim" or ("shared" in rungs and name in ("plain", "fast math")):
            continue
        for mine, theirs in zip(run(few)[1], expected, strict=True):
            if mine.size and np.abs(mine - theirs).max() > 1e-4:
                raise SystemExit(f"{mode}, size {size}: the rung {name!r} computes something else")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("corpus", type=Path, nargs="?")
    parser.add_argument("--quick", action="store_true", help="a smoke run under a minute")
    parser.add_argument("--words", type=int, default=1_000_000)
    parser.add_argument(
        "--sizes", type=lambda t: [int(n) for n in t.split(",")], default=[100, 300]
    )
    parser.add_argument("--modes", help="begin of the names of the modes, with semicolons")
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    if arguments.corpus is None:
        parser.error("name a text file, one paragraph a line")
    if arguments.quick:
        arguments.words, arguments.sizes, arguments.repeats = 20_000, [100], 1
    begins = tuple((arguments.modes or "").split(";"))
    modes = [mode for mode in MODES if mode.startswith(begins)]

    from regard.text import EncodedCorpus
    from regard.vectors.kernels.training import train_words

    kernels = (kernel_without_asking(), train_words)
    loops = (plain_loop(), plain_loop(**FAST))
    with tempfile.TemporaryDirectory() as folder:
        corpus = EncodedCorpus.build(
            arguments.corpus, Path(folder) / "ids", min_count=5, specials=()
        )
        text, file = Text(corpus, arguments.words), Path(folder) / "part.txt"
        with file.open("w", encoding="utf-8") as part:
            for begin, end in pairwise(corpus.offsets[corpus.offsets <= text.words]):
                part.write(" ".join(text.tokens[i] for i in corpus.ids[begin:end]) + "\n")
        print(
            f"{text.words:,} words, tables of {len(text.counts):,}, window 5, 5 negatives; one "
            f"thread; words/s by processor time, middle of {arguments.repeats}"
        )
        for size in arguments.sizes:
            for mode in modes:
                rungs = rungs_of(text, file, mode, size, loops, kernels)
                check(text, mode, size, rungs)
                limits = {
                    "negatives in cache": lambda n, mode=mode, size=size: text.run_kernel(
                        train_words, mode, size, n, noise=text.few_noise
                    ),
                    "all in cache": lambda n, mode=mode, size=size: text.run_kernel(
                        train_words, mode, size, n, text.few_corpus, text.few_noise
                    ),
                }
                if "tree" in MODES[mode]:
                    del limits["negatives in cache"]
                rungs |= {name: (text.words, run) for name, run in limits.items()}
                speeds = {name: [] for name in rungs}
                for _ in range(arguments.repeats):
                    for name, (words, run) in rungs.items():
                        speeds[name].append(words / run(words)[0])
                print(f"\n{mode}, size {size}")
                before = None
                for name, found in speeds.items():
                    speed = statistics.median(found)
                    if name == next(iter(limits)):
                        print("  what limits it")
                    step = "" if before is None else f"  x {speed / before:.2f}"
                    print(f"  {name:20}{speed:12,.0f} words/s{step}", flush=True)
                    if name not in limits:
                        before = speed


if __name__ == "__main__":
    main()
