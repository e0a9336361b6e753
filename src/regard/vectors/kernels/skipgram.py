"""Skip-gram (Mikolov et al. 2013, "Efficient Estimation of Word Representations in Vector Space").

Each word around a center learns to tell the center from negatives. With shared negatives one set
serves the whole window; otherwise every pair draws its own.
"""

from typing import no_type_check

import numpy as np

from regard.vectors.kernels.block import log_of, step
from regard.vectors.kernels.compiled import compiled
from regard.vectors.kernels.draws import below, draw_words
from regard.vectors.kernels.simd import prefetch, put_sum
from regard.vectors.kernels.state import (
    EXAMPLES,
    LOSS_NEGATIVES,
    LOSS_TREE,
    RATE,
)


@compiled
@no_type_check
def draw_center(rules, tables, noise, tree, worker, kept, center, slot):
    """Draw the window and the negatives of a center, and ask for the rows they name.

    Returns the first and the end of the window in ``worker.kept``.
    """
    reach = rules.window
    if rules.shrink_window:
        reach -= below(worker.random, rules.window)
    begin, end = max(0, center - reach), min(kept, center + reach + 1)
    word = worker.kept[center]
    if rules.negatives:
        stride = rules.negatives + 1
        sets = 1 if rules.shared else end - begin - 1
        first = slot * (1 if rules.shared else 2 * rules.window)
        for s in range(first, first + sets):
            worker.rows[s * stride] = word
            count = draw_words(
                worker.random, noise.alias, rules.negatives, worker.rows, s * stride, 1
            )
            worker.row_counts[s] = count
            for j in range(s * stride, s * stride + count):
                prefetch(tables.output, worker.rows[j])
    if rules.tree:
        for j in range(tree.starts[word], tree.starts[word + 1]):
            prefetch(tables.inner, tree.points[j])
    if end < kept:
        prefetch(tables.input, worker.kept[end])
    return begin, end


@compiled
@no_type_check
def learn_skipgram(rules, tables, noise, tree, worker, kept, first, last):
    """Learn from the centers `first` to `last` - 1 of the `kept` words of a piece."""
    rate = np.float32(worker.numbers[RATE])
    stride = rules.negatives + 1
    most_sets = 1 if rules.shared else 2 * rules.window
    next_begin, next_end, slot = 0, 0, 0
    loss_negatives, loss_tree = 0.0, 0.0
    for center in range(first - 1, last):
        begin, end, now = next_begin, next_end, slot
        if center + 1 < last:
            slot = 1 - slot
            next_begin, next_end = draw_center(
                rules, tables, noise, tree, worker, kept, center + 1, slot
            )
        if center < first:
            continue
        contexts = 0
        for place in range(begin, end):
            if place != center:
                worker.contexts[contexts] = worker.kept[place]
                put_sum(worker.old, contexts, tables.input, worker.contexts, contexts, 1, 1.0)
                contexts += 1
        if contexts == 0:
            continue
        worker.counts[EXAMPLES] += contexts
        if rules.negatives:
            sets, each = (1, contexts) if rules.shared else (contexts, 1)
            for i in range(sets):
                s = now * most_sets + i
                loss_negatives += step(
                    worker,
                    worker.products,
                    i,
                    each,
                    tables.input,
                    worker.contexts,
                    tables.output,
                    worker.rows,
                    worker.signs,
                    s * stride,
                    worker.row_counts[s],
                    rate,
                    np.bool_(False),
                )
        if rules.tree:
            word = worker.kept[center]
            loss_tree += step(
                worker,
                worker.tree_products,
                np.int64(0),
                contexts,
                tables.input,
                worker.contexts,
                tables.inner,
                tree.points,
                tree.signs,
                tree.starts[word],
                tree.starts[word + 1] - tree.starts[word],
                rate,
                np.bool_(False),
            )
    worker.numbers[LOSS_NEGATIVES] += loss_negatives - log_of(worker.products)
    worker.numbers[LOSS_TREE] += loss_tree - log_of(worker.tree_products)
