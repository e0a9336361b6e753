"""THE definition of attention: some query rows against all keys.

    scores → + bias → mask → normalizer → weights → dropout → output

Every path computes this; the readable reference is all rows at once, blockwise is a loop over row
blocks, a tile of a trace is a rectangle. Positions are explicit and never inferred from lengths.

>>> import torch
>>> from regard.attention.call import make_call
>>> x = torch.eye(2)[None, None]
>>> weights(make_call(x, x, x, score="dot"))
tensor([[[[0.7311, 0.2689],
          [0.2689, 0.7311]]]])
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from regard.attention.call import Call
from regard.attention.dropout import keep
from regard.attention.masks import Rectangle
from regard.errors import OptionError


class Tensors(NamedTuple):
    """The differentiable tensors of a call, with the per-token part of the score done.

    `query` and `key` are also here as they came, for biases that read them.
    """

    query: Float[Tensor, "batch heads q_tokens head_width"]
    key: Float[Tensor, "batch kv_heads k_tokens head_width"]
    value: Float[Tensor, "batch kv_heads k_tokens value_width"]
    query_features: Float[Tensor, "batch heads q_tokens width"]
    key_features: Float[Tensor, "batch heads_or_kv_heads k_tokens width"]
    score_parameters: tuple[Tensor, ...]
    normalizer_parameters: tuple[Tensor, ...]

    def cut(self, rectangle: Rectangle) -> "Tensors":
        """The rectangle's rows of the query side, columns of the key side."""
        batch, rows, cols = rectangle.batch, rectangle.rows, rectangle.cols
        return self._replace(
            query=self.query[batch, :, rows],
            key=self.key[batch, :, cols],
            value=self.value[batch, :, cols],
            query_features=self.query_features[batch, :, rows],
            key_features=self.key_features[batch, :, cols],
        )


def tensors_of(call: Call) -> Tensors:
    """The call's tensors; a score with parameters of its own a head sees keys of every head."""
    key = repeat_heads(call.key, call.group) if call.score.learned else call.key
    query_features, key_features = call.score.project(call.query, key)
    return Tensors(
        call.query,
        call.key,
        call.value,
        query_features,
        key_features,
        call.score.rule_parameters(),
        call.normalizer.rule_parameters(),
    )


def repeat_heads(
    x: Float[Tensor, "batch kv_heads tokens width"], group: int
) -> Float[Tensor, "batch heads tokens width"]:
    """Each key/value head `group` times in a row: query head h reads head h // group."""
    return x if group == 1 else x.repeat_interleave(group, dim=1)


def biased_scores(
    call: Call, tensors: Tensors, rectangle: Rectangle
) -> Float[Tensor, "batch heads q_rows k_cols"]:
    """Scores plus biases; `tensors` are cut to the rectangle."""
    key_features = repeat_heads(
        tensors.key_features, tensors.query.shape[1] // tensors.key_features.shape[1]
    )
    scores = call.score.rule(tensors.query_features, key_features, *tensors.score_parameters)
    for bias in call.biases:
        may = None
        if bias.whole_rows:
            if rectangle.cols != slice(0, call.sizes[3]):
                raise OptionError(
                    f"{bias!r} counts keys, so it needs whole rows: all {call.sizes[3]} columns"
                )
            may = allowed(call, rectangle)
        key = repeat_heads(tensors.key, call.group)
        scores = scores + bias.values(rectangle, tensors.query, key, may)
    return scores


def allowed(call: Call, rectangle: Rectangle) -> Bool[Tensor, "_ _ _ _"] | None:
    """True where a query may attend, broadcastable to (B, H, tq, tk); None if all may."""
    parts = [] if call.mask is None else [call.mask.allows(rectangle)]
    parts += [a for b in call.biases if (a := b.allows(rectangle)) is not None]
    if not parts:
        return None
    for part in parts[1:]:
        parts[0] = parts[0] & part
    return parts[0]


def row_weights(
    call: Call, tensors: Tensors, rectangle: Rectangle
) -> Float[Tensor, "batch heads q_rows k_cols"]:
    """Weights before dropout; the columns must hold every key that the rows may attend to."""
    scores = biased_scores(call, tensors, rectangle)
    if scores.shape[-1] == 0:
        return scores
    if call.observe_scores is not None:
        scores = call.observe_scores(scores)
    weights = call.normalizer.rule(scores, allowed(call, rectangle), *tensors.normalizer_parameters)
    if call.observe_weights is not None:
        weights = call.observe_weights(weights)
    return weights


def drop(
    call: Call, weights: Float[Tensor, "batch heads q_rows k_cols"], rectangle: Rectangle
) -> Float[Tensor, "batch heads q_rows k_cols"]:
    """The weights after dropout: some 0, the others larger by 1 / (1 − p)."""
    if call.seed is None:
        return weights
    return weights * keep(call.seed, call.dropout, rectangle, weights.shape[1]) / (1 - call.dropout)


def row_output(
    call: Call, tensors: Tensors, rectangle: Rectangle
) -> Float[Tensor, "batch heads q_rows value_width"]:
    """The mixed values of the rectangle's rows; `tensors` are cut to the rectangle."""
    weights = drop(call, row_weights(call, tensors, rectangle), rectangle)
    value = repeat_heads(tensors.value, call.group)
    return weights.to(value.dtype) @ value


def scores(
    call: Call, rows: slice | None = None, cols: slice | None = None
) -> Float[Tensor, "batch heads q_rows k_cols"]:
    """Scores with biases, −inf where the mask forbids, of any rectangle."""
    whole = cols is None or any(b.whole_rows for b in call.biases)
    rectangle = call.rectangle(rows, None if whole else cols)
    values = biased_scores(call, tensors_of(call).cut(rectangle), rectangle)
    may = allowed(call, rectangle)
    values = values if may is None else values.masked_fill(~may, -torch.inf)
    return values[..., cols] if whole and cols is not None else values


def weights(
    call: Call, rows: slice | None = None, cols: slice | None = None
) -> Float[Tensor, "batch heads q_rows k_cols"]:
    """Weights before dropout of any rectangle: its rows are normalized over all keys, then cut."""
    rectangle = call.rectangle(rows)
    values = row_weights(call, tensors_of(call).cut(rectangle), rectangle)
    return values if cols is None else values[..., cols]
