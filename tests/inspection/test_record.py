"""A record's rectangles are the rows definition, cut."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.attention import DenseBias, RelativeBias, make_call, rows
from regard.attention.masks import Arbitrary, Causal, Padding, Window
from regard.attention.normalizers.softmax import Softmax
from regard.errors import OptionError
from regard.inspection.record import AttentionRecord, ScaledBy


def make(
    heads=6, kv_heads=3, q_tokens=11, k_tokens=11, width=5, dtype=torch.float64, seed=0, **settings
):
    g = torch.Generator().manual_seed(seed)

    def draw(h, t, d):
        return torch.randn(1, h, t, d, generator=g, dtype=torch.float64).to(dtype)

    call = make_call(
        draw(heads, q_tokens, width),
        draw(kv_heads, k_tokens, width),
        draw(kv_heads, k_tokens, width + 2),
        **{"score": ScaledBy(0.3), **settings},
    )
    return AttentionRecord(name="layer.0", layer=0, call=call)


def variants():
    g = torch.Generator().manual_seed(7)
    table = torch.randn(6, 21, generator=g, dtype=torch.float64)
    sinks = Softmax(2.0, sinks=True, heads=6).double()
    sinks.sinks.data.normal_(generator=g)
    hole = torch.rand(11, 11, generator=g) > 0.4
    hole[4] = False
    return {
        "plain": {},
        "scaled_dot": {"score": "scaled_dot"},
        "causal": {"mask": Causal()},
        "window and padding": {"mask": Window(4) & Padding(torch.arange(11)[None] < 9)},
        "arbitrary, a row of nowhere": {"mask": Arbitrary(hole)},
        "offsets": {"bias": RelativeBias(table, -10)},
        "key bias": {"bias": torch.randn(1, 6, 1, 11, generator=g, dtype=torch.float64)},
        "dense bias with -inf": {
            "bias": torch.randn(11, 11, generator=g, dtype=torch.float64).tril() * 1.0
            + torch.full((11, 11), -torch.inf, dtype=torch.float64).triu(1)
        },
        "softcap": {"normalizer": Softmax(1.5), "mask": Causal()},
        "sinks": {"normalizer": sinks, "mask": Causal()},
    }


@pytest.mark.parametrize("kind", variants())
def test_weights_of_any_rectangle_are_the_definition_cut(kind):
    record = make(**variants()[kind])
    truth = rows.weights(record.call)[0]
    for head in range(record.heads):
        whole = record.weights(head)
        torch.testing.assert_close(whole, truth[head], atol=1e-6, rtol=0)
        cut = record.weights(head, slice(2, 7), slice(3, 10))
        # A product of other sizes may sum in another order: float64 rounding.
        torch.testing.assert_close(cut, whole[2:7, 3:10], atol=1e-14, rtol=0)
        some = record.weights(head, [9, 1, 2], torch.tensor([0, 5]))
        torch.testing.assert_close(some, whole[[9, 1, 2]][:, [0, 5]], atol=1e-14, rtol=0)


@given(st.integers(1, 13), st.integers(1, 13), st.data())
def test_rectangles_join_to_the_whole(q_tokens, k_tokens, data):
    record = make(q_tokens=q_tokens, k_tokens=k_tokens, dtype=torch.float32)
    row, col = data.draw(st.integers(0, q_tokens)), data.draw(st.integers(0, k_tokens))
    corners = [
        [record.weights(1, r, c) for c in (slice(0, col), slice(col, None))]
        for r in (slice(0, row), slice(row, None))
    ]
    joined = torch.cat([torch.cat(line, 1) for line in corners])
    # The same products in another order of summation: one rounding of a score of size 5.
    torch.testing.assert_close(joined, record.weights(1), atol=2e-6, rtol=0)
    torch.testing.assert_close(joined.sum(1), torch.ones(q_tokens), atol=2e-6, rtol=0)


def test_a_row_that_may_attend_nowhere_weighs_zero():
    record = make(**variants()["arbitrary, a row of nowhere"])
    assert record.head_log_sum_exp(0)[4] == -torch.inf
    assert record.weights(0)[4].eq(0).all()
    assert record.log_weights(0)[4].eq(-torch.inf).all()


def test_blocks_of_rows_do_not_change_the_log_sum_exp(monkeypatch):
    record = make(mask=Causal())
    whole = record.log_sum_exp
    monkeypatch.setattr("regard.inspection.record.BLOCK", 30)
    assert len(record.row_blocks(30)) == 6
    torch.testing.assert_close(make(mask=Causal()).log_sum_exp, whole, atol=1e-6, rtol=0)


def test_features_multiply_to_the_scores():
    for settings in ({}, {"score": "scaled_dot"}, {"score": "dot"}):
        record = make(**settings)
        query, key = record.features(4)
        torch.testing.assert_close(query @ key.T, record.scores(4), atol=1e-12, rtol=0)


def test_learned_scores_are_computed_for_the_head_asked():
    from regard.attention import scores

    if "additive" not in scores.names():
        pytest.skip("no additive score")
    torch.manual_seed(3)
    score = scores.create("additive", heads=6, head_width=5).double()
    record = make(score=score, mask=Causal())
    truth = rows.weights(record.call)[0].detach()
    for head in range(6):
        got = record.weights(head, slice(3, 8), slice(1, 6))
        torch.testing.assert_close(got, truth[head, 3:8, 1:6], atol=1e-6, rtol=0)
    assert record.features(0) is None


def test_bias_and_allowed_of_a_rectangle():
    v = variants()
    record = make(mask=Causal(), bias=v["offsets"]["bias"])
    dense = rows.biased_scores(
        record.call, rows.tensors_of(record.call), record.call.rectangle()
    ) - rows.biased_scores(
        make(mask=Causal()).call, rows.tensors_of(record.call), record.call.rectangle()
    )
    torch.testing.assert_close(
        record.bias(5, slice(1, 4), slice(2, 9)), dense[0, 5, 1:4, 2:9], atol=1e-12, rtol=0
    )
    assert torch.equal(record.allowed(), torch.ones(11, 11, dtype=torch.bool).tril())
    assert make().allowed() is None
    assert make().bias(0) is None
    assert record.is_causal
    assert not make().is_causal
    assert make(mask=Window(3) & Padding(torch.ones(1, 11, dtype=torch.bool))).is_causal
    assert not make(mask=Window(3, after=2)).is_causal
    assert isinstance(record.biases[0], RelativeBias)
    assert not isinstance(record.biases[0], DenseBias)


def test_sixteen_bit_is_computed_in_thirty_two():
    record = make(dtype=torch.bfloat16, mask=Causal())
    assert record.weights(2).dtype == torch.float32
    for row in range(record.q_tokens):
        wide = rows.weights(record.double_row(row).call)[0, 2]
        # float32 rounding of scores of size up to 5, through the exponential.
        torch.testing.assert_close(record.weights(2, row).double(), wide, atol=2e-6, rtol=0)


def test_out_of_range_says_what_there_is():
    record = make()
    with pytest.raises(OptionError, match=r"head 6 is asked for; layer\.0 has heads 0 … 5"):
        record.weights(6)
    with pytest.raises(OptionError, match="row 11 is asked for; there are 0 … 10"):
        record.weights(0, [11])
    with pytest.raises(OptionError, match="column -1 is asked for; there are 0 … 10"):
        record.weights(0, None, [-1])
