import pytest
import torch
from transformers.models.bloom import modeling_bloom

from regard import positions
from regard.errors import OptionError, ShapeError
from regard.positions.alibi import slopes


@pytest.mark.parametrize("heads", [1, 2, 3, 4, 5, 7, 8, 11, 12, 16, 20, 48, 64, 112])
def test_slopes_of_bloom(heads):
    theirs = modeling_bloom._get_alibi_slopes(heads, torch.device("cpu"))
    # Theirs are powers taken in float32.
    torch.testing.assert_close(slopes(heads).float(), theirs, rtol=128 * 2**-24, atol=0)


def test_slopes_of_the_paper():
    # section 3: eight heads, 1/2, 1/4 … 1/256; sixteen, the geometric means of neighbors as well
    assert slopes(8).tolist() == [2.0**-n for n in range(1, 9)]
    torch.testing.assert_close(
        slopes(16), torch.tensor([2.0 ** (-n / 2) for n in range(1, 17)], dtype=torch.float64)
    )


@pytest.mark.parametrize("heads", [3, 4])
def test_weights_of_bloom_behind_a_causal_mask(heads):
    tokens = 7
    alibi = modeling_bloom.build_alibi_tensor(torch.ones(1, tokens), heads, torch.float32)
    scores = torch.randn(heads, tokens, tokens)
    future = torch.ones(tokens, tokens).triu(1).bool()
    theirs = (scores + alibi).masked_fill(future, -torch.inf).softmax(-1)
    places = torch.arange(tokens)
    bias = positions.create("alibi", heads=heads).bias(places, places)
    ours = scores + bias.table[:, places[None, :] - places[:, None] - bias.lowest]
    torch.testing.assert_close(ours.masked_fill(future, -torch.inf).softmax(-1), theirs)


def test_nearer_keys_score_higher_on_both_sides():
    bias = positions.create("alibi", heads=2).bias(torch.arange(4), torch.arange(4))
    assert bias.lowest == -3
    assert torch.equal(bias.table, bias.table.flip(-1))
    assert (bias.table[:, :4].diff(dim=-1) > 0).all()
    assert bias.table[:, 3].tolist() == [0.0, 0.0]


def test_the_table_covers_the_offsets_that_occur():
    bias = positions.create("alibi", heads=1).bias(
        torch.tensor([[10, 11], [4, 4]]), torch.tensor([0, 1])
    )
    assert (bias.lowest, bias.table.shape) == (-11, (1, 9))


def test_positions_that_are_none_are_refused():
    far = torch.tensor([0, 10**9])
    with pytest.raises(ShapeError, match=r"offsets from -1000000000 to 1000000000 are more than"):
        positions.create("alibi", heads=1).bias(far, far)


def test_no_heads_are_refused():
    with pytest.raises(OptionError, match="heads must be 1 or more, got 0"):
        positions.create("alibi", heads=0)
