"""Edits against models that were changed by hand, and models put back exactly."""

import copy

import pytest
import torch

from regard.attention import MultiHeadAttention
from regard.errors import OptionError, ShapeError
from regard.inspection.interventions import Change, edit, edits, head_importance
from regard.inspection.tracing import trace
from regard.models import Classifier, ClassifierSettings
from regard.text import Vocabulary

# Logits of a few layers in float32, of size about 1: sums of ≤ 100 products, ≈ 100 · 2⁻²⁴.
ATOL = 1e-5
TEXTS = ["a b c d e", "e d b", "c a"]


@pytest.fixture
def classifier():
    torch.manual_seed(3)
    settings = ClassifierSettings.model_validate(
        {
            "labels": ("no", "yes", "maybe"),
            "text": {"segmenter": "whitespace", "min_count": 1},
            "encoder": {"width": 12, "heads": 3, "layers": 2, "position": "rotary"},
        }
    )
    vocabulary = Vocabulary.count([list("abcde")], specials=("<pad>", "<unk>"))
    model = Classifier(settings, vocabulary).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.mul_(3)
    return model


def layers_of(model):
    return [m for m in model.modules() if isinstance(m, MultiHeadAttention)]


def hooks_of(model):
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules())


def close(a, b):
    torch.testing.assert_close(a, b, atol=ATOL, rtol=1e-5)


def test_zero_is_a_head_without_its_columns_of_the_output_map(classifier):
    by_hand = copy.deepcopy(classifier)
    with torch.no_grad():
        layers_of(by_hand)[1].output.weight[:, 4:8] = 0  # head 1, of width 4
    with edit(classifier, {(1, 1): "zero"}):
        close(classifier.logits(TEXTS), by_hand.logits(TEXTS))
    assert not torch.allclose(classifier.logits(TEXTS), by_hand.logits(TEXTS), atol=1e-3)


@pytest.mark.parametrize("how", ["zero", "mean", "uniform", "previous_token"])
def test_everything_is_put_back_also_after_an_exception(classifier, how):
    before, hooks = classifier.logits(TEXTS), hooks_of(classifier)
    with edit(classifier, {"all": how}):
        assert not torch.equal(classifier.logits(TEXTS), before)
    assert torch.equal(classifier.logits(TEXTS), before)

    def fail():
        with edit(classifier, {"all": how}):
            classifier.logits(TEXTS)
            raise KeyError("stop")

    with pytest.raises(KeyError, match="stop"):
        fail()
    assert torch.equal(classifier.logits(TEXTS), before)
    assert hooks_of(classifier) == hooks


def recorded(classifier, changes, text):
    """The weights and outputs of layer 0 under an edit."""
    seen = {}
    layer = layers_of(classifier)[0]
    with edit(classifier, changes):
        hooks = [
            getattr(layer, name).register_forward_hook(
                lambda m, a, x, name=name: seen.update({name: x[0].clone()})
            )
            for name in ("weights", "mixed")
        ]
        try:
            classifier.logits([text])
        finally:
            for hook in hooks:
                hook.remove()
    return seen


def test_replaced_weights(classifier):
    own = recorded(classifier, {}, "a b c")["weights"]
    uniform = recorded(classifier, {(0, 2): "uniform"}, "a b c")["weights"]
    close(uniform[2], torch.full((3, 3), 1 / 3))
    close(uniform[:2], own[:2])
    previous = recorded(classifier, {(0, 0): "previous_token"}, "a b c")["weights"]
    assert torch.equal(previous[0], torch.tensor([[1.0, 0, 0], [1, 0, 0], [0, 1, 0]]))
    matrix = torch.rand(3, 3)
    given = recorded(classifier, {(0, 1): matrix}, "a b c")["weights"]
    assert torch.equal(given[1], matrix)
    # Its own weights, given back, change nothing.
    before = classifier.logits(["a b c"])
    with edit(classifier, {(0, 1): own[1]}):
        close(classifier.logits(["a b c"]), before)


