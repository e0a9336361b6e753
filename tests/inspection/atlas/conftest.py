"""Attention records of every kind that the maps must be exact for."""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from regard.attention import DenseBias, RelativeBias, make_call, rows, scores
from regard.attention.masks import Causal, Documents, Padding, Prefix, Window
from regard.attention.normalizers.softmax import Softmax
from regard.inspection.record import AttentionRecord

HEADS, KV_HEADS, WIDTH = 4, 2, 5


def _sinks() -> Softmax:
    softmax = Softmax(sinks=True, heads=HEADS)
    torch.nn.init.normal_(softmax.sinks)
    return softmax


KINDS = {
    "plain": lambda queries, keys: {},
    "causal": lambda queries, keys: {"mask": Causal()},
    "window": lambda queries, keys: {"mask": Causal() & Window(37)},
    "wide_window": lambda queries, keys: {"mask": Window(11, after=29)},
    "prefix": lambda queries, keys: {"mask": Prefix(torch.tensor([keys // 3]))},
    "padding": lambda queries, keys: {"mask": Causal() & Padding(torch.rand(1, keys) < 0.8)},
    "documents": lambda queries, keys: {
        "mask": Documents(torch.randint(3, (queries,)), torch.randint(3, (keys,)))
    },
    "table": lambda queries, keys: {
        "mask": Causal(),
        "bias": RelativeBias(torch.randn(HEADS, queries + keys), lowest=1 - max(queries, keys)),
    },
    "dense_bias": lambda queries, keys: {
        "bias": DenseBias(
            torch.randn(HEADS, queries, keys).masked_fill(
                torch.rand(queries, keys) < 0.3, -torch.inf
            )
        )
    },
    "softcap": lambda queries, keys: {"mask": Causal(), "normalizer": Softmax(softcap=1.5)},
    "sinks": lambda queries, keys: {"mask": Causal(), "normalizer": _sinks()},
    "additive": lambda queries, keys: {
        "mask": Causal(),
        "score": scores.create("additive", heads=HEADS, head_width=WIDTH),
    },
    "sigmoid": lambda queries, keys: {"mask": Causal(), "normalizer": "sigmoid"},
    "identity": lambda queries, keys: {"normalizer": "identity"},
}


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    """A kind of attention."""
    return request.param


@pytest.fixture(scope="session")
def record_of() -> Callable[..., AttentionRecord]:
    """``record_of(kind, queries, keys)``: 4 random heads on 2 kv heads, the last queries of all."""

    def make(kind: str, queries: int, keys: int) -> AttentionRecord:
        torch.manual_seed(0)
        first = max(keys - queries, 0)
        call = make_call(
            torch.randn(1, HEADS, queries, WIDTH),
            torch.randn(1, KV_HEADS, keys, WIDTH),
            torch.randn(1, KV_HEADS, keys, WIDTH),
            query_positions=torch.arange(first, first + queries),
            key_positions=torch.arange(keys),
            **KINDS[kind](queries, keys),
        )
        return AttentionRecord(name="attention", layer=0, call=call)

    return make


@pytest.fixture(scope="session")
def truth_of() -> Callable[..., Tensor]:
    """``truth_of(record, head, only)``: weights by the rows definition, in float64."""

    def weights(record: AttentionRecord, head: int, only: slice | None = None) -> Tensor:
        call = record.call
        double = replace(
            call,
            query=call.query.double(),
            key=call.key.double(),
            value=call.value.double(),
            score=deepcopy(call.score).double(),
            normalizer=deepcopy(call.normalizer).double(),
        )
        return rows.weights(double, only)[0, head].detach()

    return weights
