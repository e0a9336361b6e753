"""``regard vectors train``: word vectors from text."""

import os
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from regard.cli.vectors import load_vectors
from regard.errors import DataError, OptionError, RegardError
from regard.text.sources import find_sources
from regard.vectors import formats
from regard.vectors.trainer import Peers
from regard.vectors.word2vec import Word2Vec
from regard.vectors.word_vectors import WordVectors


def train(
    source: Annotated[str, Parameter(allow_leading_hyphen=True)],
    /,
    *,
    output: Annotated[Path, Parameter(name=["--output", "-o"])],
    settings: Annotated[Word2Vec | None, Parameter(name="*")] = None,
    segmenter: str = "whitespace",
    column: str | None = None,
    errors: str = "strict",
    encoded: Path | None = None,
    vectors: Path | None = None,
    checkpoint: Path | None = None,
    checkpoint_every: float = 600.0,
    resume: Annotated[bool, Parameter(negative=())] = False,
    keep_output: Annotated[bool, Parameter(negative=())] = False,
    average_every: int = 10_000_000,
    quiet: Annotated[bool, Parameter(negative=())] = False,
) -> None:
    """Train word vectors with word2vec.

    Ctrl-C ends training early; the vectors so far are saved. Over several processes:
    ``torchrun --nproc-per-node N -m regard vectors train SOURCE -o OUT``.

    Parameters
    ----------
    source
        A text file (plain, .gz, .zst, .csv, .tsv, .jsonl, .parquet), a folder, a glob, or - for
        standard input; a paragraph a line.
    output
        Where the vectors go; the suffix tells the format, .safetensors keeps everything.
    settings
        The settings of word2vec.
    segmenter
        What cuts text into words: whitespace, words, jieba, characters, …
    column
        The column of the text in a table.
    errors
        What to do with bytes that are not the file's encoding: strict stops, replace puts U+FFFD.
    encoded
        A folder for the text as numbers, found again by the next run.
    vectors
        Word vectors to go on from; new words join them.
    checkpoint
        A file to keep the state of the run in.
    checkpoint_every
        Seconds between two checkpoints.
    resume
        Go on from the checkpoint.
    keep_output
        Save the output rows too, so that training can go on from the result.
    average_every
        Words of one process between two averages, over several processes.
    quiet
        Show no progress.
    """
    formats.check_output(output)
    if output.exists() and any(
        one.path is not None and one.path.exists() and one.path.samefile(output)
        for one in find_sources(source)
    ):
        raise OptionError(f"{output} is the text to train on, and would be lost; name another file")
    start = None if vectors is None else load_vectors(vectors)
    settings = settings or Word2Vec()
    if start is not None and "size" not in settings.model_fields_set:
        settings = settings.model_copy(update={"size": start.size})
    with _peers() as peers:
        first = peers is None or peers.rank == 0
        trained = settings.fit(
            source if source == "-" else Path(source),
            vectors=start,
            segmenter=segmenter,
            column=column,
            errors=errors,
            encoded=encoded,
            checkpoint=checkpoint,
            checkpoint_every=checkpoint_every,
            resume=resume,
            keep_output=keep_output,
            progress=first and not quiet,
            peers=peers,
            average_every=average_every,
        )
    if not first:
        return
    _save(trained, output)
    about = trained.extra["training"]
    for name, losses in about["loss"].items():
        means = " ".join(f"{loss:.4f}" for loss in losses)
        print(f"{name.replace('_', ' ')}, mean loss of each epoch: {means}")
    print(
        f"{output}: {len(trained)} words x {trained.size}, {about['words_per_second']:,.0f} words/s"
        + (", stopped early" if about["stopped"] else "")
    )


def _save(trained: WordVectors, output: Path) -> None:
    """Write the vectors; where the format asked for cannot hold them, beside it as regard's own."""
    try:
        trained.save(output)
    except RegardError as error:
        kept = output.with_name(f"{output.name}.safetensors")
        trained.save(kept)
        raise DataError(f"{error}; the vectors that were trained are kept in {kept}") from None


def _peers() -> AbstractContextManager[Peers | None]:
    """The other processes, if torchrun started several."""
    if "WORLD_SIZE" not in os.environ:
        return nullcontext()
    from regard.training.peers import TorchPeers, started_by_torchrun

    return TorchPeers() if started_by_torchrun() else nullcontext()
