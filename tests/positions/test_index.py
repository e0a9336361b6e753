import torch

from regard import positions


def test_counts_from_one_in_every_dimension():
    encoded = positions.create("index")(torch.zeros(2, 9, 3))
    assert torch.equal(encoded, torch.arange(1.0, 10.0)[None, :, None].expand(2, 9, 3))


def test_numbers_past_bfloat16_are_rounded_once():
    x = torch.full((1, 1, 2), 0.75, dtype=torch.bfloat16)
    encoded = positions.create("index")(x, torch.tensor([256]))
    # 257.75 lies between the neighbors 256 and 258; 257 alone would have been rounded to 256.
    assert encoded.tolist() == [[[258.0, 258.0]]]
