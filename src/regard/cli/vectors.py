"""``regard vectors``: train word vectors, ask them, judge them, convert their files."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

from cyclopts import App, Parameter
from rich.table import Table
from rich.text import Text

from regard.cli._console import Console

if TYPE_CHECKING:
    from regard.vectors.word_vectors import Neighbor, WordVectors

app = App(name="vectors", help="Train word vectors, ask them, judge them, convert their files.")
app.command("regard.cli._vectors_train:train", name="train")


@app.command
def nearest(
    file: Path,
    words: Annotated[list[str], Parameter(negative=())],
    /,
    *,
    top: int = 10,
    restrict: int | None = None,
    limit: int | None = None,
) -> None:
    """Print the words nearest to each of WORDS.

    Parameters
    ----------
    file
        Word vectors, in any format that regard reads.
    words
        The words to ask for.
    top
        How many neighbors to print.
    restrict
        Look among this many of the first (most frequent) words only.
    limit
        Read this many of the first rows only.
    """
    vectors = load_vectors(file, limit=limit)
    found = cast("list[list[Neighbor]]", vectors.nearest(words, top=top, restrict=restrict))
    for word, neighbors in zip(words, found, strict=True):
        _print_neighbors(word, neighbors)


@app.command
def analogy(
    file: Path,
    a: str,
    b: str,
    c: str,
    /,
    *,
    top: int = 5,
    restrict: int | None = None,
    limit: int | None = None,
) -> None:
    """Print what C is to, as A is to B: ``regard vectors analogy FILE 日本 东京 法国``.

    Parameters
    ----------
    file
        Word vectors, in any format that regard reads.
    a
        The first word of the pair that is known.
    b
        The second word of the pair that is known.
    c
        The first word of the pair that is sought.
    top
        How many answers to print.
    restrict
        Look among this many of the first (most frequent) words only.
    limit
        Read this many of the first rows only.
    """
    vectors = load_vectors(file, limit=limit)
    answers = vectors.analogy(a, b, c, top=top, restrict=restrict)
    _print_neighbors(f"{a} : {b} = {c} : ?", answers)


@app.command
def convert(
    source: Path,
    target: Path,
    /,
    *,
    from_: Annotated[str | None, Parameter(name="--from")] = None,
    to: str | None = None,
    limit: int | None = None,
    errors: str = "strict",
    dtype: str | None = None,
    counts: Path | None = None,
    save_counts: Path | None = None,
) -> None:
    """Convert a file of word vectors to another format, told by the suffix of TARGET.

    Parameters
    ----------
    source
        Word vectors, in any format that regard reads; the content tells which.
    target
        The file to write: .safetensors, .txt, .vec, .bin (word2vec) or .glove, and .gz or .zst
        after it to compress.
    from_
        The format of SOURCE, where its content does not tell.
    to
        The format of TARGET, where its suffix does not tell.
    limit
        Convert this many of the first rows only.
    errors
        What to do with damaged rows: strict stops, replace and ignore leave them out.
    dtype
        The type of the numbers: float16, float32 or float64.
    counts
        A file of ``word count`` lines to read the counts from.
    save_counts
        A file to write ``word count`` lines to.
    """
    vectors = load_vectors(
        source, format=from_, limit=limit, errors=errors, dtype=dtype, counts=counts
    )
    vectors.save(target, format=to, dtype=dtype, counts=save_counts)
    Console().print(Text(f"{target}: {len(vectors)} words x {vectors.size}"), soft_wrap=True)


@app.command
def evaluate(
    file: Path,
    sets: Annotated[list[Path] | None, Parameter(negative=())] = None,
    /,
    *,
    chinese: Annotated[bool, Parameter(negative=())] = False,
    restrict: int = 300_000,
    keep_case: Annotated[bool, Parameter(negative=())] = False,
    count_unknown: Annotated[bool, Parameter(negative=())] = False,
    encoding: str = "utf-8",
    limit: int | None = None,
) -> None:
    """Compare word vectors with people's judgments, and let them solve analogies.

    Parameters
    ----------
    file
        Word vectors, in any format that regard reads.
    sets
        Sets of word pairs with a judgment (WordSim-353, SimLex-999, …) or of analogies
        (questions-words.txt, …); the content tells which.
    chinese
        Solve the Chinese analogies that come with regard.
    restrict
        Ask about, and search among, this many of the first (most frequent) words.
    keep_case
        Tell capitals from small letters.
    count_unknown
        Count pairs with an unknown word as cosine 0, analogies with one as not solved.
    encoding
        How the sets are encoded.
    limit
        Read this many of the first rows only.
    """
    from regard.errors import OptionError
    from regard.vectors import evaluation

    paths = list(sets or [])
    if chinese:
        paths.append(evaluation.chinese_analogies())
    if not paths:
        raise OptionError("no set to evaluate on: name files, or give --chinese")
    kinds = [evaluation.kind_of_set(path, encoding) for path in paths]
    vectors = load_vectors(file, limit=limit)
    judged = [path for path, kind in zip(paths, kinds, strict=True) if kind == "similarity"]
    solved = [path for path, kind in zip(paths, kinds, strict=True) if kind == "analogies"]
    if judged:
        table = Table("set", title="Similarity", title_justify="left")
        for heading in ("Spearman", "Pearson", "pairs", "unknown"):
            table.add_column(heading, justify="right")
        for path in judged:
            result = evaluation.evaluate_similarity(
                vectors,
                path,
                encoding=encoding,
                restrict=restrict,
                ignore_case=not keep_case,
                unknown="zero" if count_unknown else "skip",
            )
            table.add_row(
                Text(result.name),
                f"{result.spearman:.4f}",
                f"{result.pearson:.4f}",
                str(result.pairs),
                f"{result.unknown_share:.1%}",
            )
        Console().print(table)
    for path in solved:
        outcome = evaluation.evaluate_analogies(
            vectors,
            path,
            encoding=encoding,
            restrict=restrict,
            ignore_case=not keep_case,
            unknown="wrong" if count_unknown else "skip",
        )
        table = Table("section", title=Text(f"Analogies: {outcome.name}"), title_justify="left")
        for heading in ("solved", "asked", "accuracy", "unknown"):
            table.add_column(heading, justify="right")
        for section in [*outcome.sections, outcome.total]:
            if section.name == "total":
                table.add_section()
            asked = len(section.correct) + len(section.wrong)
            table.add_row(
                Text(section.name),
                str(len(section.correct)),
                str(asked),
                f"{section.accuracy:.1%}" if asked else "-",
                str(section.unknown),
            )
        Console().print(table)


def _print_neighbors(title: str, neighbors: list[Neighbor]) -> None:
    table = Table("", "word", title=Text(title), title_justify="left")
    table.add_column("similarity", justify="right")
    for rank, neighbor in enumerate(neighbors, 1):
        table.add_row(str(rank), Text(neighbor.token), f"{neighbor.similarity:.4f}")
    Console().print(table)


def load_vectors(file: Path, **options: Any) -> WordVectors:
    """The vectors in `file`; what is amiss but bearable is told on standard error."""
    from regard.vectors.word_vectors import WordVectors

    with _plain_warnings():
        return WordVectors.load(file, **options)


@contextmanager
def _plain_warnings() -> Iterator[None]:
    """Print warnings as one line each, ``regard: warning: …``."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        yield
    for warning in caught:
        print(f"regard: warning: {warning.message}", file=sys.stderr)
