"""Against the real torch.nn.MultiheadAttention: values, weights and gradients, option by option."""

from itertools import product

import pytest
import torch
from torch import nn

from regard.attention.torch_compat import MultiheadAttention
from regard.errors import OptionError, ShapeError

T, S, B, E, H = 3, 5, 2, 12, 4


def pair(**options):
    torch.manual_seed(0)
    theirs = nn.MultiheadAttention(E, H, **options, dtype=torch.float64)
    ours = MultiheadAttention(E, H, **options, dtype=torch.float64)
    ours.load_state_dict(theirs.state_dict())
    for module in (theirs, ours):
        for name, parameter in module.named_parameters():
            if "bias" in name and name not in ("bias_k", "bias_v"):
                nn.init.constant_(parameter, 0.1)
    return theirs, ours


def inputs(options, batched=True):
    kdim, vdim = options.get("kdim") or E, options.get("vdim") or E
    generator = torch.Generator().manual_seed(1)
    made = []
    for tokens, width in ((T, E), (S, kdim), (S, vdim)):
        shape = (tokens, B, width)
        if not batched:
            shape = (tokens, width)
        elif options.get("batch_first"):
            shape = (B, tokens, width)
        x = torch.randn(shape, generator=generator, dtype=torch.float64)
        made.append(x.requires_grad_())
    return made


def masks(kind, padding, batched):
    generator = torch.Generator().manual_seed(2)
    hidden = torch.rand(T, S, generator=generator) < 0.4
    hidden[:, 0] = False  # a row that may attend nowhere is nan there, zeros here
    batch = B if batched else 1
    attn_mask = {
        "none": None,
        "bool": hidden,
        "float": torch.zeros(T, S, dtype=torch.float64).masked_fill(hidden, -torch.inf),
        "added": torch.randn(T, S, generator=generator, dtype=torch.float64),
        "a head": hidden.repeat(batch * H, 1, 1)
        & (torch.rand(batch * H, T, S, generator=generator) < 0.5),
    }[kind]
    key_padding_mask = torch.zeros(B, S, dtype=torch.bool)
    key_padding_mask[-1, -2:] = True
    if not batched:
        key_padding_mask = key_padding_mask[-1]
    if padding == "none":
        return attn_mask, None
    # PyTorch wants both masks of one kind.
    if padding == "float" or (attn_mask is not None and attn_mask.dtype != torch.bool):
        as_float = torch.zeros_like(key_padding_mask, dtype=torch.float64)
        key_padding_mask = as_float.masked_fill(key_padding_mask, -torch.inf)
        if attn_mask is not None and attn_mask.dtype == torch.bool:
            as_float = torch.zeros_like(attn_mask, dtype=torch.float64)
            attn_mask = as_float.masked_fill(attn_mask, -torch.inf)
    return attn_mask, key_padding_mask


def same(theirs, ours, x, **call):
    results = []
    for module in (theirs, ours):
        output, weights = module(*x, **call)
        loss = output.sin().sum() + (0 if weights is None else weights.cos().sum())
        parameters = [*x, *module.parameters()]
        results.append((output, weights, *torch.autograd.grad(loss, parameters)))
    for expected, found in zip(*results, strict=True):
        assert (expected is None) == (found is None)
        if expected is not None and found is not None:
            assert expected.shape == found.shape
            torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)


MODULES = [
    {"bias": bias, "add_bias_kv": kv, "add_zero_attn": zero, "kdim": kdim, "vdim": vdim}
    for bias, kv, zero, (kdim, vdim) in product(
        (True, False), (False, True), (False, True), ((None, None), (7, 10))
    )
]
MASKS = list(product(("none", "bool", "float", "added", "a head"), ("none", "bool", "float")))


