"""Watching modules of regard and of PyTorch, and tracing regard's own models."""

import pytest
import torch
from torch import nn

from regard.attention import MultiHeadAttention, attend, normalizers, scores
from regard.attention.masks import Causal, Padding, Window
from regard.errors import DataError, OptionError
from regard.inspection import Trace, trace, watch
from regard.models import Classifier, ClassifierSettings, EncoderSettings, load, save
from regard.positions import create
from regard.text import Vocabulary

TEXT = "the quick brown fox jumps over the dog"


def classifier(text=TEXT, **settings):
    words = text.split()
    vocabulary = Vocabulary.count([words], specials=("<pad>", "<unk>"))
    made = ClassifierSettings(
        labels=("no", "yes"),
        encoder=EncoderSettings(width=24, heads=6, layers=2, **settings),
        text={"segmenter": "words", "max_tokens": 64},
    )
    torch.manual_seed(1)
    model = Classifier(made, vocabulary).eval()
    with torch.no_grad():
        for parameter in model.encoder.blocks.parameters():
            if parameter.ndim > 1:
                parameter.mul_(2)
    return model


@pytest.mark.parametrize("position", ["none", "sinusoidal", "rotary", "alibi", "t5", "cope"])
def test_own_classifiers(position):
    model = classifier(position=position, kv_heads=3)
    expected = model.logits([TEXT])
    found = trace(model, TEXT)
    assert torch.equal(model.logits([TEXT]), expected)
    assert [token.text for token in found.tokens] == TEXT.split()
    assert [TEXT[t.start : t.end] for t in found.tokens] == TEXT.split()
    truth = []
    handles = [
        block.attention.weights.register_forward_hook(
            lambda tap, _, weights: truth.append(weights[0])
        )
        for block in model.encoder.blocks
    ]
    model.logits([TEXT])
    for handle in handles:
        handle.remove()
    for layer in range(2):
        ours = torch.stack([found.weights(layer, head) for head in range(6)])
        torch.testing.assert_close(ours, truth[layer], atol=1e-5, rtol=0)
    assert found.verify().passed
    assert (found.record(0).q_unrotated is not None) == (position == "rotary")
    assert found.record(0).mask is None
    assert found.residual(1).shape == (len(found.tokens), 24)
    one = found.arithmetic(1, 5, 2, 3)
    assert one.weight == pytest.approx(float(found.weights(1, 5, 2, 3)), abs=1e-6)


@pytest.mark.parametrize(
    ("score", "normalizer"),
    [(score, "softmax") for score in scores.names()]
    + [("additive", normalizer) for normalizer in normalizers.names()],
)
def test_every_score_and_normalizer_is_traced_saved_and_loaded(score, normalizer, tmp_path):
    if score == "location":
        settings = {"score": scores.create("location", heads=6, head_width=4, max_length=16)}
    else:
        settings = {"score": scores.create(score, heads=6, head_width=4)}
    torch.manual_seed(2)
    attention = MultiHeadAttention(24, 6, normalizer=normalizer, **settings).eval()
    x = torch.randn(1, 11, 24)
    with torch.no_grad(), watch(attention) as watched:
        attention(x)
    found = watched.trace()
    kept = []
    attention.weights.register_forward_hook(lambda m, args, weights: kept.append(weights))
    with torch.no_grad():
        attention(x)
    path = tmp_path / "a.safetensors"
    found.save(path)
    again = Trace.load(path)
    for head in range(6):
        torch.testing.assert_close(found.weights(0, head), kept[0][0, head], atol=1e-5, rtol=0)
        torch.testing.assert_close(
            found.weights(0, head), again.weights(0, head), atol=5e-6, rtol=0
        )
        cut = found.weights(0, head, slice(2, 7), slice(3, 9))
        torch.testing.assert_close(cut, kept[0][0, head, 2:7, 3:9], atol=1e-5, rtol=0)
    one = again.arithmetic(0, 2, 4, 6)
    assert one.weight == pytest.approx(float(kept[0][0, 2, 4, 6]), abs=1e-5)
    assert found.verify().output_difference < 1e-5


def test_a_run_folder_and_a_batch(tmp_path):
    model = classifier()
    save(model, tmp_path)
    found = trace(tmp_path, TEXT)
    torch.testing.assert_close(found.weights(1, 1), trace(load(tmp_path), TEXT).weights(1, 1))
    batch = trace(model, ["the dog", TEXT], item=0)
    assert [token.text for token in batch.tokens] == ["the", "dog"]
    unknown = trace(model, "the cat").tokens[1]
    assert (unknown.label, unknown.unknown) == ("cat?", True)
    with pytest.raises(DataError, match="the text is empty"):
        trace(model, " ")
    with pytest.raises(OptionError, match="pair= is not for Classifier; give it texts alone"):
        trace(model, "a", pair="b")
    with pytest.raises(OptionError, match="there are 2 texts: say which one"):
        trace(model, ["the", "dog"])


