"""Training: texts → splits → batches → loop → a measured, saved model."""

from regard.training.chrf import chrf
from regard.training.data import (
    Labelled,
    Lines,
    Pairs,
    Sentences,
    deduplicate,
    read_labelled,
    read_lines,
    read_pairs,
    read_sentences,
    split,
)
from regard.training.metrics import LanguageMetrics, Metrics, WrittenMetrics, compare, measure
from regard.training.run import Run, evaluate, fit
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

__all__ = [
    "ClassifyConfig",
    "DataSettings",
    "Labelled",
    "LanguageConfig",
    "LanguageMetrics",
    "Lines",
    "Metrics",
    "Pairs",
    "PairsSettings",
    "Run",
    "Sentences",
    "SequenceConfig",
    "TagConfig",
    "TagTrainingSettings",
    "TaggedSettings",
    "TextFilesSettings",
    "TrainingSettings",
    "WritingTrainingSettings",
    "WrittenMetrics",
    "chrf",
    "compare",
    "deduplicate",
    "evaluate",
    "fit",
    "measure",
    "read_labelled",
    "read_lines",
    "read_pairs",
    "read_sentences",
    "split",
]
