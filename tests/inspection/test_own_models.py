"""regard's own models: traced by their taps, also as they write; edited, measured, in tables."""

import copy

import pytest
import torch

import regard
from regard import MultiHeadAttention, positions
from regard.attention.masks import Causal
from regard.cli import main
from regard.errors import OptionError
from regard.inspection import edit, head_importance, relevance, trace
from regard.inspection.heads.induction import repeated_random
from regard.inspection.interventions import edits
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

# Logits of two layers in float32, of size about 1: sums of ≤ 100 products, ≈ 100 · 2⁻²⁴.
ATOL = 1e-5

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
    taps = [m.weights for m in model.modules() if isinstance(m, MultiHeadAttention)]
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


def without_head(model, name, head):
    """The model whose output map has no columns for one head."""
    by_hand = copy.deepcopy(model)
    module = by_hand.get_submodule(name)
    assert isinstance(module, MultiHeadAttention)
    with torch.no_grad():
        module.output.weight[:, 4 * head : 4 * head + 4] = 0  # heads are 4 wide
    return by_hand


def names_of(model, part):
    found = [n for n, m in model.named_modules() if isinstance(m, MultiHeadAttention)]
    if part is None:
        return found
    kinds = {
        "encoder": lambda n: n.startswith("encoder."),
        "cross": lambda n: n.endswith(".cross"),
        "decoder": lambda n: not n.startswith("encoder.") and not n.endswith(".cross"),
    }
    return [n for n in found if kinds[part](n)]


PAIRS = {"texts": TEXTS, "targets": TARGETS}
CASES = {
    "tagger": (tagger, None, TEXTS),
    "language model": (language_model, None, TEXTS),
    "encoder": (encoder_decoder, "encoder", PAIRS),
    "decoder": (encoder_decoder, "decoder", PAIRS),
    "cross": (encoder_decoder, "cross", PAIRS),
}


@pytest.mark.parametrize("case", CASES)
def test_a_head_switched_off_is_a_head_without_its_output_map(case):
    make, part, given = CASES[case]
    model = make()
    names = names_of(model, part)
    assert len(names) == 2
    by_hand = without_head(model, names[1], 2)
    with edit(model, {(1, 2): "zero"}, part=part) as editing:
        change = editing.change(given)
    with edit(by_hand, {}, part=part) as editing:
        expected = editing.change(given).before
    torch.testing.assert_close(change.after, expected, atol=ATOL, rtol=1e-5)
    assert not torch.allclose(change.before, change.after, atol=1e-3)
    with edit(model, {}, part=part) as editing:
        assert torch.equal(editing.change(given).before, change.before)


def test_answers_have_names_and_what_is_written_is_its_own_target():
    model = tagger()
    with edit(model, {"all": "mean"}) as editing:
        change = editing.change(TEXTS[0], target=["n", "v", "v", "x", "n", "d"])
    tags = [one.tag for one in model.predict([TEXTS[0]])[0]]
    assert change.answers_before == tags
    assert change.loss is not None
    model = language_model()
    with edit(model, {"all": "mean"}) as editing:
        change = editing.change(TEXTS[:2])
    assert torch.equal(change.before, torch.cat(model.logits(TEXTS[:2])))

    def mean_log():
        found = model.log_probabilities(TEXTS[:2])
        return torch.tensor([x for one in found for x in one.log_probabilities]).mean()

    before = torch.nn.functional.cross_entropy(change.before, change.target)
    assert float(before) == pytest.approx(-float(mean_log()), abs=1e-5)
    with edit(model, {"all": "mean"}):
        assert change.loss == pytest.approx(-float(mean_log()) - float(before), abs=1e-5)
    with edit(encoder_decoder(), {0: "zero"}, part="cross") as editing:
        with pytest.raises(OptionError, match="asked with what it reads and writes"):
            editing.change(TEXTS)
        assert editing.change({"texts": TEXTS, "targets": TARGETS}).loss is not None


