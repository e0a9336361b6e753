"""``regard train``: a model from labelled texts."""

import sys
import tomllib
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Parameter

from regard.errors import DataError, StorageError
from regard.models.settings import EncoderSettings, Settings, TextSettings
from regard.training.settings import ClassifyConfig, DataSettings, TrainingSettings

app = App(name="train", help="Train a model on labelled texts.")
Flags = Parameter(name="*")


@app.command
def classify(
    train: Path | None = None,
    /,
    *,
    output: Annotated[Path, Parameter(name=["--output", "-o"])],
    config: Path | None = None,
    overwrite: Annotated[bool, Parameter(negative=())] = False,
    data: Annotated[DataSettings | None, Flags] = None,
    text: Annotated[TextSettings | None, Flags] = None,
    encoder: Annotated[EncoderSettings | None, Flags] = None,
    training: Annotated[TrainingSettings | None, Flags] = None,
) -> None:
    """Train a text classifier and measure it on texts held out.

    The run's folder gets config.json, metrics.json, model.safetensors, vocabulary.json and the
    training curve as a picture. A run that was stopped goes on when the same command is given.

    Parameters
    ----------
    train
        A .csv, .tsv, .jsonl or .parquet file with a column of texts and one of labels.
    output
        The folder of the run.
    config
        A TOML file of settings, in sections [data], [text], [encoder], [training]; flags go before
        it.
    overwrite
        Replace the run that the folder holds.
    data
        Where the texts are.
    text
        How text becomes ids.
    encoder
        The layers.
    training
        How to train.
    """
    from regard.cli._report import report_run, write_figures
    from regard.training import fit

    values = read_toml(config) if config is not None else {}
    sections = {"data": data, "text": text, "encoder": encoder, "training": training}
    for name, flags in sections.items():
        if flags is not None:
            values[name] = joined(values.get(name, {}), given(flags))
    if train is not None:
        values["data"] = joined(values.get("data", {}), {"train": train})
    settings = ClassifyConfig.read(values, str(config or "the flags"))
    try:
        run = fit(settings, output, overwrite=overwrite)
    except KeyboardInterrupt:
        print("finished epochs are kept: the same command goes on after them", file=sys.stderr)
        raise
    write_figures(run, output)
    report_run(run)


def given(flags: Settings) -> dict[str, Any]:
    """The flags that were given, without those left at their defaults."""
    return {name: getattr(flags, name) for name in flags.model_fields_set}


def joined(section: Any, flags: dict[str, Any]) -> Any:
    """A section of the file with the flags before it; what is no section is refused later."""
    return section | flags if isinstance(section, dict) else section


def read_toml(path: Path) -> dict[str, Any]:
    """What a TOML file says; one line where it cannot be read."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise StorageError(f"cannot read {path}: {reason}") from None
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path} is not TOML: {error}") from None
