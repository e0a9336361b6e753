"""Continuous bag of words (Mikolov et al. 2013): a center is predicted from the sum around it."""

from typing import no_type_check

import numpy as np

from regard.vectors.kernels.block import log_of, step
from regard.vectors.kernels.compiled import compiled
from regard.vectors.kernels.draws import draw_window, take_negatives
from regard.vectors.kernels.simd import add_row, put_sum
from regard.vectors.kernels.skipgram import ask_ahead
from regard.vectors.kernels.state import EXAMPLES, LOSS_NEGATIVES, LOSS_TREE, RATE


@compiled
@no_type_check
def learn_cbow(rules, tables, noise, tree, worker, kept, first, last):
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
                contexts += 1
        if contexts == 0:
            continue
        worker.counts[EXAMPLES] += 1
        word = worker.kept[center]
        scale = np.float32(1.0 / contexts if rules.mean else 1.0)
        put_sum(worker.old, 0, tables.input, worker.contexts, 0, contexts, scale)
        put_sum(worker.change, 0, tables.input, worker.contexts, 0, 0, np.float32(0.0))
        if rules.negatives:
            count = take_negatives(worker, noise.alias, tables.output, rules.negatives, word)
            loss_negatives += step(
                worker,
                worker.products,
                np.int64(0),
                np.int64(1),
                worker.change,
                worker.places,
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
                np.int64(1),
                worker.change,
                worker.places,
                tables.inner,
                tree.points,
                tree.signs,
                tree.starts[word],
                tree.starts[word + 1] - tree.starts[word],
                rate,
            )
        share = np.float32(1.0 / contexts if rules.divide else 1.0)
        for c in range(contexts):
            add_row(tables.input, worker.contexts[c], worker.change, 0, share)
    worker.numbers[LOSS_NEGATIVES] += loss_negatives - log_of(worker.products)
    worker.numbers[LOSS_TREE] += loss_tree - log_of(worker.tree_products)
