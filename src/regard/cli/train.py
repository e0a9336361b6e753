"""``regard train``: a model from texts: a classifier, tagger, language model, encoder–decoder."""

import sys
import tomllib
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Parameter

from regard.errors import DataError, StorageError
from regard.models.settings import (
    DecoderSettings,
    EncoderSettings,
    LanguageTextSettings,
    Settings,
    StackSettings,
    TextSettings,
)
from regard.training.settings import (
    ClassifyConfig,
    DataSettings,
    LanguageConfig,
    PairsSettings,
    SequenceConfig,
    TagConfig,
    TaggedSettings,
    TagTrainingSettings,
    TextFilesSettings,
    TrainingSettings,
    WritingTrainingSettings,
)

app = App(name="train", help="Train a model on texts.")
Flags = Parameter(name="*")
Output = Annotated[Path, Parameter(name=["--output", "-o"])]
Switch = Annotated[bool, Parameter(negative=())]


@app.command
def classify(
    train: Path | None = None,
    /,
    *,
    output: Output,
    config: Path | None = None,
    overwrite: Switch = False,
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
    sections = {"data": data, "text": text, "encoder": encoder, "training": training}
    _train(ClassifyConfig, train, output, config, overwrite, sections)


@app.command
def tag(
    train: Path | None = None,
    /,
    *,
    output: Output,
    config: Path | None = None,
    overwrite: Switch = False,
    data: Annotated[TaggedSettings | None, Flags] = None,
    text: Annotated[TextSettings | None, Flags] = None,
    encoder: Annotated[EncoderSettings | None, Flags] = None,
    training: Annotated[TagTrainingSettings | None, Flags] = None,
) -> None:
    """Train a tagger, which gives each token a tag, and measure it on sentences held out.

    Parameters
    ----------
    train
        A .jsonl file with lists tokens and tags, or lines of word, tab, tag with a blank line
        between sentences.
    output
        The folder of the run.
    config
        A TOML file of settings, in sections [data], [text], [encoder], [training]; flags go before
        it.
    overwrite
        Replace the run that the folder holds.
    data
        Where the sentences are.
    text
        How new texts become tokens, and tokens ids.
    encoder
        The layers.
    training
        How to train.
    """
    sections = {"data": data, "text": text, "encoder": encoder, "training": training}
    _train(TagConfig, train, output, config, overwrite, sections)


@app.command
def language(
    train: Annotated[Path | None, Parameter(allow_leading_hyphen=True)] = None,
    /,
    *,
    output: Output,
    config: Path | None = None,
    overwrite: Switch = False,
    data: Annotated[TextFilesSettings | None, Flags] = None,
    text: Annotated[LanguageTextSettings | None, Flags] = None,
    decoder: Annotated[DecoderSettings | None, Flags] = None,
    training: Annotated[WritingTrainingSettings | None, Flags] = None,
) -> None:
    """Train a language model, which writes on, and measure its perplexity on lines held out.

    Parameters
    ----------
    train
        A file, folder or glob of text, or - for standard input; tables need --column.
    output
        The folder of the run.
    config
        A TOML file of settings, in sections [data], [text], [decoder], [training]; flags go before
        it.
    overwrite
        Replace the run that the folder holds.
    data
        Where the text is.
    text
        How text becomes ids.
    decoder
        The layers.
    training
        How to train.
    """
    sections = {"data": data, "text": text, "decoder": decoder, "training": training}
    _train(LanguageConfig, train, output, config, overwrite, sections)


@app.command
def sequence(
    train: Path | None = None,
    /,
    *,
    output: Output,
    config: Path | None = None,
    overwrite: Switch = False,
    data: Annotated[PairsSettings | None, Flags] = None,
    text: Annotated[LanguageTextSettings | None, Flags] = None,
    target: Annotated[LanguageTextSettings | None, Parameter(name="target")] = None,
    encoder: Annotated[StackSettings | None, Flags] = None,
    training: Annotated[WritingTrainingSettings | None, Flags] = None,
) -> None:
    """Train an encoder–decoder, which reads one text and writes another, and measure it on pairs
    held out.

    Parameters
    ----------
    train
        A .csv, .tsv, .jsonl or .parquet file with a column of texts to read and one to write.
    output
        The folder of the run.
    config
        A TOML file of settings, in sections [data], [text], [target], [encoder], [training]; flags
        go before it.
    overwrite
        Replace the run that the folder holds.
    data
        Where the pairs are.
    text
        How the text that is read becomes ids.
    target
        How the text that is written becomes ids; all like the other if none is given.
    encoder
        The layers of encoder and decoder.
    training
        How to train.
    """
    sections = {
        "data": data,
        "text": text,
        "target": target,
        "encoder": encoder,
        "training": training,
    }
    _train(SequenceConfig, train, output, config, overwrite, sections)


def _train(
    kind: type[Any],
    train: Path | None,
    output: Path,
    config: Path | None,
    overwrite: bool,
    sections: dict[str, Settings | None],
) -> None:
    """Read the settings, fit, draw the curve, print the report."""
    from regard.cli._report import report_run, write_figures
    from regard.training import fit

    values = read_toml(config) if config is not None else {}
    for name, flags in sections.items():
        if flags is not None:
            values[name] = joined(values.get(name, {}), given(flags))
    if train is not None:
        values["data"] = joined(values.get("data", {}), {"train": train})
    settings = kind.read(values, str(config or "the flags"))
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
