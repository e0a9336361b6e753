"""What every position encoding must hold, whatever it computes."""

import copy
import subprocess
import sys

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard import positions
from regard.attention import KeyValueCache, MultiHeadAttention
from regard.attention.masks import Causal, Documents, Padding
from regard.attention.paths import blockwise
from regard.errors import OptionError, ShapeError
from regard.positions import OffsetTable, RowRule
from regard.positions.cope import Cope
from regard.positions.fire import Fire
from regard.positions.learned import Learned
from regard.positions.rotary import Rotary
from regard.positions.shaw import Shaw

WIDTH, HEADS, HEAD_WIDTH = 7, 3, 6
SETTINGS = {
    "alibi": [{"heads": HEADS}],
    "cope": [{"head_width": HEAD_WIDTH, "max_position": 4}],
    "fire": [{"heads": HEADS, "hidden": 5, "threshold": 4}],
    "index": [{}],
    "kerple": [{"heads": HEADS}, {"heads": HEADS, "variant": "power"}],
    "learned": [{"width": WIDTH, "max_length": 64}],
    "none": [{}],
    "rotary": [
        {"head_width": HEAD_WIDTH},
        {"head_width": HEAD_WIDTH, "layout": "interleaved", "rotated_width": 4},
        {"head_width": HEAD_WIDTH, "scaling": "linear", "factor": 3},
        {"head_width": HEAD_WIDTH, "scaling": "ntk", "factor": 3},
        {"head_width": HEAD_WIDTH, "scaling": "dynamic", "factor": 3, "trained_length": 4},
        {"head_width": HEAD_WIDTH, "scaling": "yarn", "factor": 3, "trained_length": 64},
        {"head_width": HEAD_WIDTH, "scaling": "llama3", "factor": 3, "trained_length": 64},
        {
            "head_width": HEAD_WIDTH,
            "scaling": "longrope",
            "short": [1, 1.5, 2],
            "long": [2, 4, 8],
            "factor": 3,
            "trained_length": 4,
        },
        {"head_width": HEAD_WIDTH, "scaling": "proportional", "share": 0.5},
    ],
    "shaw": [{"head_width": HEAD_WIDTH, "max_distance": 3}],
    "sinusoidal": [{"width": WIDTH}],
    "t5": [
        {"heads": HEADS, "buckets": 8, "max_distance": 16},
        {"heads": HEADS, "buckets": 8, "max_distance": 16, "bidirectional": False},
    ],
    "unit_interval": [{}],
}
MEMBERS = [(name, settings) for name in positions.names() for settings in SETTINGS[name]]


def name_of(member):
    name, settings = member
    words = [str(v) for k, v in settings.items() if k in ("variant", "scaling", "layout")]
    return "-".join([name, *words])


@pytest.fixture(params=MEMBERS, ids=name_of)
def encoding(request):
    name, settings = request.param
    torch.manual_seed(0)
    made = positions.create(name, **settings)
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter)
    return made


def inputs(batch=2, tokens=5, kv_heads=HEADS, dtype=torch.float32, seed=1):
    """Embeddings, queries and keys of sizes that all differ."""
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)

    return (
        draw(batch, tokens, WIDTH),
        draw(batch, HEADS, tokens, HEAD_WIDTH),
        draw(batch, kv_heads, tokens, HEAD_WIDTH),
    )


def bias_matrix(encoding, q, k, query_positions, key_positions, allowed=None):
    """The bias of every pair, (batch or 1, heads, q_tokens, k_tokens), by definition."""
    bias = encoding.bias(query_positions, key_positions)
    if isinstance(bias, OffsetTable):
        offset = key_positions.long()[..., None, :] - query_positions.long()[..., :, None]
        column = (offset if offset.ndim == 3 else offset[None]) - bias.lowest
        assert (column >= 0).all()
        return bias.table[:, column].transpose(0, 1)
    assert isinstance(bias, RowRule)
    return bias(q, k, query_positions, key_positions, allowed)


def everything(encoding, x, q, k, places=None, lengths=None):
    """What the encoding gives in all three places, each with tokens on a known axis."""
    given = torch.arange(x.shape[1]) if places is None else places
    results = [encoding(x, places, lengths), encoding.rotate(q, places, lengths)]
    if "bias" in encoding.places:
        results.append(bias_matrix(encoding, q, k, given, given))
    return results


