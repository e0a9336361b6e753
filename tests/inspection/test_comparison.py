"""Comparisons against whole matrices."""

import pytest
import torch

from regard.attention import make_call
from regard.attention.masks import Causal
from regard.errors import OptionError
from regard.inspection.comparison import compare
from regard.inspection.record import AttentionRecord
from regard.inspection.tokens import Token
from regard.inspection.tracing import Trace


def trace_of(words, seed=0, layers=2, heads=3):
    torch.manual_seed(seed)
    size = len(words)
    records = [
        AttentionRecord(
            name=f"layer{i}",
            layer=i,
            call=make_call(*(torch.randn(1, heads, size, 5) for _ in "qkv"), mask=Causal()),
        )
        for i in range(layers)
    ]
    return Trace(records, [Token(word) for word in words])


def test_two_models_on_one_text():
    words = [str(i % 7) for i in range(300)]
    a, b = trace_of(words, seed=1), trace_of(words, seed=2)
    both = compare(a, b)
    assert both.whole
    assert [token.text for token in both.tokens] == words
    expected = b.weights(1, 2) - a.weights(1, 2)
    # Both ways are float32; scores are below 8.
    torch.testing.assert_close(both.difference(1, 2), expected, atol=2e-6, rtol=0)
    tile = both.tile(1, 2, 2, 0, 0)
    pooled = expected.reshape(150, 2, 150, 2).mean((1, 3))
    torch.testing.assert_close(tile.values, pooled, atol=2e-6, rtol=0)
    row = both.changed().of(1, 2)
    assert row["moved"] == pytest.approx(float(expected.abs().sum(1).mean() / 2), abs=1e-5)
    assert row["largest"] == pytest.approx(float(expected.abs().max()), abs=1e-5)


def test_two_texts_are_aligned_by_their_tokens():
    a, b = (
        trace_of(["the", "cat", "sat", "on", "a", "mat"]),
        trace_of(["the", "black", "cat", "lay", "on", "a", "mat"]),
    )
    both = compare(a, b)
    assert [token.text for token in both.tokens] == ["the", "cat", "on", "a", "mat"]
    in_a, in_b = [0, 1, 3, 4, 5], [0, 2, 4, 5, 6]
    expected = b.weights(0, 1)[in_b][:, in_b] - a.weights(0, 1)[in_a][:, in_a]
    torch.testing.assert_close(both.difference(0, 1), expected, atol=2e-6, rtol=0)
    assert not both.whole
    with pytest.raises(OptionError, match=r"these differ, so ask for difference\(layer, head\)"):
        both.tile(0, 1, 1, 0, 0)


def test_the_head_that_changed_most():
    words = list("abcdef")
    a, b = trace_of(words), trace_of(words)
    assert compare(a, b).changed().values == [[0.0, 0.0]] * 6
    b.records[1].call.query[0, 2] += 1
    assert compare(a, b).changed().top("moved", 1) == [(1, 2)]


def test_what_cannot_be_compared():
    with pytest.raises(OptionError, match="2 layers of 3 heads and 1 of 3"):
        compare(trace_of("ab"), trace_of("ab", layers=1))
    with pytest.raises(OptionError, match="no token in common"):
        compare(trace_of("ab"), trace_of("cd"))
