import pytest
import torch

from regard import plots
from regard.errors import ShapeError


def test_each_layer_and_head_has_its_picture_with_the_tokens_at_its_sides(tmp_path):
    tokens = ["我", "真的", "不", "喜欢"]
    weights = torch.rand(2, 3, 4, 4).softmax(-1)
    figure = plots.attention(tokens, weights, title="喜欢")
    pictures = [axes for axes in figure.axes if axes.images]
    assert [axes.get_title() for axes in pictures][:4] == [
        *(f"layer 0, head {head}" for head in range(3)),
        "layer 1, head 0",
    ]
    shown = torch.as_tensor(pictures[4].images[0].get_array().data)
    torch.testing.assert_close(shown.float(), weights[1, 1])
    assert [label.get_text() for label in pictures[0].get_yticklabels()] == tokens
    assert [label.get_text() for label in pictures[0].get_xticklabels()] == tokens
    assert [path.suffix for path in plots.save(figure, tmp_path / "a")] == [".png", ".svg"]


def test_rows_and_columns_may_be_different_texts():
    figure = plots.attention(["a", "b"], torch.rand(1, 1, 2, 3), keys=["x", "y", "z"])
    assert [label.get_text() for label in figure.axes[0].get_xticklabels()] == ["x", "y", "z"]


def test_tokens_that_do_not_fit_are_an_error():
    with pytest.raises(ShapeError, match=r"3 × 3 tokens do not fit weights of 2 × 2"):
        plots.attention(["a", "b", "c"], torch.rand(1, 1, 2, 2))
    with pytest.raises(ShapeError, match=r"65 × 65 tokens are too many .* 64 or fewer"):
        plots.attention(["a"] * 65, torch.rand(1, 1, 65, 65))
