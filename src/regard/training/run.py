"""A whole run: labelled texts in, a trained and measured model out."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from regard.errors import DataError, OptionError, StorageError
from regard.models import Classifier, save
from regard.models.settings import TextSettings
from regard.models.storage import CONFIG, write_json
from regard.text import Segmenter, Vocabulary, segmenters
from regard.text.storage import fcntl, new_file
from regard.training.baselines import NaiveBayes, majority
from regard.training.data import Dropped, Labelled, deduplicate, read_labelled, split
from regard.training.loop import CHECKPOINT, Epoch, Examples, Trainer, signature_of
from regard.training.metrics import Metrics, measure
from regard.training.settings import ClassifyConfig, DataSettings

METRICS, TEST = "metrics.json", "test.jsonl"


@dataclass(frozen=True)
class Splits:
    """The texts that train, that decide when to stop, and that are only measured on."""

    train: Labelled
    validation: Labelled
    test: Labelled | None
    dropped: Dropped


@dataclass(frozen=True)
class Run:
    """A finished run; `test` and the baselines are None where there was no test."""

    model: Classifier
    config: ClassifyConfig
    splits: Splits
    history: list[Epoch]
    test: Metrics | None
    majority: Metrics | None
    naive_bayes: Metrics | None
    truncated: int
    folder: Path | None

    def metrics(self) -> dict[str, Any]:
        """What ``metrics.json`` holds."""
        parts = {"train": self.splits.train, "validation": self.splits.validation}
        if self.splits.test is not None:
            parts["test"] = self.splits.test
        return {
            "texts": {name: len(part) for name, part in parts.items()},
            "dropped": asdict(self.splits.dropped),
            "truncated": self.truncated,
            "vocabulary": len(self.model.vocabulary),
            "parameters": sum(p.numel() for p in self.model.parameters()),
            "history": [asdict(epoch) for epoch in self.history],
            "test": asdict(self.test) if self.test else None,
            "majority": asdict(self.majority) if self.majority else None,
            "naive_bayes": asdict(self.naive_bayes) if self.naive_bayes else None,
        }


def fit(
    config: ClassifyConfig, output: str | Path | None = None, *, overwrite: bool = False
) -> Run:
    """Train what `config` describes; with `output`, everything is saved in that folder.

    A run that was stopped goes on from its last epoch when it is started again with the same
    settings and texts. `OptionError` if the folder holds another run, unless `overwrite`: then that
    run stays until the new one is trained.
    """
    if output is None:
        return _fit(config, None, overwrite)
    folder = Path(output)
    _make_room(folder, overwrite)
    with _alone(folder):
        return _fit(config, folder, overwrite)


def _fit(config: ClassifyConfig, folder: Path | None, overwrite: bool) -> Run:
    if config.labels:
        raise OptionError("labels are read from the texts; leave the setting out")
    splits = read_splits(config.data, config.training.seed)
    text = config.text
    segmenter = make_segmenter(text, splits.train.texts)
    tokens = segmenter.split(splits.train.texts)
    vocabulary = Vocabulary.count(tokens, text.min_count, text.max_size)
    config = config.model_copy(update={"labels": tuple(sorted(set(splits.train.labels)))})
    torch.manual_seed(config.training.seed)
    model = _make_model(config, vocabulary, segmenter)
    training, validation = _examples(model, splits.train), _examples(model, splits.validation)
    signature = _signature(config, splits)
    if folder is not None and overwrite and signature_of(folder / CHECKPOINT) != signature:
        (folder / CHECKPOINT).unlink(missing_ok=True)
    trainer = Trainer(model, config.training, folder, signature)
    board = folder / "tensorboard" if folder and config.training.tensorboard else None
    history = trainer.fit(training, validation, board)
    run = Run(
        model=model,
        config=config,
        splits=splits,
        history=history,
        **_measured(model, splits),
        truncated=sum(len(row) > text.max_tokens for row in tokens),
        folder=folder,
    )
    if folder is not None:
        (folder / CONFIG).unlink(missing_ok=True)
        write_json(folder / METRICS, run.metrics())
        if splits.test is not None:
            _write_labelled(folder / TEST, splits.test, config.data)
        save(model, folder, config)
        (folder / CHECKPOINT).unlink(missing_ok=True)
    return run


def evaluate(model: Classifier, data: Labelled) -> Metrics:
    """The model's predictions for `data` against its labels, which training must have seen."""
    check_labels(data, model.labels)
    return measure([p.label for p in model.predict(data.texts)], data.labels)


def read_splits(data: DataSettings, seed: int) -> Splits:
    """Read the files, drop duplicates, then split: no text stands in two parts."""
    if data.train is None:
        raise OptionError("no texts to train on; name a .csv, .tsv, .jsonl or .parquet file")
    columns = data.text_column, data.label_column
    whole, dropped = read_labelled(data.train, *columns), Dropped()
    if data.deduplicate:
        whole, dropped = deduplicate(whole)
    given = {
        name: read_labelled(path, *columns)
        for name, path in (("validation", data.validation), ("test", data.test))
        if path is not None
    }
    if len(given) == 2 and data.deduplicate:
        shared = set(given["validation"].texts).intersection(given["test"].texts)
        if shared:
            raise DataError(
                f"{given['validation'].source} and {given['test'].source} share {len(shared)} "
                f"texts, such as {min(shared)[:20]!r}; a text may stand in one of them only"
            )
    if given and data.deduplicate:
        whole, leaked = without(whole, [text for part in given.values() for text in part.texts])
        dropped = Dropped(dropped.repeated + leaked, dropped.contradictory)
    labels = sorted(set(whole.labels))
    if len(labels) < 2:
        only = f"only the label {labels[0]!r}" if labels else "no text left after duplicates"
        raise DataError(f"{whole.source} has {only}; a classifier needs two labels or more")
    shares = {
        name: share
        for name, share in (("validation", data.validation_share), ("test", data.test_share))
        if name not in given
    }
    if sum(shares.values()) >= 1:
        raise OptionError(f"shares of {shares} leave nothing to train on; make them smaller")
    parts = split(whole, shares, seed) | given
    train = parts["train"]
    for name in ("validation", "test"):
        check_labels(parts[name], sorted(set(train.labels)))
    if not len(parts["validation"]):
        raise OptionError(
            "validation_share is 0 and no validation file is given, but validation decides when to "
            "stop; give either"
        )
    return Splits(
        train, parts["validation"], parts["test"] if len(parts["test"]) else None, dropped
    )


