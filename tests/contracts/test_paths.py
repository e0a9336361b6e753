"""Every path against float64 autograd of the reference: outputs and all gradients.

The bound is four times what the plain computation in the same type itself loses against float64
truth, or would lose at worst: a path may order its sums otherwise, and a number at the end of sums
over widths, keys and queries, n terms of size s in all, then differs by n · eps · s.
"""

from copy import deepcopy
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from regard.attention import attend, masks, normalizers, paths, scores
from regard.attention.bias import RelativeBias
from regard.attention.call import make_call
from regard.errors import OptionError

NORMALIZERS = {
    "softmax": lambda heads: normalizers.create("softmax"),
    "softmax with softcap": lambda heads: normalizers.create("softmax", softcap=1.5),
    "softmax with sinks": lambda heads: normalizers.create("softmax", sinks=True, heads=heads),
    **{
        name: lambda heads, name=name: normalizers.create(name)
        for name in normalizers.names()
        if name != "softmax"
    },
}
JUMPING = {"sparsemax", "entmax15", "relu"}
"""Normalizers whose gradient jumps where a weight becomes 0, so that rounding moves it."""

MASKS = [
    "none",
    "causal",
    "window",
    "padding",
    "documents",
    "prefix or causal",
    "arbitrary a head",
    "causal and padding",
    "not window",
]
BIASES = ["none", "table", "constant table", "dense", "row rule", "table and dense"]


class ContentRule(nn.Module):
    """A row rule with a parameter, that reads queries, keys and positions."""

    def __init__(self, heads):
        super().__init__()
        self.slope = nn.Parameter(torch.linspace(0.5, 1.5, heads))

    @property
    def parameters_used(self):
        return (self.slope,)

    def forward(self, query_rows, keys, query_positions, key_positions):
        far = (key_positions[:, None, :] - query_positions[:, :, None])[:, None]
        near = (query_rows @ keys.transpose(-1, -2)).tanh() / (1 + far.abs()).to(keys.dtype)
        return near * self.slope[:, None, None]


@dataclass
class Case:
    batch: int
    kv_heads: int
    group: int
    q_tokens: int
    k_tokens: int
    width: int
    value_width: int
    first: int
    mask: str
    bias: str
    dropout: float
    seed: int

    @property
    def heads(self):
        return self.kv_heads * self.group


@st.composite
def cases(draw, same_length=False):
    batch, kv_heads, q_tokens, k_tokens, width, value_width = draw(
        st.permutations([1, 2, 3, 4, 5, 6, 7]).map(lambda p: p[:6])
    )
    if same_length or draw(st.booleans()):
        q_tokens = k_tokens
    return Case(
        batch,
        min(kv_heads, 3),
        draw(st.sampled_from([1, 2, 3])),
        q_tokens,
        k_tokens,
        width,
        value_width,
        draw(st.sampled_from([0, 0, 4])),
        draw(st.sampled_from(MASKS)),
        draw(st.sampled_from(BIASES)),
        draw(st.sampled_from([0.0, 0.0, 0.3])),
        draw(st.integers(0, 2**16)),
    )


def make_mask(case):
    length = torch.arange(case.batch) % (case.k_tokens + 1)  # the first sequence is all padding
    padding = masks.Padding.from_lengths(length, case.k_tokens)
    return {
        "none": lambda: None,
        "causal": masks.Causal,
        "window": lambda: masks.Window(2),
        "padding": lambda: padding,
        "documents": lambda: masks.Documents(
            torch.arange(case.q_tokens) // 2, torch.arange(case.k_tokens) // 2
        ),
        "prefix or causal": lambda: masks.Causal() | masks.Prefix(2),
        "arbitrary a head": lambda: masks.Arbitrary(
            torch.rand(case.batch, case.heads, case.q_tokens, case.k_tokens) < 0.5
        ),
        "causal and padding": lambda: masks.Causal() & padding,
        "not window": lambda: ~masks.Window(2),
    }[case.mask]()


