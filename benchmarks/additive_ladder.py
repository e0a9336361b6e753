"""Additive scores from plain to fast, a step at a time, each checked before it is timed.

    python benchmarks/additive_ladder.py [--tokens 1024] [--quick]

One head of width 64, one thread, float32: scores ``Σₑ wₑ·tanh(aᵢₑ + bⱼₑ)`` of T queries against T
keys. Printed is the processor time of one tanh, that is of one pair and dimension: the best of some
rounds, in which the steps take turns.
"""

import argparse
import time

import numpy as np
import torch
from numba import njit

from regard.attention.kernels.additive import AdditiveScores
from regard.attention.kernels.threads import Threads
from regard.attention.masks import Rectangle

ONE, TWO = np.float32(1), np.float32(2)
FAST = {"nogil": True, "error_model": "numpy", "fastmath": True}


def broadcast(a, b, w):
    """PyTorch, one tensor of (T, T, d): every tanh goes to memory and back."""
    a, b, w = (torch.from_numpy(x) for x in (a, b, w))
    return (torch.tanh(a[:, None] + b[None]) @ w).numpy()


@njit(nogil=True)
def _loops(a, b, w, out):
    for i in range(a.shape[0]):
        for j in range(b.shape[0]):
            total = np.float32(0)
            for e in range(w.size):
                total += w[e] * np.tanh(a[i, e] + b[j, e])
            out[i, j] = total


def loops(a, b, w):
    """Compiled loops: no tensor of (T, T, d), but tanh is called once an element."""
    return filled(_loops, a, b, w)


@njit(nogil=True)
def _once_a_token(A, B, w, out):
    for i in range(A.shape[0]):
        for j in range(B.shape[0]):
            total = np.float32(0)
            for e in range(w.size):
                total += w[e] * (ONE - TWO / (ONE + A[i, e] * B[j, e]))
            out[i, j] = total


def once_a_token(a, b, w):
    """tanh(a + b) = 1 − 2/(1 + A·B), A = exp(2a), B = exp(2b): exponentials once a token."""
    return filled(_once_a_token, np.exp(2 * a), np.exp(2 * b), w)


_vectorized = njit(**FAST)(_once_a_token.py_func)


def vectorized(a, b, w):
    """Divisions unchecked (error_model="numpy") and sums reordered (fastmath): vectors."""
    return filled(_vectorized, np.exp(2 * a), np.exp(2 * b), w)


@njit(**FAST)
def _along_keys(A, B, w, out):
    for i in range(A.shape[0]):
        row = out[i]
        row[:] = w.sum()
        for e in range(w.size):
            a, b, double = A[i, e], B[e], TWO * w[e]
            for j in range(row.size):
                row[j] -= double / (ONE + a * b[j])


def along_keys(a, b, w):
    """Keys transposed: the inner loop runs along them, no sum across a vector is needed."""
    return filled(_along_keys, np.exp(2 * a), np.exp(2 * b).T.copy(), w)


@njit(**FAST)
def _four_dimensions(A, B, w, out):
    for i in range(A.shape[0]):
        row = out[i]
        row[:] = w.sum()
        for e in range(0, w.size, 4):
            a0, a1, a2, a3 = A[i, e], A[i, e + 1], A[i, e + 2], A[i, e + 3]
            b0, b1, b2, b3 = B[e], B[e + 1], B[e + 2], B[e + 3]
            w0, w1, w2, w3 = TWO * w[e], TWO * w[e + 1], TWO * w[e + 2], TWO * w[e + 3]
            for j in range(row.size):
                row[j] -= (
                    w0 / (ONE + a0 * b0[j])
                    + w1 / (ONE + a1 * b1[j])
                    + w2 / (ONE + a2 * b2[j])
                    + w3 / (ONE + a3 * b3[j])
                )


def four_dimensions(a, b, w):
    """Four dimensions a pass: the row is read and written a quarter as often."""
    return filled(_four_dimensions, np.exp(2 * a), np.exp(2 * b).T.copy(), w)


def kernel(a, b, w):
    """regard's: w in the denominator, w·r = 1/(1/w + (A/w)·B); two share one reciprocal."""
    a, b, w = (torch.from_numpy(x)[None] for x in (a, b, w))
    tokens = a.shape[1]
    out = torch.empty(1, 1, tokens, tokens)
    nowhere = torch.zeros(1, 0, dtype=torch.int64)
    everything = Rectangle(slice(0, 1), slice(0, tokens), slice(0, tokens), nowhere, nowhere)
    with Threads() as threads:
        AdditiveScores(a[None], b[None], w).fill(threads, out, everything)
    return out[0, 0].flip(0).numpy()  # a block's rows run backward


def filled(kernel, first, second, w):
    out = np.empty((len(first), len(first)), np.float32)
    kernel(first, second, w, out)
    return out


STEPS = [broadcast, loops, once_a_token, vectorized, along_keys, four_dimensions, kernel]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--quick", action="store_true", help="256 tokens, 2 rounds")
    arguments = parser.parse_args()
    tokens, rounds = (256, 2) if arguments.quick else (arguments.tokens, arguments.rounds)
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    a, b = (rng.normal(size=(tokens, 64)).astype(np.float32) for _ in range(2))
    w = rng.normal(size=64).astype(np.float32)
    truth = np.stack([np.tanh(np.float64(row) + b) @ np.float64(w) for row in a])
    # 64 terms of size |w|, each rounded a few times.
    bound = 64 * 4 * np.finfo(np.float32).eps * np.abs(w).max()
    for step in STEPS:
        error = np.abs(step(a, b, w) - truth).max()
        assert error <= bound, f"{step.__name__} is wrong by {error}"
    best = dict.fromkeys(STEPS, np.inf)
    for _ in range(rounds):
        for step in STEPS:
            start = time.process_time()
            step(a, b, w)
            best[step] = min(best[step], time.process_time() - start)
    print(f"{tokens} tokens, width 64, 1 thread; all within {bound:.1e} of float64")
    print("ns a tanh   step to step")
    before = None
    for step in STEPS:
        each = best[step] / (tokens * tokens * 64) * 1e9
        gain = f"{before / each:.1f} times" if before else ""
        print(f"{each:9.3f} {gain:>14}   {step.__doc__}")
        before = each


if __name__ == "__main__":
    main()
