"""Training: labelled texts → splits → batches → loop → a measured, saved model."""

from regard.training.data import Labelled, deduplicate, read_labelled, split
from regard.training.metrics import Metrics, measure
from regard.training.run import Run, evaluate, fit
from regard.training.settings import ClassifyConfig, DataSettings, TrainingSettings

__all__ = [
    "ClassifyConfig",
    "DataSettings",
    "Labelled",
    "Metrics",
    "Run",
    "TrainingSettings",
    "deduplicate",
    "evaluate",
    "fit",
    "measure",
    "read_labelled",
    "split",
]
