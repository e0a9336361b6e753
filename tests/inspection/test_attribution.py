"""Relevance from q, k, v and one gradient against whole matrices and their own gradients."""

import pytest
import torch

from regard.errors import OptionError
from regard.inspection.attribution import relevance
from regard.models import Classifier, ClassifierSettings, EncoderSettings, TextSettings
from regard.text import Vocabulary

TEXT = "a b c d e a c b"


@pytest.fixture
def classifier():
    torch.manual_seed(4)
    settings = ClassifierSettings(
        labels=("no", "yes", "maybe"),
        text=TextSettings(segmenter="whitespace", min_count=1),
        encoder=EncoderSettings(width=24, heads=4, kv_heads=2, layers=3, position="rotary"),
    )
    model = Classifier(settings, Vocabulary.count([list("abcde")])).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.mul_(3)
    return model


def by_matrices(model, label):
    """The paper's rule with the gradient of every weight, by autograd."""
    weights = []

    def keep(module, args, values):
        values.retain_grad()
        weights.append(values)

    hooks = [b.attention.weights.register_forward_hook(keep) for b in model.encoder.blocks]
    logits = model(*model.collate(model.encode([TEXT])))
    logits[0, label].backward()
    for hook in hooks:
        hook.remove()
    whole = torch.eye(weights[0].shape[-1])
    for one in weights:
        whole = whole + (one.grad * one).clamp(min=0)[0].mean(0).detach() @ whole
    return whole.mean(0)


def test_equals_the_rule_on_whole_matrices(classifier):
    for label, name in enumerate(classifier.labels):
        found = relevance(classifier, TEXT, name)
        assert found.label == name
        expected = by_matrices(classifier, label)
        # Logits grow to some tens, gradients with them: relative, from float32.
        torch.testing.assert_close(found.values, expected, atol=1e-5, rtol=1e-4)
    assert relevance(classifier, TEXT).label == classifier.predict([TEXT])[0].label


def test_nothing_is_left_behind(classifier):
    for parameter in classifier.parameters():
        parameter.requires_grad_(False)
    frozen = relevance(classifier, TEXT)
    assert frozen.values.isfinite().all()
    assert all(p.grad is None and not p.requires_grad for p in classifier.parameters())
    assert not any(m._forward_hooks for m in classifier.modules())
    classifier.train()
    relevance(classifier, TEXT)
    assert classifier.training


def test_the_tokens_that_matter_most(classifier):
    found = relevance(classifier, TEXT)
    top = found.top(3)
    assert len(top) == 3
    assert top[0][1] == pytest.approx(float(found.values.max()))
    assert found.tokens[int(found.values.argmax())].label == top[0][0]


def test_labels_that_are_not_there(classifier):
    with pytest.raises(OptionError, match="label 'perhaps' is not of the model's: no, yes, maybe"):
        relevance(classifier, TEXT, "perhaps")
    with pytest.raises(OptionError, match=r"label 3 is asked for; there are 0 … 2"):
        relevance(classifier, TEXT, 3)


def test_hugging_face_classifiers(words_tokenizer):
    """sdpa and one gradient a layer against eager attention and the gradient of each weight."""
    transformers = pytest.importorskip("transformers")
    tokenizer = words_tokenizer
    config = transformers.BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=24,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=30,
        num_labels=3,
    )
    torch.manual_seed(5)
    model = transformers.BertForSequenceClassification(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim > 1 and "Norm" not in name:
                parameter.mul_(8)
    text = "the quick fox jumps"
    found = relevance(model, text, 1, tokenizer=tokenizer)
    model.set_attn_implementation("eager")
    out = model(**tokenizer(text, return_tensors="pt"), output_attentions=True)
    slopes = torch.autograd.grad(out.logits[0, 1], out.attentions)
    whole = torch.eye(len(found.tokens))
    for weights, slope in zip(out.attentions, slopes, strict=True):
        whole = whole + (slope * weights).clamp(min=0)[0].mean(0).detach() @ whole
    torch.testing.assert_close(found.values, whole[0], atol=1e-5, rtol=1e-4)
    with pytest.raises(OptionError, match=r"needs its tokenizer|gives no logits"):
        relevance(transformers.BertModel(config).eval(), text, 1, tokenizer=tokenizer)
