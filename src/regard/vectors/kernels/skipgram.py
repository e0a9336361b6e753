"""Skip-gram (Mikolov et al. 2013, "Efficient Estimation of Word Representations in Vector Space").

Each word around a center learns to tell the center from negatives. With shared negatives one set
serves the whole window; otherwise every pair takes its own.
"""

from typing import no_type_check

import numpy as np

from regard.vectors.kernels.block import log_of, step
from regard.vectors.kernels.compiled import compiled
from regard.vectors.kernels.draws import draw_window, take_negatives
from regard.vectors.kernels.simd import prefetch, put_sum
from regard.vectors.kernels.state import (
    EXAMPLES,
    LOSS_NEGATIVES,
    LOSS_TREE,
    RATE,
)


@compiled
@no_type_check
def ask_ahead(rules, tables, tree, worker, kept, center):
    """Ask for the rows that the centers after `center` will need."""
    if center + 2 + rules.window < kept:
        prefetch(tables.input, worker.kept[center + 2 + rules.window])
    if rules.tree and center + 2 < kept:
        word = worker.kept[center + 2]
        for j in range(tree.starts[word], tree.starts[word + 1], 8):
            prefetch(tree.points, j)
            prefetch(tree.signs, j)
    if center + 1 < kept:
        word = worker.kept[center + 1]
        if rules.negatives:
            prefetch(tables.output, word)
        if rules.tree:
            for j in range(tree.starts[word], tree.starts[word + 1]):
                prefetch(tables.inner, tree.points[j])


@compiled
@no_type_check
def learn_skipgram(rules, tables, noise, tree, worker, kept, first, last):
    """Learn from the centers `first` to `last` - 1 of the `kept` words of a piece."""
    rate = np.float32(worker.numbers[RATE])
    loss_negatives, loss_tree = 0.0, 0.0
    for center in range(first, last):
        begin, end = draw_window(rules, worker, kept, center)
        ask_ahead(rules, tables, tree, worker, kept, center)
        contexts = 0
        for place in range(begin, end):
            if place != center:
                worker.contexts[contexts] = worker.kept[place]
                put_sum(worker.old, contexts, tables.input, worker.contexts, contexts, 1, 1.0)
                contexts += 1
        if contexts == 0:
            continue
        worker.counts[EXAMPLES] += contexts
        word = worker.kept[center]
        if rules.negatives:
            sets, each = (1, contexts) if rules.shared else (contexts, 1)
            for i in range(sets):
                count = take_negatives(worker, noise.alias, tables.output, rules.negatives, word)
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
                    np.int64(0),
                    count,
                    rate,
                )
        if rules.tree:
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
            )
    worker.numbers[LOSS_NEGATIVES] += loss_negatives - log_of(worker.products)
    worker.numbers[LOSS_TREE] += loss_tree - log_of(worker.tree_products)
