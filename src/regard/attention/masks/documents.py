"""Documents: packed sequences attend within their own document only.

Krell et al., "Efficient Sequence Packing without Cross-contamination" (2021), section 3.
"""

from jaxtyping import Bool, Int
from torch import Tensor

from regard.attention.masks._mask import Mask, Rectangle
from regard.errors import OptionError, ShapeError


class Documents(Mask):
    """Same document number. `query`: (T,) or (B, T) integers; `key`: the same for keys, if other.

    >>> import torch
    >>> Documents(torch.tensor([0, 0, 1])).dense(torch.arange(3), torch.arange(3)).int()
    tensor([[[[1, 1, 0],
              [1, 1, 0],
              [0, 0, 1]]]], dtype=torch.int32)
    """

    def __init__(
        self,
        query: Int[Tensor, "*batch q_tokens"] | Tensor,
        key: Int[Tensor, "*batch k_tokens"] | Tensor | None = None,
    ):
        self.query = self._numbers(query)
        self.key = self.query if key is None else self._numbers(key)

    @staticmethod
    def _numbers(documents: Tensor) -> Tensor:
        if documents.dtype.is_floating_point:
            raise OptionError(f"document numbers must be integers, but they are {documents.dtype}")
        if documents.ndim not in (1, 2):
            raise ShapeError(
                "Documents takes (tokens,) or (batch, tokens), "
                f"but got shape {tuple(documents.shape)}"
            )
        return documents if documents.ndim == 2 else documents[None]

    def allows(self, rectangle: Rectangle) -> Bool[Tensor, "_ _ _ _"]:
        """Pairs of one document."""
        q_batch = rectangle.batch if self.query.shape[0] > 1 else slice(0, 1)
        k_batch = rectangle.batch if self.key.shape[0] > 1 else slice(0, 1)
        queries = self.query[q_batch, rectangle.rows]
        keys = self.key[k_batch, rectangle.cols]
        return (queries[:, :, None] == keys[:, None, :])[:, None]

    def check(self, batch: int, heads: int, q_tokens: int, k_tokens: int) -> None:
        """One number a token."""
        for name, numbers, tokens in (
            ("queries", self.query, q_tokens),
            ("keys", self.key, k_tokens),
        ):
            if numbers.shape[0] not in (1, batch) or numbers.shape[1] != tokens:
                raise ShapeError(
                    f"Documents was made for (batch, {name}) {tuple(numbers.shape)}, but they are "
                    f"({batch}, {tokens}); if they differ, Documents(query, key)"
                )

    @property
    def batch_size(self) -> int:
        """One row of numbers a sequence."""
        return max(self.query.shape[0], self.key.shape[0])

    def __repr__(self) -> str:
        return f"Documents({self.query.shape[0]}×{self.query.shape[1]})"
