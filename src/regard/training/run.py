"""A whole run: texts in, a trained and measured model out."""

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from regard.errors import DataError, OptionError, StorageError
from regard.models import TextModel, save
from regard.models.storage import CONFIG, write_json
from regard.text.storage import fcntl, new_file
from regard.training import tasks
from regard.training.data import Dataset, Dropped, deduplicate, split, without
from regard.training.loop import CHECKPOINT, Epoch, Trainer, signature_of
from regard.training.settings import Config, DataSettings, FileSettings, PairsSettings
from regard.training.tasks import Task

METRICS, TEST = "metrics.json", "test.jsonl"


@dataclass(frozen=True)
class Splits:
    """The items that train, that decide when to stop, and that are only measured on."""

    train: Any
    validation: Any
    test: Any
    dropped: Dropped


@dataclass(frozen=True)
class Run:
    """A finished run; `test` is None and `baselines` are empty where there was no test.

    `best` is the epoch whose weights the model has. What `test` and the baselines hold depends on
    the task: see `regard.training.metrics`.
    """

    model: Any
    config: Config
    splits: Splits
    history: list[Epoch]
    best: Epoch
    test: Any
    baselines: dict[str, Any]
    truncated: int
    folder: Path | None

    @property
    def majority(self) -> Any:
        """A classifier's baseline: always the most frequent label."""
        return self.baselines.get("majority")

    @property
    def naive_bayes(self) -> Any:
        """A classifier's baseline: naive Bayes on character bigrams."""
        return self.baselines.get("naive_bayes")

    def metrics(self) -> dict[str, Any]:
        """What ``metrics.json`` holds."""
        parts = {"train": self.splits.train, "validation": self.splits.validation}
        if self.splits.test is not None:
            parts["test"] = self.splits.test
        baselines = dict.fromkeys(("majority", "naive_bayes")) if _classifies(self.config) else {}
        baselines |= {name: asdict(found) for name, found in self.baselines.items()}
        return {
            "texts": {name: len(part) for name, part in parts.items()},
            "dropped": asdict(self.splits.dropped),
            "truncated": self.truncated,
            "vocabulary": len(self.model.vocabulary),
            "parameters": sum(p.numel() for p in self.model.parameters()),
            "history": [asdict(epoch) for epoch in self.history],
            "test": asdict(self.test) if self.test else None,
            **baselines,
        }


def fit(config: Config, output: str | Path | None = None, *, overwrite: bool = False) -> Run:
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


def _fit(config: Any, folder: Path | None, overwrite: bool) -> Run:
    task = tasks.get(config.task)
    splits = read_splits(config, task)
    config, make, truncated = task.prepare(config, splits.train)
    torch.manual_seed(config.training.seed)
    model = _make_model(config, make)
    training, validation = (task.examples(model, p) for p in (splits.train, splits.validation))
    signature = _signature(config, splits)
    if folder is not None and overwrite and signature_of(folder / CHECKPOINT) != signature:
        (folder / CHECKPOINT).unlink(missing_ok=True)
    trainer = Trainer(model, task, config.training, folder, signature)
    board = folder / "tensorboard" if folder and config.training.tensorboard else None
    history = trainer.fit(training, validation, board)
    tested = splits.test is not None
    parts = splits.train, splits.validation, splits.test
    run = Run(
        model=model,
        config=config,
        splits=splits,
        history=history,
        best=max(history, key=trainer.key),
        test=task.evaluate(model, splits.test) if tested else None,
        baselines=task.baselines(model, *parts) if tested else {},
        truncated=truncated,
        folder=folder,
    )
    if folder is not None:
        (folder / CONFIG).unlink(missing_ok=True)
        write_json(folder / METRICS, run.metrics())
        if splits.test is not None:
            _write_items(folder / TEST, splits.test, config.data)
        save(model, folder, config)
        (folder / CHECKPOINT).unlink(missing_ok=True)
    return run


