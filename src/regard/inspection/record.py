"""One attention layer as a model ran it: q, k, v, and the rule that turns them into weights.

A record holds O(T·d) numbers. Scores and weights of any rectangle are computed on demand through
the one definition in `regard.attention.rows`; with the log-sum-exp of a row known, a weight is
``exp(score − log_sum_exp)`` and costs no other key.

>>> import torch
>>> from regard.attention import make_call
>>> x = torch.eye(2)[None, None]
>>> record = AttentionRecord(name="attention", layer=0, call=make_call(x, x, x, score="dot"))
>>> record.weights(0)
tensor([[0.7311, 0.2689],
        [0.2689, 0.7311]])
"""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from itertools import pairwise

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from regard.attention import rows as definition
from regard.attention.bias import Bias, DenseBias, RelativeBias
from regard.attention.call import Call
from regard.attention.masks import Arbitrary, Causal, Mask, Rectangle, Window
from regard.attention.masks._mask import _Both
from regard.attention.normalizers.softmax import Softmax
from regard.attention.scores import Score
from regard.errors import OptionError

Span = slice | Sequence[int] | Tensor | int | None
"""Some rows or columns: a slice, whole numbers, one whole number, or None for all."""

BLOCK = 2**22
"""How many scores are held at a time while whole rows are gone through: 16 MB in float32."""


class ScaledBy(Score):
    """``scale · q · k``: the score of models that say their scale.

    >>> ScaledBy(0.5)(torch.ones(1, 1, 1, 4), torch.ones(1, 1, 1, 4))
    tensor([[[[2.]]]])
    """

    learned = False

    def __init__(self, scale: float):
        super().__init__()
        self.scale = float(scale)

    def rule(self, query_rows: Tensor, key_rows: Tensor, *parameters: Tensor) -> Tensor:
        """``query_rows key_rowsᵀ · scale``."""
        return query_rows @ key_rows.transpose(-1, -2) * self.scale

    def extra_repr(self) -> str:
        """The scale."""
        return f"{self.scale:g}"


