import torch

from regard import positions


def test_acts_nowhere():
    encoding = positions.create("none")
    x, q = torch.randn(2, 3, 5), torch.randn(2, 1, 3, 5)
    assert encoding.places == frozenset()
    assert encoding(x) is x
    assert encoding.rotate(q) is q
    assert encoding.bias(torch.arange(3), torch.arange(3)) is None
