"""Models: embedding, position, blocks of self-attention and fully connected layers, a task head."""

from regard.models._model import TextModel
from regard.models.blocks import Block, CrossBlock, FullyConnected
from regard.models.classifier import Classifier, Prediction
from regard.models.decoder import Decoder, DecoderCache
from regard.models.encoder import Encoder
from regard.models.encoder_decoder import EncoderDecoder, Written
from regard.models.language_model import LanguageModel, Scored
from regard.models.settings import (
    ClassifierSettings,
    DecoderSettings,
    EncoderDecoderSettings,
    EncoderSettings,
    LanguageModelSettings,
    LanguageTextSettings,
    StackSettings,
    TaggerSettings,
    TextSettings,
)
from regard.models.storage import load, save
from regard.models.tagger import Tagged, Tagger

__all__ = [
    "Block",
    "Classifier",
    "ClassifierSettings",
    "CrossBlock",
    "Decoder",
    "DecoderCache",
    "DecoderSettings",
    "Encoder",
    "EncoderDecoder",
    "EncoderDecoderSettings",
    "EncoderSettings",
    "FullyConnected",
    "LanguageModel",
    "LanguageModelSettings",
    "LanguageTextSettings",
    "Prediction",
    "Scored",
    "StackSettings",
    "Tagged",
    "Tagger",
    "TaggerSettings",
    "TextModel",
    "TextSettings",
    "Written",
    "load",
    "save",
]