def test_writing_under_an_edit_is_writing_without_the_head():
    model = language_model()
    by_hand = without_head(model, names_of(model, None)[0], 1)
    start = model.encode([TEXTS[0]])[0][:-1].tolist()
    with edit(model, {(0, 1): "zero"}):
        got = model.continuation(start, 5, temperature=0)
    assert got == by_hand.continuation(start, 5, temperature=0)
    plain = model.continuation(start, 5, temperature=0)
    with edit(model, {"all": edits.create("temperature", temperature=1.0)}):
        assert model.continuation(start, 5, temperature=0) == plain


@pytest.mark.parametrize("case", CASES)
def test_importance(case):
    make, part, _ = CASES[case]
    model = make()
    data = {
        "tagger": [(text, ["n"] * len(text)) for text in TEXTS[:2]],
        "language model": TEXTS,
    }.get(case, list(zip(TEXTS, TARGETS, strict=True)))
    with torch.no_grad():  # only head 2 of the second layer reaches the answer
        first, second = (model.get_submodule(name) for name in names_of(model, part))
        first.output.weight.zero_()
        second.output.weight[:, :8] = 0
    table = head_importance(model, data, part=part)
    assert table.heads == [(layer, head) for layer in range(2) for head in range(3)]
    assert max(table.heads, key=lambda at: abs(table.of(*at)["loss_increase"])) == (1, 2)
    for place in table.heads[:-1]:
        assert abs(table.of(*place)["loss_increase"]) < 1e-6


def test_tables_rollout_and_units():
    found = trace(language_model(), TEXTS[1])
    assert found.summary().columns[0] == "diagonal"
    torch.testing.assert_close(found.rollout().sum(1), torch.ones(10))
    assert [unit.text for unit in found.units("words", special=False).rows][-1] == "洋葱"
    both = trace(encoder_decoder(), TEXTS[0], target=TARGETS[0], part="cross")
    assert "entropy" in both.summary().columns
    assert [unit.text for unit in both.units("words", special=False).cols][-1] == "洋葱"
    tags = trace(tagger(), TEXTS[0])
    assert tags.verify().passed
    assert tags.units("characters").weights(1, 2).shape == (6, 6)


def test_the_induction_score_of_a_language_model():
    """Random text that is repeated: the score is what whole rows of weights say."""
    model = language_model()
    ids = repeated_random(6, 6, repeats=2, seed=1).tolist()
    words = [token for token in model.vocabulary.tokens if len(token) == 1][:6]
    found = trace(model, "".join(words[i] for i in ids))
    score = found.summary(["induction"]).of(1, 1)["induction"]
    weights = found.weights(1, 1)
    # Row 7 + i has the token of row 1 + i, behind which stands row 2 + i.
    expected = torch.stack([weights[7 + i, 2 + i] for i in range(6)]).mean()
    assert score == pytest.approx(float(expected), abs=1e-6)


def test_relevance_is_for_classifiers():
    with pytest.raises(OptionError, match="relevance is for classifiers, and LanguageModel is"):
        relevance(language_model(), TEXTS[0])
    with pytest.raises(OptionError, match="relevance is for classifiers, and Tagger is none"):
        relevance(tagger(), TEXTS[0])


@pytest.mark.parametrize("make", [tagger, language_model, encoder_decoder])
def test_run_folders_in_the_terminal(make, tmp_path, capsys):
    model = make()
    save(model, tmp_path / "run")
    parts = ["--part", "cross"] if make is encoder_decoder else []
    arguments = [TEXTS[0], "--layer", "1", "--head", "2", "--units", "words", "--verify", *parts]
    assert main(["trace", str(tmp_path / "run"), *arguments]) == 0
    out = capsys.readouterr().out
    assert "layer 1, head 2" in out
    assert "洋葱" in out
    assert "verified: " in out
    assert main(["trace", str(tmp_path / "run"), TEXTS[0], "--summary", *parts]) == 0
    assert "entropy" in capsys.readouterr().out
