"""What is captured is what the model computes, for every family."""

import sys

import pytest
import torch

from regard.attention import RelativeBias
from regard.attention.masks import Causal, Window
from regard.errors import OptionError
from regard.inspection.capture.assemble import records
from regard.inspection.capture.interface import watching
from regard.inspection.verify import require_faithful, verify

CAUSAL = ["gpt2", "llama", "qwen3", "gemma2", "gemma3", "mistral", "gpt_oss", "bloom"]
CAUSAL += ["gpt_neox", "phi", "deepseek_v3", "lfm2"]
ENCODERS = ["bert", "roberta", "distilbert", "mpnet", "modernbert", "albert"]
PAIRS = ["t5", "bart"]
EAGER_ONLY = ["gemma2", "gpt_oss", "bloom", "mpnet"]

TOKENS, REAL, DECODED = 13, 9, 7


def inputs(family, padded):
    ids = torch.randint(5, 90, (2, TOKENS), generator=torch.Generator().manual_seed(5))
    given = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    if padded:
        given["attention_mask"][1, REAL:] = 0
    if family in PAIRS:
        given["decoder_input_ids"] = ids[:, :DECODED]
    return given


def captured(model, given):
    with torch.no_grad():
        plain = model(**given)[0]
        with watching(model) as watch:
            watched = model(**given)[0]
        again = model(**given)[0]
    assert torch.equal(plain, watched)
    assert torch.equal(plain, again)
    return watch.calls


def layers(calls, kind, padded=False, item=1):
    keep = torch.arange(REAL) if padded else None
    rows = None if kind in ("decoder", "cross") else keep
    cols = None if kind == "decoder" else keep
    return records([call for call in calls if call.kind == kind], item, rows, cols)


def truth_of(eager, given, padded):
    """The weights that the eager implementation hands out, by kind, for text 1 of the batch."""
    with torch.no_grad():
        out = eager(**given, output_attentions=True)
    names = {
        "self": "attentions",
        "encoder": "encoder_attentions",
        "decoder": "decoder_attentions",
        "cross": "cross_attentions",
    }
    found = {}
    for kind, name in names.items():
        weights = getattr(out, name, None)
        if weights:
            rows = REAL if padded and kind in ("self", "encoder") else None
            cols = REAL if padded and kind != "decoder" else None
            found[kind] = [w[1][:, :rows, :cols] for w in weights]
    return found


@pytest.mark.parametrize("padded", [False, True], ids=["full", "padded"])
@pytest.mark.parametrize("family", CAUSAL + ENCODERS + PAIRS)
def test_weights_are_those_of_the_eager_model_and_outputs_are_untouched(
    small_model, family, padded
):
    given = inputs(family, padded)
    calls = captured(small_model(family, "eager" if family in EAGER_ONLY else "sdpa"), given)
    truth = truth_of(small_model(family, "eager"), given, padded)
    assert {call.kind for call in calls} == truth.keys()
    for kind, expected in truth.items():
        found = layers(calls, kind, padded)
        assert len(found) == len(expected)
        require_faithful(found)
        for record, weights in zip(found, expected, strict=True):
            ours = torch.stack([record.weights(head) for head in range(record.heads)])
            torch.testing.assert_close(ours, weights, atol=1e-5, rtol=0)
            assert ours.shape == weights.shape
            assert float((ours.amax(-1) / ours.mean(-1)).max()) > 2  # no flat picture


@pytest.mark.parametrize("family", CAUSAL)
def test_nothing_is_above_the_diagonal_of_a_causal_model(small_model, family):
    model = small_model(family, "eager" if family in EAGER_ONLY else "sdpa")
    for record in layers(captured(model, inputs(family, True)), "self", True):
        assert record.is_causal
        for head in range(record.heads):
            assert record.weights(head).triu(1).eq(0).all()
            assert record.log_weights(head).triu(1)[0, 1] == -torch.inf


def test_windows_are_exact_at_their_edges(small_model):
    for family, layer, width, after in (
        ("mistral", 0, 4, 0),
        ("gemma2", 0, 5, 0),
        ("gemma3", 0, 5, 0),
        ("modernbert", 1, 4, 3),
    ):
        model = small_model(family, "eager" if family in EAGER_ONLY else "sdpa")
        record = layers(captured(model, inputs(family, False)), "self")[layer]
        assert isinstance(record.mask, Window)
        assert (record.mask.width, record.mask.after) == (width, after)
        weights = record.weights(0)
        for row in range(TOKENS):
            inside = range(max(0, row - width + 1), min(TOKENS, row + after + 1))
            assert weights[row].nonzero()[:, 0].tolist() == list(inside)


