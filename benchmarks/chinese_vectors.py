"""Word vectors of Chinese text cut by jieba, beside gensim's: what comes out, shown and judged.

    python benchmarks/chinese_vectors.py zh_modern.txt [--quick] [--epochs 15] [--save FILE]

The text has a paragraph a line. gensim trains on the same words (its corpus_file mode) with the
same settings and as many epochs. One thread and a seed, so that the result is the same on every run
with the same regard, Numba and processor. Prints the corpus, the speed of training, the nearest
neighbors of some words, some analogies, and the accuracy of both on regard's Chinese analogies.
"""

import argparse
import tempfile
import time
from itertools import islice
from pathlib import Path

WORDS = ["北京", "经济", "酒店", "老师", "足球", "内核", "春天", "高兴"]
ANALOGIES = [
    ("中国", "北京", "日本"),
    ("中国", "北京", "法国"),
    ("湖北", "武汉", "湖南"),
    ("父亲", "母亲", "儿子"),
    ("增加", "减少", "提高"),
]


def train_gensim(corpus, file, settings):
    """gensim on the same words: its vectors, and words a second of training alone."""
    from gensim.models import Word2Vec

    from regard.vectors import WordVectors

    tokens = corpus.vocabulary.tokens
    with file.open("w", encoding="utf-8") as out:
        for ids in corpus:
            out.write(" ".join(tokens[i] for i in ids) + "\n")
    model = Word2Vec(
        vector_size=settings.size,
        window=settings.window,
        negative=settings.negatives,
        sg=1,
        min_count=1,
        workers=1,
        seed=settings.seed,
        epochs=settings.epochs,
    )
    model.build_vocab(corpus_file=str(file))
    started = time.perf_counter()
    model.train(
        corpus_file=str(file),
        total_words=model.corpus_total_words,
        total_examples=model.corpus_count,
        epochs=settings.epochs,
    )
    speed = len(corpus.ids) * settings.epochs / (time.perf_counter() - started)
    counts = [model.wv.get_vecattr(word, "count") for word in model.wv.index_to_key]
    return WordVectors(model.wv.index_to_key, model.wv.vectors, counts), speed


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("corpus", type=Path, nargs="?", help="a text file, a paragraph a line")
    parser.add_argument("--quick", action="store_true", help="the first 3000 lines, one epoch")
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--size", type=int, default=100)
    parser.add_argument("--save", type=Path, help="keep the vectors in this file")
    arguments = parser.parse_args()
    if arguments.corpus is None:
        parser.error("name a text file")

    from regard.text import EncodedCorpus
    from regard.vectors import Word2Vec
    from regard.vectors.evaluation import chinese_analogies, evaluate_analogies

    with tempfile.TemporaryDirectory() as name:
        source = arguments.corpus
        if arguments.quick:
            arguments.epochs = 1
            with source.open(encoding="utf-8") as file:
                few = "".join(islice(file, 3000))
            source = Path(name) / "few.txt"
            source.write_text(few, encoding="utf-8")
        start = time.perf_counter()
        corpus = EncodedCorpus.build(
            source, Path(name) / "corpus", segmenter="jieba", min_count=5, specials=()
        )
        seconds = time.perf_counter() - start
        print(
            f"{len(corpus)} paragraphs, {len(corpus.ids)} words, {len(corpus.vocabulary)} "
            f"different that occur 5 times or more; cut and encoded in {seconds:.0f} s"
        )
        settings = Word2Vec(size=arguments.size, window=5, epochs=arguments.epochs, threads=1)
        Word2Vec(min_count=1, threads=1).fit([["一", "二"]] * 9, progress=False)  # compiles
        vectors = settings.fit(corpus, progress=False)
        about = vectors.extra["training"]
        print(
            f"skip-gram, size {settings.size}, window 5, 5 negatives, {settings.epochs} epochs, 1 "
            f"thread: {about['words_per_second']:,.0f} words/s, mean loss "
            f"{about['loss']['negative_sampling'][0]:.4f} in the first epoch, "
            f"{about['loss']['negative_sampling'][-1]:.4f} in the last"
        )
        if arguments.save:
            vectors.save(arguments.save)
        theirs, speed = train_gensim(corpus, Path(name) / "cut.txt", settings)
        print(f"gensim with the same settings: {speed:,.0f} words/s")

    print("\nnearest neighbors")
    for word in WORDS:
        if word in vectors:
            found = vectors.nearest(word, top=6)
            print(f"  {word}: " + "  ".join(f"{n.token} {n.similarity:.2f}" for n in found))
    print("\nanalogies")
    for a, b, c in ANALOGIES:
        if all(word in vectors for word in (a, b, c)):
            found = vectors.analogy(a, b, c, top=3)
            answers = "  ".join(f"{n.token} {n.similarity:.2f}" for n in found)
            print(f"  {a} : {b} = {c} : {answers}")
    ours, peer = (evaluate_analogies(both, chinese_analogies()) for both in (vectors, theirs))
    print(f"\n{ours.questions} Chinese analogies: regard, gensim")
    for mine, other in zip([*ours.sections, ours.total], [*peer.sections, peer.total], strict=True):
        asked = len(mine.correct) + len(mine.wrong)
        print(
            f"  {mine.name}: {len(mine.correct)} and {len(other.correct)} of {asked} solved "
            f"({mine.accuracy:.1%} and {other.accuracy:.1%}), {mine.unknown} with an unknown word"
        )


if __name__ == "__main__":
    main()
