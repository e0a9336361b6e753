"""A torch embedding layer that starts from word vectors, row by row along a vocabulary."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from regard.errors import OptionError

if TYPE_CHECKING:
    import torch

    from regard.vectors.word_vectors import WordVectors

_CHOICES = ("normal", "zeros", "mean")


def embedding(
    vectors: WordVectors,
    vocabulary: Any | Sequence[str] | None,
    missing: str,
    freeze: bool,
    seed: int,
) -> torch.nn.Embedding:
    """As `WordVectors.to_embedding`."""
    import torch

    if missing not in _CHOICES:
        raise OptionError(f"missing must be one of {', '.join(_CHOICES)}; not {missing!r}")
    if vocabulary is None:
        tokens: Sequence[str] = vectors.tokens
    else:
        tokens = getattr(vocabulary, "tokens", vocabulary)
    padding = getattr(vocabulary, "padding", None)
    weight = np.empty((len(tokens), vectors.size), np.float32)
    absent: list[int] = []
    for row, token in enumerate(tokens):
        vector = vectors.get(token)
        if vector is None:
            absent.append(row)
        else:
            weight[row] = vector
    if absent:
        mean, spread = _moments(vectors)
        if missing == "normal":
            draws = np.random.default_rng(seed).standard_normal((len(absent), vectors.size))
            weight[absent] = mean + spread * draws
        else:
            weight[absent] = mean if missing == "mean" else 0.0
    if padding is not None:
        weight[padding] = 0.0
    return torch.nn.Embedding.from_pretrained(
        torch.from_numpy(weight), freeze=freeze, padding_idx=padding
    )


def _moments(vectors: WordVectors) -> tuple[np.ndarray, np.ndarray]:
    """The mean and standard deviation of each dimension (D,), in one pass over the table."""
    rows = max(len(vectors), 1)
    total = np.zeros(vectors.size)
    squares = np.zeros(vectors.size)
    for _, block in vectors.blocks():
        total += block.sum(0, dtype=np.float64)
        squares += np.einsum("ij,ij->j", block, block, dtype=np.float64)
    mean = total / rows
    return mean, np.sqrt(np.maximum(squares / rows - mean**2, 0))
