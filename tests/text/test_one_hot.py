import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from regard.errors import OptionError, ShapeError
from regard.text import one_hot

SIZE = 7
ids_of_any_shape = hnp.arrays(
    st.sampled_from([np.int32, np.int64, np.uint8]),
    hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=5),
    elements=st.integers(0, SIZE - 1),
)


@given(ids_of_any_shape)
def test_multiplying_takes_rows_exactly(ids):
    W = np.random.default_rng(0).normal(size=(SIZE, 3)).astype(np.float32)
    sparse = one_hot(ids, SIZE)
    assert np.array_equal(sparse @ W, W[ids.astype(np.int64)])
    # One term of each sum is W itself and the others are zero: no rounding.
    assert np.array_equal(sparse.dense() @ W, sparse @ W)


@given(ids_of_any_shape)
def test_written_out_there_is_one_1_in_each_row(ids):
    dense = one_hot(ids, SIZE).dense()
    assert dense.shape == (*ids.shape, SIZE)
    assert dense.dtype == np.float32
    assert np.array_equal(dense.sum(-1), np.ones(ids.shape))
    assert np.array_equal(dense.argmax(-1), ids)
    assert one_hot(ids, SIZE).dense_nbytes == dense.nbytes


def test_a_torch_matrix_and_its_gradient():
    W = torch.randn(5, 3, requires_grad=True)
    out = one_hot([[4, 0], [4, 1]], 5) @ W
    assert torch.equal(out, W[torch.tensor([[4, 0], [4, 1]])])
    out.sum().backward()
    assert W.grad is not None
    assert W.grad[:, 0].tolist() == [1, 1, 0, 0, 2]


def test_memory_is_reported():
    sparse = one_hot(np.arange(1000, dtype=np.int32), 3_000_000)
    assert sparse.nbytes == 4000
    assert sparse.dense_nbytes == 12_000_000_000
    assert repr(sparse) == "OneHot(shape=(1000, 3000000), 3.9 KiB; written out 11.2 GiB)"


def test_too_large_to_write_out():
    message = (
        r"^one_hot of shape \(1000, 3000000\) written out takes 11.2 GiB, the limit is 1.0 GiB; "
        r"multiply without writing out \(one_hot\(ids, V\) @ W\), or raise limit=$"
    )
    with pytest.raises(OptionError, match=message):
        one_hot(np.arange(1000), 3_000_000).dense()
    with pytest.raises(OptionError, match=r"takes 84 bytes, the limit is 83 bytes"):
        one_hot([1, 2, 3], 7).dense(limit=83)
    assert one_hot([1, 2, 3], 7).dense(limit=84).shape == (3, 7)


@pytest.mark.parametrize(("ids", "wrong"), [([0, 7], 7), ([-1], -1), ([[2], [99]], 99)])
def test_ids_out_of_range(ids, wrong):
    with pytest.raises(OptionError, match=f"^id {wrong} is out of range; one_hot of size 7 takes"):
        one_hot(ids, 7)


@pytest.mark.parametrize("ids", [[0.5], [True], ["a"]])
def test_ids_must_be_whole_numbers(ids):
    with pytest.raises(ShapeError, match=r"^one_hot takes whole numbers as ids; it got"):
        one_hot(ids, 7)


def test_ragged_ids_and_negative_sizes():
    with pytest.raises(ShapeError, match=r"^one_hot takes ids in rows of equal length; these diff"):
        one_hot([[1], [1, 2]], 7)
    with pytest.raises(OptionError, match=r"^the size of one_hot must be 0 or more; it is -1$"):
        one_hot([], -1)


def test_the_matrix_must_have_a_row_for_each_id():
    with pytest.raises(ShapeError, match=r"of size 7 times a matrix of shape \(6, 2\); .* 7 rows"):
        one_hot([1], 7) @ np.zeros((6, 2))
