import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.gptj import modeling_gptj
from transformers.models.llama import LlamaConfig, modeling_llama

from regard import positions
from regard.errors import OptionError, ShapeError

HEAD_WIDTH, LENGTH = 16, 64
SCALINGS = {
    "none": ({"rope_type": "default"}, {}),
    "linear": ({"factor": 3.0}, {"factor": 3}),
    "dynamic": ({"factor": 3.0}, {"factor": 3, "trained_length": LENGTH}),
    "yarn": (
        {"factor": 4.0, "original_max_position_embeddings": LENGTH},
        {"factor": 4, "trained_length": LENGTH},
    ),
    "llama3": (
        {
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": LENGTH,
        },
        {"factor": 8, "trained_length": LENGTH},
    ),
    "longrope": (
        {
            "factor": 4.0,
            "short_factor": [1.0 + i / 8 for i in range(8)],
            "long_factor": [2.0 + i for i in range(8)],
            "original_max_position_embeddings": LENGTH,
        },
        {
            "factor": 4,
            "short": [1.0 + i / 8 for i in range(8)],
            "long": [2.0 + i for i in range(8)],
            "trained_length": LENGTH,
        },
    ),
    "proportional": ({"partial_rotary_factor": 0.5}, {"share": 0.5}),
}


def theirs(scaling, **more):
    """Hugging Face's Llama rotary module with a scaling."""
    parameters = {"rope_type": scaling, "rope_theta": 10000.0} | SCALINGS[scaling][0] | more
    config = LlamaConfig(
        hidden_size=3 * HEAD_WIDTH,
        num_attention_heads=3,
        max_position_embeddings=LENGTH,
        rope_parameters=parameters,
    )
    return modeling_llama.LlamaRotaryEmbedding(config)


def rotated_by(module, x, places):
    cos, sin = module(x, places[None])
    return modeling_llama.apply_rotary_pos_emb(x, x, cos, sin)[0]


def phase_bound(x, highest):
    """Theirs takes frequency and phase in float32: each rounds by 2^-24, the phase up to highest.

    The frequency is a power and a quotient, of which float32 keeps all but a few units.
    """
    return 8 * 2**-24 * (highest + 1) * x.abs().max().item()


@pytest.mark.parametrize("scaling", SCALINGS)
@pytest.mark.parametrize("tokens", [5, LENGTH, LENGTH + 1, 3 * LENGTH])
def test_values_of_hugging_face(scaling, tokens):
    x = torch.randn(2, 3, tokens, HEAD_WIDTH)
    places = torch.arange(tokens)
    rotary = positions.create(
        "rotary", head_width=HEAD_WIDTH, scaling=scaling, **SCALINGS[scaling][1]
    )
    expected = rotated_by(theirs(scaling), x, places)
    bound = phase_bound(x, tokens)
    torch.testing.assert_close(rotary.rotate(x, places), expected, rtol=0, atol=bound)


@pytest.mark.parametrize(
    ("name", "in_theirs", "in_ours"),
    [
        ("yarn", {"truncate": False}, {"rounded": False}),
        ("yarn", {"attention_factor": 0.7}, {"attention_factor": 0.7}),
        ("yarn", {"beta_fast": 8.0, "beta_slow": 2.0}, {"fast": 8, "slow": 2}),
        ("yarn", {"rope_theta": 500.0}, {}),
        ("llama3", {"high_freq_factor": 8.0, "low_freq_factor": 2.0}, {"fast": 8, "slow": 2}),
        ("longrope", {"attention_factor": 1.5}, {"attention_factor": 1.5}),
        (
            "proportional",
            {"factor": 2.0, "partial_rotary_factor": 0.25},
            {"factor": 2, "share": 0.25},
        ),
    ],
)
def test_settings_of_hugging_face(name, in_theirs, in_ours):
    x = torch.randn(1, 2, 7, HEAD_WIDTH)
    places = torch.arange(7)
    base = in_theirs.get("rope_theta", 10000.0)
    rotary = positions.create(
        "rotary", head_width=HEAD_WIDTH, base=base, scaling=name, **SCALINGS[name][1] | in_ours
    )
    expected = rotated_by(theirs(name, **in_theirs), x, places)
    torch.testing.assert_close(rotary.rotate(x), expected, rtol=0, atol=phase_bound(x, 7))


