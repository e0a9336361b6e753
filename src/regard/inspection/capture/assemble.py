"""Records of what was captured: one text of the batch, steps joined, padding trimmed."""

from itertools import groupby

import torch
from torch import Tensor

from regard.attention import make_call
from regard.attention.bias import Bias
from regard.attention.masks import Causal, Mask
from regard.attention.normalizers import Normalizer
from regard.attention.normalizers.softmax import Softmax
from regard.errors import OptionError
from regard.inspection.capture import recover
from regard.inspection.capture._captured import Captured
from regard.inspection.capture.recover import Piece
from regard.inspection.record import AttentionRecord, ScaledBy


def records(
    calls: list[Captured], item: int, rows: Tensor | None = None, cols: Tensor | None = None
) -> list[AttentionRecord]:
    """One record a layer, of calls of one kind.

    `item`: which text of the batch. `rows`, `cols`: the tokens that stay, by index; None for all.
    Steps of a generation are joined: row i is the query of token i, in whichever step it ran.
    """
    steps = [list(step) for _, step in groupby(calls, key=lambda call: call.step)]
    if len({len(step) for step in steps}) > 1:
        raise OptionError(
            "the forward passes ran different numbers of attention layers "
            f"({', '.join(str(len(step)) for step in steps)}), so they do not join into one trace"
        )
    known: dict[tuple[int, ...], tuple[Mask | None, list[Bias]]] = {}
    layers = zip(*steps, strict=True)
    return [_record(i, list(layer), item, rows, cols, known) for i, layer in enumerate(layers)]


def _record(
    layer: int,
    steps: list[Captured],
    item: int,
    rows: Tensor | None,
    cols: Tensor | None,
    known: dict[tuple[int, ...], tuple[Mask | None, list[Bias]]],
) -> AttentionRecord:
    first = steps[0]
    spans = _spans(steps)
    q_tokens, k_tokens = spans[-1][0].stop, max(cols.stop for _, cols in spans)
    key = (*(id(x) for step in steps for x in (step.mask, step.bias)), int(first.causal))
    row_index = torch.arange(q_tokens, device=first.q.device) if rows is None else rows
    col_index = torch.arange(k_tokens, device=first.q.device) if cols is None else cols
    if key not in known:
        mask, biases = _rules(steps, spans, item, q_tokens, k_tokens)
        biases = [recover.trim_bias(bias, row_index, col_index) for bias in biases]
        known[key] = recover.trim(mask, row_index, col_index), biases
    mask, biases = known[key]

    def join(parts: list[Tensor], keep: Tensor | None) -> Tensor:
        """One text's part of each step, along its tokens, (…, tokens, width)."""
        whole = [part[min(item, part.shape[0] - 1)] for part in parts]
        joined = whole[0] if len(whole) == 1 else torch.cat(whole, -2)
        if keep is not None:
            return joined[..., keep, :]
        return joined.clone() if parts[0].shape[0] > 1 else joined

    def new_keys(part: str) -> list[Tensor]:
        if first.kind == "cross":
            return [getattr(first, part)]
        return [getattr(step, part)[:, :, -step.q.shape[2] :] for step in steps]

    q = join([step.q for step in steps], rows)
    k, v = join(new_keys("k"), cols), join(new_keys("v"), cols)
    turned = all(step.q_unrotated is not None for step in steps)
    sums = [step.log_sum_exp for step in steps]
    lse: dict[int, Tensor] = {}
    if all(part is not None for part in sums):
        joined = join([part[..., None] for part in sums if part is not None], rows)[..., 0].float()
        lse = dict(enumerate(torch.where(joined.isfinite(), joined, -torch.inf)))
    stream = [step.residual for step in steps if step.residual is not None]
    return AttentionRecord(
        name=first.name,
        layer=layer,
        call=make_call(
            q[None],
            k[None],
            v[None],
            score=ScaledBy(first.scale),
            normalizer=_normalizer(first),
            mask=mask,
            bias=biases or None,
            query_positions=row_index,
            key_positions=col_index,
            training=False,
        ),
        mixed=join([step.own for step in steps], rows),
        residual=join(stream, rows) if len(stream) == len(steps) else None,
        q_unrotated=join(_unrotated(steps, "q_unrotated"), rows) if turned else None,
        k_unrotated=join(_unrotated(steps, "k_unrotated"), cols) if turned else None,
        known_log_sum_exp=lse,
    )


def _unrotated(steps: list[Captured], part: str) -> list[Tensor]:
    return [getattr(step, part) for step in steps]


def _spans(steps: list[Captured]) -> list[tuple[range, range]]:
    """Which rows and columns of the joined matrix each step has."""
    spans: list[tuple[range, range]] = []
    start = 0
    for step in steps:
        q_tokens, k_tokens = step.q.shape[2], step.k.shape[2]
        end = start + q_tokens
        # With a cache, the keys of a step are the last ones up to its own.
        cols = range(k_tokens) if step.kind == "cross" else range(end - k_tokens, end)
        if cols.start < 0:
            raise OptionError(
                f"{step.name} saw {k_tokens} keys when there were {end} tokens; a cache of fixed "
                "size or one filled before the trace cannot be joined: run without past_key_values"
            )
        spans.append((range(start, end), cols))
        start = end
    return spans


def _rules(
    steps: list[Captured],
    spans: list[tuple[range, range]],
    item: int,
    q_tokens: int,
    k_tokens: int,
) -> tuple[Mask | None, list[Bias]]:
    """The mask and biases of one text over all steps."""

    def pieces(part: str) -> list[Piece]:
        values = [getattr(step, part) for step in steps]
        return [
            Piece(x[min(item, x.shape[0] - 1)], rows, cols)
            for x, (rows, cols) in zip(values, spans, strict=True)
        ]

    mask: Mask | None = None
    biases: list[Bias] = []
    if all(step.mask is not None for step in steps):
        mask, added = recover.mask(pieces("mask"), q_tokens, k_tokens)
        biases += [added] if added is not None else []
    elif any(step.mask is not None for step in steps) or any(cols.start for _, cols in spans):
        made = [_dense(step, item, *span) for step, span in zip(steps, spans, strict=True)]
        mask, added = recover.mask(made, q_tokens, k_tokens)
        biases += [added] if added is not None else []
    elif steps[0].causal or (len(steps) > 1 and steps[0].kind != "cross"):
        mask = Causal()
    if all(step.bias is not None for step in steps):
        found = recover.bias(pieces("bias"), q_tokens, k_tokens)
        biases += [found] if found is not None else []
    return mask, biases


def _dense(step: Captured, item: int, rows: range, cols: range) -> Piece:
    """A step's mask, made where it went without one."""
    if step.mask is not None:
        return Piece(step.mask[min(item, step.mask.shape[0] - 1)], rows, cols)
    may = torch.ones(1, len(rows), len(cols), dtype=torch.bool, device=step.q.device)
    return Piece(may.tril() if step.causal else may, rows, cols)


def _normalizer(call: Captured) -> Normalizer:
    if call.softcap is None and call.sinks is None:
        return Softmax()
    if call.sinks is None:
        return Softmax(call.softcap)
    normalizer = Softmax(call.softcap, sinks=True, heads=call.q.shape[1])
    assert normalizer.sinks is not None
    normalizer.sinks.data = call.sinks.detach().float().to(call.q.device)
    normalizer.sinks.requires_grad_(False)
    return normalizer
