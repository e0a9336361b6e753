"""Small models of all four kinds, every size of which differs."""

import pytest
import torch

from regard.models import (
    Classifier,
    ClassifierSettings,
    DecoderSettings,
    EncoderDecoder,
    EncoderDecoderSettings,
    EncoderSettings,
    LanguageModel,
    LanguageModelSettings,
    LanguageTextSettings,
    StackSettings,
    Tagger,
    TaggerSettings,
    TextSettings,
)
from regard.text import Vocabulary

TEXTS = ["我喜欢吃洋葱", "我真的不喜欢吃洋葱", "好", "onions, please"]
TARGETS = ["i like onions", "no onions", "ok", "yes"]
KINDS = ["classify", "tag", "language", "sequence"]
SPECIALS = ("<pad>", "<unk>", "<s>", "</s>")


@pytest.fixture
def make():
    """Makes a model of a kind, in float64 and in eval mode, with settings of its layers."""

    def build(kind, seed=3, max_tokens=23, **layers):
        torch.manual_seed(seed)
        sizes = {"width": 12, "heads": 3, "layers": 2, "hidden": 5} | layers
        read = TextSettings(segmenter="characters", max_tokens=max_tokens)
        write = LanguageTextSettings(max_tokens=max_tokens)
        if kind == "classify":
            labels = ("bad", "good", "so-so")
            settings = ClassifierSettings(
                text=read, encoder=EncoderSettings(**sizes), labels=labels
            )
            model = Classifier(settings, Vocabulary.count(map(list, TEXTS)))
        elif kind == "tag":
            tags = ("v", "n", "x", "d", "w")
            settings = TaggerSettings(text=read, encoder=EncoderSettings(**sizes), tags=tags)
            model = Tagger(settings, Vocabulary.count(map(list, TEXTS)))
        elif kind == "language":
            settings = LanguageModelSettings(text=write, decoder=DecoderSettings(**sizes))
            model = LanguageModel(settings, Vocabulary.count(map(list, TEXTS), specials=SPECIALS))
        else:
            target = LanguageTextSettings(segmenter="words", max_tokens=max_tokens)
            settings = EncoderDecoderSettings(
                text=write, target=target, encoder=StackSettings(**sizes)
            )
            model = EncoderDecoder(
                settings,
                Vocabulary.count(map(list, TEXTS), specials=SPECIALS),
                None,
                Vocabulary.count(map(str.split, TARGETS), specials=SPECIALS),
            )
        return model.double().eval()

    return build


@pytest.fixture
def answers():
    """A model's logits for texts, one tensor a text."""

    def ask(model, texts, targets=TARGETS):
        pairs = isinstance(model, EncoderDecoder)
        return list(model.logits(texts, targets[: len(texts)]) if pairs else model.logits(texts))

    return ask
