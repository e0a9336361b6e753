"""One step of logistic regression on a block of rows, the whole of word2vec's arithmetic.

For contexts i and rows j with wanted sign t: score s = old_i · row_j, chance p = σ(t s), step
rate · t · (1 - p), and both sides move from their old values. The loss is -log p.
"""

import math
from typing import no_type_check

import numpy as np

from regard.vectors.kernels.compiled import compiled
from regard.vectors.kernels.simd import TILE, logistic, tile_scores, tile_update
from regard.vectors.kernels.state import LANES

_zero = np.float32(0)


@compiled
@no_type_check
def log_of(products):
    """The logarithm of all `products`, which are set back to 1."""
    total = 0.0
    for lane in range(LANES):
        total += math.log(products[lane])
        products[lane] = 1.0
    return total


@compiled
@no_type_check
def gather_loss(chances, context, contexts, products):
    """Multiply the chances into `products`; return the loss of what would underflow."""
    loss = 0.0
    for i in range(context, context + contexts):
        least = 1.0
        for lane in range(LANES):
            products[lane] *= np.float64(chances[i * LANES + lane])
            least = min(least, products[lane])
        if least < 1e-290:
            loss -= log_of(products)
    return loss


@compiled
@no_type_check
def set_signs(lane_signs, signs, first, count):
    """Spread the signs of a tile over the lanes of two contexts; lanes not in use get 0."""
    for lane in range(LANES):
        sign = signs[first + lane] if lane < count else _zero
        lane_signs[lane] = sign
        lane_signs[LANES + lane] = sign


@compiled
@no_type_check
def step(
    worker,
    products,
    context,
    contexts,
    inputs,
    places,
    outputs,
    rows,
    signs,
    first,
    targets,
    rate,
):
    """Learn from contexts `context` … + `contexts` of ``worker.old`` against `targets` rows.

    ``inputs[places[i]]`` receives the change of context i. Returns the loss
    that `products` could not hold.
    """
    loss = 0.0
    end = context + contexts
    begin = context * LANES
    for tile in range(first, first + targets, TILE):
        n = min(TILE, first + targets - tile)
        set_signs(worker.lane_signs, signs, tile, n)
        for i in range(context, end, 2):
            tile_scores(worker.old, i, min(2, end - i), outputs, rows, tile, n, worker.scores)
        logistic(
            worker.flat_scores, worker.chances, begin, contexts * LANES, worker.lane_signs, rate
        )
        loss += gather_loss(worker.chances, context, contexts, products)
        tile_update(
            worker.old, context, contexts, inputs, places, outputs, rows, tile, n, worker.scores
        )
    return loss
