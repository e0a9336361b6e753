"""A training run on disk, from which it goes on to the same result.

One safetensors file: the tables, where each thread stands, and JSON in the header's metadata.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from regard.errors import DataError, StorageError
from regard.text.storage import new_file
from regard.vectors.formats._files import check_place

_ANY = "word2vec checkpoint"
_KIND = f"{_ANY} 3"


@dataclass
class Checkpoint:
    """The state of a run.

    `text` is a digest of what it trains on. `tables` are float32 with padded rows; `counts`
    (threads, 6), `numbers` (threads, 3), `random` (threads, 2) and `drawn` (threads, 512) are the
    workers'.
    """

    about: dict[str, Any]
    text: str
    tokens: list[str]
    epoch: int
    round: int
    seconds: float
    losses: dict[str, list[float]]
    tables: dict[str, np.ndarray]
    counts: np.ndarray
    numbers: np.ndarray
    random: np.ndarray
    drawn: np.ndarray


def check_checkpoint(path: Path) -> None:
    """Refuse a `path` where no checkpoint can be written, or where something else stands."""
    check_place(path)
    if path.exists():
        kind = _kind(path)
        if not kind.startswith(_ANY):
            raise DataError(
                f"{path} is no checkpoint of word2vec training, and would be lost; name another "
                "file for the checkpoint"
            )


def _kind(path: Path) -> str:
    """What the file says that it is; nothing if it is no safetensors file."""
    try:
        with safe_open(path, "numpy") as file:
            return (file.metadata() or {}).get("regard", "")
    except SafetensorError:
        return ""


def write_checkpoint(path: Path, state: Checkpoint) -> None:
    """Write `state` to `path`, whole or not at all."""
    words = json.dumps(state.tokens).encode()
    tensors = {
        **{f"tables.{name}": table for name, table in state.tables.items()},
        "counts": state.counts,
        "numbers": state.numbers,
        "random": state.random,
        "drawn": state.drawn,
        "tokens": np.frombuffer(words, np.uint8),
    }
    names = ("about", "text", "epoch", "round", "seconds", "losses")
    plain = {name: getattr(state, name) for name in names}
    with new_file(path) as new:
        save_file(tensors, new, {"regard": _KIND, "state": json.dumps(plain)})


def read_checkpoint(path: Path) -> Checkpoint:
    """The state in `path`; `DataError` if it is none."""
    if not path.is_file():
        raise StorageError(f"no checkpoint to resume from at {path}")
    kind = _kind(path)
    if not kind.startswith(_ANY):
        raise DataError(f"{path} is no checkpoint of word2vec training")
    if kind != _KIND:
        raise DataError(
            f"{path} is a checkpoint of another version of regard ({kind!r}, this one knows "
            f"{_KIND!r}); go on with that version, or start anew"
        )
    with safe_open(path, "numpy") as file:
        metadata = file.metadata()
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    return Checkpoint(
        **json.loads(metadata["state"]),
        tokens=json.loads(tensors["tokens"].tobytes()),
        tables={
            name.removeprefix("tables."): table
            for name, table in tensors.items()
            if name.startswith("tables.")
        },
        counts=tensors["counts"],
        numbers=tensors["numbers"],
        random=tensors["random"],
        drawn=tensors["drawn"],
    )