def test_temperature(classifier):
    scores = {}
    layer = layers_of(classifier)[0]
    hook = layer.scores.register_forward_hook(lambda m, a, x: scores.update(x=x[0].clone()))
    classifier.logits(["a b c"])
    hook.remove()
    warm = recorded(classifier, {(0, 1): edits.create("temperature", temperature=2.5)}, "a b c")
    close(warm["weights"][1], (scores["x"][1] / 2.5).softmax(-1))
    close(warm["weights"][0], scores["x"][0].softmax(-1))


def test_blocked_tokens_share_out_their_weight(classifier):
    own = recorded(classifier, {}, "a b c d")["weights"]
    blocked = recorded(classifier, {0: edits.create("block_tokens", tokens=[1, 3])}, "a b c d")
    rest = own.clone()
    rest[..., [1, 3]] = 0
    close(blocked["weights"], rest / rest.sum(-1, keepdim=True))
    assert (blocked["weights"][..., [1, 3]] == 0).all()
    everything = edits.create("block_tokens", tokens=[0, 1, 2, 3])
    assert (recorded(classifier, {0: everything}, "a b c d")["weights"] == 0).all()


def test_the_mean_leaves_padding_out(classifier):
    """In a batch, a text's mean is the one it has alone."""
    alone = []
    with edit(classifier, {"all": "mean"}):
        together = classifier.logits(TEXTS)
        alone = torch.cat([classifier.logits([text]) for text in TEXTS])
    close(together, alone)
    own = recorded(classifier, {}, "a b c")["mixed"]
    mean = recorded(classifier, {(0, 1): "mean"}, "a b c")["mixed"]
    close(mean[1], own[1].mean(0).expand(3, 4))
    value = torch.arange(4.0)
    given = recorded(classifier, {(0, 1): edits.create("mean", value=value)}, "a b c")["mixed"]
    close(given[1], value.expand(3, 4))


def test_patching_everything_gives_the_other_texts_mixed_values(classifier):
    other = trace(classifier, "c d a")
    patch = edits.create("patch", trace=other)
    got = recorded(classifier, {0: patch}, "a b c")["mixed"]
    close(got, other.output(0))
    rows = edits.create("patch", trace=other, tokens=[2])
    own = recorded(classifier, {}, "a b c")["mixed"]
    got = recorded(classifier, {(0, 1): rows}, "a b c")["mixed"]
    close(got[1, 2], other.output(0, 1)[2])
    close(got[1, :2], own[1, :2])
    close(got[0], own[0])
    weights = edits.create("patch", trace=other, what="weights")
    close(recorded(classifier, {(0, 2): weights}, "a b c")["weights"][2], other.weights(0, 2))
    with pytest.raises(ShapeError, match="both texts need the same number of tokens"):
        recorded(classifier, {0: patch}, "a b")


def test_edits_follow_one_another(classifier):
    both = [edits.create("temperature", temperature=3.0), "zero"]
    assert (recorded(classifier, {(0, 1): both}, "a b c")["mixed"][1] == 0).all()


def test_the_change_of_the_answer(classifier):
    with edit(classifier, {"all": "zero"}) as editing:
        change = editing.change(TEXTS, target=["yes", "no", "maybe"])
        after = classifier.logits(TEXTS)
    before = classifier.logits(TEXTS)
    assert torch.equal(change.before, before)
    assert torch.equal(change.after, after)
    assert change.answers_before == [p.label for p in classifier.predict(TEXTS)]
    target = torch.tensor([1, 0, 2])
    losses = [torch.nn.functional.cross_entropy(x, target) for x in (after, before)]
    assert change.loss == pytest.approx(float(losses[0] - losses[1]), abs=1e-6)
    assert "largest change of a probability" in str(change)


def test_losses_of_language_models_are_of_the_next_token():
    logits = torch.zeros(1, 3, 5)
    logits[0, 0, 4] = 50
    change = Change(torch.zeros(1, 3, 5), logits, target=torch.tensor([[0, 4, 1]]))
    # One of two predicted tokens becomes sure: ln 5 is gained on it, half of it on the mean.
    assert change.loss == pytest.approx(-torch.log(torch.tensor(5.0)).item() / 2, abs=1e-6)


