"""One head, from which any rectangle of its weights is computed without the rest of the matrix.

A weight is ``exp(score − log-sum-exp of its row)``. Everything is kept in base 2, since exp2 is the
cheaper function; where scores are dot products, one product (``addmm``) gives the log-weights, and
a maximum is pooled as a logarithm and exponentiated afterwards.

`Head`
    any softmax attention: the scores of a rectangle are the record's.
`DotHead`
    scores that are dot products, with bias, softcap and mask where there are any: fast.
`RowHead`
    normalizers other than softmax: whole rows are computed and cut.

>>> from regard.attention import make_call
>>> x = torch.eye(2)[None, None]
>>> record = AttentionRecord(name="attention", layer=0, call=make_call(x, x, x, score="dot"))
>>> head_of(record, 0).weights(slice(0, 1), slice(0, 2))
tensor([[0.7311, 0.2689]])
"""

from math import e, log2

import torch
from jaxtyping import Float
from torch import Tensor

from regard.attention.bias import RelativeBias
from regard.inspection.atlas.band import Band, band_of
from regard.inspection.atlas.pooling import pool, pool_along
from regard.inspection.record import AttentionRecord

LOG2_E = log2(e)

BLOCK = {"cpu": (256, 1024), "cuda": (2048, 16384)}
"""Rows and columns of scores that are held at a time, by device: on a CPU as its cache holds."""

COMPILED = 2**17
"""Blocks of so many scores are pooled by a compiled kernel; for less it is not worth loading."""

LOWEST = -1e30
"""In place of the maximum of a row without any key: finite, so that −inf − LOWEST is −inf."""


