"""The additive path: lengths beyond its blocks and tiles, far features, refusals, memory.

Small shapes of every mask, bias and head count are in the contract suite over all paths.
"""

import subprocess
import sys
from copy import deepcopy

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.attention import attend, masks, normalizers, paths, scores
from regard.attention.bias import RelativeBias
from regard.attention.call import make_call
from regard.errors import OptionError, RegardError

EPS = torch.finfo(torch.float32).eps


class Case(dict):
    """The arguments of a call; shown by shapes, not by numbers."""

    def __repr__(self):
        shown = {k: tuple(v.shape) if isinstance(v, torch.Tensor) else v for k, v in self.items()}
        return f"Case({shown})"


@st.composite
def calls(draw):
    kv_heads, group = draw(st.sampled_from([(1, 1), (2, 1), (1, 3), (2, 2)]))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 999)))
    q_tokens = draw(st.sampled_from([1, 17, 127, 130, 260]))
    k_tokens = draw(st.sampled_from([1, 33, 513, q_tokens, q_tokens]))
    batch, width, value_width = draw(st.permutations([1, 2, 3, 5, 7]).map(lambda p: p[:3]))
    spread = draw(st.sampled_from([1.0, 1.0, 30.0]))

    def normal(*shape):
        return torch.randn(*shape, generator=generator)

    query = normal(batch, kv_heads * group, q_tokens, width)
    query[:, :, :: draw(st.integers(1, 7))] *= spread
    real = torch.rand(batch, k_tokens, generator=generator) < 0.8
    real[0] = batch > 1  # of several sequences, the first is all padding
    mask = {
        "none": None,
        "causal": masks.Causal(),
        "window": masks.Window(20),
        "padding": masks.Padding(real),
        "causal and padding": masks.Causal() & masks.Padding(real),
        "documents": masks.Documents(torch.arange(q_tokens) // 30, torch.arange(k_tokens) // 30),
    }[
        draw(
            st.sampled_from(
                ["none", "causal", "window", "padding", "causal and padding", "documents"]
            )
        )
    ]
    with_table = draw(st.booleans())
    return Case(
        {
            "query": query,
            "key": normal(batch, kv_heads, k_tokens, width),
            "value": normal(batch, kv_heads, k_tokens, value_width),
            "table": normal(kv_heads * group, q_tokens + k_tokens + 4) if with_table else None,
            "mask": mask,
            "dropout": draw(st.sampled_from([0.0, 0.0, 0.4])),
            "upstream": normal(batch, kv_heads * group, q_tokens, value_width),
        }
    )


def results(path, score, case, dtype):
    score = deepcopy(score).to(dtype)
    leaves = {
        name: case[name].to(dtype).requires_grad_()
        for name in ("query", "key", "value", "table")
        if case[name] is not None
    }
    table = leaves.get("table")
    q_tokens, k_tokens = case["query"].shape[2], case["key"].shape[2]
    torch.manual_seed(1)
    output = attend(
        leaves["query"],
        leaves["key"],
        leaves["value"],
        score=score,
        mask=case["mask"],
        bias=None if table is None else RelativeBias(table, -q_tokens - 1),
        query_positions=torch.arange(q_tokens),
        key_positions=torch.arange(k_tokens),
        dropout=case["dropout"],
        path=path,
    )
    wanted = {**leaves, **dict(score.named_parameters())}
    gradients = torch.autograd.grad(output, list(wanted.values()), case["upstream"].to(dtype))
    return {"output": output.detach(), **dict(zip(wanted, gradients, strict=True))}


def assert_as_good_as_plain(path, score, case):
    """At most four times what plain float32 loses, and the roundings of sums in another order.

    A gradient is a sum over tokens of terms of both signs, about as large as the largest gradient
    that is left of them; roundings of n terms add up like √n of them. Each term has a factor
    upstream · (value − output), the difference of two sums that rounding sets apart even where they
    are equal, and a factor from the other side's features.
    """
    truth = results("reference", score, case, torch.float64)
    plain = results("reference", score, case, torch.float32)
    found = results(path, score, case, torch.float32)
    tokens = max(case["query"].shape[2], case["key"].shape[2])
    largest = max(float(true.abs().max()) for true in truth.values())
    upstream, value, query, key = (
        case[name].detach().abs() for name in ("upstream", "value", "query", "key")
    )
    differing = float((upstream.amax((0, 1, 2)) * value.amax((0, 1, 2))).sum())
    largest = max(largest, differing * float(max(query.max(), key.max())))
    for name, true in truth.items():
        assert bool(found[name].isfinite().all()), name
        lost = float((plain[name] - true).abs().max())
        rounding = 8 * tokens**0.5 * EPS * largest
        assert float((found[name] - true).abs().max()) <= 4 * lost + rounding, name


@given(calls())
def test_output_and_all_gradients(case):
    torch.manual_seed(0)
    _, heads, _, width = case["query"].shape
    score = scores.create("additive", heads=heads, head_width=width)
    assert_as_good_as_plain("additive", score, case)


@pytest.mark.parametrize("far", [19.0, 21.0, 100.0, 1e4])
def test_features_beyond_the_range_of_exponentials(far):
    torch.manual_seed(2)
    score = scores.create("additive", heads=2, head_width=3)
    query, key, value = (torch.randn(1, 2, n, 3) for n in (40, 600, 600))
    with torch.no_grad():
        query[:, :, 3:6] += far
        key[:, :, 550:] -= far
    case = {"query": query, "key": key, "value": value, "table": None, "mask": None}
    assert_as_good_as_plain(
        "additive", score, {**case, "dropout": 0.0, "upstream": torch.randn(1, 2, 40, 3)}
    )


def test_rows_without_keys_are_zero_with_finite_gradients():
    score = scores.create("additive", heads=2, head_width=3)
    leaves = [torch.randn(2, 2, 5, 3, requires_grad=True) for _ in range(3)]
    real = torch.ones(2, 5, dtype=torch.bool)
    real[1] = False
    output = attend(*leaves, score=score, mask=masks.Padding(real), path="additive")
    output.sum().backward()
    assert not output[1].any()
    assert all(bool(x.grad.isfinite().all()) and not x.grad[1].any() for x in leaves)
    assert all(bool(p.grad.isfinite().all()) for p in score.parameters())


def test_bfloat16_is_computed_in_float32():
    torch.manual_seed(4)
    score = scores.create("additive", heads=2, head_width=4)
    q, k, v = (torch.randn(1, 2, 50, 4).bfloat16() for _ in range(3))
    truth = attend(q.float(), k.float(), v.float(), score=score, path="reference")
    found = attend(q, k, v, score=score.bfloat16(), path="additive")
    assert found.dtype == torch.bfloat16
    # Parameters, features and output are rounded to 8 bits; the scores' sum of 4 terms follows.
    assert (found - truth).abs().max() <= 8 * torch.finfo(torch.bfloat16).eps * v.abs().max()


def test_ten_steps_of_an_optimizer_follow_the_plain_curve():
    torch.manual_seed(5)
    start = scores.create("additive", heads=2, head_width=4)
    q, k, v = (torch.randn(2, 2, 140, 4) for _ in range(3))
    target = torch.randn(2, 2, 140, 4)
    curves = {}
    for path in ("additive", "reference"):
        score = deepcopy(start)
        optimizer = torch.optim.SGD(score.parameters(), lr=1.0)
        losses = []
        for _ in range(10):
            loss = attend(q, k, v, score=score, mask=masks.Causal(), path=path) - target
            loss = loss.square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(float(loss.detach()))
        curves[path] = losses
    assert curves["additive"] == pytest.approx(curves["reference"], rel=1e-5)
    assert curves["additive"][-1] < curves["additive"][0]


def test_auto_takes_it_and_the_explanation_says_so():
    score = scores.create("additive", heads=1, head_width=2)
    x = torch.zeros(1, 1, 3, 2)
    assert paths.explain(make_call(x, x, x, score=score)).path == "additive"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"score": "scaled_dot"}, "the score is no weighted sum of tanh"),
        ({"dtype": torch.float64}, "computes in float32, and the tensors are torch.float64"),
        ({"normalizer": "sparsemax"}, "the normalizer is not softmax without options"),
        (
            {"normalizer": normalizers.create("softmax", softcap=2.0)},
            "the normalizer is not softmax without options",
        ),
        ({"bias": torch.zeros(3, 3)}, "the bias is not one table over offsets"),
        ({"observe_weights": lambda weights: weights}, "scores or weights are observed"),
    ],
)
def test_refusals(change, reason):
    dtype = change.pop("dtype", torch.float32)
    x = torch.zeros(1, 1, 3, 2, dtype=dtype)
    score = scores.create("additive", heads=1, head_width=2).to(dtype)
    call = make_call(x, x, x, **{"score": score, **change})
    assert reason in (paths.family.create("additive").refuses(call) or "")