def test_every_member_is_tested():
    assert sorted(SETTINGS) == positions.names()


def test_places_are_among_the_three_and_no_others_act(encoding):
    assert encoding.places <= {"add", "rotate", "bias"}
    x, q, _ = inputs()
    assert torch.equal(encoding(x), x) == ("add" not in encoding.places)
    assert torch.equal(encoding.rotate(q), q) == ("rotate" not in encoding.places)
    places = torch.arange(5)
    assert (encoding.bias(places, places) is None) == ("bias" not in encoding.places)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_shape_and_dtype_are_kept(encoding, dtype):
    x, q, k = inputs(dtype=dtype)
    encoding.to(dtype)
    added, rotated, *bias = everything(encoding, x, q, k)
    assert (added.shape, added.dtype) == (x.shape, dtype)
    assert (rotated.shape, rotated.dtype) == (q.shape, dtype)
    for matrix in bias:
        assert matrix.shape[0] in (1, 2)
        assert matrix.shape[1:] == (HEADS, 5, 5)
        assert torch.isfinite(matrix).all()


def test_no_tokens_are_no_trouble(encoding):
    x, q, k = inputs(tokens=0)
    for result in everything(encoding, x, q, k):
        assert result.numel() == 0


def test_positions_given_are_those_by_default(encoding):
    x, q, k = inputs()
    for places in (torch.arange(5), torch.arange(5)[None], torch.arange(5).expand(2, 5)):
        for a, b in zip(
            everything(encoding, x, q, k), everything(encoding, x, q, k, places), strict=True
        ):
            assert torch.equal(*torch.broadcast_tensors(a, b))


def test_positions_may_be_of_any_integer_type(encoding):
    x, q, k = inputs()
    expected = everything(encoding, x, q, k, torch.arange(5))
    for dtype in (torch.int32, torch.int16, torch.uint8):
        found = everything(encoding, x, q, k, torch.arange(5, dtype=dtype))
        for a, b in zip(found, expected, strict=True):
            assert torch.equal(a, b)


@given(start=st.integers(0, 8), tokens=st.integers(1, 8), batch=st.integers(2, 3))
@pytest.mark.parametrize("member", MEMBERS, ids=name_of)
def test_a_piece_is_a_slice_of_the_whole(member, start, tokens, batch):
    name, settings = member
    encoding = positions.create(name, **settings)
    total = start + tokens
    x, q, k = inputs(batch, total)
    lengths = torch.full((batch,), total)
    piece = slice(start, total)
    whole = everything(encoding, x, q, k)
    part = everything(
        encoding, x[:, piece], q[:, :, piece], k[:, :, piece], torch.arange(start, total), lengths
    )
    torch.testing.assert_close(part[0], whole[0][:, piece])
    torch.testing.assert_close(part[1], whole[1][:, :, piece])
    for part_bias, whole_bias in zip(part[2:], whole[2:], strict=True):
        torch.testing.assert_close(part_bias, whole_bias[:, :, piece, piece])
    if "bias" in encoding.places:
        # new queries against the keys of a cache
        cached = bias_matrix(
            encoding, q[:, :, piece], k, torch.arange(start, total), torch.arange(total)
        )
        torch.testing.assert_close(cached, whole[2][:, :, piece])


def test_texts_of_a_batch_do_not_meet(encoding):
    x, q, k = inputs(batch=3)
    places = torch.tensor([[0, 1, 2, 3, 4], [6, 7, 8, 9, 10], [0, 0, 0, 1, 2]])
    together = everything(encoding, x, q, k, places)
    for row in range(3):
        one = slice(row, row + 1)
        alone = everything(encoding, x[one], q[one], k[one], places[row])
        for all_rows, single in zip(together, alone, strict=True):
            torch.testing.assert_close(all_rows[one], single)