class Setting(nn.Module):
    """Everything of a case that carries numbers, so that one call makes it float64."""

    def __init__(self, case, score, normalizer):
        super().__init__()
        torch.manual_seed(case.seed)
        self.case = case
        self.score = scores.create(score, heads=case.heads, head_width=case.width)
        self.normalizer = NORMALIZERS[normalizer](case.heads)
        self.mask = make_mask(case)
        self.rule = ContentRule(case.heads)
        positions = torch.arange(case.first, case.first + case.k_tokens)
        # The queries are the last ones, as with a cache.
        self.key_positions = positions
        self.query_positions = positions[-1] - case.q_tokens + 1 + torch.arange(case.q_tokens)
        span = max(case.q_tokens, case.k_tokens) + 1
        self.lowest = -span
        self.query = nn.Parameter(torch.randn(case.batch, case.heads, case.q_tokens, case.width))
        self.key = nn.Parameter(torch.randn(case.batch, case.kv_heads, case.k_tokens, case.width))
        self.value = nn.Parameter(
            torch.randn(case.batch, case.kv_heads, case.k_tokens, case.value_width)
        )
        self.table = nn.Parameter(torch.randn(case.heads, 2 * span + 1))
        self.dense = nn.Parameter(torch.randn(case.heads, case.q_tokens, case.k_tokens))
        self.upstream = nn.Parameter(
            torch.randn(case.batch, case.heads, case.q_tokens, case.value_width),
            requires_grad=False,
        )
        for parameter in (*self.score.parameters(), *self.normalizer.parameters()):
            nn.init.normal_(parameter)

    def arguments(self):
        table = RelativeBias(self.table, self.lowest)
        bias = {
            "none": None,
            "table": table,
            "constant table": RelativeBias(self.table.detach(), self.lowest),
            "dense": self.dense,
            "row rule": self.rule,
            "table and dense": [table, self.dense],
        }[self.case.bias]
        return (self.query, self.key, self.value), {
            "score": self.score,
            "normalizer": self.normalizer,
            "mask": self.mask,
            "bias": bias,
            "query_positions": self.query_positions,
            "key_positions": self.key_positions,
            "dropout": self.case.dropout,
        }

    def results(self, path):
        """The output and every gradient, by name; None for what the call does not use."""
        tensors, options = self.arguments()
        torch.manual_seed(self.case.seed)
        output = attend(*tensors, **options, path=path)
        names, parameters = zip(
            *((n, p) for n, p in self.named_parameters() if p.requires_grad), strict=True
        )
        gradients = torch.autograd.grad(output, parameters, self.upstream, allow_unused=True)
        return {"output": output.detach(), **dict(zip(names, gradients, strict=True))}

    def refusal(self, path):
        tensors, options = self.arguments()
        return paths.family.create(path).refuses(make_call(*tensors, **options))


def agree(setting, path):
    truth = deepcopy(setting).double().results("reference")
    plain = setting.results("reference")
    found = setting.results(path)
    eps = torch.finfo(setting.query.dtype).eps
    case = setting.case
    terms = case.width + case.value_width + case.k_tokens + case.group * case.q_tokens
    size = max(1.0, *(t.abs().max().item() for t in truth.values() if t is not None))
    for name, exact in truth.items():
        if exact is None:
            assert found[name] is None or not found[name].any(), name
            continue
        assert found[name] is not None, name
        assert found[name].dtype == setting.query.dtype
        assert found[name].isfinite().all(), name
        loss = (plain[name].double() - exact).abs().max().item()
        error = (found[name].double() - exact).abs().max().item()
        assert error <= 4 * (loss + terms * eps * size), (path, name, error, loss)


@pytest.mark.parametrize("normalizer", NORMALIZERS)
@pytest.mark.parametrize("score", scores.names())
@given(data=st.data())
@settings(max_examples=5)
def test_every_path_agrees_with_float64(score, normalizer, data):
    case = data.draw(cases(same_length=score == "location"))
    dtype = data.draw(st.sampled_from([torch.float64, torch.float32]))
    setting = Setting(case, score, normalizer).to(dtype)
    for path in paths.names():
        if path != "reference" and setting.refusal(path) is None:
            agree(setting, path)


@pytest.mark.parametrize("path", [p for p in paths.names() if p != "reference"])
@given(data=st.data())
def test_each_path_agrees_on_what_it_is_for(path, data):
    score = data.draw(st.sampled_from(scores.names()))
    setting = Setting(data.draw(cases(same_length=score == "location")), score, "softmax")
    dtype = data.draw(st.sampled_from([torch.float32, torch.bfloat16]))
    if setting.to(dtype).refusal(path) is None:
        agree(setting, path)


@pytest.mark.parametrize("normalizer", sorted(set(NORMALIZERS) - JUMPING))
@given(data=st.data())
@settings(max_examples=5)
def test_blockwise_in_bfloat16(normalizer, data):
    score = data.draw(st.sampled_from(scores.names()))
    case = data.draw(cases(same_length=score == "location"))
    agree(Setting(case, score, normalizer).to(torch.bfloat16), "blockwise")