class Head:
    """Head `number` of a record, float32. Rows and columns are slices; rows may have a step."""

    def __init__(self, record: AttentionRecord, number: int):
        self.record, self.number = record, number
        self.queries, self.keys = record.q_tokens, record.k_tokens
        self.device = record.q.device
        self.block = BLOCK.get(self.device.type, BLOCK["cpu"])
        self.shift = _shift(record)
        if self.shift is None:
            self.band, self.rest = Band(), record.mask
        else:
            band, self.rest = band_of(record.mask)
            self.band = band.shifted(self.shift)
        # In base 2; nan where not known yet, −inf where a row may attend nowhere.
        self.lse = torch.full((self.queries,), torch.nan, device=self.device)
        if number in record.known_log_sum_exp:
            self.lse = record.known_log_sum_exp[number].float().to(self.device) * LOG2_E

    def span(self, rows: slice) -> slice:
        """The columns outside of which no row of `rows` may attend."""
        return self.band.span(rows, self.keys)

    def scores(
        self, rows: slice, cols: slice, room: Float[Tensor, " numbers"] | None = None
    ) -> Float[Tensor, "rows cols"]:
        """Scores of a rectangle in base 2, −inf where the query may not attend.

        They may be written into `room`.
        """
        return self.record.scores(self.number, rows, cols).float() * LOG2_E

    def log_weights(self, rows: slice, cols: slice) -> Float[Tensor, "rows cols"]:
        """Base-2 logarithms of a rectangle's weights, −inf where the query may not attend."""
        return self.scores(rows, cols).sub_(self.offsets(rows))

    def weights(self, rows: slice, cols: slice) -> Float[Tensor, "rows cols"]:
        """A rectangle of the weights."""
        return self.log_weights(rows, cols).exp2_()

    def pooled(self, rows: slice, cols: slice, s: int, stat: str) -> Float[Tensor, "high wide"]:
        """A rectangle of the weights pooled s×s."""
        logs = self.log_weights(rows, cols)
        return pool(logs, s, "max").exp2_() if stat == "max" else pool(logs.exp2_(), s, stat)

    def sweep(
        self, rows: slice, s: int
    ) -> tuple[Float[Tensor, "rows wide"], Float[Tensor, "rows wide"]]:
        """Max and sum of each row's every s weights, in one pass that also gives the log-sum-exp.

        Chunks of columns are summed relative to the chunk's own maximum of the row, and brought to
        a common scale at the end.
        """
        most, sums, tops = self._pooled_scores(rows, s)
        self._learn(rows, [top + sums[pixels].sum(0).log2() for pixels, top in tops])
        lse = self.offsets(rows)[:, 0]
        for pixels, top in tops:
            sums[pixels] *= (top - lse).exp2_()
        return most.sub_(lse).exp2_().T, sums.T

    def _pooled_scores(
        self, rows: slice, s: int
    ) -> tuple[Tensor, Tensor, list[tuple[slice, Tensor]]]:
        """The maximum of each row's every s scores, the sum of their powers, both (wide, rows).

        Powers are relative to the row's maximum in the chunk, which comes with the chunk's pixels.
        """
        high, wide = len(range(self.queries)[rows]), -(-self.keys // s)
        most = torch.full((wide, high), -torch.inf, device=self.device)
        sums = torch.zeros(wide, high, device=self.device)
        # One place for the scores of all chunks: fresh memory costs more than the pass over them.
        room = torch.empty(high * self.block[1], device=self.device)
        tops = []
        for cols in self.chunks(rows):
            pixels = slice(cols.start // s, -(-cols.stop // s))
            scores = self.scores(rows, cols, room)
            tops.append((pixels, _pool_scores(scores, s, most[pixels], sums[pixels])))
        return most, sums, tops

    def offsets(self, rows: slice) -> Float[Tensor, "rows one"]:
        """Each row's log-sum-exp in base 2, 0 if it has none: score − offset is the log-weight."""
        if self.lse[rows].isnan().any():
            _, sums, tops = self._pooled_scores(rows, self.block[1])
            self._learn(rows, [top + sums[pixels].sum(0).log2() for pixels, top in tops])
        lse = self.lse[rows]
        return lse.masked_fill(lse == -torch.inf, 0)[:, None]

    def chunks(self, rows: slice) -> list[slice]:
        """The columns of `span(rows)` in slices that start at multiples of the block's columns."""
        span, width = self.span(rows), self.block[1]
        starts = range(span.start // width * width, span.stop, width)
        return [slice(start, min(start + width, self.keys)) for start in starts]

    def learn(self, lse: Float[Tensor, " queries"]) -> None:
        """Take every row's log-sum-exp, in base 2, from a grid made before."""
        self.lse = lse.to(self.device)
        self._tell()

    @property
    def nbytes(self) -> int:
        """Bytes beyond the record's own."""
        return self.lse.nbytes

    def _learn(self, rows: slice, totals: list[Tensor]) -> None:
        """Keep the log-sum-exp of rows, from that of their chunks."""
        totals = [*totals, torch.full_like(self.lse[rows], -torch.inf)]
        if self.record.sinks is not None:
            sink = self.record.sinks[self.number].detach().float() * LOG2_E
            totals.append(sink.expand_as(totals[0]))
        self.lse[rows] = torch.logsumexp(torch.stack(totals) / LOG2_E, 0) * LOG2_E
        self._tell()

    def _tell(self) -> None:
        """Give the record what it would compute itself, once every row is known."""
        if self.number not in self.record.known_log_sum_exp and not self.lse.isnan().any():
            self.record.known_log_sum_exp[self.number] = self.lse / LOG2_E


class DotHead(Head):
    """A head whose scores are dot products: ``query keyᵀ``, (Tq, w) and (Tk, w), scale included."""

    def __init__(self, record: AttentionRecord, number: int, query: Tensor, key: Tensor):
        super().__init__(record, number)
        self.softcap = record.softcap
        self.query = query.float() * (LOG2_E if self.softcap is None else 1.0)
        self.key = key.float()
        self.tables = [b for b in record.biases if isinstance(b, RelativeBias)]
        self.by_table = self.shift is not None and len(self.tables) == len(record.biases)
        self.masked = self.rest is not None or len(self.tables) < len(record.biases)

    @property
    def nbytes(self) -> int:
        """As `Head.nbytes`."""
        return self.lse.nbytes + self.query.nbytes + self.key.nbytes

    def scores(
        self, rows: slice, cols: slice, room: Float[Tensor, " numbers"] | None = None
    ) -> Float[Tensor, "rows cols"]:
        """As `Head.scores`, by one product."""
        key, query = self.key[cols], self.query[rows]
        shape = len(key), len(query)
        out = None if room is None else room[: shape[0] * shape[1]].view(shape)
        # Each key's queries lie side by side, as the pass over them wants it.
        return self._finish(torch.mm(key, query.T, out=out).T, rows, cols)

    def log_weights(self, rows: slice, cols: slice) -> Float[Tensor, "rows cols"]:
        """As `Head.log_weights`, by one product where scores are not capped."""
        if self.softcap is not None:
            return super().log_weights(rows, cols)
        product = torch.addmm(-self.offsets(rows), self.query[rows], self.key[cols].T)
        return self._finish(product, rows, cols)

    def _finish(self, scores: Tensor, rows: slice, cols: slice) -> Tensor:
        for bias in self._biases(rows, cols):
            scores.add_(bias, alpha=LOG2_E if self.softcap is None else 1.0)
        if self.softcap is not None:
            scores.div_(self.softcap).tanh_().mul_(self.softcap * LOG2_E)
        if not self.band.holds(rows, cols):
            scores.masked_fill_(self.band.outside(rows, cols, self.device), -torch.inf)
        if self.masked:
            allowed = self.record.allowed(rows, cols, self.number)
            if allowed is not None:
                scores.masked_fill_(~allowed, -torch.inf)
        return scores

    def _biases(self, rows: slice, cols: slice) -> list[Tensor]:
        if self.by_table:
            return [self._from_table(table, rows, cols) for table in self.tables]
        bias = self.record.bias(self.number, rows, cols)
        return [] if bias is None else [bias]

    def _from_table(self, bias: RelativeBias, rows: slice, cols: slice) -> Tensor:
        """The table's values at the rectangle's offsets: row i is a window of the table."""
        assert self.shift is not None
        table = bias.table[self.number].detach().float()
        windows = table.unfold(0, cols.stop - cols.start, 1)
        i = torch.arange(self.queries, device=self.device)[rows]
        return windows[cols.start - self.shift - bias.lowest - i]


def _pool_scores(scores: Tensor, s: int, most: Tensor, sums: Tensor) -> Tensor:
    """Fill `most` and `sums`, (wide, rows), as `Head._pooled_scores` says; gives the maxima."""
    if scores.device.type == "cpu" and scores.numel() >= COMPILED:
        from regard.inspection.atlas.sweep import pool_scores

        return pool_scores(scores, s, most, sums)
    most.copy_(pool_along(scores, s, 1, "max").T)
    top = most.amax(0).clamp_(min=LOWEST)
    sums.copy_(pool_along(scores.sub_(top[:, None]).exp2_(), s, 1, "sum").T)
    return top


class RowHead(Head):
    """A head whose weights come of whole rows: entmax, sigmoid and the like, negative ones too."""

    def weights(self, rows: slice, cols: slice) -> Float[Tensor, "rows cols"]:
        """As `Head.weights`; whole rows are normalized first."""
        return self.record.weights(self.number, rows, cols).float()

    def log_weights(self, rows: slice, cols: slice) -> Float[Tensor, "rows cols"]:
        """Logarithms of the weights, nan where one is negative."""
        return self.weights(rows, cols).log2_()

    def pooled(self, rows: slice, cols: slice, s: int, stat: str) -> Float[Tensor, "high wide"]:
        """As `Head.pooled`."""
        return pool(self.weights(rows, cols), s, stat)

    def sweep(
        self, rows: slice, s: int
    ) -> tuple[Float[Tensor, "rows wide"], Float[Tensor, "rows wide"]]:
        """As `Head.sweep`; there is no log-sum-exp."""
        weights = self.weights(rows, slice(0, self.keys))
        return pool_along(weights, s, 1, "max"), pool_along(weights, s, 1, "sum")


def head_of(record: AttentionRecord, number: int) -> Head:
    """The head as fast as its rule allows; `OptionError` if the record has no such head."""
    features = record.features(number)
    if not record.is_softmax:
        return RowHead(record, number)
    return Head(record, number) if features is None else DotHead(record, number, *features)


def _shift(record: AttentionRecord) -> int | None:
    """First query position − first key position where both are runs n, n + 1 …; else None."""
    q, k = record.call.query_positions[0], record.call.key_positions[0]
    if not (len(q) and len(k)) or (q.diff() != 1).any() or (k.diff() != 1).any():
        return None
    return int(q[0] - k[0])