def without(data: Labelled, texts: Sequence[str]) -> tuple[Labelled, int]:
    """`data` without those of `texts`, and how many were left out."""
    held_out = set(texts)
    kept = [i for i, text in enumerate(data.texts) if text not in held_out]
    rest = Labelled([data.texts[i] for i in kept], [data.labels[i] for i in kept], data.source)
    return rest, len(data) - len(kept)


def check_labels(data: Labelled, known: Sequence[str]) -> None:
    """`DataError` for a label that training never saw."""
    unseen = sorted(set(data.labels) - set(known))
    if unseen:
        text = data.texts[data.labels.index(unseen[0])]
        raise DataError(
            f"{data.source} has the label {unseen[0]!r} (of {text[:20]!r}), which training never "
            f"saw; known: {', '.join(known)}"
        )


def make_segmenter(settings: TextSettings, texts: Sequence[str]) -> Segmenter:
    """The segmenter that `settings` name, trained on `texts` if it is one that learns."""
    segmenter = segmenters.create(
        settings.segmenter, normalization=settings.normalization, lowercase=settings.lowercase
    )
    train = getattr(segmenter, "train", None)
    return train(texts, size=settings.subwords) if train else segmenter


def usable_device(name: str) -> torch.device:
    """The device called `name`, if this machine has it."""
    try:
        device = torch.device(name)
        torch.zeros(1, device=device).cpu()
    except (RuntimeError, AssertionError, ImportError) as error:
        reason = str(error).split("\n")[0]
        raise OptionError(f"device {name!r} cannot be used: {reason}; try cpu") from None
    return device


def _make_room(folder: Path, overwrite: bool) -> None:
    try:
        if folder.exists() and not folder.is_dir():
            raise StorageError(f"{folder} is a file; name a new folder")
        if not overwrite and (folder / CONFIG).exists():
            raise OptionError(
                f"{folder} holds a finished run; name a new folder, or pass overwrite to replace it"
            )
        folder.mkdir(parents=True, exist_ok=True)
    except StorageError:
        raise
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise StorageError(f"cannot write {folder}: {reason}") from None


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Holds the folder's lock; `OptionError` if another process trains into it."""
    path = folder / "training.lock"
    try:
        with open(path, "wb") as lock:
            if fcntl is not None:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    raise OptionError(
                        f"another process is training into {folder}; wait for it, or name another "
                        "folder"
                    ) from None
            try:
                yield
            finally:
                path.unlink(missing_ok=True)
    except PermissionError as error:
        raise StorageError(f"cannot write {folder}: {(error.strerror or '').lower()}") from None


def _make_model(config: ClassifyConfig, vocabulary: Vocabulary, segmenter: Segmenter) -> Classifier:
    device = usable_device(config.training.device)
    try:
        return Classifier(config, vocabulary, segmenter).to(device)
    except RuntimeError as error:
        if "memory" not in str(error):
            raise
        raise OptionError(
            f"a model of width {config.encoder.width} and {config.encoder.layers} layers does not "
            "fit the memory; make it smaller"
        ) from None


def _write_labelled(path: Path, data: Labelled, settings: DataSettings) -> None:
    """Texts and labels as a table that `read_labelled` reads with the same settings."""
    with new_file(path) as new, open(new, "w", encoding="utf-8") as table:
        for text, label in zip(data.texts, data.labels, strict=True):
            row = {settings.text_column: text, settings.label_column: label}
            table.write(json.dumps(row, ensure_ascii=False) + "\n")


def _signature(config: ClassifyConfig, splits: Splits) -> str:
    """Equal for two runs exactly when they have the same settings and texts."""
    digest = hashlib.sha256()
    for part in (splits.train, splits.validation):
        digest.update(json.dumps([part.texts, part.labels]).encode())
    return f"{digest.hexdigest()} {config.model_dump_json(exclude={'data'})}"


def _examples(model: Classifier, data: Labelled) -> Examples:
    index = {label: i for i, label in enumerate(model.labels)}
    return Examples(model.encode(data.texts), torch.tensor([index[label] for label in data.labels]))


def _measured(model: Classifier, splits: Splits) -> dict[str, Metrics | None]:
    if splits.test is None:
        return {"test": None, "majority": None, "naive_bayes": None}
    train, test = splits.train, splits.test
    bayes = NaiveBayes(train.texts, train.labels)
    return {
        "test": evaluate(model, test),
        "majority": measure([majority(train.labels)] * len(test), test.labels),
        "naive_bayes": measure([bayes.predict(text) for text in test.texts], test.labels),
    }
