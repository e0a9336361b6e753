"""One-hot vectors: V numbers of which one is 1, kept as the place of that 1.

Taking row i of a matrix W is what multiplying a one-hot vector by W comes to, so the vectors
themselves are never needed: ``one_hot(ids, V) @ W`` equals ``W[ids]`` exactly.
"""

from math import prod
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from regard.errors import OptionError, ShapeError

LIMIT = 2**30


def one_hot(ids: ArrayLike, size: int) -> "OneHot":
    """One-hot vectors of `size` numbers for whole numbers `ids` of any shape, 0 ≤ id < size.

    >>> one_hot([2, 0], 3).dense()
    array([[0., 0., 1.],
           [1., 0., 0.]], dtype=float32)
    """
    return OneHot(ids, size)


class OneHot:
    """An array of shape (*ids.shape, size) with one 1 in each last row, stored as its ids."""

    def __init__(self, ids: ArrayLike, size: int) -> None:
        try:
            given = np.asarray(ids)
        except ValueError:
            raise ShapeError("one_hot takes ids in rows of equal length; these differ") from None
        if size < 0:
            raise OptionError(f"the size of one_hot must be 0 or more; it is {size}")
        if given.size == 0:
            given = given.astype(np.int64)
        if given.dtype.kind not in "iu":
            raise ShapeError(f"one_hot takes whole numbers as ids; it got {given.dtype}")
        if given.size and not (given.min() >= 0 and given.max() < size):
            wrong = given[(given < 0) | (given >= size)].flat[0]
            raise OptionError(
                f"id {wrong} is out of range; one_hot of size {size} takes 0 to size−1"
            )
        self.ids = given
        self.size = size

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the dense array."""
        return (*self.ids.shape, self.size)

    @property
    def nbytes(self) -> int:
        """Bytes in use: the ids."""
        return self.ids.nbytes

    @property
    def dense_nbytes(self) -> int:
        """Bytes that the dense array would use in float32."""
        return prod(self.shape) * 4

    def __matmul__(self, matrix: Any) -> Any:
        """``matrix[ids]``: (size, D) → (*ids.shape, D), for NumPy arrays and PyTorch tensors."""
        if not hasattr(matrix, "shape"):
            matrix = np.asarray(matrix)
        if len(matrix.shape) not in (1, 2) or matrix.shape[0] != self.size:
            raise ShapeError(
                f"one_hot of size {self.size} times a matrix of shape {tuple(matrix.shape)}; "
                f"the matrix must have {self.size} rows"
            )
        return matrix[self.ids]

    def dense(self, dtype: DTypeLike = np.float32, limit: int = LIMIT) -> np.ndarray:
        """The array written out; `OptionError` when it takes more than `limit` bytes."""
        needed = prod(self.shape) * np.dtype(dtype).itemsize
        if needed > limit:
            raise OptionError(
                f"one_hot of shape {self.shape} written out takes {_bytes(needed)}, the limit is "
                f"{_bytes(limit)}; multiply without writing out (one_hot(ids, V) @ W), "
                "or raise limit="
            )
        array = np.zeros(self.shape, dtype)
        np.put_along_axis(array, self.ids[..., None].astype(np.int64), 1, axis=-1)
        return array

    def __repr__(self) -> str:
        return (
            f"OneHot(shape={self.shape}, {_bytes(self.nbytes)}; "
            f"written out {_bytes(self.dense_nbytes)})"
        )


def _bytes(number: int) -> str:
    size = float(number)
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"