def test_a_table_needs_consecutive_keys():
    x = torch.zeros(1, 1, 3, 2)
    score = scores.create("additive", heads=1, head_width=2)
    options = {
        "score": score,
        "bias": RelativeBias(torch.zeros(1, 21), -10),
        "query_positions": torch.tensor([0, 1, 2]),
        "key_positions": torch.tensor([0, 2, 3]),
    }
    with pytest.raises(OptionError, match="key positions are not consecutive"):
        attend(x, x, x, **options, path="additive")
    assert attend(x, x, x, **options).shape == x.shape


def test_second_derivatives_raise():
    x = torch.randn(1, 1, 3, 2, requires_grad=True)
    score = scores.create("additive", heads=1, head_width=2)
    output = attend(x, x, x, score=score, path="additive")
    with pytest.raises(
        RegardError, match=r"gradients of first order only.*pass path=\"reference\""
    ):
        torch.autograd.grad(output.sum(), x, create_graph=True)


def test_without_compilation_the_kernels_are_plain_python():
    script = """
import torch
from regard.attention import attend, masks, scores
from regard.attention.bias import RelativeBias
torch.manual_seed(0)
score = scores.create("additive", heads=2, head_width=2)
x = torch.randn(1, 2, 5, 2)
x[0, 0, 1] = 50
x.requires_grad_()
table = torch.randn(2, 9, requires_grad=True)
both = []
for path in ("additive", "reference"):
    y = attend(x, x, x, score=score, mask=masks.Causal(), bias=RelativeBias(table, -4), path=path)
    both.append([y.detach(), *torch.autograd.grad(y.square().sum(), [x, table])])
for found, plain in zip(*both):
    torch.testing.assert_close(found, plain, rtol=1e-4, atol=1e-5)
print("agree")
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script],
        env={"NUMBA_DISABLE_JIT": "1", "PATH": "", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "agree\n", done.stderr


MEMORY = """
import sys
from pathlib import Path
import torch
from regard.attention import attend, scores
from regard.attention.bias import RelativeBias

torch.set_num_threads(1)
path = sys.argv[1]
score = scores.create("additive", heads=4, head_width=64) if path == "additive" else "scaled_dot"

def inputs(tokens):
    q, k, v = (torch.randn(1, 4, tokens, 64, requires_grad=True) for _ in range(3))
    return q, k, v, torch.randn(4, 2 * tokens - 1, requires_grad=path == "relative")

def step(q, k, v, table):
    bias = RelativeBias(table, 1 - q.shape[2]) if path == "relative" else None
    attend(q, k, v, score=score, bias=bias, path=path).sum().backward()

def kilobytes(kind):
    status = Path("/proc/self/status").read_text()
    return int(status.split(kind + ":")[1].split()[0])

step(*inputs(64))
large = inputs(8192)
Path("/proc/self/clear_refs").write_text("5")  # the peak so far is forgotten
before = kilobytes("VmRSS")
step(*large)
print((kilobytes("VmHWM") - before) / 1024)
"""


def peak_over_inputs(path):
    done = subprocess.run(
        [sys.executable, "-c", MEMORY, path], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return float(done.stdout)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak from /proc")
def test_memory_at_8192_tokens_stays_below_400_mb():
    assert peak_over_inputs("additive") < 400
