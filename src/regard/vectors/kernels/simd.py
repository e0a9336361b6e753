"""Dot products and rank-updates of table rows in vector registers.

A window of word2vec is a small matrix block: some input rows against some output rows. Left to
itself the compiler neither keeps a block of sums in registers nor proves that the rows do not
overlap, so these few loops are written in LLVM's vector form. Each has its meaning beside it in
NumPy, and that version runs when Numba's compiler is disabled.

A *tile* is at most `TILE` output rows. Its scores and steps are kept as ``(contexts, LANES)``,
of which the first `TILE` lanes are used at most.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, no_type_check

import llvmlite.binding as llvm
import numpy as np
from llvmlite import ir
from numba import extending, types
from numba.core import cgutils
from numba.extending import overload

from regard.vectors.kernels.compiled import OPTIONS
from regard.vectors.kernels.state import ALIGNMENT, CLIP, LANES

intrinsic: Any = extending.intrinsic  # the stubs know no call of an intrinsic

_WIDTH = 16 if llvm.get_host_cpu_features().get("avx512f") else 8
TILE = LANES if _WIDTH == 16 else 6  # two contexts' sums of a tile fit into the registers


_float = ir.FloatType()
_int64 = ir.IntType(64)
_int32 = ir.IntType(32)
_vector = ir.VectorType(_float, _WIDTH)


def tile_scores(old, context, contexts, outputs, rows, first, targets, scores):
    """``scores[context + i, j] = old[context + i] · outputs[rows[first + j]]``.

    `contexts` is 1 or 2, `targets` 1 to `TILE`; ``scores`` needs a spare row at its end.
    """
    for i in range(context, context + contexts):
        for j in range(targets):
            scores[i, j] = old[i] @ outputs[rows[first + j]]


def tile_update(old, context, contexts, inputs, places, outputs, rows, first, targets, steps):
    """Both updates of a tile from the values before it, for contexts `context` … + `contexts`.

    ``inputs[places[i]] += Σ_j steps[i, j] · outputs[rows[first + j]]`` and
    ``outputs[rows[first + j]] += Σ_i steps[i, j] · old[i]``; rows of one tile are distinct, places
    may repeat.
    """
    before = outputs[rows[first : first + targets]]
    end = context + contexts
    for i in range(context, end):
        inputs[places[i]] += steps[i, :targets] @ before
    for j in range(targets):
        outputs[rows[first + j]] += steps[context:end, j] @ old[context:end]


def logistic(scores, chances, first, count, signs, rate):
    """Scores become steps, ``t · rate · (1 - p)`` with p = σ(t · score) and t the lane's sign.

    `scores`, `chances` and `signs` are flat; the signs of ``2 · LANES`` lanes hold for
    all that follow. `chances` become p, or 1 where the sign is 0. Scores are clipped to ± `CLIP`.
    Vectors may reach past `count` by less than ``2 · LANES``.
    """
    signs = np.tile(signs, -(-count // len(signs)))[:count]
    x = np.clip(scores[first : first + count] * signs, -CLIP, CLIP)
    e = np.exp(-x)
    chances[first : first + count] = np.where(signs == 0, 1, 1 / (1 + e))
    scores[first : first + count] = rate * signs * e / (1 + e)


def put_sum(into, row, table, places, first, count, scale):
    """``into[row] = scale · Σ table[places[first + i]]`` over `count` places."""
    into[row] = scale * table[places[first : first + count]].sum(axis=0)


def add_row(into, row, table, place, scale):
    """``into[row] += scale · table[place]``."""
    into[row] += scale * table[place]


def row_dot(left, row, right, place):
    """``left[row] · right[place]``."""
    return left[row] @ right[place]


def prefetch(array, place):
    """Ask for a row of a table, or the cache line at a place of a flat array, ahead of its use.

    It comes into the second cache. The first holds few rows and waits for few lines at once: asking
    into it was slower by up to a third.
    """


class _Rows:
    """Addresses of the rows of a table that begins at `data`, `width` floats a row."""

    def __init__(self, builder: Any, data: Any, width: Any):
        self.builder = builder
        self.data = data
        self.width = width

    def row(self, index: Any) -> Any:
        offset = self.builder.mul(index, self.width)
        return self.builder.gep(self.data, [offset], source_etype=_float)


def _table(target: Any, builder: Any, kind: Any, value: Any) -> _Rows:
    """The rows of a C-contiguous two-dimensional float32 array."""
    array = target.make_array(kind)(target, builder, value)
    return _Rows(builder, array.data, builder.extract_value(array.shape, 1))


def _data(target: Any, builder: Any, kind: Any, value: Any) -> Any:
    return target.make_array(kind)(target, builder, value).data


def _index(number: int) -> Any:
    return ir.Constant(_int64, number)


def _integer(builder: Any, data: Any, place: Any) -> Any:
    return builder.load(builder.gep(data, [place], source_etype=_int64), typ=_int64)


def _number(builder: Any, data: Any, place: Any) -> Any:
    return builder.load(builder.gep(data, [place], source_etype=_float), typ=_float)


def _load(builder: Any, row: Any, k: Any) -> Any:
    place = builder.bitcast(builder.gep(row, [k], source_etype=_float), _vector.as_pointer())
    return builder.load(place, align=4)


def _store(builder: Any, value: Any, row: Any, k: Any) -> None:
    place = builder.bitcast(builder.gep(row, [k], source_etype=_float), value.type.as_pointer())
    builder.store(value, place, align=4)


def _multiply_add(builder: Any, a: Any, b: Any, c: Any) -> Any:
    return builder.fadd(builder.fmul(a, b, flags=("fast",)), c, flags=("fast",))


def _zeros(builder: Any, count: int) -> list:
    sums = []
    for _ in range(count):
        sums.append(cgutils.alloca_once(builder, _vector))
        builder.store(ir.Constant(_vector, None), sums[-1])
    return sums


def _splat(builder: Any, number: Any) -> Any:
    undefined = ir.Constant(_vector, ir.Undefined)
    one = builder.insert_element(undefined, number, ir.Constant(_int32, 0))
    lanes = ir.Constant(ir.VectorType(_int32, _WIDTH), [0] * _WIDTH)
    return builder.shuffle_vector(one, undefined, lanes)


def _shuffle(builder: Any, a: Any, b: Any, lanes: list[int]) -> Any:
    kind = ir.VectorType(_int32, len(lanes))
    return builder.shuffle_vector(a, b, ir.Constant(kind, lanes))


@contextmanager
def _vectors_of(builder: Any, rows: _Rows) -> Iterator[Any]:
    with cgutils.for_range_slice(builder, _index(0), rows.width, _index(_WIDTH)) as (k, _):
        yield k


def _sums_of(builder: Any, vectors: list) -> tuple[Any, list[int]]:
    """Add up the lanes of each vector, all at once: two vectors share one at every halving.

    Returns one vector and the lane in which the sum of each input stands.
    """
    group = _WIDTH
    owners = [[(i, 0)] for i in range(len(vectors))]  # of each vector: (input, its first lane)
    while len(vectors) > 1 or group > 1:
        half = group // 2
        low = [start + k for start in range(0, _WIDTH, group) for k in range(half)]
        low += [_WIDTH + k for k in low]
        high = [k + half for k in low]
        summed, owned = [], []
        for i in range(0, len(vectors), 2):
            a, b = vectors[i], vectors[min(i + 1, len(vectors) - 1)]
            parts = _shuffle(builder, a, b, low), _shuffle(builder, a, b, high)
            summed.append(builder.fadd(*parts, flags=("fast",)))
            owned.append([(who, lane // 2) for who, lane in owners[i]])
            if i + 1 < len(vectors):
                owned[-1] += [(who, _WIDTH // 2 + lane // 2) for who, lane in owners[i + 1]]
        vectors, owners, group = summed, owned, half
    places = dict(owners[0])
    return vectors[0], [places[i] for i in range(len(places))]


def _switch(builder: Any, value: Any, cases: range, emit: Callable[[int], None]) -> None:
    """Emit the code of each case and jump to the one that `value` names."""
    end = builder.append_basic_block("end")
    switch = builder.switch(value, end)
    for case in cases:
        block = builder.append_basic_block(f"case.{case}")
        switch.add_case(_index(case), block)
        builder.position_at_end(block)
        emit(case)
        builder.branch(end)
    builder.position_at_end(end)


def _call(builder: Any, name: str, body: Callable[..., None], arguments: list) -> None:
    """Call the function `name` of this module; its `body` is emitted at the first call."""
    kind = ir.FunctionType(ir.VoidType(), [argument.type for argument in arguments])
    function = cgutils.get_or_insert_function(builder.module, kind, name)
    if function.is_declaration:
        function.linkage = "linkonce_odr"
        function.attributes.add("noinline")
        function.attributes.add("nounwind")
        inside = ir.IRBuilder(function.append_basic_block("entry"))
        body(inside, *function.args)
        inside.ret_void()
    builder.call(function, arguments)


def _emit_scores(builder, old, context, contexts, outputs, width, rows, targets, scores):
    left, right = _Rows(builder, old, width), _Rows(builder, outputs, width)
    out = _Rows(builder, scores, _index(LANES))

    def emit(m: int, n: int) -> None:
        a = [left.row(builder.add(context, _index(i))) for i in range(m)]
        b = [right.row(_integer(builder, rows, _index(j))) for j in range(n)]
        sums = _zeros(builder, m * n)
        with _vectors_of(builder, left) as k:
            x = [_load(builder, row, k) for row in a]
            for j in range(n):
                y = _load(builder, b[j], k)
                for i in range(m):
                    place = sums[i * n + j]
                    so_far = builder.load(place, typ=_vector)
                    builder.store(_multiply_add(builder, x[i], y, so_far), place)
        totals = [builder.load(place, typ=_vector) for place in sums]
        together = m * LANES <= _WIDTH
        for i in range(0, m, m if together else 1):
            count = m if together else 1
            result, lanes = _sums_of(builder, totals[i * n : (i + count) * n])
            order = []
            for c in range(count):
                order += lanes[c * n : (c + 1) * n] + [0] * (LANES - n)
            row = out.row(builder.add(context, _index(i)))
            _store(builder, _shuffle(builder, result, result, order), row, _index(0))

    def emit_contexts(m: int) -> None:
        _switch(builder, targets, range(1, TILE + 1), lambda n: emit(m, n))

    _switch(builder, contexts, range(1, 3), emit_contexts)


def _emit_update(
    builder, old, context, contexts, inputs, width, places, outputs, rows, targets, steps
):
    left, into = _Rows(builder, old, width), _Rows(builder, inputs, width)
    right, step = _Rows(builder, outputs, width), _Rows(builder, steps, _index(LANES))
    end = builder.add(context, contexts)

    def emit(n: int) -> None:
        b = [right.row(_integer(builder, rows, _index(j))) for j in range(n)]
        sums = _zeros(builder, n)
        with _vectors_of(builder, left) as k:
            y = [_load(builder, row, k) for row in b]
            for j in range(n):
                builder.store(y[j], sums[j])
            with cgutils.for_range(builder, end, start=context) as loop:
                i = loop.index
                x = _load(builder, left.row(i), k)
                row = into.row(_integer(builder, places, i))
                value = _load(builder, row, k)
                g_row = step.row(i)
                for j in range(n):
                    g = _splat(builder, _number(builder, g_row, _index(j)))
                    value = _multiply_add(builder, g, y[j], value)
                    so_far = builder.load(sums[j], typ=_vector)
                    builder.store(_multiply_add(builder, g, x, so_far), sums[j])
                _store(builder, value, row, k)
            for j in range(n):
                _store(builder, builder.load(sums[j], typ=_vector), b[j], k)

    _switch(builder, targets, range(1, TILE + 1), emit)


@intrinsic
@no_type_check
def _tile_scores(typing, old, context, contexts, outputs, rows, first, targets, scores):
    def generate(target, builder, signature, values):
        kinds = signature.args
        left = _table(target, builder, kinds[0], values[0])
        right = _table(target, builder, kinds[3], values[3])
        integers = _data(target, builder, kinds[4], values[4])
        arguments = [
            left.data,
            values[1],
            values[2],
            right.data,
            left.width,
            builder.gep(integers, [values[5]], source_etype=_int64),
            values[6],
            _data(target, builder, kinds[7], values[7]),
        ]
        _call(builder, "regard_tile_scores", _emit_scores, arguments)
        return target.get_dummy_value()

    return types.void(old, context, contexts, outputs, rows, first, targets, scores), generate


@intrinsic
@no_type_check
def _tile_update(
    typing, old, context, contexts, inputs, places, outputs, rows, first, targets, steps
):
    def generate(target, builder, signature, values):
        kinds = signature.args
        left = _table(target, builder, kinds[0], values[0])
        integers = _data(target, builder, kinds[6], values[6])
        arguments = [
            left.data,
            values[1],
            values[2],
            _data(target, builder, kinds[3], values[3]),
            left.width,
            _data(target, builder, kinds[4], values[4]),
            _data(target, builder, kinds[5], values[5]),
            builder.gep(integers, [values[7]], source_etype=_int64),
            values[8],
            _data(target, builder, kinds[9], values[9]),
        ]
        _call(builder, "regard_tile_update", _emit_update, arguments)
        return target.get_dummy_value()

    return (
        types.void(old, context, contexts, inputs, places, outputs, rows, first, targets, steps),
        generate,
    )


def _emit_logistic(builder, scores, chances, count, signs, rate):
    def constant(number: float) -> Any:
        return ir.Constant(_vector, [ir.Constant(_float, float(np.float32(number)))] * _WIDTH)

    def times(a: Any, b: Any) -> Any:
        return builder.fmul(a, b, flags=("fast",))

    def limited(x: Any, order: str, bound: Any) -> Any:
        return builder.select(builder.fcmp_ordered(order, x, bound), x, bound)

    one = constant(1.0)
    with cgutils.for_range_slice(builder, _index(0), count, _index(_WIDTH)) as (k, _):
        sign = _load(builder, signs, builder.and_(k, _index(2 * LANES - 1)))
        x = limited(times(_load(builder, scores, k), sign), "<", constant(CLIP))
        x = limited(x, ">", constant(-CLIP))
        y = times(x, constant(-1 / 64))
        e = constant(1 / 120)
        for coefficient in (1 / 24, 1 / 6, 1 / 2, 1.0, 1.0):
            e = _multiply_add(builder, e, y, constant(coefficient))
        for _ in range(6):
            e = times(e, e)
        p = builder.fdiv(one, builder.fadd(one, e, flags=("fast",)), flags=("fast",))
        used = builder.fcmp_ordered("!=", sign, constant(0.0))
        _store(builder, builder.select(used, p, one), chances, k)
        _store(builder, times(times(_splat(builder, rate), sign), times(e, p)), scores, k)


@intrinsic
@no_type_check
def _logistic(typing, scores, chances, first, count, signs, rate):
    def generate(target, builder, signature, values):
        def data(i: int) -> Any:
            return _data(target, builder, signature.args[i], values[i])

        arguments = [
            builder.gep(data(0), [values[2]], source_etype=_float),
            builder.gep(data(1), [values[2]], source_etype=_float),
            values[3],
            data(4),
            values[5],
        ]
        _call(builder, "regard_logistic", _emit_logistic, arguments)
        return target.get_dummy_value()

    return types.void(scores, chances, first, count, signs, rate), generate


@intrinsic
@no_type_check
def _prefetch(typing, array, place):
    def generate(target, builder, signature, values):
        kind = ir.FunctionType(ir.VoidType(), [ir.PointerType()] + [_int32] * 3)
        fetch = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        read, second_cache, data = (ir.Constant(_int32, number) for number in (0, 2, 1))
        if signature.args[0].ndim == 1:
            start = _data(target, builder, signature.args[0], values[0])
            item = target.get_data_type(signature.args[0].dtype)
            line = builder.gep(start, [values[1]], source_etype=item)
            builder.call(fetch, [line, read, second_cache, data])
            return target.get_dummy_value()
        rows = _table(target, builder, signature.args[0], values[0])
        start = rows.row(values[1])
        with cgutils.for_range_slice(builder, _index(0), rows.width, _index(ALIGNMENT)) as (k, _):
            line = builder.gep(start, [k], source_etype=_float)
            builder.call(fetch, [line, read, second_cache, data])
        return target.get_dummy_value()

    return types.void(array, place), generate


@intrinsic
@no_type_check
def _put_sum(typing, into, row, table, places, first, count, scale):
    def generate(target, builder, signature, values):
        kinds = signature.args
        into_row = _table(target, builder, kinds[0], values[0]).row(values[1])
        rows = _table(target, builder, kinds[2], values[2])
        integers = _data(target, builder, kinds[3], values[3])
        end = builder.add(values[4], values[5])
        factor = _splat(builder, values[6])
        (total,) = _zeros(builder, 1)
        with _vectors_of(builder, rows) as k:
            builder.store(ir.Constant(_vector, None), total)
            with cgutils.for_range(builder, end, start=values[4]) as loop:
                row = rows.row(_integer(builder, integers, loop.index))
                so_far = builder.load(total, typ=_vector)
                builder.store(builder.fadd(_load(builder, row, k), so_far, flags=("fast",)), total)
            scaled = builder.fmul(factor, builder.load(total, typ=_vector), flags=("fast",))
            _store(builder, scaled, into_row, k)
        return target.get_dummy_value()

    return types.void(into, row, table, places, first, count, scale), generate


@intrinsic
@no_type_check
def _add_row(typing, into, row, table, place, scale):
    def generate(target, builder, signature, values):
        kinds = signature.args
        a = _table(target, builder, kinds[0], values[0])
        b = _table(target, builder, kinds[2], values[2])
        into_row, from_row = a.row(values[1]), b.row(values[3])
        factor = _splat(builder, values[4])
        with _vectors_of(builder, a) as k:
            x, y = _load(builder, from_row, k), _load(builder, into_row, k)
            _store(builder, _multiply_add(builder, factor, x, y), into_row, k)
        return target.get_dummy_value()

    return types.void(into, row, table, place, scale), generate


@intrinsic
@no_type_check
def _row_dot(typing, left, row, right, place):
    def generate(target, builder, signature, values):
        kinds = signature.args
        a = _table(target, builder, kinds[0], values[0])
        b = _table(target, builder, kinds[2], values[2])
        left_row, right_row = a.row(values[1]), b.row(values[3])
        (total,) = _zeros(builder, 1)
        with _vectors_of(builder, a) as k:
            x, y = _load(builder, left_row, k), _load(builder, right_row, k)
            builder.store(_multiply_add(builder, x, y, builder.load(total, typ=_vector)), total)
        result, (lane,) = _sums_of(builder, [builder.load(total, typ=_vector)])
        return builder.extract_element(result, ir.Constant(_int32, lane))

    return types.float32(left, row, right, place), generate


@overload(tile_scores, jit_options=OPTIONS)
@no_type_check
def _compiled_scores(old, context, contexts, outputs, rows, first, targets, scores):
    def compiled(old, context, contexts, outputs, rows, first, targets, scores):
        _tile_scores(old, context, contexts, outputs, rows, first, targets, scores)

    return compiled


@overload(tile_update, jit_options=OPTIONS)
@no_type_check
def _compiled_update(old, context, contexts, inputs, places, outputs, rows, first, targets, steps):
    def compiled(old, context, contexts, inputs, places, outputs, rows, first, targets, steps):
        _tile_update(old, context, contexts, inputs, places, outputs, rows, first, targets, steps)

    return compiled


@overload(logistic, jit_options=OPTIONS)
@no_type_check
def _compiled_logistic(scores, chances, first, count, signs, rate):
    def compiled(scores, chances, first, count, signs, rate):
        _logistic(scores, chances, first, count, signs, rate)

    return compiled


@overload(put_sum, jit_options=OPTIONS)
@no_type_check
def _compiled_sum(into, row, table, places, first, count, scale):
    def compiled(into, row, table, places, first, count, scale):
        _put_sum(into, row, table, places, first, count, np.float32(scale))

    return compiled


@overload(add_row, jit_options=OPTIONS)
@no_type_check
def _compiled_add(into, row, table, place, scale):
    def compiled(into, row, table, place, scale):
        _add_row(into, row, table, place, np.float32(scale))

    return compiled


@overload(row_dot, jit_options=OPTIONS)
@no_type_check
def _compiled_dot(left, row, right, place):
    def compiled(left, row, right, place):
        return _row_dot(left, row, right, place)

    return compiled


@overload(prefetch, jit_options=OPTIONS)
@no_type_check
def _compiled_prefetch(array, place):
    def compiled(array, place):
        _prefetch(array, place)

    return compiled
