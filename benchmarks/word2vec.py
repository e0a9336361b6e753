"""Word vectors against gensim and, where it is installed, fastText.

    python benchmarks/word2vec.py CORPUS.txt [--quick] [--only speed,end,quality] [--words N]

CORPUS.txt holds one paragraph a line, words between blanks. Printed are

- speed: words per second of training alone, on the first ``--words`` words, one epoch; by the clock
  and by processor time (which tells less lies on a busy machine). gensim in its corpus_file mode;
  fastText's is the time of two epochs less that of one (``pip install fasttext-numpy2-wheel``).
  fastText keeps words by another formula at the same threshold and has no mode of its own for
  negatives of a pair: it always draws them so. A run that it breaks off is told of and left out.
- end: seconds from the text file to the vectors, five epochs, skip-gram, and the peak memory of the
  process, which does nothing else. regard's kernel was compiled before, and is loaded within.
- quality: WordSim-353 and SimLex-999 (Spearman) and the share of analogies solved, at equal epochs,
  size 100, one thread; the mean over seeds. The sets are those that come with gensim. With several
  threads gensim's learning rate falls more slowly within an epoch (each thread takes its own words
  for all that are done), so that only one thread learns at equal rates.

Every measurement is a fresh process; peers take turns, and the middle one of ``--repeats`` counts.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path

CASES = {
    "skip-gram": {},
    "skip-gram, own negatives a pair": {"shared_negatives": False},
    "skip-gram, hierarchical softmax": {"negatives": 0, "hierarchical_softmax": True},
    "cbow": {"mode": "cbow"},
}


def regard_run(task):
    from regard.text import EncodedCorpus
    from regard.vectors import Word2Vec
    from regard.vectors.trainer import Trainer

    run, cpu = Trainer.run, []

    def timed(trainer, progress):
        before = time.process_time()
        run(trainer, progress)
        cpu.append(time.process_time() - before)

    Trainer.run = timed
    with tempfile.TemporaryDirectory() as folder:
        source = task["file"]
        settings = Word2Vec(**task["settings"])
        if task["what"] != "end":
            warm = [["a", "b"] * 10] * 2
            Word2Vec(**{**task["settings"], "min_count": 1, "epochs": 1}).fit(warm, progress=False)
        started = time.perf_counter()
        if task["what"] == "speed":
            source = EncodedCorpus.build(source, folder, min_count=5, specials=())
        vectors = settings.fit(source, progress=False)
    training = vectors.extra["training"]
    return {
        "seconds": time.perf_counter() - started,
        "words_per_second": training["words_per_second"],
        "words": training["words"],
        "cpu": cpu[-1],
        "vectors": vectors,
    }


def gensim_run(task):
    from gensim.models import Word2Vec

    from regard.vectors import WordVectors

    ours = task["settings"]
    skipgram = ours.get("mode", "skipgram") == "skipgram"
    settings = {
        "vector_size": ours["size"],
        "window": ours["window"],
        "negative": ours.get("negatives", 5),
        "hs": int(ours.get("hierarchical_softmax", False)),
        "sg": int(skipgram),
        "alpha": 0.025 if skipgram else 0.05,
        "workers": ours["threads"],
        "seed": ours["seed"],
        "min_count": 5,
        "epochs": ours["epochs"],
    }
    started = time.perf_counter()
    model = Word2Vec(**settings)
    model.build_vocab(corpus_file=task["file"])
    before, cpu = time.perf_counter(), time.process_time()
    model.train(
        corpus_file=task["file"],
        total_words=model.corpus_total_words,
        total_examples=model.corpus_count,
        epochs=ours["epochs"],
    )
    cpu, ended = time.process_time() - cpu, time.perf_counter()
    words = sum(model.wv.get_vecattr(word, "count") for word in model.wv.index_to_key)
    words *= ours["epochs"]
    return {
        "seconds": ended - started,
        "words_per_second": words / (ended - before),
        "words": int(words),
        "cpu": cpu,
        "vectors": WordVectors(model.wv.index_to_key, model.wv.vectors),
    }


def fasttext_run(task):
    import fasttext

    ours = task["settings"]
    tree = ours.get("hierarchical_softmax", False)

    def train(epochs):
        started, cpu = time.perf_counter(), time.process_time()
        model = fasttext.train_unsupervised(
            task["file"],
            model="skipgram" if ours.get("mode", "skipgram") == "skipgram" else "cbow",
            dim=ours["size"],
            ws=ours["window"],
            neg=ours.get("negatives", 5),
            loss="hs" if tree else "ns",
            epoch=epochs,
            thread=ours["threads"],
            minCount=5,
            minn=0,
            maxn=0,
            t=1e-3,
            lr=0.025 if ours.get("mode", "skipgram") == "skipgram" else 0.05,
            verbose=0,
        )
        return model, time.perf_counter() - started, time.process_time() - cpu

    model, once, cpu_once = train(ours["epochs"])
    tokens, counts = model.get_words(include_freq=True)
    words = sum(int(n) for token, n in zip(tokens, counts, strict=True) if token != "</s>")
    result = {"seconds": once, "words": words * ours["epochs"], "vectors": None}
    if task["what"] == "speed":
        _, twice, cpu_twice = train(2 * ours["epochs"])
        result["words_per_second"] = result["words"] / max(1e-9, twice - once)
        result["cpu"] = cpu_twice - cpu_once
    return result


def evaluate(vectors):
    from gensim.test.utils import datapath

    from regard.vectors.evaluation import evaluate_analogies, evaluate_similarity

    scores = [
        evaluate_similarity(vectors, Path(datapath(name))).spearman
        for name in ("wordsim353.tsv", "simlex999.txt")
    ]
    total = evaluate_analogies(vectors, Path(datapath("questions-words.txt"))).total
    return [*scores, total.accuracy]


def child(task):
    run = {"regard": regard_run, "gensim": gensim_run, "fasttext": fasttext_run}[task["who"]]
    result = run(task)
    vectors = result.pop("vectors")
    result["peak"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    if task["what"] == "quality":
        result["scores"] = evaluate(vectors)
    print(json.dumps(result))


def measure(who, what, file, words, **settings):
    task = {"who": who, "what": what, "file": str(file), "words": words, "settings": settings}
    done = subprocess.run(
        [sys.executable, __file__, "--child", json.dumps(task)],
        capture_output=True,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    if done.returncode:
        if who == "fasttext":
            print(f"fastText failed: {done.stderr.splitlines()[-1]}", flush=True)
            return None
        raise SystemExit(f"{who} failed:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def middle(runs, key):
    return statistics.median(run[key] for run in runs)


def first_words(corpus, words, target):
    taken = 0
    with open(corpus, encoding="utf-8") as text, open(target, "w", encoding="utf-8") as out:
        for line in text:
            out.write(line)
            taken += len(line.split())
            if taken >= words:
                break
    return taken


def speed(arguments, file, words, peers):
    print(f"\nspeed: training alone, {words:,} words, window 5, 5 negatives, 1 epoch")
    print(f"{'':34}{'size':>5}{'thr':>4}{'peer':>10}{'words/s':>11}{'ratio':>7}{'by CPU':>8}")
    for name, case in CASES.items():
        for size in arguments.sizes:
            for threads in arguments.threads:
                base = {"window": 5, "epochs": 1, "min_count": 5}
                runs = {who: [] for who in peers}
                for seed in range(arguments.repeats):
                    for who in peers:
                        settings = {**base, **case, "size": size, "threads": threads}
                        settings["seed"] = seed + 1
                        if who != "regard":
                            settings.pop("shared_negatives", None)
                        done = measure(who, "speed", file, words, **settings)
                        runs[who] += [done] if done else []
                ours = middle(runs["regard"], "words_per_second")
                our_cpu = middle(runs["regard"], "cpu") / runs["regard"][0]["words"]
                for who in filter(runs.get, peers):
                    theirs = middle(runs[who], "words_per_second")
                    cpu = middle(runs[who], "cpu") / runs[who][0]["words"]
                    print(
                        f"{name:34}{size:5}{threads:4}{who:>10}{theirs:11,.0f}"
                        f"{ours / theirs:7.2f}{cpu / our_cpu:8.2f}",
                        flush=True,
                    )


def end_to_end(arguments, file, words, peers):
    epochs = arguments.epochs
    print(f"\nend to end: {words:,} words, skip-gram, size 100, {epochs} epochs", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        few = Path(folder) / "few.txt"
        first_words(file, 10_000, few)
        measure("regard", "speed", few, 0, size=100, threads=1, seed=1, window=5, epochs=1)
    for threads in arguments.threads:
        runs = {who: [] for who in peers}
        for seed in range(arguments.repeats):
            for who in peers:
                settings = {"size": 100, "window": 5, "epochs": epochs, "threads": threads}
                settings |= {"seed": seed + 1, "min_count": 5}
                done = measure(who, "end", file, words, **settings)
                runs[who] += [done] if done else []
        for who in filter(runs.get, peers):
            print(
                f"{who:10} {threads} threads {middle(runs[who], 'seconds'):8.1f} s  "
                f"{middle(runs[who], 'seconds') / middle(runs['regard'], 'seconds'):5.2f} x  "
                f"peak {middle(runs[who], 'peak'):6.0f} MB",
                flush=True,
            )


def quality(arguments, file, words):
    epochs, seeds = arguments.epochs, arguments.seeds
    print(f"\nquality: {words:,} words, size 100, {epochs} epochs, {seeds} seeds")
    print(f"{'':34}{'peer':>8}{'WordSim':>9}{'SimLex':>9}{'analogies':>10}{'mean':>8}", flush=True)
    known = {}  # gensim has no shared negatives: two cases are one to it
    if arguments.results and arguments.results.exists():
        known |= dict(map(json.loads, arguments.results.read_text().splitlines()))
    for name, case in CASES.items():
        for who in ("regard", "gensim"):
            settings = {"size": 100, "window": 5, "epochs": epochs, "min_count": 5, **case}
            settings["threads"] = 1
            if who == "gensim":
                settings.pop("shared_negatives", None)
            scores = []
            for seed in range(1, seeds + 1):
                key = json.dumps([who, words, dict(sorted(settings.items())), seed])
                if key not in known:
                    done = measure(who, "quality", file, words, **settings, seed=seed)
                    known[key] = done["scores"]
                    if arguments.results:
                        with arguments.results.open("a") as results:
                            results.write(json.dumps([key, known[key]]) + "\n")
                scores.append(known[key])
                row = "".join(
                    f"{score:{width}.4f}"
                    for score, width in zip(scores[-1], (9, 9, 10), strict=True)
                )
                print(f"  seed {seed:<27}{who:>8}{row}", flush=True)
            means = [statistics.mean(column) for column in zip(*scores, strict=True)]
            print(
                f"{name:34}{who:>8}{means[0]:9.4f}{means[1]:9.4f}{means[2]:10.4f}"
                f"{statistics.mean(means):8.4f}",
                flush=True,
            )


def numbers(text):
    return [int(number) for number in text.split(",")]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("corpus", type=Path, nargs="?")
    parser.add_argument("--quick", action="store_true", help="a smoke run under a minute")
    parser.add_argument("--only", default="speed,end,quality")
    parser.add_argument("--cases", help="begin of the names of the cases to run, with semicolons")
    parser.add_argument("--words", type=int, default=2_000_000, help="for speed")
    parser.add_argument("--sizes", type=numbers, default=[100, 300])
    parser.add_argument("--threads", type=numbers, default=[1, 2])
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--results", type=Path, help="keeps each score of quality, to go on from")
    parser.add_argument("--peers", default="regard,gensim,fasttext", help="regard must be in it")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        child(json.loads(arguments.child))
        return
    if arguments.corpus is None:
        parser.error("name a text file, one paragraph a line")
    if arguments.quick:
        arguments.words, arguments.sizes, arguments.threads = 30_000, [100], [1]
        arguments.repeats = arguments.seeds = arguments.epochs = 1
        arguments.cases = arguments.cases or "skip-gram, own"
    if arguments.cases:
        begins = tuple(begin for begin in arguments.cases.split(";") if begin)
        for name in [name for name in CASES if not name.startswith(begins)]:
            del CASES[name]
    peers = arguments.peers.split(",")
    if "fasttext" in peers and find_spec("fasttext") is None:
        print("fastText is not installed and is left out")
        peers.remove("fasttext")
    with tempfile.TemporaryDirectory() as folder:
        part, words = Path(folder) / "part.txt", 0
        words = first_words(arguments.corpus, arguments.words, part)
        if arguments.quick:
            whole, all_words = part, words
        else:
            whole = arguments.corpus
            with open(whole, encoding="utf-8") as text:
                all_words = sum(len(line.split()) for line in text)
        if "speed" in arguments.only:
            speed(arguments, part, words, peers)
        if "end" in arguments.only:
            end_to_end(arguments, whole, all_words, peers)
        if "quality" in arguments.only:
            quality(arguments, whole, all_words)


if __name__ == "__main__":
    main()
