"""What the Triton path says on a machine without CUDA; its kernels are tested by themselves."""

import pytest
import torch

from regard.attention import masks, paths, scores
from regard.attention.call import make_call

TRITON = paths.family.create("additive_triton")


def call(**options):
    x = torch.zeros(1, 1, 3, 2)
    score = scores.create("additive", heads=1, head_width=2)
    return make_call(x, x, x, **{"score": score, **options})


def test_without_cuda_it_refuses(monkeypatch):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    assert TRITON.refuses(call()) == "the kernel runs on CUDA, and the tensors are on cpu"


def test_without_triton_it_refuses(monkeypatch):
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.setattr("regard.attention.paths.additive_triton.find_spec", lambda name: None)
    assert TRITON.refuses(call()) == "triton is not installed"


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"score": "dot"}, "the score is no weighted sum of tanh"),
        ({"mask": masks.Window(2)}, "the mask is not causal order alone"),
        ({"dropout": 0.5}, "there is a bias or dropout"),
        ({"normalizer": "relu"}, "the normalizer is not softmax without options"),
        ({"observe_scores": lambda x: x}, "scores or weights are observed"),
    ],
)
def test_refusals(monkeypatch, options, reason):
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.setattr("regard.attention.paths.additive_triton.find_spec", lambda name: True)
    assert reason in (TRITON.refuses(call(**options)) or "")
