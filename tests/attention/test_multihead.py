"""The layer: widths, heads, caches, taps, state; and its agreement with attend."""

from copy import deepcopy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from regard import positions
from regard.attention import KeyValueCache, MultiHeadAttention, attend, masks, normalizers, scores
from regard.errors import OptionError, ShapeError

B, T, S, D, H = 2, 5, 7, 12, 3
ENCODINGS = {
    "none": {},
    "rotary": {"head_width": 4},
    "alibi": {"heads": H},
    "t5": {"heads": H},
    "kerple": {"heads": H},
    "fire": {"heads": H},
    "shaw": {"head_width": 4},
    "cope": {"head_width": 4},
}


def layer(**options):
    torch.manual_seed(0)
    options = {"width": D, "heads": H} | options
    return MultiHeadAttention(**options).double()


def tokens(count=T, width=D, batch=B, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(batch, count, width, generator=generator, dtype=torch.float64)


def encoding(name):
    torch.manual_seed(3)
    made = positions.create(name, **ENCODINGS[name])
    for parameter in made.parameters():
        nn.init.normal_(parameter, std=0.3)
    return made


def close(a, b):
    torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-11)


@given(
    st.sampled_from([(1, 1), (2, 1), (6, 1), (6, 2), (6, 3), (6, 6)]),
    st.booleans(),
    st.booleans(),
    st.booleans(),
)
@settings(max_examples=15)
def test_the_layer_is_maps_attend_and_a_map(heads, cross, bias, qk_norm):
    heads, kv_heads = heads
    made = layer(
        heads=heads,
        kv_heads=kv_heads,
        head_width=5,
        bias=bias,
        qk_norm=qk_norm,
        key_width=9 if cross else None,
        value_width=8 if cross else None,
    )
    x = tokens()
    given_ = (x, tokens(S, 9), tokens(S, 8, seed=2)) if cross else (x, x, x)
    q, k, v = (m(i) for m, i in zip((made.query, made.key, made.value), given_, strict=True))
    q, k, v = (
        i.view(B, -1, n, 5).transpose(1, 2) for i, n in ((q, heads), (k, kv_heads), (v, kv_heads))
    )
    mixed = attend(made.query_norm(q), made.key_norm(k), v, path="reference")
    expected = made.output(mixed.transpose(1, 2).reshape(B, T, heads * 5))
    close(made(*given_) if cross else made(x), expected)


def test_cross_attention_takes_value_from_key():
    made, x, memory = layer(), tokens(), tokens(S)
    assert torch.equal(made(x, memory), made(x, memory, memory))
    with pytest.raises(OptionError, match=r"value was given without key"):
        made(x, value=memory)


@pytest.mark.parametrize("name", ENCODINGS)
@pytest.mark.parametrize("kv_heads", [1, 3])
def test_cached_decoding_equals_the_full_pass(name, kv_heads):
    made = layer(kv_heads=kv_heads, position=encoding(name)).eval()
    x, mask = tokens(), masks.Causal()
    whole = made(x, mask=mask)
    for sizes in ([1] * T, [3, 2], [T]):
        cache = KeyValueCache()
        parts = [made(part, mask=mask, cache=cache) for part in x.split(sizes, 1)]
        close(torch.cat(parts, 1), whole)
        assert len(cache) == T


def test_cached_decoding_of_left_padded_rows():
    made = layer(position=encoding("rotary"))
    x = tokens()
    start = torch.tensor([0, 2])  # the second row begins with two paddings
    at = (torch.arange(T) - start[:, None]).clamp(min=0)
    real = torch.arange(T) >= start[:, None]
    alone = made(x[1:, 2:], mask=masks.Causal())
    cache, parts = KeyValueCache(), []
    for t in range(T):
        mask = masks.Causal() & masks.Padding(real[:, : t + 1])
        parts.append(
            made(x[:, t : t + 1], mask=mask, query_positions=at[:, t : t + 1], cache=cache)
        )
    close(torch.cat(parts, 1)[1:, 2:], alone)


STRETCHED = {
    "dynamic": {"factor": 2.0},
    "longrope": {"factor": 2.0, "short": [1.0, 1.5], "long": [2.0, 5.0]},
}


@pytest.mark.parametrize("scaling", STRETCHED)
def test_right_padded_texts_past_the_trained_length_are_as_if_alone(scaling):
    # Below, far above and just above the trained length; untold, all turn as the longest does.
    rotary = positions.create(
        "rotary", head_width=4, scaling=scaling, trained_length=3, **STRETCHED[scaling]
    )
    made, x = layer(position=rotary, kv_heads=1), tokens(7, batch=3)
    lengths = torch.tensor([2, 7, 4])
    mask = masks.Causal() & masks.Padding.from_lengths(lengths, 7)
    together = made(x, mask=mask, lengths=lengths)
    for row, length in enumerate(lengths.tolist()):
        alone = made(x[row : row + 1, :length], mask=masks.Causal())
        close(together[row, :length], alone[0])
    assert not torch.allclose(made(x, mask=mask)[0, :2], together[0, :2], rtol=1e-3)


