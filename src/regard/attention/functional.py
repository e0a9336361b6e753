"""`attend`: attention as a function of query, key and value."""

from typing import Any, NamedTuple

from jaxtyping import Float
from torch import Tensor

from regard.attention import paths
from regard.attention.call import make_call
from regard.attention.masks import Mask
from regard.attention.multihead import Tap
from regard.attention.normalizers import Normalizer
from regard.attention.scores import Score


class Taps(NamedTuple):
    """Where the call and the mixed values of every `attend` pass, for forward hooks."""

    call: Tap
    mixed: Tap


taps = Taps(Tap(), Tap())


def attend(
    query: Float[Tensor, "batch heads q_tokens head_width"],
    key: Float[Tensor, "batch kv_heads k_tokens head_width"],
    value: Float[Tensor, "batch kv_heads k_tokens value_width"],
    *,
    score: str | Score = "scaled_dot",
    normalizer: str | Normalizer = "softmax",
    mask: Mask | Tensor | None = None,
    bias: Any = None,
    query_positions: Tensor | None = None,
    key_positions: Tensor | None = None,
    dropout: float | int = 0.0,
    training: bool = True,
    path: str = "auto",
) -> Float[Tensor, "batch heads q_tokens value_width"]:
    """Mix the values of each query's keys, weighted by how well query and key match.

    `query` (B, H, Tq, d), `key` (B, Hkv, Tk, d), `value` (B, Hkv, Tk, dv); H a multiple of Hkv.
    `score`: a score object, or the name of one without parameters (`scores.names()`).
    `normalizer`: an object or a name (`normalizers.names()`).
    `mask`: Boolean, True = may attend: `masks.Causal()` and the others, composed with & | ~, or a
    tensor (Tq, Tk) or (B, H, Tq, Tk). A query that may attend nowhere gives zeros.
    `bias`: added to the scores: a float tensor, a table over offsets, a row rule, or a list.
    `query_positions`, `key_positions`: integers (T,) or (B, T); 0, 1, 2 … when left out, which is
    refused where positions matter and Tq ≠ Tk.
    `dropout`: probability that a weight is dropped, if `training`; the same on every path for the
    same seed (`torch.manual_seed`).
    `path`: ``"auto"``, or one of `paths.names()`; `explain_path` says which one auto takes.

    Errors: `ShapeError`, `OptionError`. Source: Vaswani et al. (2017), section 3.2.

    >>> import torch
    >>> x = torch.eye(2)[None, None]
    >>> attend(x, x, x, score="dot")
    tensor([[[[0.7311, 0.2689],
              [0.2689, 0.7311]]]])
    """
    call = make_call(
        query,
        key,
        value,
        score=score,
        normalizer=normalizer,
        mask=mask,
        bias=bias,
        query_positions=query_positions,
        key_positions=key_positions,
        dropout=dropout,
        training=training,
    )
    return taps.mixed(paths.choose(call, path).run(taps.call(call)))


def explain_path(
    query: Tensor, key: Tensor, value: Tensor, *, path: str = "auto", **settings: Any
) -> paths.Explanation:
    """Which path `attend` takes for the same arguments, and why not the others.

    >>> import torch
    >>> x = torch.randn(1, 2, 3, 4)
    >>> explain_path(x, x, x).path
    'sdpa'
    """
    return paths.explain(make_call(query, key, value, **settings), path)
