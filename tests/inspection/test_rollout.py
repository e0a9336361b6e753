"""Rollout against the product of whole matrices."""

import pytest
import torch

from regard.attention import make_call
from regard.attention.masks import Causal, Documents
from regard.errors import OptionError
from regard.inspection.record import AttentionRecord
from regard.inspection.rollout import rollout
from regard.inspection.tokens import Token
from regard.inspection.tracing import Trace

LAYERS, HEADS = 3, 2


def trace_of(size, mask, keys=None):
    torch.manual_seed(0)
    keys = keys or size
    records = [
        AttentionRecord(
            name=f"layer{i}",
            layer=i,
            call=make_call(
                3 * torch.randn(1, HEADS, size, 5),
                torch.randn(1, HEADS, keys, 5),
                torch.randn(1, HEADS, keys, 5),
                mask=mask,
            ),
        )
        for i in range(LAYERS)
    ]
    tokens = [Token(str(i), id=i) for i in range(size)]
    key_tokens = None if keys == size else [Token(str(i), id=i) for i in range(keys)]
    return Trace(records, tokens, key_tokens=key_tokens, part="self" if keys == size else "cross")


def by_matrices(trace, layers):
    size = len(trace.tokens)
    whole = torch.eye(size, dtype=torch.float64)
    for record in trace.records[:layers]:
        mean = torch.stack([record.weights(h) for h in range(HEADS)]).double().mean(0)
        mixed = mean + torch.eye(size)
        whole = (mixed / mixed.sum(1, keepdim=True)) @ whole
    return whole


@pytest.mark.parametrize("mask", [None, Causal()])
def test_equals_the_product_of_matrices(mask):
    trace = trace_of(300, mask)  # more than one block of rows
    # Sums of 300 products of float32 numbers below 1, rows summing to 1: about 2⁻²⁴ times few.
    torch.testing.assert_close(rollout(trace).double(), by_matrices(trace, 3), atol=1e-6, rtol=0)
    some = rollout(trace, [299, 4], layer=1)
    torch.testing.assert_close(some.double(), by_matrices(trace, 2)[[299, 4]], atol=1e-6, rtol=0)


def test_rows_sum_to_one_even_where_a_token_attends_nowhere():
    numbers = torch.tensor([0, 0, 1, 2])
    mask = Documents(numbers, torch.tensor([0, 0, 2, 2]))
    flow = rollout(trace_of(4, mask))
    torch.testing.assert_close(flow.sum(1), torch.ones(4))
    assert torch.equal(flow[2], torch.tensor([0.0, 0.0, 1.0, 0.0]))


def test_what_it_is_not_for():
    with pytest.raises(OptionError, match=r"this trace is of cross-attention: use trace.parts"):
        rollout(trace_of(4, None, keys=6))
    with pytest.raises(OptionError, match=r"layer 3 is asked for; the model has layers 0 … 2"):
        rollout(trace_of(4, None), layer=3)
    with pytest.raises(OptionError, match=r"index 9 is asked for; there are 0 … 3"):
        rollout(trace_of(4, None), [9])
