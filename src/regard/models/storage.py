"""Saving and loading: ``config.json``, ``vocabulary.json`` and ``model.safetensors`` in a folder.

A model that writes with another vocabulary than it reads with keeps that in the folder ``target``.
Each file appears whole or not at all, ``config.json`` last: a folder that has it is complete.
"""

import json
from pathlib import Path
from typing import Any

import safetensors.torch
from safetensors import SafetensorError
from torch import Tensor

from regard.errors import DataError, OptionError, StorageError, unknown_name
from regard.models._model import TextModel
from regard.models.classifier import Classifier
from regard.models.encoder_decoder import EncoderDecoder
from regard.models.language_model import LanguageModel
from regard.models.settings import Settings
from regard.models.tagger import Tagger
from regard.text import Vocabulary, segmenters
from regard.text.storage import new_file

CONFIG, VOCABULARY, WEIGHTS = "config.json", "vocabulary.json", "model.safetensors"

MODELS: dict[str, type[Any]] = {
    "classify": Classifier,
    "tag": Tagger,
    "language": LanguageModel,
    "sequence": EncoderDecoder,
}
"""The class of model that each `task` of ``config.json`` is."""


def save(model: TextModel, folder: str | Path, config: Settings | None = None) -> None:
    """Write `model` to `folder`; `config` may say more than the model's own settings."""
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / CONFIG).unlink(missing_ok=True)
    except OSError as error:
        raise StorageError(
            f"cannot write {folder}: {(error.strerror or str(error)).lower()}"
        ) from None
    write_tensors(folder / WEIGHTS, model.state_dict())
    written = (config or model.settings).model_dump(mode="json")
    for side in model.sides:
        vocabulary, segmenter = model.side(side)
        vocabulary.save(folder / side / VOCABULARY)
        written[_segmenter(side)] = segmenter.settings(folder / side)
    write_json(folder / CONFIG, written)


def load(folder: str | Path) -> Any:
    """The model that a run folder holds, in eval mode.

    `StorageError` if there is none, `DataError` if a file of it is damaged.
    """
    folder = Path(folder)
    try:
        is_folder, is_finished = folder.is_dir(), (folder / CONFIG).exists()
    except OSError as error:
        raise StorageError(
            f"cannot read {folder}: {(error.strerror or str(error)).lower()}"
        ) from None
    if not is_folder:
        raise StorageError(f"{folder} is not a folder; name the folder that regard train wrote")
    if not is_finished:
        raise StorageError(
            f"{folder} holds no finished model: {CONFIG} is missing; "
            "name the folder that regard train wrote"
        )
    config = read_json(folder / CONFIG)
    try:
        model = _made(config, folder)
    except OptionError as error:
        raise DataError(str(error)) from None
    weights = read_tensors(folder / WEIGHTS)
    wanted = model.state_dict()
    if odd := sorted(
        name
        for name in wanted.keys() | weights.keys()
        if name not in wanted or name not in weights or wanted[name].shape != weights[name].shape
    ):
        raise DataError(
            f"{folder / WEIGHTS} does not fit {CONFIG}: {odd[0]} is missing, unknown or of another "
            "shape; the files are of different runs, train again"
        )
    model.load_state_dict(weights)
    return model.eval()


def _made(config: dict[str, Any], folder: Path) -> Any:
    """The model that a configuration describes, with its vocabularies and segmenters."""
    task = config.get("task", "classify")
    if task not in MODELS:
        raise unknown_name(f"task of {folder / CONFIG}", str(task), MODELS)
    kind = MODELS[task]
    known = {n: config[n] for n in kind.settings_class.model_fields if n in config}
    settings = kind.settings_class.read(known, str(folder / CONFIG))
    parts = []
    for side in kind.sides:
        described = config.get(_segmenter(side))
        if not isinstance(described, dict) or not isinstance(described.get("name"), str):
            raise OptionError(f"{folder / CONFIG}: {_segmenter(side)} is missing")
        parts.append(Vocabulary.load(folder / side / VOCABULARY))
        parts.append(segmenters.from_settings(described, folder / side))
    return kind(settings, *parts)


def _segmenter(side: str) -> str:
    """What ``config.json`` calls the segmenter of a side."""
    return f"{side}_segmenter" if side else "segmenter"


def write_tensors(
    path: Path, tensors: dict[str, Tensor], metadata: dict[str, str] | None = None
) -> None:
    """Write `tensors` as safetensors; the file appears whole or not at all."""
    contiguous = {name: tensor.contiguous() for name, tensor in tensors.items()}
    with new_file(path) as new:
        try:
            safetensors.torch.save_file(contiguous, new, metadata)
        except SafetensorError as error:
            raise StorageError(
                f"cannot write {path}: {error}; nothing was left half-written"
            ) from None


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Read what `write_tensors` wrote; `DataError` if it is cut short or something else."""
    if not path.is_file():
        raise StorageError(f"{path} is missing; train again or restore it")
    try:
        return safetensors.torch.load_file(path)
    except SafetensorError as error:
        raise DataError(
            f"{path} is cut short or damaged ({error}); copy it again or train again"
        ) from None
    except OSError as error:
        raise StorageError(
            f"cannot read {path}: {(error.strerror or str(error)).lower()}"
        ) from None


def write_json(path: Path, value: Any) -> None:
    """Write `value` as indented JSON; the file appears whole or not at all."""
    with new_file(path) as new:
        new.write_text(json.dumps(value, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")


def read_json(path: Path) -> dict[str, Any]:
    """The object that a JSON file holds; `DataError` if it holds anything else."""
    try:
        found = json.loads(path.read_bytes())
    except OSError as error:
        raise StorageError(
            f"cannot read {path}: {(error.strerror or str(error)).lower()}"
        ) from None
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path} is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise DataError(f"{path} holds no JSON object")
    return found
