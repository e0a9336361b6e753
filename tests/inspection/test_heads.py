"""What heads do, streaming, against the same computed from whole matrices."""

import subprocess
import sys

import pytest
import torch

from regard.attention import make_call
from regard.attention.masks import Causal
from regard.errors import OptionError, RegardError
from regard.inspection.heads import family
from regard.inspection.heads.induction import repeated_random
from regard.inspection.record import AttentionRecord
from regard.inspection.summary import known, summarize
from regard.inspection.tokens import Token
from regard.inspection.tracing import Trace

HEADS = 3


def trace_of(ids, special=(), causal=True, key_ids=None, sharpness=1.0):
    """Two layers of random attention over these tokens."""
    torch.manual_seed(1)
    tokens = [Token(str(i), id=i, special=n in special) for n, i in enumerate(ids)]
    key_tokens = None if key_ids is None else [Token(str(i), id=i) for i in key_ids]
    keys = len(ids) if key_ids is None else len(key_ids)
    records = [
        AttentionRecord(
            name=f"layer{i}",
            layer=i,
            call=make_call(
                sharpness * torch.randn(1, HEADS, len(ids), 5),
                torch.randn(1, HEADS, keys, 5),
                torch.randn(1, HEADS, keys, 5),
                mask=Causal() if causal else None,
            ),
        )
        for i in range(2)
    ]
    return Trace(records, tokens, key_tokens=key_tokens)


def by_matrix(weights, scores, ids, special):
    """Every measure from one whole matrix, written out plainly."""
    size = len(ids)
    i, j = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
    ids = torch.tensor(ids)
    same = (ids[i] == ids[j]) & (i != j)
    follows = torch.zeros(size, size, dtype=torch.bool)
    for row in range(size):
        for col in range(1, row + 1):
            follows[row, col] = ids[col - 1] == ids[row]
    seen = torch.tensor([bool((ids[:row] == ids[row]).any()) for row in range(size)])
    singular = torch.linalg.svdvals(scores)
    share = singular / singular.sum()
    share = share[share > 0]
    return {
        "entropy": -(weights * weights.clamp(min=1e-300).log()).sum(1).mean(),
        "mean_distance": (weights * (i - j).abs()).sum(1).mean(),
        "diagonal": weights.diagonal().mean(),
        "previous_token": weights.diagonal(-1).mean(),
        "first_token": weights[1:, 0].mean(),
        "same_token": (weights * same).sum(1)[same.any(1)].mean(),
        "induction": (weights * follows).sum(1)[seen].mean(),
        "special_tokens": weights[:, list(special)].sum(1).mean(),
        "score_rank": torch.exp(-(share * share.log()).sum()),
    }


@pytest.mark.parametrize("causal", [True, False])
def test_every_measure_equals_the_whole_matrix(causal):
    generator = torch.Generator().manual_seed(2)
    # More than one block of rows, tokens that come back, special ones at both ends.
    ids = torch.randint(100, (300,), generator=generator).tolist()
    special = (0, 299)
    trace = trace_of(ids, special, causal)
    summary = summarize(trace)
    assert summary.columns == known() == family.names()
    assert summary.heads == [(i, h) for i in range(2) for h in range(HEADS)]
    for layer, head in summary.heads:
        record = trace.record(layer)
        query, key = record.features(head)
        expected = by_matrix(
            record.weights(head).double(), (query.double() @ key.double().T), ids, special
        )
        got = summary.of(layer, head)
        assert got.keys() == expected.keys()
        for name, value in expected.items():
            # Float32 weights: 1e-6 of each, of distances up to 300.
            assert got[name] == pytest.approx(float(value), rel=2e-5, abs=1e-6), name


def test_the_induction_of_a_head_that_inducts():
    """A head that puts all weight behind the earlier place of the same token scores 1."""
    ids = repeated_random(50, 20, repeats=2, seed=3).tolist()
    assert sorted(ids[:20]) != ids[:20]
    vectors = torch.eye(50)[ids]
    before = torch.cat([torch.zeros(1, 50), vectors[:-1]])
    call = make_call(
        1000 * vectors[None, None], before[None, None], vectors[None, None], mask=Causal()
    )
    trace = Trace(
        [AttentionRecord(name="head", layer=0, call=call)], [Token(str(i), id=i) for i in ids]
    )
    # 20 of the 40 tokens have been seen before, and all of those look behind their first place.
    assert summarize(trace).of(0, 0)["induction"] == pytest.approx(1)