@pytest.mark.parametrize("score", scores.names())
@given(data=st.data())
@settings(max_examples=10)
def test_blocks_of_any_size_give_the_same(score, data):
    setting = Setting(data.draw(cases(same_length=score == "location")), score, "softmax").double()
    (query, key, value), options = setting.arguments()
    torch.manual_seed(setting.case.seed)
    call = make_call(query, key, value, **options)
    whole = paths.family.create("reference").run(call)
    from regard.attention.paths.blockwise import run_in_blocks

    for rows in (1, 2, 3, setting.case.q_tokens + 1):
        assert torch.allclose(run_in_blocks(call, rows), whole, rtol=0, atol=1e-12)


@pytest.mark.parametrize("path", [p for p in paths.names() if p != "reference"])
@given(data=st.data())
@settings(max_examples=10)
def test_masking_a_key_is_removing_it(path, data):
    normalizer = data.draw(st.sampled_from(sorted(NORMALIZERS)))
    score = data.draw(st.sampled_from([s for s in scores.names() if s != "location"]))
    case = data.draw(cases())
    case.mask, case.bias, case.dropout = "none", "none", 0.0
    setting = Setting(case, score, normalizer)
    if setting.refusal(path) is not None:
        return
    (query, key, value), options = setting.arguments()
    kept = torch.arange(case.k_tokens) != data.draw(st.integers(0, case.k_tokens - 1))
    if case.k_tokens == 1:
        return
    options["mask"] = masks.Padding(kept[None])
    masked = attend(query, key, value, **options, path=path)
    options |= {"mask": None, "key_positions": setting.key_positions[kept]}
    removed = attend(query, key[:, :, kept], value[:, :, kept], **options, path=path)
    size = max(1.0, removed.abs().max().item())
    assert (masked - removed).abs().max() <= 8 * case.k_tokens * torch.finfo().eps * size


@pytest.mark.parametrize("path", paths.names())
@pytest.mark.parametrize("normalizer", NORMALIZERS)
@pytest.mark.parametrize("score", scores.names())
def test_a_row_without_keys_gives_zeros_and_finite_gradients(score, normalizer, path):
    case = Case(2, 3, 2, 5, 5, 4, 7, 0, "none", "none", 0.0, 1)
    setting = Setting(case, score, normalizer)
    open_ = torch.ones(5, 5, dtype=torch.bool)
    open_[2] = False
    setting.mask = masks.Arbitrary(open_)
    if setting.refusal(path) is not None:
        return
    results = setting.results(path)
    assert not results["output"][:, :, 2].any()
    assert results["output"][:, :, 3].any()
    if score != "location":  # whose key of a step is read by the step's row alone
        assert not results["query"][:, :, 2].any()
    assert all(r.isfinite().all() for r in results.values() if r is not None)


@pytest.mark.parametrize("path", paths.names())
@pytest.mark.parametrize("sizes", [(0, 3, 3), (2, 0, 3), (2, 3, 0)])
def test_empty_calls_give_empty_or_zero(path, sizes):
    batch, q_tokens, k_tokens = sizes
    for score in ("scaled_dot", scores.create("additive", heads=2, head_width=4)):
        query = torch.randn(batch, 2, q_tokens, 4, requires_grad=True)
        key = torch.randn(batch, 2, k_tokens, 4, requires_grad=True)
        value = torch.randn(batch, 2, k_tokens, 5, requires_grad=True)
        call = make_call(query, key, value, score=score)
        chosen = paths.family.create(path)
        if chosen.refuses(call) is None:
            output = chosen.run(call)
            assert output.shape == (batch, 2, q_tokens, 5)
            assert not output.any()
            output.sum().backward()
            assert query.grad is not None
            assert query.grad.isfinite().all()


def test_blockwise_says_that_it_has_no_second_derivative():
    query = torch.randn(1, 2, 3, 4, requires_grad=True)
    output = attend(query, query, query, path="blockwise")
    with pytest.raises(Exception, match=r'first order only.*path="reference"'):
        torch.autograd.grad(output.sum(), query, create_graph=True)


def test_a_path_that_cannot_says_why():
    query = torch.randn(1, 2, 3, 4)
    with pytest.raises(
        OptionError, match=r"path 'sdpa' cannot .* 'auto'|Sparsemax\(\) is not plain"
    ):
        attend(query, query, query, normalizer="sparsemax", path="sdpa")
    with pytest.raises(OptionError, match=r"unknown path 'blokwise'; did you mean 'blockwise'"):
        attend(query, query, query, path="blokwise")
