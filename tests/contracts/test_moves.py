"""Every score, normalizer, position encoding and layer, moved: copied, to other types, to devices.

The meta device refuses to meet tensors of another one, and needs no machine that has it.
"""

from copy import deepcopy

import pytest
import torch
from torch import nn

from regard import positions
from regard.attention import MultiHeadAttention, masks, normalizers, scores
from regard.attention.torch_compat import MultiheadAttention

from .test_positions import HEAD_WIDTH, HEADS, MEMBERS, WIDTH, everything, inputs, name_of

B, T = 2, 5


class Scoring(nn.Module):
    """A score of queries and keys."""

    def __init__(self, name):
        super().__init__()
        self.score = scores.create(name, heads=HEADS, head_width=HEAD_WIDTH)

    def forward(self, x, q, k):
        return [self.score(q, k)]


class Normalizing(nn.Module):
    """Weights of scores under a mask."""

    def __init__(self, name, **options):
        super().__init__()
        self.normalizer = normalizers.create(name, **options)

    def forward(self, x, q, k):
        allowed = torch.ones(1, 1, T, T, dtype=torch.bool, device=q.device).tril()
        return [self.normalizer(q @ k.mT, allowed)]


class Placing(nn.Module):
    """An encoding in all its places."""

    def __init__(self, name, **settings):
        super().__init__()
        self.encoding = positions.create(name, **settings)

    def forward(self, x, q, k):
        return everything(self.encoding, x, q, k, torch.arange(T, device=q.device))


class Attending(nn.Module):
    """Self-attention by a layer."""

    def __init__(self, **options):
        super().__init__()
        self.layer = MultiHeadAttention(WIDTH, HEADS, head_width=4, **options)

    def forward(self, x, q, k):
        real = torch.ones(B, T, dtype=torch.bool, device=x.device)
        return [self.layer(x, mask=masks.Causal() & masks.Padding(real))]


class Compatible(nn.Module):
    """Self-attention by the layer that stands in for PyTorch's."""

    def __init__(self):
        super().__init__()
        self.layer = MultiheadAttention(WIDTH, 1, add_bias_kv=True)

    def forward(self, x, q, k):
        hidden = torch.ones(B, B, dtype=torch.bool, device=x.device).triu(1)
        return list(self.layer(x, x, x, attn_mask=hidden))


MAKERS = {
    **{f"score-{n}": lambda n=n: Scoring(n) for n in scores.names()},
    **{f"normalizer-{n}": lambda n=n: Normalizing(n) for n in normalizers.names()},
    "normalizer-softcap": lambda: Normalizing("softmax", softcap=2.0),
    "normalizer-sinks": lambda: Normalizing("softmax", sinks=True, heads=HEADS),
    **{f"position-{name_of(m)}": lambda m=m: Placing(m[0], **m[1]) for m in MEMBERS},
    "layer-plain": Attending,
    "layer-location": lambda: Attending(score="location"),
    "layer-additive": lambda: Attending(score="additive", qk_norm=True, kv_heads=1),
    "layer-rotary": lambda: Attending(position=positions.create("rotary", head_width=4)),
    "layer-fire": lambda: Attending(position=positions.create("fire", heads=HEADS)),
    "layer-entmax": lambda: Attending(normalizer="entmax15", path="blockwise"),
    "layer-torch": Compatible,
}
ON_META = [name for name in MAKERS if not name.startswith("position")]  # test_positions has these


@pytest.fixture(params=MAKERS)
def module(request):
    torch.manual_seed(0)
    made = MAKERS[request.param]()
    for parameter in made.parameters():
        nn.init.normal_(parameter, std=0.5)
    return made.double()


def results(module, device="cpu", dtype=torch.float64):
    return module(*(x.to(device) for x in inputs(B, T, dtype=dtype)))


def identical(found, expected):
    assert len(found) == len(expected)
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


def test_a_copy_does_the_same_and_shares_nothing(module):
    before = results(module)
    copy = deepcopy(module)
    identical(results(copy), before)
    with torch.no_grad():
        for parameter in copy.parameters():
            parameter.zero_()
    identical(results(module), before)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_to_another_type_and_back(module, dtype):
    module.to(dtype)  # from here on its numbers are those that the type has
    found = results(module, dtype=dtype)
    for one in found:
        # Normalizers compute in float32 or better.
        assert one.dtype in (dtype, torch.promote_types(dtype, torch.float32))
    wide = results(module.double())
    # An operation rounds by eps / 2; the longest chain here, a layer, has some twenty, on numbers
    # that grow to the largest of the inputs and outputs.
    largest = max(float(one.detach().abs().max()) for one in (*wide, *inputs(B, T)))
    for one, truth in zip(found, wide, strict=True):
        assert (one - truth).abs().max() <= 10 * torch.finfo(dtype).eps * max(1.0, largest) ** 2
    identical(results(module.to(dtype), dtype=dtype), found)


@pytest.mark.parametrize("name", ON_META)
def test_everything_happens_on_the_device_of_the_input(name):
    found = results(MAKERS[name]().double().to("meta"), "meta")
    assert all(one.is_meta for one in found)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_to_cuda_and_back(module):
    before = results(module)
    there = results(module.cuda(), "cuda")
    for one, truth in zip(there, before, strict=True):
        assert one.is_cuda
        torch.testing.assert_close(one.cpu(), truth, rtol=1e-10, atol=1e-10)
    identical(results(module.cpu()), before)
