"""Dropout by counters: its rate, its independence of blocks, its gradient."""

import pytest
import torch

from regard.attention import attend, masks, scores
from regard.attention.call import make_call
from regard.attention.dropout import keep
from regard.attention.paths.blockwise import run_in_blocks


def a_call(batch=3, tokens=40, heads=4, dropout=0.3, seed=0):
    torch.manual_seed(seed)
    x = torch.randn(batch, heads, tokens, 5, dtype=torch.float64)
    return make_call(x, x, x, dropout=dropout)


def kept(call, **rectangle):
    assert call.seed is not None
    return keep(call.seed, call.dropout, call.rectangle(**rectangle), call.sizes[1])


@pytest.mark.parametrize("dropout", [0.1, 0.5, 0.9])
def test_the_rate_everywhere(dropout):
    found = kept(a_call(dropout=dropout, tokens=64)).double()
    # Each mean over n independent draws lies within 5 standard deviations.
    for axes in [(0, 1, 2, 3), (0, 1, 2), (0, 1, 3), (1, 2, 3), (0, 2, 3)]:
        means = found.mean(axes)
        n = found.numel() / means.numel()
        assert ((means - (1 - dropout)).abs() <= 5 * (dropout * (1 - dropout) / n) ** 0.5).all()


def test_neighbors_are_independent():
    found = kept(a_call(dropout=0.5, tokens=64)).double() - 0.5
    n = found.numel()
    for axis in range(4):
        together = (found * found.roll(1, axis)).mean()
        assert together.abs() <= 5 * 0.25 / n**0.5
    diagonal = (found[..., 1:, 1:] * found[..., :-1, :-1]).mean()
    assert diagonal.abs() <= 5 * 0.25 / n**0.5


def test_a_rectangle_is_a_cut_of_the_whole():
    call = a_call()
    whole = kept(call)
    batch, rows, cols = slice(1, 3), slice(7, 20), slice(11, 40)
    assert torch.equal(kept(call, batch=batch, rows=rows, cols=cols), whole[batch, :, rows, cols])


def test_blocks_of_any_size_drop_the_same():
    call = a_call()
    first = run_in_blocks(call, 40)
    for rows in (1, 7, 13):
        torch.testing.assert_close(run_in_blocks(call, rows), first)


def test_a_seed_repeats_and_calls_differ():
    x = torch.randn(1, 2, 9, 5)
    torch.manual_seed(4)
    first, second = attend(x, x, x, dropout=0.5), attend(x, x, x, dropout=0.5)
    torch.manual_seed(4)
    assert torch.equal(attend(x, x, x, dropout=0.5), first)
    assert not torch.equal(first, second)
    assert torch.equal(attend(x, x, x, dropout=0.5, training=False), attend(x, x, x))


@pytest.mark.parametrize("path", ["reference", "blockwise"])
def test_gradients_see_the_mask_of_forward(path):
    torch.manual_seed(0)
    score = scores.create("additive", heads=2, head_width=3).double()
    x = torch.randn(1, 2, 5, 3, dtype=torch.float64, requires_grad=True)

    def run(x, *_):
        torch.manual_seed(9)
        return attend(x, x, x, score=score, mask=masks.Causal(), dropout=0.4, path=path)

    assert torch.autograd.gradcheck(run, (x, *score.parameters()))


def test_dropout_keeps_the_mean():
    torch.manual_seed(0)
    x = torch.randn(1, 2, 6, 3, dtype=torch.float64)
    plain = attend(x, x, x)
    many = x.expand(4000, -1, -1, -1)
    mean = attend(many, many, many, dropout=0.5).mean(0, keepdim=True)
    # One output is a sum of terms below max|v|, each 0 or doubled: its deviation is at most that.
    assert (mean - plain).abs().max() <= 5 * x.abs().max() / 4000**0.5
