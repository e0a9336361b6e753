"""Every mask against its rule, one pair at a time; rectangles, spans and compositions."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.attention import masks
from regard.attention.masks import Rectangle
from regard.errors import OptionError, ShapeError

B, H, TQ, TK = 2, 3, 5, 7
Q_DOCUMENTS = torch.tensor([[0, 0, 1, 1, 2], [0, 1, 1, 1, 1]])
K_DOCUMENTS = torch.tensor([[0, 0, 0, 1, 1, 2, 2], [0, 1, 1, 1, 1, 1, 3]])
REAL = torch.tensor([[1, 1, 1, 1, 0, 0, 0], [0, 0, 1, 1, 1, 1, 1]]).bool()
FREE = torch.rand(B, H, TQ, TK, generator=torch.Generator().manual_seed(0)) < 0.5
LENGTHS = torch.tensor([2, 5])

# Each mask, and its rule on batch b, head h, indices i, j and positions p, q of query and key.
RULES = {
    "causal": (masks.Causal(), lambda b, h, i, j, p, q: q <= p),
    "window": (masks.Window(3), lambda b, h, i, j, p, q: p - 3 < q <= p),
    "window both ways": (masks.Window(2, after=1), lambda b, h, i, j, p, q: p - 2 < q <= p + 1),
    "padding": (masks.Padding(REAL), lambda b, h, i, j, p, q: bool(REAL[b, j])),
    "documents": (
        masks.Documents(Q_DOCUMENTS, K_DOCUMENTS),
        lambda b, h, i, j, p, q: bool(Q_DOCUMENTS[b, i] == K_DOCUMENTS[b, j]),
    ),
    "prefix": (masks.Prefix(4), lambda b, h, i, j, p, q: q < 4),
    "prefixes": (masks.Prefix(LENGTHS), lambda b, h, i, j, p, q: q < int(LENGTHS[b])),
    "arbitrary": (masks.Arbitrary(FREE), lambda b, h, i, j, p, q: bool(FREE[b, h, i, j])),
    "arbitrary for all": (
        masks.Arbitrary(FREE[0, 0]),
        lambda b, h, i, j, p, q: bool(FREE[0, 0, i, j]),
    ),
}
positions_of = {
    "apart": (torch.arange(2, 7)[None], torch.arange(7)[None]),
    "of each sequence": (
        torch.tensor([[0, 3, 1, 2, 9], [5, 5, 5, 0, 2]]),
        torch.tensor([[0, 1, 2, 3, 4, 5, 6], [6, 5, 4, 3, 2, 1, 0]]),
    ),
}


def rectangle(positions, rows=slice(0, TQ), cols=slice(0, TK), batch=slice(0, B)):
    q, k = positions
    return Rectangle(
        batch,
        rows,
        cols,
        q[batch if len(q) > 1 else slice(0, 1), rows],
        k[batch if len(k) > 1 else slice(0, 1), cols],
    )


def whole(mask, positions):
    return mask.allows(rectangle(positions)).expand(B, H, TQ, TK)


def by_rule(rule, positions):
    q, k = (x.expand(B, -1) for x in positions)
    expected = torch.zeros(B, H, TQ, TK, dtype=torch.bool)
    for b, h, i, j in torch.ones_like(expected).nonzero().tolist():
        expected[b, h, i, j] = rule(b, h, i, j, int(q[b, i]), int(k[b, j]))
    return expected


@pytest.mark.parametrize("positions", positions_of.values(), ids=positions_of)
@pytest.mark.parametrize("name", RULES)
def test_the_rule(name, positions):
    mask, rule = RULES[name]
    mask.check(B, H, TQ, TK)
    assert torch.equal(whole(mask, positions), by_rule(rule, positions))


@given(
    st.sampled_from(sorted(RULES)),
    st.sampled_from(sorted(RULES)),
    st.sampled_from(sorted(positions_of)),
)
def test_compositions_are_logic(first, second, positions):
    positions = positions_of[positions]
    (a, rule_a), (b, rule_b) = RULES[first], RULES[second]
    x, y = by_rule(rule_a, positions), by_rule(rule_b, positions)
    assert torch.equal(whole(a & b, positions), x & y)
    assert torch.equal(whole(a | b, positions), x | y)
    assert torch.equal(whole(~a, positions), ~x)
    assert torch.equal(whole(a & ~(b | a), positions), x & ~(x | y))
    assert (a & b).positional == (a.positional or b.positional)
    (~(a & b)).check(B, H, TQ, TK)


@given(
    st.sampled_from(sorted(RULES)),
    st.sampled_from(sorted(positions_of)),
    st.integers(0, TQ),
    st.integers(0, TK),
    st.integers(0, B),
)
def test_any_rectangles_join_to_the_whole(name, positions, row, col, sequence):
    mask, positions = RULES[name][0], positions_of[positions]
    parts = []
    for batch in (slice(0, sequence), slice(sequence, B)):
        lines = []
        for rows in (slice(0, row), slice(row, TQ)):
            cells = [
                mask.allows(rectangle(positions, rows, cols, batch)).expand(
                    batch.stop - batch.start, H, rows.stop - rows.start, cols.stop - cols.start
                )
                for cols in (slice(0, col), slice(col, TK))
            ]
            lines.append(torch.cat(cells, -1))
        parts.append(torch.cat(lines, -2))
    assert torch.equal(torch.cat(parts), whole(mask, positions))


SQUARE = [
    masks.Causal(),
    masks.Window(2),
    masks.Window(3, after=2),
    masks.Prefix(2),
    masks.Causal() | masks.Prefix(3),
    masks.Causal() & masks.Window(2),
    masks.Window(1) | masks.Window(4),
    ~masks.Window(2),
    masks.Window(2) & ~masks.Causal(),
]


@given(st.sampled_from(SQUARE), st.integers(0, 8), st.integers(1, 9), st.integers(0, 100))
def test_nothing_is_allowed_outside_the_span(mask, start, tokens, first):
    at = torch.arange(first, first + tokens)
    if mask.positional and first:
        at = at - first  # a prefix counts from position 0
    rows = slice(min(start, tokens - 1), tokens)
    span = mask.span(rows, tokens)
    assert 0 <= span.start <= span.stop <= tokens
    allowed = mask.dense(at, at)[0, 0, rows]
    assert not allowed[:, : span.start].any()
    assert not allowed[:, span.stop :].any()


def test_dense_shows_every_sequence():
    at = torch.arange(7)
    both = masks.Padding(REAL[:1]) & masks.Padding(REAL) & masks.Causal()
    assert both.batch_size == 2
    assert both.dense(at, at).shape == (2, 1, 7, 7)
    assert masks.Causal().dense(at, at).shape == (1, 1, 7, 7)


def test_documents_of_no_tokens():
    none = torch.zeros(0, dtype=torch.long)
    assert masks.Documents(none).dense(none, none).shape == (1, 1, 0, 0)
    assert masks.Documents(none.expand(2, 0)).dense(none, none).shape == (2, 1, 0, 0)


def test_from_torch_and_from_lengths():
    assert torch.equal(masks.Padding.from_torch(~REAL).real, REAL)
    found = masks.Padding.from_lengths(torch.tensor([4, 0, 7]), 7).real
    assert found.sum(-1).tolist() == [4, 0, 7]
    assert found[0, :4].all()


def test_a_tensor_composes_with_a_mask():
    causal = masks.Causal()
    free = FREE[0, 0, :5, :5]
    at = torch.arange(5)
    for composed in (causal & free, free & causal):
        assert torch.equal(composed.dense(at, at)[0, 0], free & torch.ones(5, 5).tril().bool())


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: masks.Window(0), OptionError, r"width=0.*own position.*at least 1"),
        (lambda: masks.Padding(torch.ones(2, 3)), OptionError, r"Padding must be Boolean.*float32"),
        (lambda: masks.Padding(torch.ones(3).bool()), ShapeError, r"\(batch, keys\).*\(3,\)"),
        (lambda: masks.Padding.from_lengths(torch.ones(2), 3), OptionError, r"lengths must be int"),
        (lambda: masks.Arbitrary(torch.ones(2, 3, 4).bool()), ShapeError, r"\(2, 3, 4\).*Padding"),
        (lambda: masks.Arbitrary(torch.ones(2, 3).int()), OptionError, r"torch.int32.*mask.bool"),
        (lambda: masks.Documents(torch.ones(3)), OptionError, r"numbers must be integers"),
        (lambda: masks.Documents(torch.ones(1, 2, 3).int()), ShapeError, r"\(1, 2, 3\)"),
        (lambda: masks.Prefix(-1), OptionError, r"0 or more, not -1"),
        (lambda: masks.Prefix(torch.ones(2)), OptionError, r"prefix lengths must be integers"),
        (lambda: masks.Prefix(torch.ones(2, 2).int()), ShapeError, r"one number a sequence"),
        (lambda: bool(masks.Causal()), OptionError, r"compose masks with &, \| and ~"),
        (lambda: masks.as_mask("causal"), OptionError, r"not str; see .*Causal, Window"),
        (lambda: masks.Padding(REAL).check(2, 1, 3, 8), ShapeError, r"\(2, 7\).*\(2, 8\).*cache"),
        (lambda: masks.Arbitrary(FREE).check(2, 1, 5, 7), ShapeError, r"\(2, 1, 5, 7\).*or be 1"),
        (
            lambda: masks.Documents(Q_DOCUMENTS).check(2, 1, 5, 6),
            ShapeError,
            r"Documents\(query, key",
        ),
        (lambda: masks.Prefix(LENGTHS).check(3, 1, 1, 1), ShapeError, r"2 lengths.*batch is 3"),
    ],
)
def test_messages(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_masks_print_as_they_are_written():
    assert repr(masks.Causal() & ~masks.Window(3) | masks.Prefix(2)) == (
        "((Causal() & ~Window(3)) | Prefix(2))"
    )
