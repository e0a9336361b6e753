"""The border: what attend refuses, in words that say how to go on; and which path it takes."""

import pytest
import torch

from regard.attention import attend, explain_path, masks, paths, scores
from regard.attention.bias import RelativeBias
from regard.attention.call import make_call
from regard.errors import OptionError, ShapeError

B, H, T, D = 2, 6, 5, 4


def x(*shape, dtype=torch.float32):
    return torch.randn(*(shape or (B, H, T, D)), dtype=dtype)


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ((x(H, T, D), x(), x()), r"takes \(batch, heads, tokens, width\); got query \(6, 5, 4\)"),
        ((x(), x(dtype=torch.float64), x()), r"one float type; got .*key torch.float64"),
        ((x(), x(3, H, T, D), x(3, H, T, D)), r"one batch size; got query \(2, .*key \(3"),
        ((x(), x(B, H, 7, D), x()), r"same heads and tokens; got .*key \(2, 6, 7, 4\)"),
        ((x(), x(B, H, T, 3), x()), r"same head width"),
        ((x(), x(B, 4, T, D), x(B, 4, T, D)), r"6 query heads must be a multiple of the 4"),
    ],
)
def test_shapes(tensors, message):
    with pytest.raises(ShapeError, match=message):
        make_call(*tensors)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"dropout": 1.0}, OptionError, r"below 1, not 1\.0"),
        ({"query_positions": torch.ones(T)}, OptionError, r"query_positions must be integers"),
        (
            {"key_positions": torch.arange(4)},
            ShapeError,
            r"key_positions must be \(5,\) or \(2, 5\)",
        ),
        ({"path": "sdpa", "normalizer": "relu"}, OptionError, r"'sdpa' cannot.*not plain softmax"),
        ({"mask": torch.ones(3, 3).bool()}, ShapeError, r"\(1, 1, 3, 3\).*\(2, 6, 5, 5\)"),
    ],
)
def test_options(options, error, message):
    with pytest.raises(error, match=message):
        attend(x(), x(), x(), **options)


def test_unsigned_positions_do_not_wrap_around():
    q, run = x(), torch.arange(T)
    found = [
        attend(q, q, q, mask=masks.Causal(), query_positions=p.flip(0), key_positions=p)
        for p in (run, run.to(torch.uint8))
    ]
    assert torch.equal(*found)


def test_positions_in_order_are_recognized():
    assert make_call(x(), x(), x()).in_order
    run = torch.arange(3, 3 + T)
    assert make_call(x(), x(), x(), query_positions=run, key_positions=run).in_order
    assert not make_call(x(), x(), x(), query_positions=run).in_order
    packed = torch.tensor([0, 1, 0, 1, 2])
    assert not make_call(x(), x(), x(), query_positions=packed, key_positions=packed).in_order
    assert not make_call(x(), x(B, H, 7, D), x(B, H, 7, D)).in_order


def test_auto_takes_the_first_that_can(monkeypatch):
    q = x().requires_grad_()
    additive = scores.create("additive", heads=H, head_width=D)
    table = RelativeBias(torch.zeros(H, 9, requires_grad=True), -4)
    assert explain_path(q, q, q).path == "sdpa"
    assert explain_path(q, q, q, mask=masks.Causal() & masks.Window(2)).path == "sdpa"
    assert explain_path(q, q, q, score=additive).path == "additive"
    assert explain_path(q, q, q, bias=table).path == "relative"
    assert explain_path(q, q, q, normalizer="sparsemax").path == "reference"
    monkeypatch.setattr("regard.attention.paths.blockwise.BLOCK_BYTES", 1000)
    assert explain_path(q, q, q, normalizer="sparsemax").path == "blockwise"
    monkeypatch.setattr("regard.attention.paths.sdpa.MASK_BYTES", 10)
    assert explain_path(q, q, q, mask=masks.Window(2)).path == "relative"


def test_an_explanation_names_every_path():
    explained = explain_path(x(), x(), x(), normalizer="sparsemax")
    assert explained.path == "reference"
    assert set(explained.others) == set(paths.names()) - {"reference"}
    assert explained.others["sdpa"] == "cannot: normalizer Sparsemax() is not plain softmax"
    assert explained.others["blockwise"] == "leaves it: all 2 × 5 rows fit one block"
    assert str(explained).splitlines()[0] == (
        "reference: the first in order of preference that can"
    )
    asked = explain_path(x(), x(), x(), path="blockwise")
    assert (asked.path, asked.reason) == ("blockwise", "asked for")
    assert asked.others["sdpa"] == "can, but was not asked for"


def test_the_choice_does_not_change_the_result():
    q, k, v = (x(dtype=torch.float64) for _ in range(3))
    for options in ({}, {"mask": masks.Causal()}, {"mask": masks.Window(2)}):
        auto = attend(q, k, v, **options)
        torch.testing.assert_close(auto, attend(q, k, v, path="reference", **options))