def test_attend_within_a_module():
    class Mine(nn.Module):
        def forward(self, q, k, v):
            return attend(
                q,
                k,
                v,
                mask=Window(3),
                query_positions=torch.arange(4, 9),
                key_positions=torch.arange(9),
            )

    q, k, v = torch.randn(2, 6, 5, 4), torch.randn(2, 3, 9, 4), torch.randn(2, 3, 9, 7)
    module = Mine()
    plain = module(q, k, v)
    with watch(module) as watched:
        seen = module(q, k, v)
        attend(q, k, v)  # not within the module
    assert torch.equal(plain, seen)
    found = watched.trace(tokens="abcde", key_tokens="ABCDEFGHI", item=1)
    assert found.layers == 1
    assert found.weights(0, 2).count_nonzero(1).tolist() == [3] * 5
    torch.testing.assert_close(found.weights(0, 5) @ found.v(0, 5), plain[1, 5], atol=1e-6, rtol=0)
    with pytest.raises(OptionError, match="there are 2 texts: say which one"):
        watched.trace()


def test_own_attention_with_padding_chooses_the_item():
    attention = MultiHeadAttention(12, 3, position=create("rotary", head_width=4)).eval()
    x = torch.randn(2, 7, 12)
    mask = Causal() & Padding.from_lengths(torch.tensor([7, 4]), 7)
    with torch.no_grad(), watch(attention) as watched:
        attention(x, mask=mask)
    weights = watched.trace(item=1).weights(0, 0)
    assert weights[:, 4:].eq(0).all()
    assert watched.trace(item=0).weights(0, 0)[6].gt(0).all()


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("mask", ["none", "padding", "causal", "both", "float", "per head"])
def test_torch_multihead_attention(batch_first, mask):
    torch.manual_seed(3)
    module = nn.MultiheadAttention(12, 3, batch_first=batch_first, kdim=10, vdim=14).eval()
    q, k, v = torch.randn(2, 5, 12), torch.randn(2, 7, 10), torch.randn(2, 7, 14)
    padding = torch.arange(7) >= torch.tensor([[7], [6]])
    hidden = torch.ones(5, 7, dtype=torch.bool).triu(3)
    bias = torch.randn(5, 7, generator=torch.Generator().manual_seed(0))
    settings = {
        "none": {},
        "padding": {"key_padding_mask": padding},
        "causal": {"attn_mask": hidden},
        "both": {"key_padding_mask": padding, "attn_mask": hidden},
        "float": {"attn_mask": bias.masked_fill(hidden, -torch.inf)},
        "per head": {"attn_mask": torch.rand(6, 5, 7) > 0.7},
    }[mask]
    given = (q, k, v) if batch_first else tuple(x.transpose(0, 1) for x in (q, k, v))
    with torch.no_grad():
        plain = module(*given, need_weights=batch_first, **settings)[0]
        with watch(module) as watched:
            seen = module(*given, need_weights=batch_first, **settings)[0]
        truth = module(*given, average_attn_weights=False, **settings)[1]
    assert torch.equal(plain, seen)
    for item in range(2):
        record = watched.records(item)[0]
        ours = torch.stack([record.weights(head) for head in range(3)])
        torch.testing.assert_close(ours, truth[item], atol=1e-6, rtol=0)


def test_torch_encoder_layers_are_seen_in_order():
    torch.manual_seed(4)
    layer = nn.TransformerEncoderLayer(12, 3, 20, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
    x = torch.randn(1, 6, 12)
    with torch.no_grad():
        plain = encoder(x)
        with watch(encoder) as watched:
            seen = encoder(x)
    # PyTorch leaves its fused layer when it has hooks; the fused one rounds in other places.
    torch.testing.assert_close(plain, seen, atol=1e-6, rtol=0)
    found = watched.trace()
    assert [record.name for record in found.records] == ["layers.0.self_attn", "layers.1.self_attn"]


def test_what_cannot_be_watched_is_refused():
    x = torch.randn(1, 3, 6)
    odd = nn.MultiheadAttention(6, 2, batch_first=True, add_zero_attn=True).eval()
    with pytest.raises(OptionError, match="adds keys that stand for no token"), watch(odd):
        odd(x, x, x)
    dropping = nn.MultiheadAttention(6, 2, dropout=0.5, batch_first=True)
    with pytest.raises(OptionError, match=r"call eval\(\) before"), watch(dropping):
        dropping(x, x, x)
    with watch(nn.Linear(6, 6)) as watched:
        pass
    with pytest.raises(OptionError, match="no attention ran under watch"):
        watched.trace()
    assert not odd._forward_hooks