def test_left_padding_changes_nothing(encoding):
    x, q, k = inputs(batch=1, tokens=6)
    text = slice(2, 6)
    padded = everything(encoding, x, q, k, torch.tensor([[0, 0, 0, 1, 2, 3]]))
    plain = everything(encoding, x[:, text], q[:, :, text], k[:, :, text])
    torch.testing.assert_close(padded[0][:, text], plain[0])
    torch.testing.assert_close(padded[1][:, :, text], plain[1])
    if "bias" in encoding.places:
        allowed = torch.tensor([False, False, True, True, True, True])[None, None, None]
        places = torch.tensor([[0, 0, 0, 1, 2, 3]])
        matrix = bias_matrix(encoding, q, k, places, places, allowed)
        torch.testing.assert_close(matrix[:, :, text, text], plain[2])


def test_packed_texts_are_as_separate_ones(encoding):
    x, q, k = inputs(batch=1, tokens=8)
    places = torch.tensor([[0, 1, 2, 3, 4, 0, 1, 2]])
    lengths = torch.tensor([[5] * 5 + [3] * 3])
    texts = (slice(0, 5), slice(5, 8))
    packed = [encoding(x, places, lengths), encoding.rotate(q, places, lengths)]
    allowed = torch.block_diag(torch.ones(5, 5), torch.ones(3, 3)).bool()[None, None]
    for text in texts:
        plain = everything(encoding, x[:, text], q[:, :, text], k[:, :, text])
        torch.testing.assert_close(packed[0][:, text], plain[0])
        torch.testing.assert_close(packed[1][:, :, text], plain[1])
        if "bias" in encoding.places:
            matrix = bias_matrix(encoding, q, k, places, places, allowed)
            torch.testing.assert_close(matrix[:, :, text, text], plain[2])


def test_keys_may_come_in_any_order(encoding):
    if "bias" not in encoding.places:
        return
    _, q, k = inputs()
    order = torch.tensor([3, 0, 4, 2, 1])
    places = torch.arange(5)
    sorted_keys = bias_matrix(encoding, q, k, places, places)
    shuffled = bias_matrix(encoding, q, k[:, :, order], places, places[order])
    torch.testing.assert_close(shuffled, sorted_keys[..., order])


def test_key_heads_may_be_fewer(encoding):
    if "bias" not in encoding.places:
        return
    _, q, _ = inputs()
    _, _, k = inputs(kv_heads=1)
    places = torch.arange(5)
    grouped = bias_matrix(encoding, q, k, places, places)
    repeated = bias_matrix(encoding, q, k.expand(2, HEADS, 5, HEAD_WIDTH), places, places)
    torch.testing.assert_close(grouped, repeated)


def test_nothing_is_remembered_between_calls(encoding):
    short, long = inputs(), inputs(batch=1, tokens=40)
    before = everything(encoding, *short)
    state = copy.deepcopy(encoding.__dict__)
    everything(encoding, *long)
    for first, second in zip(before, everything(encoding, *short), strict=True):
        assert torch.equal(first, second)
    assert encoding.__dict__.keys() == state.keys()
    assert not list(encoding.buffers())


def test_state_dict_and_copies_are_faithful(encoding):
    x, q, k = inputs()
    before = everything(encoding, x, q, k)
    other = copy.deepcopy(encoding)
    for parameter in other.parameters():
        torch.nn.init.zeros_(parameter)
    other.load_state_dict(encoding.state_dict())
    for twin in (other, copy.deepcopy(encoding)):
        for first, second in zip(before, everything(twin, x, q, k), strict=True):
            assert torch.equal(first, second)


def test_gradients_reach_every_parameter_and_the_input(encoding):
    x, q, k = (t.requires_grad_() for t in inputs(dtype=torch.float64))
    encoding.double()
    results = everything(encoding, x, q, k)
    weighted = sum((r * torch.randn_like(r)).sum() for r in results)
    weighted.backward()
    for name, parameter in encoding.named_parameters():
        assert parameter.grad is not None, name
        assert torch.isfinite(parameter.grad).all(), name
        assert parameter.grad.abs().sum() > 0, name
    for tensor in (x, q):
        assert torch.isfinite(tensor.grad).all()
    bias = encoding.bias(torch.arange(5), torch.arange(5))
    if isinstance(bias, RowRule):
        assert {id(p) for p in bias.parameters_used} == {id(p) for p in encoding.parameters()}


