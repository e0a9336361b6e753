"""Mistakes that other implementations are known for, each a test under its name."""

import pytest
import torch

from regard import positions
from regard.attention import MultiHeadAttention, attend, masks, normalizers, paths, rows, scores
from regard.attention.bias import RelativeBias
from regard.attention.call import make_call
from regard.errors import OptionError, ShapeError

PATHS = ["reference", "sdpa", "blockwise"]


def qkv(batch=2, heads=3, q_tokens=5, k_tokens=5, width=4, kv_heads=None, dtype=torch.float64):
    torch.manual_seed(0)
    kv_heads = kv_heads or heads
    return (
        torch.randn(batch, heads, q_tokens, width, dtype=dtype),
        torch.randn(batch, kv_heads, k_tokens, width, dtype=dtype),
        torch.randn(batch, kv_heads, k_tokens, width + 3, dtype=dtype),
    )


def close(a, b):
    torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)


def test_a_float_mask_of_zeros_and_ones_is_refused():
    # torch.nn.functional.scaled_dot_product_attention adds it to the scores, silently.
    mask = torch.ones(5, 5)
    with pytest.raises(OptionError, match=r"Boolean.*float32.*goes in bias=.*pass mask == 1"):
        attend(*qkv(), mask=mask)


def test_an_integer_mask_is_refused():
    # transformers' attention_mask is 1 = attend, torch's key_padding_mask is True = hide.
    with pytest.raises(OptionError, match=r"int64.*mask\.bool\(\).*~mask\.bool\(\)"):
        attend(*qkv(), mask=torch.ones(5, 5, dtype=torch.int64))
    with pytest.raises(OptionError, match=r"key_padding_mask must be Boolean"):
        masks.Padding.from_torch(torch.zeros(2, 5))


@pytest.mark.parametrize("width", [1, 2, 3])
def test_a_window_counts_the_querys_own_key(width):
    # mistral-src and transformers once differed by one.
    q, k, v = qkv()
    weights = rows.weights(make_call(q, k, v, mask=masks.Window(width)))
    assert (weights[:, :, -1] > 0).sum(-1).eq(width).all()
    assert (weights.diagonal(dim1=-2, dim2=-1) > 0).all()


def test_causal_with_fewer_queries_than_keys_needs_positions():
    # flash-attn 2.1 changed from the top left to the bottom right corner; PyTorch is top left.
    q, k, v = qkv(q_tokens=2)
    with pytest.raises(OptionError, match=r"2 queries meet 5 keys.*torch\.arange\(past"):
        attend(q, k, v, mask=masks.Causal())
    last = attend(
        q,
        k,
        v,
        mask=masks.Causal(),
        query_positions=torch.arange(3, 5),
        key_positions=torch.arange(5),
    )
    first = attend(
        q, k, v, mask=masks.Causal(), query_positions=torch.arange(2), key_positions=torch.arange(5)
    )
    close(last[:, :, 1], attend(q, k, v)[:, :, 1])
    close(first[:, :, 0], v[:, :, 0])


