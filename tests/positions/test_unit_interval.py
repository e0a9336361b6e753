import pytest
import torch

from regard import positions
from regard.errors import ShapeError


def encode(tokens, width=3, batch=1, **arguments):
    return positions.create("unit_interval")(torch.zeros(batch, tokens, width), **arguments)


@pytest.mark.parametrize(
    ("tokens", "values"),
    [
        (6, [0, 0.2, 0.4, 0.6, 0.8, 1]),  # 我喜欢吃洋葱
        (9, [0, 0.125, 0.25, 0.375, 0.5, 0.625, 0.75, 0.875, 1]),  # 我真的不喜欢吃洋葱
        (2, [0, 1]),
        (1, [0]),
    ],
)
def test_equal_steps_from_zero_to_one_in_every_dimension(tokens, values):
    expected = torch.tensor(values, dtype=torch.float32)[:, None].expand(tokens, 3)
    assert torch.equal(encode(tokens)[0], expected)


def test_no_tokens_stay_none():
    assert encode(0).shape == (1, 0, 3)


def test_a_padded_text_is_measured_by_its_own_length():
    padded = encode(9, batch=3, lengths=torch.tensor([6, 9, 1]))
    assert torch.equal(padded[0, :6], encode(6)[0])
    assert torch.equal(padded[1], encode(9)[0])
    assert torch.equal(padded[2, 0], torch.zeros(3))


def test_padding_gets_the_value_of_the_nearer_end():
    right = encode(5, lengths=torch.tensor([3]))
    assert right[0, :, 0].tolist() == [0, 0.5, 1, 1, 1]
    left = encode(5, positions=torch.tensor([[-2, -1, 0, 1, 2]]))
    assert left[0, :, 0].tolist() == [0, 0, 0, 0.5, 1]


def test_packed_texts_have_a_length_for_each_token():
    packed = encode(
        5,
        positions=torch.tensor([[0, 1, 2, 0, 1]]),
        lengths=torch.tensor([[3, 3, 3, 2, 2]]),
    )
    assert packed[0, :, 0].tolist() == [0, 0.5, 1, 0, 1]


def test_a_piece_of_a_text_of_known_length():
    piece = encode(2, positions=torch.tensor([3, 4]), lengths=torch.tensor([6]))
    assert torch.equal(piece, encode(6)[:, 3:5])


@pytest.mark.parametrize(
    ("lengths", "message"),
    [
        (torch.tensor([3, 4, 5]), r"lengths of shape \(3,\) do not fit 2 texts of 5 tokens; give"),
        (torch.tensor([3.0, 4.0]), r"lengths must be integers, got torch.float32; convert with"),
    ],
)
def test_lengths_that_do_not_fit_are_refused(lengths, message):
    with pytest.raises(ShapeError, match=message):
        encode(5, batch=2, lengths=lengths)
