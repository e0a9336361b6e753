"""The relative path: lengths beyond its blocks, every way to a table, refusals, memory.

Small shapes of every mask, bias and head count are in the contract suite over all paths.
"""

import sys

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.attention import attend, masks, paths, scores
from regard.attention.bias import RelativeBias
from regard.attention.call import make_call
from regard.errors import OptionError, RegardError
from regard.positions import create

from .test_additive import assert_as_good_as_plain, calls, peak_over_inputs


@given(calls(), st.sampled_from(["scaled_dot", "bilinear"]))
def test_output_and_all_gradients(case, name):
    torch.manual_seed(0)
    _, heads, _, width = case["query"].shape
    score = scores.create(name, heads=heads, head_width=width)
    assert_as_good_as_plain("relative", score, case)


@pytest.mark.parametrize("name", ["alibi", "t5", "kerple"])
def test_tables_of_encodings_and_their_parameters(name):
    torch.manual_seed(1)
    encoding = create(name, heads=3)
    q, k, v = (torch.randn(2, 3, 150, 2) for _ in range(3))
    upstream = torch.randn(2, 3, 150, 2)
    places = torch.arange(150)
    found = []
    for path, dtype in (("relative", torch.float32), ("reference", torch.float64)):
        encoding = encoding.to(dtype)
        bias = encoding.bias(places, places)
        tensors = (x.to(dtype) for x in (q, k, v))
        output = attend(*tensors, bias=bias, mask=masks.Causal(), path=path)
        parameters = [p for p in encoding.parameters() if p.requires_grad]
        gradients = (
            torch.autograd.grad(output, parameters, upstream.to(dtype)) if parameters else ()
        )
        found.append([output.detach(), *gradients])
    for fast, truth in zip(*found, strict=True):
        # Scores of size 10 in float32, and sums over 2 · 150 · 150 pairs.
        assert (fast - truth).abs().max() <= 1e-5 * max(1.0, float(truth.abs().max()))


def test_zero_table_is_plain_attention():
    torch.manual_seed(2)
    q, k, v = (torch.randn(1, 4, 200, 8) for _ in range(3))
    zero = RelativeBias(torch.zeros(4, 399), -199)
    found = attend(q, k, v, bias=zero, path="relative")
    torch.testing.assert_close(found, attend(q, k, v, path="sdpa"), rtol=1e-5, atol=1e-6)


def test_consecutive_positions_of_any_start_by_sequence():
    torch.manual_seed(3)
    q, k, v = torch.randn(3, 2, 40, 5), torch.randn(3, 2, 70, 5), torch.randn(3, 2, 70, 7)
    first = torch.tensor([[30], [4], [17]])
    options = {
        "mask": masks.Causal(),
        "query_positions": first + torch.arange(40),
        "key_positions": torch.arange(70),
    }
    found = []
    for path, dtype in (("relative", torch.float32), ("reference", torch.float64)):
        leaves = [
            x.to(dtype).requires_grad_() for x in (q, k, v, torch.linspace(-1, 1, 280).view(2, 140))
        ]
        output = attend(*leaves[:3], bias=RelativeBias(leaves[3], -69), path=path, **options)
        found.append([output.detach(), *torch.autograd.grad(output.square().sum(), leaves)])
    for fast, truth in zip(*found, strict=True):
        # Sums over 3 · 40 · 70 pairs of terms of size 1, the roundings of which add up like √n.
        assert (fast - truth).abs().max() <= 1e-5 * max(1.0, float(truth.abs().max()))


@pytest.mark.parametrize(
    ("side", "positions"),
    [
        ("query", (torch.tensor([0, 2, 1]), torch.arange(3))),
        ("key", (torch.arange(3), torch.tensor([0, 2, 3]))),
    ],
)
def test_a_table_needs_consecutive_positions(side, positions):
    x = torch.zeros(1, 1, 3, 2)
    options = {"query_positions": positions[0], "key_positions": positions[1]}
    table = RelativeBias(torch.zeros(1, 21), -10)
    with pytest.raises(OptionError, match=f"{side} positions are not consecutive"):
        attend(x, x, x, bias=table, path="relative", **options)
    assert attend(x, x, x, bias=table, **options).shape == x.shape


def test_second_derivatives_raise():
    x = torch.randn(1, 1, 3, 2, requires_grad=True)
    output = attend(x, x, x, path="relative")
    with pytest.raises(RegardError, match=r"gradients of first order only.*path=\"reference\""):
        torch.autograd.grad(output.sum(), x, create_graph=True)


@pytest.mark.parametrize(
    ("options", "path"),
    [
        ({"bias": True}, "relative"),
        ({"dropout": 0.5}, "relative"),
        ({}, "sdpa"),
    ],
)
def test_auto_leaves_to_pytorch_what_its_kernel_does(options, path):
    x = torch.zeros(1, 1, 3, 2)
    if options.pop("bias", False):
        options["bias"] = RelativeBias(torch.zeros(1, 5, requires_grad=True), -2)
    assert paths.explain(make_call(x, x, x, **options)).path == path


def test_a_score_that_is_no_dot_product_is_refused():
    x = torch.zeros(1, 1, 3, 2)
    call = make_call(x, x, x, score=scores.create("additive", heads=1, head_width=2))
    assert paths.family.create("relative").refuses(call) == "the score is no dot product"


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak from /proc")
def test_memory_at_8192_tokens_stays_below_400_mb():
    assert peak_over_inputs("relative") < 400