def test_head_importance_finds_the_head_that_matters(classifier):
    with torch.no_grad():  # only head 2 of layer 1 reaches the answer
        first, second = layers_of(classifier)
        first.output.weight.zero_()
        second.output.weight[:, :8] = 0
        second.output.weight[:, 8:] *= 5
    data = [(text, p.label) for text, p in zip(TEXTS, classifier.predict(TEXTS), strict=True)]
    table = head_importance(classifier, data)
    assert table.heads == [(layer, head) for layer in range(2) for head in range(3)]
    assert table.top("loss_increase", 1) == [(1, 2)]
    for place in table.heads[:-1]:
        assert abs(table.of(*place)["loss_increase"]) < 1e-6
        assert table.of(*place)["answers_changed"] == 0
    with pytest.raises(OptionError, match="head_importance needs data"):
        head_importance(classifier, [])


def test_what_is_not_there(classifier):
    def run(changes, **settings):
        with edit(classifier, changes, **settings) as editing:
            editing.change(["a b c"])

    with pytest.raises(OptionError, match=r"layer 2 is to be edited, but the model ran layers 0 …"):
        run({(2, 0): "zero", (1, 0): "zero"})
    with pytest.raises(OptionError, match=r"head 3 of layer 1 is to be edited; it has heads 0 … 2"):
        run({(1, 3): "zero"})
    with pytest.raises(OptionError, match="unknown edit 'zeroo'; did you mean 'zero'"):
        run({(1, 1): "zeroo"})
    with pytest.raises(OptionError, match=r"an edit is for \(layer, head\), a layer, or 'all'"):
        run({"every": "zero"})
    with pytest.raises(OptionError, match=r"an edit is a name \(block_tokens, .* not int"):
        run({0: 3})
    with pytest.raises(OptionError, match="part='decoder': an encoder–decoder needs"):
        run({0: "zero"}, part="decoder")
    with pytest.raises(OptionError, match=r"token 5 is to be blocked; there are 0 … 2"):
        run({0: edits.create("block_tokens", tokens=[5])})
    with pytest.raises(OptionError, match="a temperature is above 0, not 0"):
        edits.create("temperature", temperature=0)
    with pytest.raises(ShapeError, match=r"weights of \(1, 3, 3\) .* given matrix is \(2, 2\)"):
        run({(0, 0): torch.eye(2)})
    with pytest.raises(OptionError, match="neither regard's attention layers nor"):  # noqa: SIM117
        with edit(torch.nn.Linear(2, 2), {}):
            pass


IDS = torch.tensor([[5, 17, 33, 8, 71, 17, 2], [9, 4, 33, 61, 30, 12, 50]])

OUTPUT_MAPS = {
    "gpt2": lambda model: model.transformer.h[1].attn.c_proj.weight,  # (H·d, D)
    "llama": lambda model: model.model.layers[1].self_attn.o_proj.weight.T,
    "gemma2": lambda model: model.model.layers[1].self_attn.o_proj.weight.T,
    "gpt_oss": lambda model: model.model.layers[1].self_attn.o_proj.weight.T,
    "bert": lambda model: model.encoder.layer[1].attention.output.dense.weight.T,
    "modernbert": lambda model: model.layers[1].attn.Wo.weight.T,
}


def answer(model, **inputs):
    out = model(**({"input_ids": IDS} | inputs))
    return (out.logits if hasattr(out, "logits") else out.last_hidden_state).detach()


@pytest.mark.parametrize("attn", ["sdpa", "eager"])
@pytest.mark.parametrize("family", OUTPUT_MAPS)
def test_hugging_face_heads_switched_off(small_model, family, attn):
    if family in ("gemma2", "gpt_oss"):
        attn = "eager"  # transformers has no sdpa for them
    model = small_model(family, attn)
    before = answer(model)
    by_hand = copy.deepcopy(model)
    weight = OUTPUT_MAPS[family](by_hand)
    width = weight.shape[0] // 6
    with torch.no_grad():
        weight[2 * width : 3 * width] = 0
    with edit(model, {(1, 2): "zero"}):
        assert torch.equal(answer(model), answer(by_hand))
    assert torch.equal(answer(model), before)