@pytest.mark.parametrize("options", MODULES, ids=lambda o: "-".join(map(str, o.values())))
def test_every_module_option_under_every_mask(options):
    theirs, ours = pair(**options)
    for attn, padding in MASKS:
        attn_mask, key_padding_mask = masks(attn, padding, batched=True)
        same(theirs, ours, inputs(options), attn_mask=attn_mask, key_padding_mask=key_padding_mask)


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("batched", [True, False])
@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("average", [True, False])
def test_every_way_to_call(batch_first, batched, need_weights, average):
    options = {"batch_first": batch_first}
    theirs, ours = pair(**options)
    for attn, padding in MASKS:
        attn_mask, key_padding_mask = masks(attn, padding, batched)
        same(
            theirs,
            ours,
            inputs(options, batched),
            attn_mask=attn_mask,
            key_padding_mask=key_padding_mask,
            need_weights=need_weights,
            average_attn_weights=average,
        )


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("padded", [True, False])
def test_the_causal_hint(need_weights, padded):
    theirs, ours = pair()
    x = torch.randn(T, B, E, dtype=torch.float64, requires_grad=True)
    causal = torch.ones(T, T, dtype=torch.bool).triu(1)
    padding = torch.zeros(B, T, dtype=torch.bool)
    padding[0, -1] = True
    same(
        theirs,
        ours,
        [x, x, x],
        attn_mask=causal,
        is_causal=True,
        need_weights=need_weights,
        key_padding_mask=padding if padded else None,
    )
    for module in (theirs, ours):
        with pytest.raises((RuntimeError, OptionError), match=r"hint"):
            module(x, x, x, is_causal=True)


def test_a_state_dict_goes_both_ways():
    for options in MODULES:
        theirs, ours = pair(**options)
        assert list(theirs.state_dict()) == list(ours.state_dict())
        theirs.load_state_dict(ours.state_dict())


def test_inside_pytorchs_own_encoder_layer():
    torch.manual_seed(0)
    theirs = nn.TransformerEncoderLayer(E, H, 16, dropout=0.0, batch_first=True).double()
    ours = nn.TransformerEncoderLayer(E, H, 16, dropout=0.0, batch_first=True).double()
    ours.self_attn = MultiheadAttention(E, H, batch_first=True).double()
    ours.load_state_dict(theirs.state_dict())
    x = torch.randn(B, T, E, dtype=torch.float64)
    hidden = torch.tensor([[False, False, True], [False, False, False]])
    for training in (True, False):
        theirs.train(training)
        ours.train(training)
        expected = theirs(x, src_key_padding_mask=hidden)
        found = ours(x, src_key_padding_mask=hidden)
        real = ~hidden
        torch.testing.assert_close(found[real], expected[real], rtol=1e-10, atol=1e-12)


def test_a_row_without_keys_is_zeros_not_nan():
    _, ours = pair()
    x = torch.randn(T, B, E, dtype=torch.float64, requires_grad=True)
    hidden = torch.zeros(T, T, dtype=torch.bool)
    hidden[1] = True
    for need_weights in (True, False):
        output, _ = ours(x, x, x, attn_mask=hidden, need_weights=need_weights)
        torch.testing.assert_close(output[1], ours.out_proj.bias.expand(B, -1))
        (gradient,) = torch.autograd.grad(output.sum(), x)
        assert gradient.isfinite().all()


def test_dropout_of_weights_in_training_alone():
    torch.manual_seed(0)
    ours = MultiheadAttention(E, H, dropout=0.5)
    x = torch.randn(T, B, E)
    _, weights = ours(x, x, x, average_attn_weights=False)
    assert (weights == 0).any()
    ours.eval()
    _, weights = ours(x, x, x, average_attn_weights=False)
    assert (weights > 0).all()


def test_messages():
    _, ours = pair()
    x = torch.randn(T, B, E, dtype=torch.float64)
    with pytest.raises(OptionError, match=r"attn_mask must be Boolean.*pass attn_mask\.bool\(\)"):
        ours(x, x, x, attn_mask=torch.ones(T, T, dtype=torch.int64))
    with pytest.raises(ShapeError, match=r"all \(tokens, batch, width\) or all \(tokens, width\)"):
        ours(x, x[0], x)
