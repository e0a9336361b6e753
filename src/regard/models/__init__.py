"""Models: embedding, position, blocks of self-attention and fully connected layers, a task head."""

from regard.models.blocks import Block, FullyConnected
from regard.models.classifier import Classifier, Prediction
from regard.models.encoder import Encoder
from regard.models.settings import ClassifierSettings, EncoderSettings, TextSettings
from regard.models.storage import load, save

__all__ = [
    "Block",
    "Classifier",
    "ClassifierSettings",
    "Encoder",
    "EncoderSettings",
    "FullyConnected",
    "Prediction",
    "TextSettings",
    "load",
    "save",
]