@pytest.mark.parametrize(
    "family", ["gpt2", "llama", "gemma2", "mistral", "gpt_oss", "bert", "modernbert"]
)
def test_hugging_face_attention_recomputed_is_the_same(small_model, family):
    """Temperature 1 takes the way of edited weights: mask, window, softcap, sinks and groups."""
    model = small_model(family, "eager" if family in ("gemma2", "gpt_oss") else "sdpa")
    before = answer(model)
    with edit(model, {"all": edits.create("temperature", temperature=1.0)}):
        got = answer(model)
    assert not torch.equal(got, torch.zeros_like(got))
    # Weights are multiplied up in these models: relative to the largest logit.
    assert (got - before).abs().max() <= 1e-4 * before.abs().max()


def test_hugging_face_blocked_token_is_a_masked_token(small_model):
    model = small_model("bert")
    mask = torch.ones_like(IDS)
    mask[:, 3] = 0
    masked = answer(model, attention_mask=mask)
    with edit(model, {"all": edits.create("block_tokens", tokens=[3])}):
        got = answer(model)
    assert (got - masked).abs().max() <= 1e-4 * masked.abs().max()


def test_hugging_face_is_put_back_after_an_exception(small_model):
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    model = small_model("llama")
    before, hooks = answer(model), hooks_of(model)
    functions = dict(ALL_ATTENTION_FUNCTIONS._local_mapping)

    def fail():
        with edit(model, {"all": "mean"}):
            assert not torch.equal(answer(model), before)
            raise KeyError("stop")

    with pytest.raises(KeyError, match="stop"):
        fail()
    assert torch.equal(answer(model), before)
    assert hooks_of(model) == hooks
    assert ALL_ATTENTION_FUNCTIONS._local_mapping == functions


def test_generation_under_edit(small_model):
    """With a cache the last query stands at the end of the keys."""
    model = small_model("llama")
    with edit(model, {"all": "previous_token"}):
        cached = model.generate(IDS, max_new_tokens=4, do_sample=False, pad_token_id=0)
        plain = model.generate(
            IDS, max_new_tokens=4, do_sample=False, pad_token_id=0, use_cache=False
        )
    assert torch.equal(cached, plain)


@pytest.mark.parametrize("part", ["encoder", "decoder", "cross"])
@pytest.mark.parametrize("family", ["t5", "bart"])
def test_parts_of_an_encoder_decoder(small_model, family, part):
    model = small_model(family)
    before = answer(model, decoder_input_ids=IDS[:, :4])
    same = edits.create("temperature", temperature=1.0)
    with edit(model, {(1, None): same}, part=part):
        got = answer(model, decoder_input_ids=IDS[:, :4])
    assert (got - before).abs().max() <= 1e-4 * before.abs().max()
    with edit(model, {(1, 0): "zero"}, part=part):
        assert not torch.equal(answer(model, decoder_input_ids=IDS[:, :4]), before)
    with pytest.raises(OptionError, match="part=None: an encoder–decoder needs part="):  # noqa: SIM117
        with edit(model, {(1, 0): "zero"}):
            pass


@pytest.mark.parametrize("family", ["bloom", "mpnet"])
def test_families_that_attend_by_themselves(small_model, family):
    model = small_model(family, "eager")
    before, hooks = answer(model), hooks_of(model)
    with edit(model, {"all": edits.create("temperature", temperature=1.0)}):
        got = answer(model)
    assert (got - before).abs().max() <= 1e-4 * before.abs().max()
    by_hand = copy.deepcopy(model)
    if family == "bloom":
        weight = by_hand.transformer.h[1].self_attention.dense.weight
    else:
        weight = by_hand.encoder.layer[1].attention.attn.o.weight
    with torch.no_grad():
        weight[:, 16:24] = 0
    with edit(model, {(1, 2): "zero"}):
        assert torch.equal(answer(model), answer(by_hand))
    mask = torch.ones_like(IDS)
    mask[:, 3] = 0
    masked = answer(model, attention_mask=mask)
    with edit(model, {"all": edits.create("block_tokens", tokens=[3])}):
        got = answer(model)
    if family == "mpnet":  # ALiBi counts only the tokens that the mask leaves
        assert (got - masked).abs().max() <= 1e-4 * masked.abs().max()
    else:
        assert not torch.allclose(got, before, atol=1e-3)
    with (
        pytest.raises(OptionError, match="a picture of it would be wrong"),
        edit(model, {0: "mean"}),
    ):
        trace(model, input_ids=IDS[:1])
    assert torch.equal(answer(model), before)
    assert hooks_of(model) == hooks


