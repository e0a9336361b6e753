"""Word2Vec: its settings, and `fit`, which turns text into `WordVectors`.

Sources: Mikolov et al. 2013, "Efficient Estimation of Word Representations in Vector Space"
(skip-gram, CBOW) and "Distributed Representations of Words and Phrases and their
Compositionality" (negative sampling, subsampling); Ji et al. 2016, "Parallelizing Word2Vec in
Shared and Distributed Memory" (negatives shared by a window).
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from regard.errors import OptionError, unknown_name
from regard.text import EncodedCorpus, Segmenter
from regard.text.counting import give_back
from regard.vectors.checkpoint import check_checkpoint
from regard.vectors.encoding import Encoded, encode_lists, merge_words
from regard.vectors.trainer import Peers, Trainer
from regard.vectors.word_vectors import WordVectors

Count = Annotated[int, Field(ge=1)]


class Word2Vec(BaseModel):
    """Settings of word2vec; `fit` trains.

    Unknown names and values out of range are an `OptionError`.

    >>> texts = [["one", "two", "three"], ["two", "three", "four"]] * 20
    >>> vectors = Word2Vec(size=8, min_count=1, threads=1).fit(texts, progress=False)
    >>> vectors.matrix.shape
    (4, 8)
    """

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    mode: Literal["skipgram", "cbow"] = "skipgram"
    """skipgram: each word around a center against the center; cbow: their sum against it."""
    size: Annotated[int, Field(ge=1, le=65536)] = 100
    """Numbers a word."""
    window: Annotated[int, Field(ge=1, le=1000)] = 5
    """Words on each side of the center."""
    negatives: Annotated[int, Field(ge=0, le=1000)] = 5
    """Random words that the center is told from; 0 turns negative sampling off."""
    hierarchical_softmax: bool = False
    """Predict the path to the center in a tree of words; may be added to negatives."""
    min_count: Count = 5
    """Words seen less often are left out."""
    sample: Annotated[float, Field(ge=0, le=1)] = 1e-3
    """Words more frequent than this share are thinned out; 0 keeps all."""
    shrink_window: bool = True
    """Draw the window of each center from 1 to `window`, so that near words count more."""
    epochs: Count = 5
    """Times through the text."""
    alpha: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    """Learning rate at the start; by default 0.025, and 0.05 for cbow."""
    min_alpha: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1e-4
    """Learning rate at the end; between, it falls in a line with the words done."""
    shared_negatives: bool = True
    """One set of negatives serves a whole window of skip-gram, which is twice as fast; otherwise
    every pair draws its own. In cbow every center draws its own either way."""
    cbow_mean: bool = True
    """Average the context words of cbow; otherwise add them up."""
    cbow_gradient: Literal["word2vec", "mean"] = "word2vec"
    """word2vec: the whole gradient to each context word, as its authors' code; mean: divided by
    their number, the true gradient of the average."""
    threads: Count | None = None
    """Threads; one a core by default. With one and a seed, results are the same to the bit; with
    several, threads overwrite one another now and then, and no two runs are alike."""
    seed: Annotated[int, Field(ge=0)] = 1
    """Begins every random choice."""

    def __init__(self, **settings: Any):
        for name, choices in (
            ("mode", ["skipgram", "cbow"]),
            ("cbow_gradient", ["word2vec", "mean"]),
        ):
            value = settings.get(name, choices[0])
            if value not in choices:
                raise unknown_name(name, str(value), choices)
        for name in settings:
            if name not in type(self).model_fields:
                raise unknown_name("setting of Word2Vec", name, type(self).model_fields)
        try:
            super().__init__(**settings)
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(str(part) for part in first["loc"][:1])
            message = first["msg"][:1].lower() + first["msg"][1:]
            raise OptionError(f"{place}: {message}, got {first['input']!r}") from None
        if not self.negatives and not self.hierarchical_softmax:
            raise OptionError(
                "negatives=0 without hierarchical_softmax leaves nothing to learn; "
                "set negatives above 0 or hierarchical_softmax=True"
            )
        if self.min_alpha > self.first_rate:
            raise OptionError(
                f"min_alpha={self.min_alpha} is above alpha={self.first_rate}; "
                "the learning rate only falls"
            )

    @property
    def first_rate(self) -> float:
        """The learning rate at the start."""
        if self.alpha is not None:
            return self.alpha
        return 0.05 if self.mode == "cbow" else 0.025

    def fit(
        self,
        source: str | Path | EncodedCorpus | Iterable[Sequence[str]],
        *,
        vectors: WordVectors | None = None,
        segmenter: str | Segmenter = "whitespace",
        column: str | None = None,
        errors: str = "strict",
        encoded: str | Path | None = None,
        checkpoint: str | Path | None = None,
        checkpoint_every: float = 600.0,
        resume: bool = False,
        keep_output: bool = False,
        progress: bool = True,
        peers: Peers | None = None,
        average_every: int = 10_000_000,
    ) -> WordVectors:
        """Train on `source`: a file, folder or glob, an encoded corpus, or lists of tokens.

        A line (a list of tokens) is a text: windows end at its ends, whatever its length. Files
        are cut into tokens by `segmenter` and encoded once, into the folder `encoded` if it is
        given, where the next run finds them.

        With `vectors`, training continues from them: their words stay, words of the new text that
        occur `min_count` times join, counts add up. Their output rows continue too where they were
        saved along (`keep_output`), and begin at zero otherwise.

        `checkpoint` names a file that is written every `checkpoint_every` seconds and removed at
        the end; ``resume=True`` goes on from it. Each of several processes has its own, named
        after it and its rank. A file that is no checkpoint is refused. Ctrl-C ends training early:
        the vectors so far are returned.

        `peers` are the other processes of a distributed run: each trains its share of the lines,
        and all take the average every `average_every` words of one.

        ``extra["training"]`` of the result holds the settings, the mean loss of every epoch and
        for each objective, words per second, and whether training was stopped.
        """
        if resume and checkpoint is None:
            raise OptionError("resume=True needs checkpoint=, the file to go on from")
        if average_every < 1:
            raise OptionError(f"average_every must be 1 word or more, not {average_every}")
        if not checkpoint_every >= 0:
            raise OptionError(f"checkpoint_every must be 0 seconds or more, not {checkpoint_every}")
        if vectors is not None and vectors.matrix.shape[1] != self.size:
            raise OptionError(
                f"vectors have size {vectors.matrix.shape[1]}, these settings size={self.size}; "
                f"set size={vectors.matrix.shape[1]} to continue from them"
            )
        file = None if checkpoint is None else Path(checkpoint)
        if file is not None:
            if peers is not None and peers.size > 1:
                file = file.with_name(f"{file.name}.{peers.rank}")
            check_checkpoint(file)
        with TemporaryDirectory(prefix="regard-") as scratch:
            folder = Path(scratch) / "corpus" if encoded is None else Path(encoded)
            corpus = self._encode(source, folder, vectors, segmenter, column, errors)
            words = merge_words(corpus, self.min_count, vectors)
            trainer = Trainer(self, corpus, words, vectors, peers, average_every)
            if file is not None:
                trainer.keep(file, checkpoint_every, resume)
            trainer.run(progress)
            matrix, about = trainer.finish(keep_output)
        return WordVectors(words.tokens, matrix, words.counts, about)

    def _encode(
        self,
        source: str | Path | EncodedCorpus | Iterable[Sequence[str]],
        folder: Path,
        vectors: WordVectors | None,
        segmenter: str | Segmenter,
        column: str | None,
        errors: str,
    ) -> Encoded:
        if isinstance(source, str | Path):
            source = EncodedCorpus.build(
                source,
                folder,
                segmenter=segmenter,
                min_count=self.min_count if vectors is None else 1,
                specials=(),
                column=column,
                errors=errors,
            )
            give_back()  # what encoding took, before the tables come
        if isinstance(source, EncodedCorpus):
            vocabulary = source.vocabulary
            ids, offsets = np.asarray(source.ids), np.asarray(source.offsets)
            return Encoded(ids, offsets, vocabulary.tokens, np.asarray(vocabulary.counts))
        if isinstance(source, bytes) or not isinstance(source, Iterable):
            raise OptionError(
                f"nothing to train on in {source!r:.40}; give a path, an encoded corpus, or lists "
                "of tokens"
            )
        return encode_lists(source)