def test_every_scaling_of_hugging_face_is_here():
    assert ROPE_INIT_FUNCTIONS.keys() <= SCALINGS.keys()


def test_static_ntk_is_the_dynamic_one_at_one_length():
    # factor · length / trained − (factor − 1) = 5 · 2 − 4 = 6
    dynamic, _ = ROPE_INIT_FUNCTIONS["dynamic"](
        theirs("dynamic", factor=5.0).config, None, seq_len=2 * LENGTH
    )
    x = torch.randn(1, 2, 7, HEAD_WIDTH)
    module = theirs("none")
    module.inv_freq = dynamic
    ntk = positions.create("rotary", head_width=HEAD_WIDTH, scaling="ntk", factor=6)
    expected = rotated_by(module, x, torch.arange(7))
    torch.testing.assert_close(ntk.rotate(x), expected, rtol=0, atol=phase_bound(x, 7))


def test_dynamic_long_then_short_is_as_if_never_long():
    settings = {"head_width": HEAD_WIDTH, "scaling": "dynamic", "factor": 3}
    rotary = positions.create("rotary", trained_length=LENGTH, **settings)
    x = torch.randn(1, 2, 2 * LENGTH, HEAD_WIDTH)
    short = x[:, :, :LENGTH]
    before = rotary.rotate(short)
    rotary.rotate(x)
    assert torch.equal(rotary.rotate(short), before)
    assert torch.equal(before, positions.create("rotary", head_width=HEAD_WIDTH).rotate(short))


def test_dynamic_looks_at_each_text_by_itself():
    rotary = positions.create(
        "rotary", head_width=HEAD_WIDTH, scaling="dynamic", factor=3, trained_length=4
    )
    x = torch.randn(2, 2, 9, HEAD_WIDTH)
    lengths = torch.tensor([9, 5])
    both = rotary.rotate(x, lengths=lengths)
    torch.testing.assert_close(both[:1], rotary.rotate(x[:1]))
    torch.testing.assert_close(both[1:, :, :5], rotary.rotate(x[1:, :, :5]))


def test_interleaved_is_gptj():
    x = torch.randn(2, 7, 3, HEAD_WIDTH)
    sin, cos = modeling_gptj.create_sinusoidal_positions(7, HEAD_WIDTH).chunk(2, dim=-1)
    expected = modeling_gptj.apply_rotary_pos_emb(x, sin[None], cos[None]).transpose(1, 2)
    rotary = positions.create("rotary", head_width=HEAD_WIDTH, layout="interleaved")
    ours = rotary.rotate(x.transpose(1, 2))
    torch.testing.assert_close(ours, expected, rtol=0, atol=phase_bound(x, 7))


def test_layouts_are_one_another_reordered():
    x = torch.randn(1, 2, 5, 6)
    half = positions.create("rotary", head_width=6).rotate(x)
    order = [0, 3, 1, 4, 2, 5]
    interleaved = positions.create("rotary", head_width=6, layout="interleaved").rotate(
        x[..., order]
    )
    torch.testing.assert_close(interleaved, half[..., order])