class Projected(Score):
    """A score whose part a token is done already: the rule over features that are given."""

    def __init__(self, score: Score, tensors: definition.Tensors):
        super().__init__()
        self.score = score
        self.given = tensors.query_features, tensors.key_features
        self.parameters_of_rule = tensors.score_parameters

    def project(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
        """The features that were given, whatever comes."""
        return self.given

    def rule(self, query_rows: Tensor, key_rows: Tensor, *parameters: Tensor) -> Tensor:
        """The rule of the score itself."""
        return self.score.rule(query_rows, key_rows, *parameters)

    def rule_parameters(self) -> tuple[Tensor, ...]:
        """Those of the score itself."""
        return self.parameters_of_rule


@dataclass(frozen=True, eq=False, kw_only=True)
class AttentionRecord:
    """What one layer's attention was given, for one text, and what it gave.

    `name`: the module's path in its model. `layer`: counted from 0 in the order of the run.
    `call`: a batch of one; its tensors are in the model's dtype. `mixed`: (H, Tq, dv), the model's
    own weighted sums of v. `residual`: (Tq, D), the hidden states that entered the layer.
    `q_unrotated`, `k_unrotated`: q and k before their rotation by position, where there is one.
    """

    name: str
    layer: int
    call: Call
    mixed: Float[Tensor, "heads q_tokens value_width"] | None = None
    residual: Float[Tensor, "q_tokens width"] | None = None
    q_unrotated: Float[Tensor, "heads q_tokens head_width"] | None = None
    k_unrotated: Float[Tensor, "kv_heads k_tokens head_width"] | None = None
    known_log_sum_exp: dict[int, Tensor] = field(default_factory=dict, repr=False)

    @property
    def q(self) -> Float[Tensor, "heads q_tokens head_width"]:
        """Queries as the score sees them: after rotation."""
        return self.call.query[0]

    @property
    def k(self) -> Float[Tensor, "kv_heads k_tokens head_width"]:
        """Keys as the score sees them; head h reads kv head h // (H / Hkv)."""
        return self.call.key[0]

    @property
    def v(self) -> Float[Tensor, "kv_heads k_tokens value_width"]:
        """Values."""
        return self.call.value[0]

    @property
    def heads(self) -> int:
        """H."""
        return self.call.query.shape[1]

    @property
    def kv_heads(self) -> int:
        """Hkv."""
        return self.call.key.shape[1]

    @property
    def q_tokens(self) -> int:
        """Tq."""
        return self.call.query.shape[2]

    @property
    def k_tokens(self) -> int:
        """Tk."""
        return self.call.key.shape[2]

    @property
    @torch.no_grad()
    def scale(self) -> float | None:
        """What q · k is multiplied with; None where the score is no dot product."""
        dot = self.call.score.as_dot(self.call.query[..., :1, :], self.call.key[..., :1, :])
        if isinstance(self.call.score, ScaledBy):
            return self.call.score.scale
        return None if dot is None else dot.scale

    @property
    def mask(self) -> Mask | None:
        """Which keys a query may attend to; None if all."""
        return self.call.mask

    @property
    def biases(self) -> tuple[Bias, ...]:
        """What is added to the scaled scores."""
        return self.call.biases

    @property
    def softcap(self) -> float | None:
        """The bound c of ``c·tanh(s/c)``, where scores are capped."""
        normalizer = self.call.normalizer
        return normalizer.softcap if isinstance(normalizer, Softmax) else None

    @property
    def sinks(self) -> Float[Tensor, " heads"] | None:
        """The logit a head that joins the denominator, where there is one."""
        normalizer = self.call.normalizer
        return normalizer.sinks if isinstance(normalizer, Softmax) else None

    @property
    def is_softmax(self) -> bool:
        """Whether weights are ``exp(score − log_sum_exp)``."""
        return type(self.call.normalizer) is Softmax

    @property
    def is_causal(self) -> bool:
        """Whether the mask is known to forbid every later key."""
        return _forbids_later(self.call.mask)

    @property
    def log_sum_exp(self) -> Float[Tensor, "heads q_tokens"]:
        """Per row ``log Σ exp(score)`` in float32, the sink included; −inf for a row of nowhere.

        A head's is computed when first needed, in blocks, and kept.
        """
        return torch.stack([self.head_log_sum_exp(head) for head in range(self.heads)])

    def head_log_sum_exp(self, head: int) -> Float[Tensor, " q_tokens"]:
        """`log_sum_exp` of one head."""
        self._require_softmax("log_sum_exp")
        if head not in self.known_log_sum_exp:
            parts = [self.block_log_sum_exp(head, block) for block in self.row_blocks()]
            self.known_log_sum_exp[head] = torch.cat(parts).float()
        return self.known_log_sum_exp[head]

    def block_log_sum_exp(self, head: int, rows: slice) -> Float[Tensor, " q_rows"]:
        """`log_sum_exp` of some rows, computed anew in the record's own precision."""
        self._require_softmax("log_sum_exp")
        scores = self.scores(head, rows)
        if self.sinks is not None:
            sink = self.sinks[head].detach().to(scores.dtype).expand(scores.shape[0], 1)
            scores = torch.cat([scores, sink], 1)
        return scores.logsumexp(1)

    def row_blocks(self, size: int = BLOCK) -> list[slice]:
        """All rows in slices of at most `size` scores each, at least one row."""
        step = max(1, size // max(self.k_tokens, 1))
        edges = [*range(0, self.q_tokens, step), self.q_tokens]
        return [slice(a, b) for a, b in pairwise(edges)]

    def kv_head(self, head: int) -> int:
        """The key/value head that a head reads."""
        return head // self.call.group

    @torch.no_grad()
    def features(
        self, head: int
    ) -> tuple[Float[Tensor, "q_tokens width"], Float[Tensor, "k_tokens width"]] | None:
        """Float tensors (q', k') with q' k'ᵀ the scaled scores, before bias, softcap and mask.

        None where the score is no dot product.
        """
        call = self._call_of(head)
        at = 0 if call is not self.call else head
        if isinstance(call.score, ScaledBy):
            query, key, scale = call.query, call.key, call.score.scale
        else:
            dot = call.score.as_dot(call.query, call.key)
            if dot is None:
                return None
            query, key, scale = dot.query, dot.key, dot.scale
        key = definition.repeat_heads(key, query.shape[1] // key.shape[1])
        return _wide(query[0, at].detach()) * scale, _wide(key[0, at].detach())

    def allowed(
        self, rows: Span = None, cols: Span = None, head: int = 0
    ) -> Bool[Tensor, "q_rows k_cols"] | None:
        """True where a query may attend; None if all may."""
        if self.call.mask is None and all(isinstance(b, RelativeBias) for b in self.call.biases):
            return None
        blocks = self._blocks(rows, cols)
        return _join([[self._allowed(head, r) for r in line] for line in blocks])

    def bias(
        self, head: int, rows: Span = None, cols: Span = None
    ) -> Float[Tensor, "q_rows k_cols"] | None:
        """What is added to the scaled scores; None if nothing."""
        if not self.call.biases:
            return None
        blocks = self._blocks(rows, cols)
        return _join([[self._bias(head, r) for r in line] for line in blocks])

    @torch.no_grad()
    def raw_scores(
        self, head: int, rows: Span = None, cols: Span = None
    ) -> Float[Tensor, "q_rows k_cols"]:
        """Scores alone: scaled, without bias, cap and mask."""
        bare = replace(self, call=replace(self.call, mask=None, biases=()))
        blocks = self._blocks(rows, cols)
        return _join([[bare._uncapped(head, r) for r in line] for line in blocks])

    def scores(
        self, head: int, rows: Span = None, cols: Span = None
    ) -> Float[Tensor, "q_rows k_cols"]:
        """What goes into the normalizer: scaled, biased, capped; −inf where the mask forbids."""
        blocks = self._blocks(rows, cols)
        return _join([[self._scores(head, r) for r in line] for line in blocks])

    def log_weights(
        self, head: int, rows: Span = None, cols: Span = None
    ) -> Float[Tensor, "q_rows k_cols"]:
        """Logarithms of the weights; −inf where a weight is 0."""
        if not self.is_softmax:
            return self.weights(head, rows, cols).log()
        scores = self.scores(head, rows, cols)
        lse = self.head_log_sum_exp(head)[_index(rows, self.q_tokens).to(scores.device)]
        lse = torch.where(lse == -torch.inf, 0.0, lse)
        return scores - lse[:, None]

    def weights(
        self, head: int, rows: Span = None, cols: Span = None
    ) -> Float[Tensor, "q_rows k_cols"]:
        """The weights of a rectangle, in float32 or better; whole rows sum to one (sinks apart)."""
        if self.is_softmax:
            return self.log_weights(head, rows, cols).exp()
        columns = _index(cols, self.k_tokens)
        lines = [self._whole_rows(head, line[0].rows) for line in self._blocks(rows, None)]
        return torch.cat([line[:, columns] for line in lines])

    @torch.no_grad()
    def double(self) -> "AttentionRecord":
        """The record in float64."""
        call = replace(
            self.call,
            query=self.call.query.double(),
            key=self.call.key.double(),
            value=self.call.value.double(),
            score=deepcopy(self.call.score).double(),
            normalizer=deepcopy(self.call.normalizer).double(),
        )
        return replace(self, call=call, known_log_sum_exp={})

    def double_row(self, row: int) -> "AttentionRecord":
        """One row of the record in float64, against all keys, by index row 0."""
        return self.double().row(row)

    @torch.no_grad()
    def row(self, row: int) -> "AttentionRecord":
        """One row of the record, against all keys, by index row 0."""
        call = self.call
        rectangle = call.rectangle(slice(row, row + 1))
        may = definition.allowed(call, rectangle)
        tensors = definition.tensors_of(call).cut(rectangle)
        key = definition.repeat_heads(tensors.key, call.group)
        biases = [bias.values(rectangle, tensors.query, key, may) for bias in call.biases]
        return replace(
            self,
            call=replace(
                call,
                query=tensors.query,
                score=Projected(call.score, tensors) if call.score.learned else call.score,
                mask=None if may is None else Arbitrary(may),
                biases=tuple(DenseBias(values.to(call.query.dtype)) for values in biases),
                query_positions=call.query_positions[:, row : row + 1],
            ),
            known_log_sum_exp={},
        )

    def _require_softmax(self, what: str) -> None:
        if not self.is_softmax:
            raise OptionError(
                f"{what} belongs to softmax, but {self.name} normalizes with "
                f"{type(self.call.normalizer).__name__}; ask for weights"
            )

    def _call_of(self, head: int) -> Call:
        """The call of one head alone, or the whole call where heads cannot be told apart."""
        if not 0 <= head < self.heads:
            raise OptionError(
                f"head {head} is asked for; {self.name} has heads 0 … {self.heads - 1}"
            )
        call = self.call
        cut = [_one_head(bias, head) for bias in call.biases]
        learned = call.score.learned or (call.normalizer.rule_parameters() and not self.is_softmax)
        if learned or any(bias is None for bias in cut):
            return call
        kv = self.kv_head(head)
        return replace(
            call,
            query=call.query[:, head : head + 1],
            key=call.key[:, kv : kv + 1],
            value=call.value[:, kv : kv + 1],
            biases=tuple(bias for bias in cut if bias is not None),
        )

    def _blocks(self, rows: Span, cols: Span) -> list[list[Rectangle]]:
        lines = _runs(rows, self.q_tokens, "row")
        columns = _runs(cols, self.k_tokens, "column")
        return [[self.call.rectangle(r, c) for c in columns] for r in lines]

    @torch.no_grad()
    def _allowed(self, head: int, rectangle: Rectangle) -> Tensor:
        may = definition.allowed(self._call_of(head), rectangle)
        return _pick(may, head, rectangle)

    @torch.no_grad()
    def _bias(self, head: int, rectangle: Rectangle) -> Tensor:
        # Only a bias of whole rows reads the mask; without it, hidden pairs tell theirs too.
        mask = self.call.mask if any(bias.whole_rows for bias in self.call.biases) else None
        biased = replace(self, call=replace(self.call, mask=mask))._uncapped(head, rectangle)
        bare = replace(self, call=replace(self.call, mask=mask, biases=()))
        difference = biased - bare._uncapped(head, rectangle)
        return torch.where(biased.isfinite(), difference, 0.0)

    @torch.no_grad()
    def _scores(self, head: int, rectangle: Rectangle) -> Tensor:
        scores = self._uncapped(head, rectangle)
        if self.softcap is None:
            return scores
        capped = self.softcap * torch.tanh(scores / self.softcap)
        return capped.masked_fill(scores == -torch.inf, -torch.inf)

    def _uncapped(self, head: int, rectangle: Rectangle) -> Tensor:
        """Scaled and biased scores, −inf where the mask forbids."""
        call = self._call_of(head)
        if call is self.call:
            return _wide(definition.scores(call, rectangle.rows, rectangle.cols)[0, head])
        scores = definition.biased_scores(call, self._tensors(call, rectangle), rectangle)
        may = definition.allowed(call, rectangle)
        scores = scores[0, 0]
        return (
            scores if may is None else scores.masked_fill(~_pick(may, head, rectangle), -torch.inf)
        )

    @torch.no_grad()
    def _whole_rows(self, head: int, rows: slice) -> Tensor:
        call = self._call_of(head)
        weights = definition.weights(call, rows)
        return weights[0, head if call is self.call else 0]

    def _tensors(self, call: Call, rectangle: Rectangle) -> definition.Tensors:
        """The rectangle's part of one head, in float32 or better."""
        query, key = call.query[:, :, rectangle.rows], call.key[:, :, rectangle.cols]
        query, key, value = _wide(query), _wide(key), call.value[:, :, rectangle.cols]
        features = call.score.project(query, key)
        return definition.Tensors(query, key, value, *features, (), ())


def _one_head(bias: Bias, head: int) -> Bias | None:
    """A bias of one head, or None where its heads cannot be told apart."""
    if isinstance(bias, RelativeBias):
        return RelativeBias(bias.table[head : head + 1], bias.lowest)
    if isinstance(bias, DenseBias):
        one = bias.tensor if bias.tensor.shape[1] == 1 else bias.tensor[:, head : head + 1]
        return DenseBias(one)
    return None


def _pick(values: Tensor | None, head: int, rectangle: Rectangle) -> Tensor:
    """One head of (1, 1 or H, 1 or tq, 1 or tk), as (tq, tk)."""
    shape = rectangle.query_positions.shape[1], rectangle.key_positions.shape[1]
    if values is None:
        return torch.ones(shape, dtype=torch.bool, device=rectangle.query_positions.device)
    return values[0, head if values.shape[1] > 1 else 0].expand(shape)


def _wide(x: Tensor) -> Tensor:
    """Float32 or better: what a model keeps in 16 bit, fused kernels accumulate in 32."""
    return x.float() if x.dtype in (torch.bfloat16, torch.float16) else x


def _join(blocks: list[list[Tensor]]) -> Tensor:
    lines = [line[0] if len(line) == 1 else torch.cat(line, 1) for line in blocks]
    return lines[0] if len(lines) == 1 else torch.cat(lines)


def _index(span: Span, size: int) -> Tensor:
    """The whole numbers of a span."""
    runs = _runs(span, size, "index")
    return torch.cat([torch.arange(run.start, run.stop) for run in runs])


def _runs(span: Span, size: int, kind: str) -> list[slice]:
    """A span as slices of step 1; `OptionError` outside of 0 … size − 1."""
    if span is None:
        return [slice(0, size)]
    if isinstance(span, slice):
        start, stop, step = span.indices(size)
        if step == 1:
            return [slice(start, max(start, stop))]
        span = range(start, stop, step)
    numbers = [span] if isinstance(span, int) else [int(n) for n in span]
    for number in numbers:
        if not 0 <= number < size:
            raise OptionError(f"{kind} {number} is asked for; there are 0 … {size - 1}")
    runs: list[slice] = []
    for number in numbers:
        if runs and runs[-1].stop == number:
            runs[-1] = slice(runs[-1].start, number + 1)
        else:
            runs.append(slice(number, number + 1))
    return runs or [slice(0, 0)]


def _forbids_later(mask: Mask | None) -> bool:
    if isinstance(mask, _Both):
        return _forbids_later(mask.first) or _forbids_later(mask.second)
    return isinstance(mask, Causal) or (isinstance(mask, Window) and mask.after == 0)
