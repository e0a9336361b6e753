"""regard's own models under trace: what passes their taps, joined over the steps of writing."""

import pytest
import torch

import regard
from regard import positions
from regard.attention.masks import Causal
from regard.errors import OptionError
from regard.inspection import trace
from regard.models import (
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
    save,
)
from regard.text import Vocabulary

TEXTS = ["我喜欢吃洋葱", "我真的不喜欢吃洋葱", "Onions, please"]
TARGETS = ["i like onions", "no onions", "yes please"]
SPECIALS = ("<pad>", "<unk>", "<s>", "</s>")
LAYERS = {"width": 12, "heads": 3, "layers": 2, "hidden": 5}


def tagger(**layers):
    torch.manual_seed(5)
    settings = TaggerSettings(
        text=TextSettings(segmenter="characters", max_tokens=7),
        encoder=EncoderSettings(**LAYERS | layers),
        tags=("n", "v", "x", "d", "w"),
    )
    return Tagger(settings, Vocabulary.count(map(list, TEXTS))).eval()


def never_ends(model):
    with torch.no_grad():
        # the end's own embedding, away from everything the last norm gives
        model.decoder.embedding.weight[model.end] = 0
        model.decoder.norm.bias += 3 * model.decoder.embedding.weight[5]
    return model


def language_model(segmenter="characters", **layers):
    torch.manual_seed(6)
    settings = LanguageModelSettings(
        text=LanguageTextSettings(segmenter=segmenter, max_tokens=29),
        decoder=DecoderSettings(**LAYERS | layers),
    )
    vocabulary = Vocabulary.count(
        [list(t) if segmenter == "characters" else t.split() for t in [*TEXTS, *TARGETS]],
        specials=SPECIALS,
    )
    return never_ends(LanguageModel(settings, vocabulary).eval())


def encoder_decoder(**layers):
    torch.manual_seed(7)
    settings = EncoderDecoderSettings(
        text=LanguageTextSettings(max_tokens=29),
        target=LanguageTextSettings(segmenter="words", max_tokens=13),
        encoder=StackSettings(**LAYERS | layers),
    )
    model = EncoderDecoder(
        settings,
        Vocabulary.count(map(list, TEXTS), specials=SPECIALS),
        None,
        Vocabulary.count(map(str.split, TARGETS), specials=SPECIALS),
    )
    return never_ends(model.eval())


def all_weights(found, layer):
    return torch.stack([found.weights(layer, head) for head in range(found.heads)])


def weights_that_pass(model, run):
    """The weights of every attention, as the taps show them when the model runs."""
    seen = []
    taps = [m.weights for m in model.modules() if isinstance(m, regard.MultiHeadAttention)]
    handles = [tap.register_forward_hook(lambda m, a, w: seen.append(w[0])) for tap in taps]
    run()
    for handle in handles:
        handle.remove()
    return seen


def same(found, weights):
    assert found.layers == len(weights)
    for layer, expected in enumerate(weights):
        # rounding of float32 over a few products
        torch.testing.assert_close(all_weights(found, layer), expected, atol=1e-5, rtol=0)


def test_a_tagger():
    model = tagger(position="rotary")
    text = "Onions 我"
    before = model.logits([text])[0]
    found = trace(model, text)
    assert torch.equal(model.logits([text])[0], before)
    assert [token.text for token in found.tokens] == list("onions ")
    assert all(text[t.start : t.end].lower() == t.text for t in found.tokens)
    assert found.notes == ("the text is cut to the 7 tokens that the model reads",)
    same(found, weights_that_pass(model, lambda: model.logits([text[:7]])))
    assert found.verify().passed
    with pytest.raises(OptionError, match="generate= is not for Tagger; give it texts alone"):
        trace(model, text, generate=3)
    with pytest.raises(OptionError, match="target= is not for Tagger"):
        trace(model, text, target="yes")


def test_a_language_model():
    model = language_model()
    before = model.logits(["我吃洋葱"])[0]
    found = trace(model, "我吃洋葱")
    assert torch.equal(model.logits(["我吃洋葱"])[0], before)
    assert [token.text for token in found.tokens] == ["<s>", *"我吃洋葱"]
    assert [token.special for token in found.tokens] == [True, *[False] * 4]
    same(found, weights_that_pass(model, lambda: model.logits(["我吃洋葱"])))
    assert all_weights(found, 1).triu(1).eq(0).all()
    assert isinstance(found.record(0).mask, Causal)
    assert found.record(1).q_unrotated is not None
    assert found.verify().passed
    with pytest.raises(OptionError, match="has 41 tokens with <s>, but the model reads 29 at once"):
        trace(model, "我" * 40)
    with pytest.raises(OptionError, match="target= is not for LanguageModel"):
        trace(model, "我", target="yes")