@given(
    pairs=st.integers(1, 5),
    rest=st.integers(0, 3),
    start=st.integers(0, 200_000),
    base=st.sampled_from([100, 10000.0, 500000.0]),
    layout=st.sampled_from(["half", "interleaved"]),
)
def test_every_number_by_the_formula(pairs, rest, start, base, layout):
    width = 2 * pairs + rest
    x = torch.randn(1, 1, 2, width, dtype=torch.float64)
    rotary = positions.create(
        "rotary", head_width=width, rotated_width=2 * pairs, base=base, layout=layout
    )
    ours = rotary.rotate(x, torch.tensor([start, start + 1]))
    expected = x.clone()
    for token in range(2):
        for pair in range(pairs):
            a, b = (pair, pair + pairs) if layout == "half" else (2 * pair, 2 * pair + 1)
            phase = (start + token) * base ** (-2 * pair / (2 * pairs))
            turned = complex(x[0, 0, token, a], x[0, 0, token, b]) * complex(
                math.cos(phase), math.sin(phase)
            )
            expected[0, 0, token, a], expected[0, 0, token, b] = turned.real, turned.imag
    # The frequency to a few units of 2^-52, the phase that times the position.
    bound = 8 * 2**-52 * (start + 2) * 10
    torch.testing.assert_close(ours, expected, rtol=0, atol=bound)


@given(m=st.integers(0, 50_000), n=st.integers(0, 50_000), shift=st.integers(-1000, 50_000))
def test_scores_depend_on_the_offset_only(m, n, shift):
    rotary = positions.create("rotary", head_width=6)
    q, k = torch.randn(2, 1, 1, 1, 6, dtype=torch.float64)

    def score(at, to):
        return rotary.rotate(q, torch.tensor([at])) @ rotary.rotate(k, torch.tensor([to])).mT

    torch.testing.assert_close(score(m, n), score(m + shift, n + shift), rtol=0, atol=1e-9)


def test_lengths_are_kept():
    x = torch.randn(1, 2, 9, 7)
    rotary = positions.create("rotary", head_width=7, rotated_width=4)
    turned = rotary.rotate(x, torch.arange(1000, 1009))
    assert torch.equal(turned[..., 4:], x[..., 4:])
    torch.testing.assert_close(turned.norm(dim=-1), x.norm(dim=-1))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"head_width": 7},
            r"rotated_width must be even and from 2 to the head's width 7, got 7; "
            r"rotated_width=6 turns as many",
        ),
        ({"head_width": 6, "rotated_width": 8}, r"from 2 to the head's width 6, got 8"),
        ({"head_width": 1}, r"head_width must be 2 or more, got 1"),
        ({"head_width": 6, "base": 1}, r"base must be 2 or more, got 1"),
        (
            {"head_width": 6, "scaling": "llama3", "factor": 2, "trained_length": 8, "fast": 1},
            r"fast must be more turns than slow, got fast=1, slow=1\.0",
        ),
        ({"head_width": 6, "layout": "halves"}, r"unknown rotary layout 'halves'; did you mean"),
        (
            {"head_width": 6, "scaling": "yarm"},
            r"unknown rotary scaling 'yarm'; did you mean 'yarn'",
        ),
        ({"head_width": 6, "scaling": "yarn"}, r"scaling 'yarn' needs: factor, trained_length"),
        (
            {"head_width": 6, "factor": 2},
            r"scaling 'none' takes no setting 'factor'; it takes: none",
        ),
        (
            {"head_width": 6, "scaling": "linear", "factor": 0.5},
            r"factor must be 1 or more, got 0\.5",
        ),
    ],
)
def test_settings_that_do_not_fit_are_refused(settings, message):
    with pytest.raises(OptionError, match=message):
        positions.create("rotary", **settings)


def test_longrope_wants_a_divisor_for_each_pair():
    rotary = positions.create(
        "rotary",
        head_width=6,
        scaling="longrope",
        short=[1, 2],
        long=[1, 2, 3],
        factor=2,
        trained_length=8,
    )
    with pytest.raises(OptionError, match=r"needs short divisors for 3 pairs of dimensions, got 2"):
        rotary.rotate(torch.randn(1, 1, 3, 6))


def test_a_head_of_another_width_is_refused():
    with pytest.raises(ShapeError, match=r"made for width 6, and \(1, 2, 3, 8\) has width 8"):
        positions.create("rotary", head_width=6).rotate(torch.randn(1, 2, 3, 8))