def evaluate(model: Any, data: Dataset) -> Any:
    """How good a model is on `data`, measured as its task measures the test of a run.

    A label that a classifier never saw in training is a `DataError`.
    """
    return tasks.get(model.settings.task).evaluate(model, data)


def read_splits(config: Any, task: type[Task]) -> Splits:
    """Read the files, drop duplicates, then split: no text stands in two parts."""
    data: FileSettings = config.data
    if data.train is None:
        raise OptionError(f"no texts to train on; name {WANTED[config.task]}")
    whole: Any = task.read(data.train, data)
    dropped = Dropped()
    if data.deduplicate:
        whole, dropped = deduplicate(whole)
    given: dict[str, Any] = {
        name: task.read(path, data)
        for name, path in (("validation", data.validation), ("test", data.test))
        if path is not None
    }
    if len(given) == 2 and data.deduplicate:
        shared = set(given["validation"].identities()).intersection(given["test"].identities())
        if shared:
            raise DataError(
                f"{given['validation'].source} and {given['test'].source} share {len(shared)} "
                f"{whole.noun}, such as {_shown(min(shared))!r}; a text may stand in one of them "
                "only"
            )
    if given and data.deduplicate:
        held_out = [one for part in given.values() for one in part.identities()]
        whole, leaked = without(whole, held_out)
        dropped = Dropped(dropped.repeated + leaked, dropped.contradictory)
    task.check({"train": whole})
    shares = {
        name: share
        for name, share in (("validation", data.validation_share), ("test", data.test_share))
        if name not in given
    }
    if sum(shares.values()) >= 1:
        raise OptionError(f"shares of {shares} leave nothing to train on; make them smaller")
    parts = split(whole, shares, config.training.seed) | given
    task.check(parts)
    if not len(parts["validation"]):
        raise OptionError(
            "validation_share is 0 and no validation file is given, but validation decides when to "
            "stop; give either"
        )
    test = parts["test"] if len(parts["test"]) else None
    return Splits(parts["train"], parts["validation"], test, dropped)


WANTED = {
    "classify": "a .csv, .tsv, .jsonl or .parquet file",
    "tag": "a .jsonl file with lists tokens and tags, or a file of word, tab, tag lines",
    "language": "a file, folder or glob of text",
    "sequence": "a .csv, .tsv, .jsonl or .parquet file",
}
"""What each task learns from."""


def _classifies(config: Any) -> bool:
    return config.task == "classify"


def _shown(key: Any) -> str:
    return (key if isinstance(key, str) else " ".join(key))[:20]


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
                f"{folder} holds a finished run; name a new folder, or pass overwrite "
                "(--overwrite) to replace it"
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


def _make_model(config: Any, make: Any) -> TextModel:
    device = usable_device(config.training.device)
    try:
        return make(config).to(device)
    except RuntimeError as error:
        if "memory" not in str(error):
            raise
        layers = config.decoder if config.task == "language" else config.encoder
        raise OptionError(
            f"a model of width {layers.width} and {layers.layers} layers does not fit the memory; "
            "make it smaller"
        ) from None


def _write_items(path: Path, data: Dataset, settings: FileSettings) -> None:
    """The items as .jsonl, which the task reads with the same settings."""
    names: dict[str, str] = {"lines": "text"}
    if isinstance(settings, DataSettings):
        names = {"texts": settings.text_column, "labels": settings.label_column}
    elif isinstance(settings, PairsSettings):
        names = {"sources": settings.source_column, "targets": settings.target_column}
    with new_file(path) as new, open(new, "w", encoding="utf-8") as table:
        for row in data.rows():
            named = {names.get(name, name): value for name, value in row.items()}
            table.write(json.dumps(named, ensure_ascii=False) + "\n")


def _signature(config: Any, splits: Splits) -> str:
    """Equal for two runs exactly when they have the same settings and texts."""
    digest = hashlib.sha256()
    for part in (splits.train, splits.validation):
        digest.update(json.dumps(list(part.columns().values())).encode())
    return f"{digest.hexdigest()} {config.model_dump_json(exclude={'data'})}"