@pytest.mark.parametrize("scaling", STRETCHED)
def test_a_cache_filled_piece_by_piece_knows_the_length_it_is_told(scaling):
    rotary = positions.create(
        "rotary", head_width=4, scaling=scaling, trained_length=3, **STRETCHED[scaling]
    )
    made, x = layer(position=rotary), tokens()
    lengths, cache = torch.full((B,), T), KeyValueCache()
    parts = [made(x_, mask=masks.Causal(), lengths=lengths, cache=cache) for x_ in x.split(2, 1)]
    close(torch.cat(parts, 1), made(x, mask=masks.Causal()))


@pytest.mark.parametrize("name", ENCODINGS)
def test_positions_alone_tell_tokens_apart(name):
    # Shuffle tokens together with their positions: the same outputs, shuffled. Shuffle tokens
    # alone: the same only without an encoding.
    made, x = layer(position=encoding(name)), tokens()
    order = torch.tensor([3, 0, 4, 1, 2])
    expected = made(x)[:, order]
    close(made(x[:, order], query_positions=order), expected)
    alike = torch.allclose(made(x[:, order]), expected, rtol=1e-6)
    assert alike == (name == "none")


@pytest.mark.parametrize("name", ENCODINGS)
@pytest.mark.parametrize("path", ["reference", "blockwise", "auto"])
def test_encodings_on_every_path_give_the_same_gradients(name, path, monkeypatch):
    monkeypatch.setattr("regard.attention.paths.blockwise.BLOCK_BYTES", 2000)
    results = []
    for each in ("reference", path):
        made = layer(position=encoding(name), kv_heads=1, path=each)
        x = tokens().requires_grad_()
        output = made(x, mask=masks.Causal())
        gradients = torch.autograd.grad(output.sin().sum(), [x, *made.parameters()])
        results.append((output, *gradients))
    for expected, found in zip(*results, strict=True):
        close(found, expected)
        assert found.any()


@pytest.mark.parametrize("name", ["shaw", "fire", "cope"])
def test_gradients_reach_parameters_that_are_lent(name, monkeypatch):
    # functional_call puts other tensors in the parameters' places, for the forward pass alone.
    monkeypatch.setattr("regard.attention.paths.blockwise.BLOCK_BYTES", 2000)
    results = []
    for path in ("reference", "blockwise"):
        made = layer(position=encoding(name), path=path)
        lent = {n: (p.detach() + 1).requires_grad_() for n, p in made.named_parameters()}
        output = torch.func.functional_call(made, lent, (tokens(),))
        results.append(torch.autograd.grad(output.sin().sum(), list(lent.values())))
    for expected, found in zip(*results, strict=True):
        close(found, expected)
        assert found.any()


def test_gradients_reach_what_a_parametrization_is_made_of(monkeypatch):
    monkeypatch.setattr("regard.attention.paths.blockwise.BLOCK_BYTES", 2000)
    results = []
    for path in ("reference", "blockwise"):
        made = layer(position=encoding("shaw"), path=path)
        nn.utils.parametrize.register_parametrization(made.position, "vectors", nn.Tanh())
        output = made(tokens())
        results.append(torch.autograd.grad(output.sin().sum(), list(made.parameters())))
    for expected, found in zip(*results, strict=True):
        close(found, expected)
        assert found.any()


def test_no_text_at_all():
    for name in ("alibi", "t5", "fire"):
        made = layer(position=encoding(name))
        nowhere = torch.zeros(0, T, dtype=torch.long)
        assert made(tokens(batch=0), query_positions=nowhere).shape == (0, T, D)


def test_an_encoding_that_is_added_is_refused():
    with pytest.raises(
        OptionError, match=r"Sinusoidal is added to the embedding.*x = position\(x\)"
    ):
        layer(position=positions.create("sinusoidal", width=D))


