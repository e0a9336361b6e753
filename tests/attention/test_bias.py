"""Biases: tables over offsets, dense tensors, row rules, and several at once."""

from dataclasses import dataclass

import pytest
import torch

from regard.attention import DenseBias, RelativeBias, RowRule, attend, masks, rows
from regard.attention.bias import as_biases
from regard.attention.call import make_call
from regard.errors import OptionError, ShapeError

B, H, TQ, TK, D = 2, 3, 5, 7, 4


def qkv():
    torch.manual_seed(0)
    return [torch.randn(B, H, t, D, dtype=torch.float64) for t in (TQ, TK, TK)]


def table(low=-6, high=6):
    generator = torch.Generator().manual_seed(1)
    return torch.randn(H, high - low + 1, generator=generator, dtype=torch.float64)


def test_a_table_is_read_at_key_minus_query():
    q, k, v = qkv()
    values = table()
    at_q, at_k = (
        torch.tensor([4, 0, 1, 6, 3]),
        torch.tensor([[0, 1, 2, 3, 4, 5, 6], [6, 5, 4, 3, 2, 1, 0]]),
    )
    dense = torch.zeros(B, H, TQ, TK, dtype=torch.float64)
    for b, h, i, j in torch.ones_like(dense).nonzero().tolist():
        dense[b, h, i, j] = values[h, at_k[b, j] - at_q[i] + 6]
    options = {"query_positions": at_q, "key_positions": at_k}
    found = attend(q, k, v, bias=RelativeBias(values, -6), **options)
    torch.testing.assert_close(found, attend(q, k, v, bias=dense), rtol=1e-12, atol=1e-12)


def test_several_biases_add():
    q, k, v = qkv()
    options = {"query_positions": torch.arange(TQ), "key_positions": torch.arange(TK)}
    dense = torch.randn(H, TQ, TK, dtype=torch.float64)
    relative = RelativeBias(table(), -6)
    both = make_call(q, k, v, bias=[relative, dense], **options)
    one = make_call(q, k, v, bias=relative, **options)
    torch.testing.assert_close(rows.scores(both), rows.scores(one) + dense)


def test_a_table_used_twice_has_its_gradient_once():
    q, k, v = qkv()
    options = {"query_positions": torch.arange(TQ), "key_positions": torch.arange(TK)}
    values = table().requires_grad_()
    gradients = []
    for path in ("reference", "blockwise"):
        bias = [RelativeBias(values, -6), RelativeBias(values, -6)]
        output = attend(q, k, v, bias=bias, path=path, **options)
        gradients.append(torch.autograd.grad(output.sin().sum(), values)[0])
    torch.testing.assert_close(gradients[1], gradients[0])


def test_a_rule_gets_what_the_score_gets():
    q, k, v = qkv()
    seen = []

    def rule(query_rows, keys, query_positions, key_positions):
        seen.append(
            (query_rows.shape, keys.shape, query_positions.tolist(), key_positions.tolist())
        )
        return torch.zeros(1, H, query_rows.shape[2], keys.shape[2], dtype=torch.float64)

    attend(
        q,
        k[:, :1],
        v[:, :1],
        bias=rule,
        query_positions=torch.arange(2, 2 + TQ),
        key_positions=torch.arange(TK),
        path="reference",
    )
    assert seen == [((B, H, TQ, D), (B, H, TK, D), [[2, 3, 4, 5, 6]], [list(range(TK))])]


def test_a_rule_of_whole_rows_gets_the_mask_and_no_less():
    @dataclass
    class Count:
        whole_rows: bool = True

        def __call__(self, query_rows, keys, query_positions, key_positions, allowed):
            assert keys.shape[2] == TK
            return allowed.sum(-1, keepdim=True).expand(-1, H, TQ, TK).to(keys.dtype)

    q, k, v = qkv()
    real = torch.arange(TK) < torch.tensor([[3], [6]])
    call = make_call(
        q,
        k,
        v,
        bias=Count(),
        mask=masks.Padding(real),
        query_positions=torch.arange(TQ),
        key_positions=torch.arange(TK),
    )
    plain = make_call(q, k, v, mask=masks.Padding(real))
    added = rows.scores(call, cols=slice(0, 3)) - rows.scores(plain, cols=slice(0, 3))
    torch.testing.assert_close(added[:, 0, 0, 0], torch.tensor([3.0, 6.0]).double())
    part = call.rectangle(cols=slice(0, 3))
    with pytest.raises(OptionError, match=r"counts keys, so it needs whole rows: all 7 columns"):
        rows.biased_scores(call, rows.tensors_of(call).cut(part), part)


@pytest.mark.parametrize(
    "shape", [(TQ, TK), (H, TQ, TK), (B, H, TQ, TK), (B, 1, 1, TK), (1, 1, TQ, 1)]
)
def test_a_dense_bias_broadcasts(shape):
    q, k, v = qkv()
    bias = torch.randn(shape, dtype=torch.float64)
    options = {"query_positions": torch.arange(TQ), "key_positions": torch.arange(TK)}
    for path in ("reference", "sdpa", "blockwise"):
        found = attend(q, k, v, bias=bias, path=path, **options)
        weights = (q @ k.mT / 2 + bias).softmax(-1)
        torch.testing.assert_close(found, weights @ v, rtol=1e-10, atol=1e-12)


def test_what_becomes_what():
    @dataclass
    class Table:
        table: torch.Tensor
        lowest: int

    made = as_biases([Table(table(), -6), torch.zeros(2, 2), lambda *a: 0])
    assert [type(b) for b in made] == [RelativeBias, DenseBias, RowRule]
    assert as_biases(None) == ()
    assert repr(made[0]) == "RelativeBias(3 heads, offsets -6 … 6)"


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: as_biases(3), OptionError, r"float tensor.*\.lowest.*not int"),
        (lambda: as_biases(torch.ones(2, 2).bool()), OptionError, r"bool.*mask=, True = may"),
        (lambda: as_biases(torch.ones(2)), ShapeError, r"\(queries, keys\).*got shape \(2,\)"),
        (lambda: RelativeBias(torch.ones(2, 2, 2), 0), ShapeError, r"table \(heads, offsets\)"),
        (lambda: DenseBias(torch.ones(4, 5)).check(B, H, TQ, TK), ShapeError, r"\(1, 1, 4, 5\)"),
    ],
)
def test_messages(make, error, message):
    with pytest.raises(error, match=message):
        make()
