"""Attention: scores, normalizers, masks, biases, and the paths that compute them.

`rows` is the one definition; `attend` is the function, `MultiHeadAttention` the layer.
"""

from regard.attention import masks, normalizers, paths, rows, scores
from regard.attention.bias import DenseBias, RelativeBias, RowRule
from regard.attention.cache import KeyValueCache
from regard.attention.call import Call, make_call
from regard.attention.functional import attend, explain_path
from regard.attention.multihead import MultiHeadAttention, Tap

__all__ = [
    "Call",
    "DenseBias",
    "KeyValueCache",
    "MultiHeadAttention",
    "RelativeBias",
    "RowRule",
    "Tap",
    "attend",
    "explain_path",
    "make_call",
    "masks",
    "normalizers",
    "paths",
    "rows",
    "scores",
]