def test_repeated_random_text():
    ids = repeated_random(7, 5, repeats=3)
    assert ids.shape == (15,)
    assert torch.equal(ids[:5], ids[10:])
    assert len(set(ids[:5].tolist())) == 5
    with pytest.raises(OptionError, match="period=8, repeats=2 from 7 tokens"):
        repeated_random(7, 8)


def test_what_cannot_be_measured_is_nan():
    # No token comes twice.
    row = summarize(trace_of(list(range(9)))).of(0, 0)
    assert row["same_token"] != row["same_token"]
    assert row["induction"] != row["induction"]
    assert row["special_tokens"] == 0


def test_cross_attention_has_the_measures_that_fit():
    trace = trace_of([1, 2, 3], causal=False, key_ids=[4, 5, 6, 7, 1])
    summary = summarize(trace)
    assert summary.columns == ["entropy", "first_token", "score_rank", "special_tokens"]
    weights = trace.weights(0, 0)
    assert summary.of(0, 0)["first_token"] == pytest.approx(float(weights[:, 0].mean()))
    assert summarize(trace, ["diagonal"]).of(0, 0)["diagonal"] != 0  # nan


def test_some_measures_of_some_heads():
    summary = summarize(trace_of([1, 2, 1, 3]), ["diagonal", "entropy"], [(1, 2), (0, 1)])
    assert summary.heads == [(1, 2), (0, 1)]
    assert summary.columns == ["diagonal", "entropy"]
    assert summary.top("entropy") == sorted(summary.heads, key=lambda h: -summary.of(*h)["entropy"])


def test_the_printed_table():
    lines = str(summarize(trace_of([1, 2, 3]), ["entropy", "same_token"], [(1, 2)])).splitlines()
    assert lines[0].split() == ["layer", "head", "entropy", "same_token"]
    assert lines[1].split()[0::3] == ["1", "–"]
    assert len(lines[0]) == len(lines[1])


def test_unknown_names():
    trace = trace_of([1, 2, 3])
    with pytest.raises(OptionError, match=r"unknown measure 'entropie'; did you mean 'entropy'"):
        summarize(trace, ["entropie"])
    summary = summarize(trace, ["entropy"], [(0, 0)])
    with pytest.raises(OptionError, match="has no head 1 of layer 0"):
        summary.of(0, 1)
    with pytest.raises(OptionError, match="has no 'rank'; it has entropy"):
        summary.top("rank")


def test_a_data_frame_or_what_to_install():
    summary = summarize(trace_of([1, 2, 3]), ["entropy"])
    try:
        import pandas  # noqa: F401
    except ImportError:
        with pytest.raises(RegardError, match="pandas is not installed; run: pip install pandas"):
            summary.to_pandas()
    else:
        frame = summary.to_pandas()
        assert frame.loc[(1, 2), "entropy"] == summary.of(1, 2)["entropy"]


MEMORY = """
import resource, torch
torch.set_num_threads(1)
from regard.attention import make_call
from regard.attention.masks import Causal
from regard.inspection.record import AttentionRecord
from regard.inspection.summary import summarize
from regard.inspection.tokens import Token
from regard.inspection.tracing import Trace
def run(tokens):
    x = torch.randn(1, 1, tokens, 16)
    record = AttentionRecord(name="a", layer=0, call=make_call(x, x, x, mask=Causal()))
    summarize(Trace([record], [Token(str(i % 50), id=i % 50) for i in range(tokens)]))
run(300)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
run(8192)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def test_memory_grows_with_tokens_not_with_their_square():
    """The matrix of 8192 tokens is 268 MB."""
    done = subprocess.run([sys.executable, "-c", MEMORY], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 40_000  # kilobytes
