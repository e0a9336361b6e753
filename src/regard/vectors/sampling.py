"""How often words are kept, drawn as negatives, and how the tree of words is built."""

import heapq

import numpy as np


def keep_thresholds(counts: np.ndarray, sample: float) -> np.ndarray:
    """Subsampling: (V,) uint32, a word is kept when 32 random bits are at most its number.

    A word of frequency f is kept with probability ``(sqrt(f / sample) + 1) · sample / f``, as in
    word2vec's code (the paper, Mikolov et al. 2013b, prints another formula). No thresholds at all
    when `sample` is 0: every word is kept.
    """
    if sample == 0:
        return np.zeros(0, np.uint32)
    frequency = np.maximum(counts, 1) / max(1, counts.sum())
    kept = (np.sqrt(frequency / sample) + 1) * sample / frequency
    return (np.minimum(kept, 1.0) * (2**32 - 1)).astype(np.uint32)


def alias_table(counts: np.ndarray, power: float = 0.75) -> np.ndarray:
    """Draws by ``counts ** power``: (V, 2) uint32, a threshold and the word past it.

    Column i of the table stands for word i while 32 random bits are at most its threshold, else for
    the other word (Vose 1991, "A Linear Algorithm for Generating Random Numbers").
    """
    weights = counts.astype(np.float64) ** power
    share = weights * (len(counts) / weights.sum())
    table = np.empty((len(counts), 2), np.uint32)
    table[:, 0] = 2**32 - 1
    table[:, 1] = np.arange(len(counts))
    small = [int(i) for i in np.flatnonzero(share < 1)]
    large = [int(i) for i in np.flatnonzero(share >= 1)]
    while small and large:
        low, high = small.pop(), large[-1]
        table[low] = int(share[low] * (2**32 - 1)), high
        share[high] -= 1 - share[low]
        if share[high] < 1:
            small.append(large.pop())
    return table


def huffman_tree(counts: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The tree of hierarchical softmax: frequent words have short paths.

    Returns ``starts`` (V + 1,) int64, ``points`` int64 and ``signs`` float32: the path of word w is
    the inner nodes ``points[starts[w]:starts[w + 1]]``, the root (row V - 2) first, with sign +1
    where it turns to the rarer side and -1 where it turns to the other.
    """
    size = len(counts)
    parent = np.zeros(max(1, 2 * size - 1), np.int64)
    sign = np.zeros(max(1, 2 * size - 1), np.float32)
    heap = [(int(count), node) for node, count in enumerate(counts)]
    heapq.heapify(heap)
    for node in range(size, 2 * size - 1):
        low_count, low = heapq.heappop(heap)
        high_count, high = heapq.heappop(heap)
        parent[low], sign[low] = node, 1.0
        parent[high], sign[high] = node, -1.0
        heapq.heappush(heap, (low_count + high_count, node))
    starts = np.zeros(size + 1, np.int64)
    depth = np.zeros(max(1, 2 * size - 1), np.int64)
    for node in range(2 * size - 3, -1, -1):
        depth[node] = depth[parent[node]] + 1
    np.cumsum(depth[:size], out=starts[1:])
    points = np.zeros(starts[-1], np.int64)
    signs = np.zeros(starts[-1], np.float32)
    node = np.arange(size)
    place = starts[1:] - 1
    while len(node) and size > 1:
        signs[place], points[place] = sign[node], parent[node] - size
        node = parent[node]
        going = node != 2 * size - 2
        node, place = node[going], place[going] - 1
    return starts, points, signs