def test_gradients_are_those_of_finite_differences(encoding):
    x, q, k = (t.requires_grad_() for t in inputs(tokens=4, dtype=torch.float64))
    encoding.double()
    module = Everything(encoding)
    names = [name for name, _ in module.named_parameters()]

    def run(x, q, k, *parameters):
        state = dict(zip(names, parameters, strict=True))
        results = torch.func.functional_call(module, state, (x, q, k))
        return tuple(r for r in results if r.requires_grad)

    parameters = [p.detach().clone().requires_grad_() for p in encoding.parameters()]
    assert torch.autograd.gradcheck(run, (x, q, k, *parameters))


class Everything(torch.nn.Module):
    """`everything` as a module's forward, so that its parameters can be replaced."""

    def __init__(self, encoding):
        super().__init__()
        self.encoding = encoding

    def forward(self, x, q, k):
        return everything(self.encoding, x, q, k)


def test_phases_survive_bfloat16(encoding):
    if not encoding.places & {"add", "rotate"}:
        return
    start = 50 if "add" in encoding.places else 100_000
    places = torch.arange(start, start + 5)
    x, q, _ = inputs(dtype=torch.bfloat16)
    encoding.bfloat16()
    low = encoding(x, places), encoding.rotate(q, places)
    encoding.double()
    exact = encoding(x.double(), places), encoding.rotate(q.double(), places)
    for a, b, given_in in zip(low, exact, (x, q), strict=True):
        # What is added is rounded to bfloat16 (half a unit, 2^-9, of its size) and so is the sum;
        # a rotation is rounded once at the end. A phase taken in bfloat16 would be off by 2^-9 of
        # 100000 turns.
        size = (b - given_in.double()).abs() + b.abs()
        assert ((a.double() - b).abs() <= size * 2**-8 + 1e-5).all()


@pytest.mark.parametrize(
    ("places", "message"),
    [
        (torch.tensor([0.0, 1, 2, 3, 4]), r"positions must be integers, got torch\.float32; conv"),
        (torch.arange(4), r"positions of shape \(4,\) do not fit 2 texts of 5 tokens; give \(5,\)"),
        (torch.zeros(5, 2, dtype=torch.long), r"positions of shape \(5, 2\) do not fit 2 texts"),
    ],
)
def test_positions_that_do_not_fit_are_refused(encoding, places, message):
    x, q, _ = inputs()
    if "add" in encoding.places:
        with pytest.raises(ShapeError, match=message):
            encoding(x, places)
    if "rotate" in encoding.places:
        with pytest.raises(ShapeError, match=message):
            encoding.rotate(q, places)


def test_float_positions_are_refused_by_biases(encoding):
    if "bias" not in encoding.places:
        return
    _, q, k = inputs()
    with pytest.raises(ShapeError, match=r"positions must be integers, got torch\.float32"):
        bias_matrix(encoding, q, k, torch.arange(5.0), torch.arange(5.0))


def test_everything_happens_on_the_device_of_the_input(encoding):
    # The meta device refuses to meet tensors of another one, and needs no machine that has it.
    x, q, k = (t.to("meta") for t in inputs())
    encoding.to("meta")
    places = torch.arange(5, device="meta")
    results = [encoding(x), encoding.rotate(q), encoding.rotate(q, places)]
    if not isinstance(encoding, Learned):  # looks at the values of positions that are given
        results.append(encoding(x, places))
    if isinstance(encoding, Cope | Fire | Shaw):  # as do tables, made for the offsets that occur
        results.append(encoding.bias(places, places)(q, k, places, places))
    assert all(result.device.type == "meta" for result in results)


COMPILED = """
import torch
from regard import positions

for name, settings in {members}:
    encoding = positions.create(name, **settings)
    x, q = torch.randn(2, 5, {width}), torch.randn(2, 3, 5, {head_width})
    places = torch.arange(3, 8)
    added = torch.compile(encoding, backend="eager")
    rotated = torch.compile(encoding.rotate, backend="eager")
    assert torch.equal(added(x), encoding(x)), name
    assert torch.equal(added(x, places), encoding(x, places)), name
    assert torch.equal(rotated(q, places), encoding.rotate(q, places)), name
"""


@pytest.mark.slow
def test_compiled_encodings_give_the_same():
    # In an interpreter of its own: the type checks of this one cannot be compiled.
    script = COMPILED.format(members=MEMBERS, width=WIDTH, head_width=HEAD_WIDTH)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_an_unknown_name_is_offered_the_nearest():
    with pytest.raises(OptionError, match=r"unknown position encoding 'rotory'; did you mean"):
        positions.create("rotory")