@pytest.mark.parametrize("tap", ["q", "k", "v", "scores", "weights", "mixed"])
def test_hooks_read_and_edit(tap):
    made, x = layer(), tokens()
    before = made(x)
    seen = []
    handle = getattr(made, tap).register_forward_hook(lambda module, given, out: seen.append(out))
    close(made(x), before)
    shapes = {"scores": (B, H, T, T), "weights": (B, H, T, T)}
    assert seen[0].shape == shapes.get(tap, (B, H, T, D // H))
    handle.remove()
    getattr(made, tap).register_forward_hook(lambda module, given, out: out * 0)
    edited = made(x)
    if tap in ("v", "weights", "mixed"):
        close(edited, made.output.bias.expand_as(edited))
    else:  # all scores 0: the mean of the values
        mean = made.value(x).mean(1, keepdim=True).expand_as(x)
        close(edited, made.output(mean))


def test_the_call_tap_shows_everything():
    made, x = layer(kv_heads=1), tokens()
    calls = []
    made.call.register_forward_hook(lambda module, given, out: calls.append(out))
    made(x, mask=masks.Causal())
    (call,) = calls
    assert call.sizes == (B, H, T, T)
    assert isinstance(call.mask, masks.Causal)
    from regard.attention import rows

    assert rows.weights(call).shape == (B, H, T, T)


def test_an_ablated_head_is_zero_in_the_output_map_alone():
    made, x = layer(), tokens()

    def ablate(module, given, mixed):
        mixed = mixed.clone()
        mixed[:, 1] = 0
        return mixed

    made.mixed.register_forward_hook(ablate)
    without = deepcopy(made)
    without.mixed._forward_hooks.clear()
    with torch.no_grad():
        without.output.weight[:, 4:8] = 0
    close(made(x), without(x))


@pytest.mark.parametrize("score", scores.names())
@pytest.mark.parametrize("normalizer", normalizers.names())
def test_every_score_and_normalizer_by_name(score, normalizer):
    made = layer(score=score, normalizer=normalizer)
    x = tokens().requires_grad_()
    output = made(x)
    assert output.shape == (B, T, D)
    gradients = torch.autograd.grad(output.sum(), [x, *made.score.parameters()])
    assert all(g.isfinite().all() for g in gradients)


def test_state_dict_deepcopy_and_type():
    made = layer(score="additive", position=encoding("t5"), qk_norm=True)
    other = layer(score="additive", position=encoding("t5"), qk_norm=True)
    for parameter in other.parameters():
        nn.init.zeros_(parameter)
    other.load_state_dict(made.state_dict())
    x = tokens()
    assert torch.equal(other(x), made(x))
    assert torch.equal(deepcopy(made)(x), made(x))
    assert made.bfloat16()(x.bfloat16()).dtype == torch.bfloat16


def test_a_deepcopy_after_a_forward_pass():
    made, x = layer(), tokens()
    made(x).sum().backward()
    assert torch.equal(deepcopy(made)(x), made(x))


def test_ten_steps_on_two_paths_stay_together():
    def train(path):
        made = layer(position=encoding("kerple"), path=path)
        optimizer = torch.optim.Adam(made.parameters(), lr=0.01)
        losses = []
        for _ in range(10):
            loss = (made(tokens(), mask=masks.Causal()) - tokens(seed=5)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    reference, blockwise = train("reference"), train("blockwise")
    assert reference[-1] < reference[0]
    assert reference == pytest.approx(blockwise, rel=1e-9)


@pytest.mark.parametrize("score", ["scaled_dot", "additive", "cosine", "location"])
def test_blockwise_backward_keeps_autocast(score):
    results = []
    for path in ("reference", "blockwise"):
        made = layer(score=score, path=path).float()
        x = tokens().float().requires_grad_()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            output = made(x)
        gradients = torch.autograd.grad(output.float().sin().sum(), [x, *made.parameters()])
        results.append((output, *gradients))
    for expected, found in zip(*results, strict=True):
        bound = 4 * T * torch.finfo(torch.bfloat16).eps * expected.abs().max()
        assert (found - expected).abs().max() <= bound


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"heads": 5}, r"width=12 does not divide into heads=5"),
        ({"kv_heads": 2}, r"heads=3 must be a multiple of kv_heads=2"),
        ({"dropout": 1.5}, r"dropout is a probability.*1\.5"),
        ({"path": "fast"}, r"unknown path 'fast'"),
        ({"score": "dott"}, r"did you mean 'dot'"),
        ({"normalizer": "softmin"}, r"unknown normalizer 'softmin'"),
    ],
)
def test_messages(options, message):
    with pytest.raises(OptionError, match=message):
        layer(**options)


def test_messages_of_shapes():
    made = layer()
    with pytest.raises(ShapeError, match=r"query must be \(batch, tokens, 12\); got \(2, 5, 11\)"):
        made(tokens(width=11))
    with pytest.raises(
        ShapeError, match=r"same batch and tokens; got \(2, 5, 12\) and \(2, 7, 12\)"
    ):
        made(tokens(), tokens(), tokens(S))
    turning = layer(position=encoding("rotary"))
    with pytest.raises(ShapeError, match=r"lengths of shape \(3,\) do not fit 2 texts of 5 tokens"):
        turning(tokens(), lengths=torch.tensor([5, 5, 5]))
    cache = KeyValueCache()
    made(tokens(), cache=cache)
    with pytest.raises(ShapeError, match=r"cache holds keys \(2, 3, 5, 4\).*\(1, 3, 5, 4\)"):
        made(tokens(batch=1), cache=cache)
