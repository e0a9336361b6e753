"""Threads cover every task once, and results do not depend on how many there are."""

import pytest
import torch

from regard.attention import attend, scores
from regard.attention.bias import RelativeBias
from regard.attention.kernels import threads as module
from regard.attention.kernels.threads import Threads


@pytest.fixture(params=["PyTorch's team", "a pool"])
def threads(request, monkeypatch):
    if request.param == "a pool":
        monkeypatch.setattr(module, "_team", lambda: None)
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("tasks", [0, 1, 2, 7])
def test_every_task_once(threads, count, tasks):
    threads(count)
    done = []
    with Threads() as pool:
        pool.share(lambda name, begin, end: done.extend(range(begin, end)), tasks, "tasks")
    assert sorted(done) == list(range(tasks))


def test_an_error_in_a_thread_is_raised(threads):
    threads(3)

    def fail(begin, end):
        if begin:
            raise ValueError("in a thread")

    with Threads() as pool, pytest.raises(ValueError, match="in a thread"):
        pool.share(fail, 3)


def results(path):
    torch.manual_seed(3)
    score = scores.create("additive" if path == "additive" else "bilinear", heads=3, head_width=5)
    leaves = [torch.randn(2, 3, 150, 5, requires_grad=True) for _ in range(3)]
    table = torch.randn(3, 299, requires_grad=True)
    output = attend(*leaves, score=score, bias=RelativeBias(table, -149), path=path)
    return [
        output.detach(),
        *torch.autograd.grad(output.square().sum(), [*leaves, table, *score.parameters()]),
    ]


@pytest.mark.parametrize("path", ["additive", "relative"])
def test_one_and_three_threads_agree(threads, path):
    threads(1)
    alone, again = results(path), results(path)
    threads(3)
    shared = results(path)
    assert all(torch.equal(x, y) for x, y in zip(alone, again, strict=True))
    # PyTorch's matrix products, before and between the kernels, may split their sums by threads.
    for x, y in zip(alone, shared, strict=True):
        torch.testing.assert_close(x, y, rtol=1e-5, atol=1e-5 * float(x.abs().max()))