def test_grouped_heads_interleave():
    # Llama repeats each key/value head; tiling them instead pairs query heads with wrong ones.
    q, k, v = qkv(heads=6, kv_heads=2)
    for path in PATHS:
        grouped = attend(q, k, v, path=path)
        for head in range(6):
            own = slice(head // 3, head // 3 + 1)
            close(grouped[:, head : head + 1], attend(q[:, head : head + 1], k[:, own], v[:, own]))


def test_weights_are_per_head_and_not_averaged():
    # torch.nn.MultiheadAttention averages over heads unless asked not to.
    weights = rows.weights(make_call(*qkv()))
    assert weights.shape == (2, 3, 5, 5)
    assert (weights[:, 0] - weights[:, 1]).abs().max() > 0.01


def test_dropout_is_off_in_eval():
    # functional attention with dropout_p drops in eval too, when the caller forgets.
    layer = MultiHeadAttention(12, 3, dropout=0.5)
    x = torch.randn(2, 5, 12)
    assert not torch.equal(layer(x), layer(x))
    layer.eval()
    assert torch.equal(layer(x), layer(x))


def test_eval_train_no_grad_and_inference_mode_agree():
    # PyTorch's encoder layer takes another kernel in eval, with other results on masked rows.
    layer = MultiHeadAttention(12, 3)
    x = torch.randn(2, 5, 12)
    mask = masks.Causal() & masks.Padding(torch.arange(5) >= torch.tensor([[0], [3]]))
    trained = layer(x, mask=mask)
    with torch.no_grad():
        assert torch.equal(layer(x, mask=mask), trained)
    with torch.inference_mode():
        assert torch.equal(layer(x, mask=mask), trained)
    assert torch.equal(layer.eval()(x, mask=mask), trained)


def test_two_stacked_minimum_value_masks_stay_finite():
    # Adding finfo.min twice is -inf, and a row of it is nan in softmax.
    q, k, v = qkv(dtype=torch.float32)
    hidden = torch.zeros(5, 5)
    hidden[1] = torch.finfo(torch.float32).min
    hidden[2, 3] = torch.finfo(torch.float32).min
    open_ = hidden == 0
    for path in PATHS:
        found = attend(q, k, v, bias=[hidden, hidden], path=path)
        torch.testing.assert_close(found, attend(q, k, v, mask=open_, path="reference"))
        assert not found[:, :, 1].any()


def test_minus_infinity_in_a_bias_hides_and_a_whole_row_of_it_is_zeros():
    q, k, v = qkv()
    hidden = torch.zeros(5, 5, dtype=torch.float64)
    hidden[1] = -torch.inf
    hidden[2, 3] = -torch.inf
    for path in PATHS:
        found = attend(q, k, v, bias=hidden, path=path)
        close(found, attend(q, k, v, mask=hidden == 0, path="reference"))


def test_a_nan_in_a_bias_is_seen():
    q, k, v = qkv()
    bias = torch.zeros(5, 5, dtype=torch.float64)
    bias[2, 3] = torch.nan
    for path in PATHS:
        found = attend(q, k, v, bias=bias, path=path)
        assert found[:, :, 2].isnan().all()
        assert found[:, :, [0, 1, 3, 4]].isfinite().all()


@pytest.mark.parametrize("tokens", [1, 63, 64, 65, 127])
def test_lengths_that_are_no_multiple_of_a_block(tokens):
    from regard.attention.paths.blockwise import run_in_blocks

    q, k, v = qkv(q_tokens=tokens, k_tokens=tokens)
    call = make_call(q, k, v, mask=masks.Causal())
    close(run_in_blocks(call, 64), paths.family.create("reference").run(call))


def test_left_padded_equals_unpadded():
    # Positions counted from the padding shift everything.
    q, k, v = qkv(batch=1)
    pad = 3
    padded = [torch.cat([torch.randn_like(x[:, :, :pad]), x], 2) for x in (q, k, v)]
    at = torch.cat([torch.zeros(pad, dtype=torch.int64), torch.arange(5)])[None]
    real = masks.Padding((torch.arange(8) >= pad)[None])
    table = RelativeBias(torch.randn(3, 17, dtype=torch.float64), -8)
    whole = attend(q, k, v, mask=masks.Causal(), bias=table)
    for path in ("auto", "reference", "blockwise"):
        found = attend(
            *padded,
            mask=masks.Causal() & real,
            bias=table,
            query_positions=at,
            key_positions=at,
            path=path,
        )
        close(found[:, :, pad:], whole)


def test_packed_equals_separate():
    q, k, v = qkv(batch=1, q_tokens=7, k_tokens=7)
    lengths = [3, 4]
    documents = torch.tensor([0, 0, 0, 1, 1, 1, 1])
    at = torch.tensor([0, 1, 2, 0, 1, 2, 3])
    table = RelativeBias(torch.randn(3, 13, dtype=torch.float64), -6)
    separate = torch.cat(
        [
            attend(*part, mask=masks.Causal(), bias=table)
            for part in zip(*(x.split(lengths, 2) for x in (q, k, v)), strict=True)
        ],
        2,
    )
    for path in ("auto", "reference", "blockwise"):
        packed = attend(
            q,
            k,
            v,
            mask=masks.Documents(documents) & masks.Causal(),
            bias=table,
            query_positions=at,
            key_positions=at,
            path=path,
        )
        close(packed, separate)


def test_positions_run_along_tokens_and_not_along_the_batch():
    # A position table indexed by x.size(0) works for (T, B, D) and fails quietly for (B, T, D).
    layer = MultiHeadAttention(12, 3, position=positions.create("rotary", head_width=4))
    x = torch.randn(1, 5, 12).expand(7, -1, -1)
    out = layer(x, mask=masks.Causal())
    torch.testing.assert_close(out, out[:1].expand_as(out))


def test_phases_in_float32_after_bfloat16():
    # Cosines computed in bfloat16 confuse neighbors past position 256.
    layer = MultiHeadAttention(8, 2, position=positions.create("rotary", head_width=4)).bfloat16()
    far = torch.arange(4000, 4005)
    x = torch.randn(1, 5, 8, dtype=torch.bfloat16)
    near = layer(x, query_positions=torch.arange(5))
    moved = layer(x, query_positions=far)
    assert (near - moved).abs().max() <= 8 * torch.finfo(torch.bfloat16).eps


def test_dynamic_ntk_long_then_short_is_as_short_alone():
    # A base kept from the long call changes every later short one.
    position = positions.create(
        "rotary", head_width=4, scaling="dynamic", factor=2.0, trained_length=8
    )
    layer = MultiHeadAttention(8, 2, position=position)
    short = torch.randn(1, 5, 8)
    before = layer(short)
    layer(torch.randn(1, 31, 8))
    assert torch.equal(layer(short), before)


def test_a_relative_bias_penalizes_distance_by_key_minus_query():
    # ALiBi with the sign turned rewards distance.
    slopes = torch.tensor([[-4.0, -3.0, -2.0, -1.0, 0.0, -1.0, -2.0, -3.0, -4.0]]).repeat(3, 1)
    q = torch.zeros(1, 3, 5, 4)
    weights = rows.weights(make_call(q, q, q, bias=RelativeBias(slopes, -4), mask=masks.Causal()))
    last = weights[0, 0, -1]
    assert (last.diff() > 0).all()


def test_a_table_of_the_wrong_heads_or_span_is_refused():
    q, k, v = qkv()
    with pytest.raises(ShapeError, match=r"has 2 heads, the call has 3"):
        attend(q, k, v, bias=RelativeBias(torch.zeros(2, 9), -4))
    with pytest.raises(ShapeError, match=r"covers offsets -3 … 4.*need -4 … 4"):
        attend(q, k, v, bias=RelativeBias(torch.zeros(3, 8), -3))


def test_a_learned_score_by_name_is_refused():
    with pytest.raises(
        OptionError, match=r"'additive' has parameters.*create it once.*pass score="
    ):
        attend(*qkv(), score="additive")
    with pytest.raises(OptionError, match=r"unknown score 'aditive'; did you mean 'additive'"):
        attend(*qkv(), score="aditive")


def test_location_reads_the_query_and_refuses_what_it_cannot_read():
    # Linear over every pair (q_i, k_j) would cancel the query in softmax.
    score = scores.create("location", heads=3, head_width=4, max_length=6).double()
    q, k, v = qkv()
    before = attend(q, k, v, score=score)
    assert (attend(2 * q, k, v, score=score) - before).abs().max() > 1e-3
    long = qkv(q_tokens=7, k_tokens=7)
    with pytest.raises(ShapeError, match=r"weights for 6 memory positions.*max_length=7"):
        attend(*long, score=score)
    with pytest.raises(ShapeError, match=r"2 queries and 5 keys.*without a cache"):
        attend(q[:, :, :2], k, v, score=score)


def test_sinks_take_weight_and_softcap_bounds_scores():
    q, k, v = qkv()
    sinks = normalizers.create("softmax", sinks=True, heads=3).double()
    assert (rows.weights(make_call(q, k, v, normalizer=sinks)).sum(-1) < 1).all()
    capped = normalizers.create("softmax", softcap=0.5)
    weights = rows.weights(make_call(100 * q, k, v, normalizer=capped))
    assert (weights.amax(-1) / weights.amin(-1) <= torch.e + 1e-12).all()
