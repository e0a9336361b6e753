"""What the kernels read and write: plain arrays under names."""

from typing import NamedTuple

import numpy as np

LANES = 8  # room for the scores of the output rows that are taken at once
CLIP = 16.0  # scores beyond count as this, so that no chance is under 1.1e-7
ALIGNMENT = 16  # floats: a row begins on a cache line and holds whole vectors
RATE_EVERY = 1000  # words between two looks at the learning rate
PIECE = 4096  # words of a line that are taken at once
DRAWS = 256  # negatives that are drawn at once
AHEAD = 10  # negatives whose rows are on the way

POSITION, DONE, RATE_AT, EXAMPLES, DRAWN, TAKEN = range(6)  # places in Worker.counts
RATE, LOSS_NEGATIVES, LOSS_TREE = range(3)  # places in Worker.numbers


class Corpus(NamedTuple):
    """The encoded text, which row of the tables each word has, and how often it is kept.

    ``ids`` (words,) int32; ``offsets`` (lines + 1,) int64; ``rows`` int32: the row of each id, -1
    for one to pass over, empty when ids are rows; ``keep`` (V,) uint32: a word is kept when 32
    random bits are at most this, empty when every word is kept.
    """

    ids: np.ndarray
    offsets: np.ndarray
    rows: np.ndarray
    keep: np.ndarray


class Tables(NamedTuple):
    """What is learned, float32, rows padded with zeros to whole cache lines.

    ``input`` (V, width); ``output`` (V, width) for negative sampling and ``inner`` (V - 1, width)
    for the tree, each with no rows when that loss is off.
    """

    input: np.ndarray
    output: np.ndarray
    inner: np.ndarray


class Noise(NamedTuple):
    """Alias sampling of negatives: ``alias`` (V, 2) uint32, a threshold and the other word."""

    alias: np.ndarray


class Tree(NamedTuple):
    """Each word's path: rows ``points[starts[w]:starts[w + 1]]`` of `inner`, and their signs."""

    starts: np.ndarray
    points: np.ndarray
    signs: np.ndarray


class Rules(NamedTuple):
    """The settings that the loops look at, as integers and floats."""

    cbow: int
    window: int
    shrink_window: int
    negatives: int
    tree: int
    shared: int
    mean: int
    divide: int
    alpha: float
    min_alpha: float
    total: float


class Worker(NamedTuple):
    """What one thread carries from word to word, and its room for work.

    ``counts`` (6,) int64 and ``numbers`` (3,) float64 at the places named above; ``random`` (2,)
    uint64; ``drawn`` (2 · DRAWS,) int64: a ring of negatives, number n at place n mod its length.
    The rest is overwritten all the time.
    """

    counts: np.ndarray
    numbers: np.ndarray
    random: np.ndarray
    kept: np.ndarray
    contexts: np.ndarray
    drawn: np.ndarray
    rows: np.ndarray
    signs: np.ndarray
    lane_signs: np.ndarray
    old: np.ndarray
    change: np.ndarray
    places: np.ndarray
    scores: np.ndarray
    flat_scores: np.ndarray
    chances: np.ndarray
    products: np.ndarray
    tree_products: np.ndarray


def make_worker(width: int, window: int, negatives: int, seed: int) -> Worker:
    """A worker at the first word, its random numbers begun from `seed`."""
    contexts = 2 * window
    scores = np.zeros((contexts + 1, LANES), np.float32)
    signs = np.full(negatives + 1, -1.0, np.float32)
    signs[0] = 1.0
    return Worker(
        counts=np.zeros(6, np.int64),
        numbers=np.zeros(3, np.float64),
        random=seeds(seed),
        kept=np.zeros(PIECE + 2 * window, np.int64),
        contexts=np.zeros(contexts, np.int64),
        drawn=np.zeros(2 * DRAWS, np.int64),
        rows=np.zeros(negatives + 1, np.int64),
        signs=signs,
        lane_signs=np.zeros(2 * LANES, np.float32),
        old=aligned((contexts, width)),
        change=aligned((1, width)),
        places=np.zeros(1, np.int64),
        scores=scores,
        flat_scores=scores.reshape(-1),
        chances=np.ones(scores.size, np.float32),
        products=np.ones(LANES, np.float64),
        tree_products=np.ones(LANES, np.float64),
    )


def seeds(seed: int) -> np.ndarray:
    """Where the two generators of a worker begin, for the words and windows and for negatives."""
    return np.random.SeedSequence(seed).generate_state(2, np.uint64) | np.uint64(1)


def aligned(shape: tuple[int, int]) -> np.ndarray:
    """Float32 zeros whose first row begins on a cache line."""
    rows, width = shape
    room = np.zeros(rows * width + 16, np.float32)
    skip = (-room.ctypes.data % 64) // 4
    return room[skip : skip + rows * width].reshape(shape)