def test_a_window_wider_than_the_text_is_plain_causal(small_model):
    model = small_model("mistral", sliding_window=50)
    assert isinstance(layers(captured(model, inputs("mistral", False)), "self")[0].mask, Causal)


def test_grouped_heads_keep_their_own_keys(small_model):
    record = layers(captured(small_model("llama"), inputs("llama", False)), "self")[0]
    assert (record.heads, record.kv_heads) == (6, 2)
    assert [record.kv_head(head) for head in range(6)] == [0, 0, 0, 1, 1, 1]


def test_q_and_k_before_rotation_turn_into_those_after(small_model):
    from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

    model = small_model("llama")
    record = layers(captured(model, inputs("llama", False)), "self")[1]
    cos, sin = model.model.rotary_emb(record.v, torch.arange(TOKENS)[None])
    q, k = apply_rotary_pos_emb(record.q_unrotated[None], record.k_unrotated[None], cos, sin)
    assert torch.equal(q[0], record.q)
    assert torch.equal(k[0], record.k)
    assert not torch.equal(record.q_unrotated, record.q)


@pytest.mark.parametrize(
    ("family", "turned"),
    # The first 4 of 8 dimensions, before and after they are put together; the last 4 of 10.
    [("gpt_neox", slice(0, 4)), ("phi", slice(0, 4)), ("deepseek_v3", slice(6, 10))],
)
def test_a_part_of_the_width_before_rotation(small_model, family, turned):
    record = layers(captured(small_model(family), inputs(family, False)), "self")[1]
    for before, after in ((record.q_unrotated, record.q), (record.k_unrotated, record.k)):
        assert before.shape == after.shape
        rest = torch.ones(after.shape[-1], dtype=torch.bool)
        rest[turned] = False
        assert torch.equal(before[..., rest], after[..., rest])
        # The first position is not turned (deepseek_v3 sorts even before odd dimensions).
        torch.testing.assert_close(before[:, 0].sort(-1).values, after[:, 0].sort(-1).values)
        assert not torch.allclose(before[:, 1], after[:, 1], atol=1e-2)
        # A rotation keeps lengths; sums of 10 squares in float32, relative.
        torch.testing.assert_close(before.norm(dim=-1), after.norm(dim=-1), atol=1e-5, rtol=1e-5)


def test_what_scales_caps_biases_and_sinks_is_kept(small_model):
    gemma = layers(captured(small_model("gemma2", "eager"), inputs("gemma2", False)), "self")
    assert gemma[0].softcap == 2.0
    assert gemma[0].scale == pytest.approx(256**-0.5)
    sink = layers(captured(small_model("gpt_oss", "eager"), inputs("gpt_oss", False)), "self")[0]
    assert sink.sinks.shape == (6,)
    assert sink.weights(0).sum(1).max() < 1
    t5 = layers(captured(small_model("t5"), inputs("t5", False)), "encoder")
    assert all(isinstance(record.biases[0], RelativeBias) for record in t5)
    assert t5[0].biases[0].table.shape == (6, 2 * TOKENS - 1)
    assert t5[0].biases[0] is not None
    assert t5[0].scale == 1.0
    assert layers(captured(small_model("t5"), inputs("t5", False)), "cross")[0].biases == ()


def test_the_fused_kernel_gives_its_log_sum_exp(small_model):
    record = layers(captured(small_model("llama"), inputs("llama", True)), "self", True)[0]
    assert set(record.known_log_sum_exp) == set(range(6))
    given = record.log_sum_exp.clone()
    record.known_log_sum_exp.clear()
    # Sums of at most 13 exponentials in float32.
    torch.testing.assert_close(given, record.log_sum_exp, atol=5e-6, rtol=0)


def test_the_residual_is_what_entered_each_layer(small_model):
    model = small_model("llama")
    given = inputs("llama", False)
    found = layers(captured(model, given), "self")
    with torch.no_grad():
        hidden = model(**given, output_hidden_states=True).hidden_states
    for record in found:
        assert torch.equal(record.residual, hidden[record.layer][1])


