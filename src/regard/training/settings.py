"""The settings of a training run: data, model and optimizer in one object."""

from pathlib import Path
from typing import Annotated

from pydantic import Field

from regard.models.settings import (
    ClassifierSettings,
    Count,
    EncoderDecoderSettings,
    LanguageModelSettings,
    Settings,
    Share,
    TaggerSettings,
)


class FileSettings(Settings):
    """Which files there are to learn from, and what is held out of them."""

    train: Path | None = None
    """What to learn from."""
    validation: Path | None = None
    """What decides when to stop; split off the training file if not given."""
    test: Path | None = None
    """What is only measured on; split off the training file if not given."""
    validation_share: Share = 0.1
    """Share of the training file split off for validation."""
    test_share: Share = 0.1
    """Share of the training file split off for the test; 0 for none."""
    deduplicate: bool = True
    """Drop what repeats before splitting."""


class DataSettings(FileSettings):
    """Where the labelled texts are."""

    train: Path | None = None
    """A .csv, .tsv, .jsonl or .parquet file of labelled texts."""
    validation: Path | None = None
    """Labelled texts that decide when to stop; split off the training texts if not given."""
    test: Path | None = None
    """Labelled texts that are only measured on; split off the training texts if not given."""
    text_column: str = "text"
    """The column that holds the text."""
    label_column: str = "label"
    """The column that holds the label."""
    validation_share: Share = 0.1
    """Share of the texts split off for validation."""
    test_share: Share = 0.1
    """Share of the texts split off for the test; 0 for none."""
    deduplicate: bool = True
    """Drop repeated texts, and texts that stand with two labels, before splitting."""


class TaggedSettings(FileSettings):
    """Where the tagged sentences are."""

    train: Path | None = None
    """A .jsonl file with lists tokens and tags, or lines of word, tab, tag with a blank line
    between sentences."""


class TextFilesSettings(FileSettings):
    """Where the running text is."""

    train: Path | None = None
    """A file, folder or glob of text, or - for standard input; a table gives one column."""
    column: str | None = None
    """The column of a table that holds the text."""


class PairsSettings(FileSettings):
    """Where the pairs of texts are."""

    train: Path | None = None
    """A .csv, .tsv, .jsonl or .parquet file with a column of texts to read and one to write."""
    source_column: str = "source"
    """The column that holds the text to read."""
    target_column: str = "target"
    """The column that holds the text to write."""


class TrainingSettings(Settings):
    """How the model is trained."""

    epochs: Count = 10
    """Passes over the training texts at most."""
    patience: Count = 2
    """Epochs without a better validation accuracy after which training stops."""
    batch_tokens: Count = 4096
    """Tokens of a batch, padding included; a longer text is a batch of its own."""
    learning_rate: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1e-3
    """Highest learning rate of AdamW."""
    warmup: Annotated[int, Field(ge=0)] = 200
    """Steps over which the learning rate rises."""
    weight_decay: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.01
    """Decay of the weights, apart from the gradient (AdamW)."""
    label_smoothing: Share = 0.05
    """Share of a label's probability spread over all labels."""
    token_dropout: Share = 0.1
    """Share of training tokens replaced by the unknown token."""
    clip: Annotated[float, Field(gt=0)] = 1.0
    """Longest gradient; longer ones are scaled down."""
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 0
    """Seed of the split, the initial weights, the order and the dropout."""
    device: str = "cpu"
    """Where the model is trained: cpu, cuda, mps."""
    tensorboard: bool = False
    """Also write the training curve for TensorBoard."""


class TagTrainingSettings(TrainingSettings):
    """How a tagger is trained: every token is an answer, so small batches do."""

    batch_tokens: Count = 1024
    """Tokens of a batch, padding included; a longer text is a batch of its own."""
    learning_rate: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 2e-3
    """Highest learning rate of AdamW."""


class WritingTrainingSettings(TrainingSettings):
    """How a model that writes is trained: its tokens stay as they are."""

    batch_tokens: Count = 2048
    """Tokens of a batch, padding included; a longer text is a batch of its own."""
    learning_rate: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 2e-3
    """Highest learning rate of AdamW."""
    label_smoothing: Share = 0.0
    """Share of a token's probability spread over all tokens."""
    token_dropout: Share = 0.0
    """Share of the tokens that are read replaced by the unknown token, in training."""


class ClassifyConfig(ClassifierSettings):
    """A whole run of a classifier: what `regard.fit` takes and ``config.json`` holds."""

    data: DataSettings = DataSettings()
    training: TrainingSettings = TrainingSettings()


class TagConfig(TaggerSettings):
    """A whole run of a tagger."""

    data: TaggedSettings = TaggedSettings()
    training: TagTrainingSettings = TagTrainingSettings()


class LanguageConfig(LanguageModelSettings):
    """A whole run of a language model."""

    data: TextFilesSettings = TextFilesSettings()
    training: WritingTrainingSettings = WritingTrainingSettings()


class SequenceConfig(EncoderDecoderSettings):
    """A whole run of an encoder–decoder."""

    data: PairsSettings = PairsSettings()
    training: WritingTrainingSettings = WritingTrainingSettings()


Config = ClassifyConfig | TagConfig | LanguageConfig | SequenceConfig
"""What `regard.fit` takes; `task` says which."""
