"""Continuous bag of words (Mikolov et al. 2013): the words around a center, added up, predict it.

With shared negatives, `GROUP` centers that follow one another are learned together from the values
before them, against one set of negatives; otherwise each center by itself draws its own.
"""

from typing import no_type_check

import numpy as np

from regard.vectors.kernels.block import gather_loss, log_of, step
from regard.vectors.kernels.compiled import compiled
from regard.vectors.kernels.draws import below, draw_words
from regard.vectors.kernels.simd import add_row, logistic, prefetch, put_sum, row_dot
from regard.vectors.kernels.state import (
    EXAMPLES,
    GROUP,
    LANES,
    LOSS_NEGATIVES,
    LOSS_TREE,
    RATE,
)


@compiled
@no_type_check
def gather_group(rules, tables, tree, worker, kept, center, last):
    """Draw the windows of the next centers that have any context.

    Returns how many centers there are and the first center after them.
    """
    size = GROUP if rules.shared and rules.negatives else 1
    group, used = 0, 0
    while center < last and group < size:
        reach = rules.window
        if rules.shrink_window:
            reach -= below(worker.random, rules.window)
        begin, end = max(0, center - reach), min(kept, center + reach + 1)
        if end - begin > 1:
            worker.centers[group] = worker.kept[center]
            for place in range(begin, end):
                if place != center:
                    worker.contexts[used] = worker.kept[place]
                    used += 1
            group += 1
            worker.starts[group] = used
            if rules.negatives:
                prefetch(tables.output, worker.kept[center])
            if rules.tree:
                word = worker.kept[center]
                for j in range(tree.starts[word], tree.starts[word + 1]):
                    prefetch(tables.inner, tree.points[j])
            ahead = center + rules.window + size
            if ahead < kept:
                prefetch(tables.input, worker.kept[ahead])
        center += 1
    return group, center


@compiled
@no_type_check
def learn_from_negatives(rules, tables, noise, worker, group, rate):
    """The centers' own rows, then the shared negatives, all from the values before the group."""
    count = draw_words(worker.random, noise.alias, rules.negatives, worker.rows, 0, 0)
    for j in range(count):
        prefetch(tables.output, worker.rows[j])
    for i in range(group):
        first = worker.starts[i]
        contexts = worker.starts[i + 1] - first
        scale = np.float32(1.0 / contexts if rules.mean else 1.0)
        put_sum(worker.old, i, tables.input, worker.contexts, first, contexts, scale)
    for i in range(2 * LANES):
        worker.lane_signs[i] = np.float32(1.0 if i < group else 0.0)
    own = worker.own_scores
    for i in range(group):
        own[i] = row_dot(worker.old, i, tables.output, worker.centers[i])
    logistic(own, worker.chances, 0, GROUP, worker.lane_signs, rate)
    loss = gather_loss(worker.chances, 0, 1, worker.products)
    for i in range(group):
        put_sum(worker.change, i, tables.output, worker.centers, i, 1, own[i])
    loss += step(
        worker,
        worker.products,
        np.int64(0),
        group,
        worker.change,
        worker.places,
        tables.output,
        worker.rows,
        worker.signs,
        np.int64(0),
        count,
        rate,
        np.bool_(True),
    )
    for i in range(group):
        add_row(tables.output, worker.centers[i], worker.old, i, own[i])
    return loss


@compiled
@no_type_check
def learn_cbow(rules, tables, noise, tree, worker, kept, first, last):
    """Learn from the centers `first` to `last` - 1 of the `kept` words of a piece."""
    rate = np.float32(worker.numbers[RATE])
    loss_negatives, loss_tree = 0.0, 0.0
    center = first
    while center < last:
        group, center = gather_group(rules, tables, tree, worker, kept, center, last)
        worker.counts[EXAMPLES] += group
        if rules.negatives and group:
            loss_negatives += learn_from_negatives(rules, tables, noise, worker, group, rate)
        elif group:
            contexts = worker.starts[1]
            scale = np.float32(1.0 / contexts if rules.mean else 1.0)
            put_sum(worker.old, 0, tables.input, worker.contexts, 0, contexts, scale)
            put_sum(worker.change, 0, tables.input, worker.contexts, 0, 0, np.float32(0.0))
        for i in range(group):
            if rules.tree:
                start = tree.starts[worker.centers[i]]
                loss_tree += step(
                    worker,
                    worker.tree_products,
                    i,
                    np.int64(1),
                    worker.change,
                    worker.places,
                    tables.inner,
                    tree.points,
                    tree.signs,
                    start,
                    tree.starts[worker.centers[i] + 1] - start,
                    rate,
                    np.bool_(False),
                )
        for i in range(group):
            begin, end = worker.starts[i], worker.starts[i + 1]
            scale = np.float32(1.0 / (end - begin) if rules.divide else 1.0)
            for c in range(begin, end):
                add_row(tables.input, worker.contexts[c], worker.change, i, scale)
    worker.numbers[LOSS_NEGATIVES] += loss_negatives - log_of(worker.products)
    worker.numbers[LOSS_TREE] += loss_tree - log_of(worker.tree_products)