def test_generation_of_bloom_under_edit(small_model):
    model = small_model("bloom", "eager")
    settings = {"max_new_tokens": 4, "do_sample": False, "pad_token_id": 0}
    with edit(model, {"all": "uniform"}):
        cached = model.generate(IDS, **settings)
        plain = model.generate(IDS, use_cache=False, **settings)
    assert torch.equal(cached, plain)


def test_families_that_edits_do_not_reach(small_model):
    for family, attn, why in (
        ("xlnet", "eager", "no edit reached XLNetModel: its scores have a term of relative"),
        ("falcon", "sdpa", "no edit reached FalconForCausalLM: its attention calls the kernel"),
    ):
        model = small_model(family, attn)
        with pytest.raises(OptionError, match=why), edit(model, {(0, 1): "zero"}):
            model(IDS)


def test_edits_within_edits(classifier, small_model):
    """The outer ones come first; leaving the inner one, the outer is as it was."""
    model = small_model("llama")
    both = {0: ["uniform", edits.create("block_tokens", tokens=[2])], (1, 1): "mean"}
    runs = (
        (model, lambda: answer(model), hooks_of(model)),
        (classifier, lambda: classifier.logits(TEXTS), hooks_of(classifier)),
    )
    for one, run, hooks in runs:
        plain = run()
        with edit(one, both):
            expected = run()
        with edit(one, {0: "uniform"}):
            outer = run()
            with (
                edit(one, {0: edits.create("block_tokens", tokens=[2])}),
                edit(one, {(1, 1): "mean"}),
            ):
                close(run(), expected)
            assert torch.equal(run(), outer)

            def fail(one=one):
                with edit(one, {0: "zero"}):
                    raise KeyError("stop")

            with pytest.raises(KeyError, match="stop"):
                fail()
            assert torch.equal(run(), outer)
        assert not torch.allclose(outer, expected, atol=1e-3)
        assert torch.equal(run(), plain)
        assert hooks_of(one) == hooks


def test_parts_and_models_are_edited_within_one_another(small_model):
    model, other = small_model("t5"), small_model("llama")
    given = {"decoder_input_ids": IDS[:, :4]}
    plain, plain_other = answer(model, **given), answer(other)
    with edit(model, {0: "zero"}, part="encoder"):
        encoder = answer(model, **given)
        with edit(model, {1: "zero"}, part="cross"), edit(other, {0: "zero"}):
            both = answer(model, **given)
            assert not torch.equal(answer(other), plain_other)
        assert torch.equal(answer(model, **given), encoder)
        assert torch.equal(answer(other), plain_other)
    assert not torch.equal(encoder, both)
    assert torch.equal(answer(model, **given), plain)


@pytest.mark.parametrize("family", ["llama", "bloom", "own"])
def test_other_threads_are_not_edited(classifier, small_model, family):
    from concurrent.futures import ThreadPoolExecutor

    model = classifier
    if family != "own":
        model = small_model(family, "eager" if family == "bloom" else "sdpa")
    run = (lambda: classifier.logits(TEXTS)) if family == "own" else (lambda: answer(model))
    before = run()
    with ThreadPoolExecutor(1) as pool, edit(model, {"all": "zero"}):
        assert torch.equal(pool.submit(run).result(), before)
        assert not torch.equal(run(), before)


def test_hugging_face_change_and_importance(small_model):
    model = small_model("gpt2")
    with edit(model, {(0, 1): "zero"}) as editing:
        change = editing.change({"input_ids": IDS}, target=IDS)
    assert torch.equal(change.before, answer(model))
    assert change.loss != 0
    data = [{"input_ids": IDS[:1], "labels": IDS[:1]}, {"input_ids": IDS[1:], "labels": IDS[1:]}]
    table = head_importance(model, data)
    assert len(table.heads) == 12
    # The mean over both texts is that of one batch.
    assert table.of(0, 1)["loss_increase"] == pytest.approx(change.loss, abs=1e-4)
