import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers.models.t5 import T5Config
from transformers.models.t5.modeling_t5 import T5Attention

from regard import positions
from regard.errors import OptionError
from regard.positions.t5 import buckets


@given(
    count=st.integers(4, 80),
    max_distance=st.integers(2, 1000),
    bidirectional=st.booleans(),
)
def test_buckets_of_t5(count, max_distance, bidirectional):
    exact = count // (4 if bidirectional else 2)
    if max_distance <= exact:
        return
    offsets = torch.arange(-1100, 1101)
    theirs = T5Attention._relative_position_bucket(offsets, bidirectional, count, max_distance)
    assert torch.equal(buckets(offsets, count, max_distance, bidirectional), theirs)


def test_bucket_edges_of_the_defaults():
    offsets = torch.arange(-1_000_000, 1_000_001)
    for bidirectional in (True, False):
        theirs = T5Attention._relative_position_bucket(offsets, bidirectional, 32, 128)
        assert torch.equal(buckets(offsets, 32, 128, bidirectional), theirs)
    # the last with a bucket of its own, the first that share one, the farthest
    assert buckets(torch.tensor([-7, -8, -11, -12, -127, -128]), 32, 128, True).tolist() == [
        7, 8, 8, 9, 15, 15
    ]  # fmt: skip


@pytest.mark.parametrize("decoder", [False, True])
def test_bias_of_t5_with_its_weights(decoder):
    config = T5Config(
        d_model=12,
        d_kv=4,
        num_heads=3,
        relative_attention_num_buckets=8,
        relative_attention_max_distance=20,
        is_decoder=decoder,
    )
    theirs = T5Attention(config, has_relative_attention_bias=True, layer_idx=0)
    ours = positions.create("t5", heads=3, buckets=8, max_distance=20, bidirectional=not decoder)
    with torch.no_grad():
        ours.weight.copy_(theirs.relative_attention_bias.weight)
    places = torch.arange(30)
    bias = ours.bias(places, places)
    matrix = bias.table[:, places[None, :] - places[:, None] - bias.lowest]
    assert torch.equal(matrix[None], theirs.compute_bias(30, 30))


def test_the_gradient_of_a_bucket_is_that_of_its_offsets():
    t5 = positions.create("t5", heads=1, buckets=8, max_distance=16)
    bias = t5.bias(torch.arange(20), torch.arange(20))
    bias.table.sum().backward()
    every = torch.arange(-19, 20)
    counts = torch.bincount(buckets(every, 8, 16, True), minlength=8)
    assert torch.equal(t5.weight.grad[:, 0], counts.float())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"buckets": 3}, r"got buckets=3 \(both directions\), max_distance=128"),
        ({"buckets": 1, "bidirectional": False}, r"got buckets=1 \(one direction\)"),
        ({"max_distance": 8}, r"got buckets=32 \(both directions\), max_distance=8"),
    ],
)
def test_settings_that_do_not_fit_are_refused(settings, message):
    with pytest.raises(OptionError, match=message):
        positions.create("t5", heads=2, **settings)
