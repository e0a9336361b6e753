import pytest
import torch

from regard import positions
from regard.errors import OptionError, ShapeError


def test_rows_of_the_table_are_added():
    encode = positions.create("learned", width=5, max_length=7)
    x = torch.randn(2, 3, 5)
    places = torch.tensor([[6, 0, 2], [1, 1, 1]])
    assert torch.equal(encode(x, places), x + encode.table[places])


@pytest.mark.parametrize(
    ("places", "message"),
    [
        (torch.tensor([5, 6, 7]), r"positions from 5 to 7 do not fit the 7 learned ones, 0 to 6; "),
        (torch.tensor([-1, 0, 1]), r"positions from -1 to 1 do not fit .* give padding the posi"),
    ],
)
def test_positions_past_those_learned_are_refused(places, message):
    with pytest.raises(ShapeError, match=message):
        positions.create("learned", width=5, max_length=7)(torch.zeros(1, 3, 5), places)


def test_a_text_longer_than_those_learned_is_refused():
    with pytest.raises(ShapeError, match=r"positions from 0 to 8 do not fit the 7 learned ones"):
        positions.create("learned", width=5, max_length=7)(torch.zeros(1, 9, 5))


def test_a_table_of_nothing_is_refused():
    with pytest.raises(OptionError, match="max_length must be 1 or more, got 0"):
        positions.create("learned", width=5, max_length=0)
    with pytest.raises(OptionError, match="position encoding 'learned' needs: width, max_length"):
        positions.create("learned")