def test_a_float_mask_of_minus_1e5_is_added_as_the_model_adds_it(small_model):
    model = small_model("bert", "eager")
    ids = inputs("bert", False)["input_ids"]
    leaky = torch.zeros(2, 1, TOKENS, TOKENS)
    leaky[..., 9:] = -1e5
    leaky[1, 0, 4] = -1e5  # every key of row 4: the shift cancels, and the row sees all
    found = layers(captured(model, {"input_ids": ids, "attention_mask": leaky}), "self")
    require_faithful(found)
    with torch.no_grad():
        truth = model(ids, attention_mask=leaky, output_attentions=True).attentions
    for record, weights in zip(found, truth, strict=True):
        ours = torch.stack([record.weights(head) for head in range(6)])
        # A score near −1e5 is rounded by 2⁻⁸ in float32, in the model as here.
        torch.testing.assert_close(ours, weights[1], atol=1e-2, rtol=0)
        assert ours[:, 4, 9:].sum() > 0
        assert ours[:, 3, 9:].eq(0).all()


def test_everything_is_put_back_after_an_exception(small_model):
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
    from transformers.models.llama import modeling_llama

    before = dict(ALL_ATTENTION_FUNCTIONS._local_mapping), modeling_llama.apply_rotary_pos_emb
    model = small_model("llama")
    with pytest.raises(RuntimeError, match="stop"), watching(model):
        raise RuntimeError("stop")
    after = dict(ALL_ATTENTION_FUNCTIONS._local_mapping), modeling_llama.apply_rotary_pos_emb
    assert before == after
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
    with watching(model), pytest.raises(OptionError, match="do not nest"), watching(model):
        pass


def test_other_models_of_the_thread_are_not_captured(small_model):
    model, other = small_model("llama"), small_model("llama")
    with torch.no_grad(), watching(model) as watch:
        other(**inputs("llama", False))
    assert watch.calls == []


def test_sixteen_bit_models_are_kept_in_sixteen_bit(small_model):
    model = small_model("llama", dtype=torch.bfloat16)
    found = layers(captured(model, inputs("llama", False)), "self")
    assert found[0].q.dtype == found[0].v.dtype == torch.bfloat16
    require_faithful(found)
    assert verify(found).passed


def test_a_wrong_number_is_found_out(small_model):
    record = layers(captured(small_model("llama"), inputs("llama", False)), "self")[0]
    record.mixed[2, 0, 3] += 1e-3
    assert not verify([record]).passed
    assert "NOT verified" in str(verify([record]))
    with pytest.raises(OptionError, match="a picture of it would be wrong"):
        require_faithful([record])


def test_a_function_of_the_interface_that_somebody_registered(small_model):
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.integrations.sdpa_attention import sdpa_attention_forward
    from transformers.masking_utils import sdpa_mask

    AttentionInterface.register("my_sdpa", sdpa_attention_forward)
    AttentionMaskInterface.register("my_sdpa", sdpa_mask)
    try:
        found = layers(captured(small_model("llama", "my_sdpa"), inputs("llama", False)), "self")
    finally:
        del AttentionInterface._global_mapping["my_sdpa"]
        del AttentionMaskInterface._global_mapping["my_sdpa"]
    truth = layers(captured(small_model("llama"), inputs("llama", False)), "self")
    require_faithful(found)
    for ours, theirs in zip(found, truth, strict=True):
        assert torch.equal(ours.weights(3), theirs.weights(3))


def test_masks_of_other_kernels_are_refused_by_name(small_model):
    from transformers import AttentionInterface
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    flex = small_model("llama", "flex_attention")
    with (
        pytest.raises(OptionError, match="runs with attn_implementation='flex_attention', whose"),
        watching(flex),
    ):
        pass
    # The flash kernels take a mask of (B, T); with one, what they hide is not read off it.
    AttentionInterface.register("flat", lambda *_, **__: pytest.fail("it is refused before"))
    try:
        model = small_model("llama", "flat")
        given = model.model.layers[0].self_attn, *[torch.ones(1, 6, 3, 10)] * 3
        refused = r"was given a mask of type Tensor of shape \(1, 3\), which regard does not read"
        with watching(model), pytest.raises(OptionError, match=refused):
            ALL_ATTENTION_FUNCTIONS["flat"](*given, torch.ones(1, 3, dtype=torch.int64))
    finally:
        del AttentionInterface._global_mapping["flat"]


def test_transformers_is_imported_by_nobody_but_its_user():
    import subprocess

    code = (
        "import sys; import regard.inspection.capture.interface, regard.inspection.verify; "
        "assert 'transformers' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