# In attention: what the layer makes of each encoding.


def attention_over(encoding, kv_heads=HEADS, path="reference"):
    """A layer with the encoding in it, and what is added before, as one function."""
    torch.manual_seed(4)
    layer = MultiHeadAttention(
        WIDTH,
        HEADS,
        kv_heads=kv_heads,
        head_width=HEAD_WIDTH,
        position=encoding if encoding.places & {"rotate", "bias"} else None,
        path=path,
    ).double()
    encoding.double()

    def attend(x, places=None, lengths=None, mask=None, cache=None):
        added = encoding(x, places, lengths)
        return layer(added, mask=mask, query_positions=places, cache=cache)

    return attend, [*layer.parameters()]


def text(batch=2, tokens=6):
    return inputs(batch, tokens, dtype=torch.float64)[0]


@pytest.mark.parametrize("kv_heads", [1, HEADS])
@pytest.mark.parametrize("mask", [None, Causal()], ids=["all", "causal"])
def test_every_path_gives_the_same_with_its_gradients(encoding, mask, kv_heads, monkeypatch):
    # one row a block: nothing fits into one
    monkeypatch.setattr(blockwise, "BLOCK_BYTES", 1)
    found = {}
    for path in ("reference", "blockwise", "auto"):
        attend, parameters = attention_over(encoding, kv_heads, path)
        x = text().requires_grad_()
        y = attend(x, torch.arange(2, 8), torch.tensor([8, 8]), mask)
        gradients = torch.autograd.grad((y * y.detach().cos()).sum(), [x, *parameters])
        found[path] = [y, *gradients]
    for path in ("blockwise", "auto"):
        for got, expected in zip(found[path], found["reference"], strict=True):
            torch.testing.assert_close(got, expected)


def test_decoding_with_a_cache_gives_the_full_pass(encoding):
    if depends_on_length(encoding):
        return
    attend, _ = attention_over(encoding)
    x, lengths = text(), torch.tensor([6, 6])
    full = attend(x, torch.arange(6), lengths, Causal())
    cache = KeyValueCache()
    pieces = [
        attend(x[:, piece], torch.arange(6)[piece], lengths, Causal(), cache)
        for piece in (slice(0, 3), slice(3, 4), slice(4, 6))
    ]
    torch.testing.assert_close(torch.cat(pieces, dim=1), full)


def depends_on_length(encoding):
    """Whether longer texts turn at other angles, so that keys of a shorter one are outdated."""
    return isinstance(encoding, Rotary) and encoding.scaling.by_length


@pytest.mark.parametrize("mask", [None, Causal()], ids=["all", "causal"])
def test_padding_on_either_side_changes_no_output(encoding, mask):
    attend, _ = attention_over(encoding)
    x = text(batch=1)
    plain = attend(x[:, 2:5], mask=mask)
    left = Padding(torch.tensor([[False, False, True, True, True]]))
    padded = attend(
        x[:, :5], torch.tensor([[0, 0, 0, 1, 2]]), None, left if mask is None else left & mask
    )
    torch.testing.assert_close(padded[:, 2:], plain)
    right = Padding(torch.tensor([[True, True, True, False]]))
    padded = attend(
        x[:, 2:], torch.tensor([[0, 1, 2, 2]]), None, right if mask is None else right & mask
    )
    torch.testing.assert_close(padded[:, :3], plain)


@pytest.mark.parametrize("mask", [None, Causal()], ids=["all", "causal"])
def test_packed_documents_are_as_separate_ones(encoding, mask):
    if depends_on_length(encoding):
        return
    attend, _ = attention_over(encoding)
    x = text(batch=1)
    same = Documents(torch.tensor([[0, 0, 0, 0, 1, 1]]))
    packed = attend(
        x,
        torch.tensor([[0, 1, 2, 3, 0, 1]]),
        torch.tensor([[4, 4, 4, 4, 2, 2]]),
        same if mask is None else same & mask,
    )
    torch.testing.assert_close(packed[:, :4], attend(x[:, :4], mask=mask))
    torch.testing.assert_close(packed[:, 4:], attend(x[:, 4:], mask=mask))