@pytest.mark.parametrize("layers", [
    *({"position": name} for name in positions.names()),
    {"score": "additive"},
    {"score": "location"},
    {"kv_heads": 1},
    {"normalizer": "entmax15"},
], ids=str)  # fmt: skip
def test_writing_joins_to_the_trace_of_the_whole_text(layers):
    model = language_model(**layers)
    alone = model.generate("我吃", 9, temperature=0)
    found = trace(model, "我吃", generate=9)
    assert model.generate("我吃", 9, temperature=0) == alone
    text = found.texts[0]
    assert text == "我吃" + alone[: len(text) - 2]
    assert len(found.tokens) == 1 + 2 + 9 - 1
    assert "written, not read" in found.notes[0]
    whole = trace(model, text)
    assert [t.id for t in found.tokens] == [t.id for t in whole.tokens]
    assert [(t.start, t.end) for t in found.tokens] == [(t.start, t.end) for t in whole.tokens]
    for layer in range(2):
        weights = all_weights(found, layer)
        assert weights.shape == (3, 11, 11)
        assert weights.triu(1).eq(0).all()
        torch.testing.assert_close(weights, all_weights(whole, layer), atol=1e-5, rtol=0)
        torch.testing.assert_close(found.output(layer), whole.output(layer), atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(
            found.residual(layer), whole.residual(layer), atol=1e-5, rtol=1e-4
        )
    assert found.verify().passed


def test_words_that_are_written_stand_behind_spaces():
    model = language_model("whitespace")
    found = trace(model, "no onions", generate=4)
    text = found.texts[0]
    assert text.startswith("no onions ")
    assert [text[t.start : t.end] for t in found.tokens[1:]] == text.split()
    assert "no onions" + model.generate("no onions", 4, temperature=0).rsplit(" ", 1)[0] == text


def test_an_encoder_decoder_given_its_target():
    model = encoder_decoder()
    before = model.logits(["我吃洋葱"], ["yes onions"])[0]
    found = trace(model, "我吃洋葱", target="yes onions")
    assert torch.equal(model.logits(["我吃洋葱"], ["yes onions"])[0], before)
    assert list(found.parts) == ["encoder", "decoder", "cross"]
    assert found is found.parts["encoder"]
    cross, decoder = found.parts["cross"], found.parts["decoder"]
    assert [t.text for t in found.tokens] == list("我吃洋葱")
    assert [t.text for t in decoder.tokens] == ["<s>", "yes", "onions"]
    assert [t.text for t in cross.tokens] == ["<s>", "yes", "onions"]
    assert [t.text for t in cross.key_tokens] == list("我吃洋葱")
    assert (cross.texts, cross.key_texts) == (("yes onions",), ("我吃洋葱",))
    seen = weights_that_pass(model, lambda: model.logits(["我吃洋葱"], ["yes onions"]))
    same(found, seen[:2])
    same(decoder, seen[2::2])
    same(cross, seen[3::2])
    assert all(one.verify().passed for one in found.parts.values())
    assert all_weights(decoder, 0).triu(1).eq(0).all()
    chosen = trace(model, "我吃洋葱", target="yes onions", part="cross")
    assert chosen.part == "cross"
    with pytest.raises(OptionError, match="part 'self' is asked for; the model has encoder, deco"):
        trace(model, "我吃洋葱", part="self")
    with pytest.raises(OptionError, match="either target= or generate="):
        trace(model, "我", target="yes", generate=3)


@pytest.mark.parametrize("position", ["rotary", "t5", "cope", "learned", "unit_interval"])
def test_what_an_encoder_decoder_writes_joins_to_the_trace_of_its_target(position):
    model = encoder_decoder(position=position, kv_heads=1)
    alone = model.predict(["我吃洋葱"], tokens=6)
    found = trace(model, "我吃洋葱", generate=6)
    assert model.predict(["我吃洋葱"], tokens=6) == alone
    written = [token.text for token in found.parts["decoder"].tokens]
    assert written == ["<s>", *alone[0].tokens[:5]]
    assert "written, not read" in found.parts["cross"].notes[0]
    whole = trace(model, "我吃洋葱", target=found.parts["decoder"].texts[0])
    for part in ("encoder", "decoder", "cross"):
        one, other = found.parts[part], whole.parts[part]
        assert [t.text for t in one.key_tokens] == [t.text for t in other.key_tokens]
        for layer in range(2):
            torch.testing.assert_close(
                all_weights(one, layer), all_weights(other, layer), atol=1e-5, rtol=0
            )
        assert one.verify().passed


def test_run_folders_are_opened(tmp_path):
    for model in (tagger(), language_model(), encoder_decoder()):
        folder = tmp_path / type(model).__name__
        save(model, folder)
        found, direct = trace(folder, "我吃洋葱"), trace(model, "我吃洋葱")
        torch.testing.assert_close(all_weights(found, 0), all_weights(direct, 0), atol=0, rtol=0)
        found.parts[found.part].save(folder / "x.safetensors")
        again = regard.Trace.load(folder / "x.safetensors")
        assert [t.text for t in again.tokens] == [t.text for t in found.tokens]
        torch.testing.assert_close(all_weights(again, 1), all_weights(found, 1), atol=1e-6, rtol=0)


def test_one_of_several_texts():
    model = encoder_decoder()
    found = trace(model, TEXTS, item=1)
    assert [t.text for t in found.tokens] == list(TEXTS[1])
    with pytest.raises(OptionError, match="there are 3 texts: say which one"):
        trace(model, TEXTS)
