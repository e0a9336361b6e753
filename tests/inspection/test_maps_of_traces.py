"""The maps and tables of a trace, as the trace gives them."""

import pytest
import torch

from regard.attention import make_call
from regard.attention.masks import Causal
from regard.inspection.record import AttentionRecord
from regard.inspection.rollout import rollout
from regard.inspection.summary import summarize
from regard.inspection.tokens import Token
from regard.inspection.tracing import Trace


@pytest.fixture
def trace():
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, 3, 300, 5) for _ in "qkv")
    tokens = [Token(str(i % 9), id=i % 9, special=i in (0, 299)) for i in range(300)]
    records = [
        AttentionRecord(name=f"layer{i}", layer=i, call=make_call(q, k + i, v, mask=Causal()))
        for i in range(2)
    ]
    return Trace(records, tokens)


def test_tiles(trace):
    torch.testing.assert_close(
        trace.tile(1, 2, 1, 1, 0).values, trace.weights(1, 2, slice(256, 300), slice(0, 256))
    )
    assert trace.tile(1, 2, 64, 0, 0, "mean").values.shape == (5, 5)
    assert trace.tile(0, 0, 32, 0, 0, wait=False).note == "10 of 300 rows"
    trace.atlas.close()


def test_strongest(trace):
    links = trace.strongest(0, 1, 4, exclude_diagonal=True, exclude_sinks=True)
    assert len(links) == 4
    assert not any(link.col in (0, 299) or link.row == link.col for link in links)
    assert links[0].weight == pytest.approx(
        float(trace.weights(0, 1, links[0].row, links[0].col)), abs=1e-6
    )


def test_tables(trace):
    heads = [(0, 1), (1, 2)]
    assert trace.summary(["entropy"], heads).values == summarize(trace, ["entropy"], heads).values
    assert torch.equal(trace.rollout([7], layer=0), rollout(trace, [7], layer=0))


def test_grids_lie_beside_a_saved_trace(trace, tmp_path):
    trace.save(tmp_path / "run.safetensors")
    first = trace.tile(1, 0, 32, 0, 0).values
    names = sorted(str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file())
    assert names == ["run.safetensors", "run.safetensors.grids/self/layer01-head00.safetensors"]
    again = Trace.load(tmp_path / "run.safetensors")
    assert again.atlas.ready(1, 0) == 1.0
    assert torch.equal(again.tile(1, 0, 32, 0, 0, wait=False).values, first)
