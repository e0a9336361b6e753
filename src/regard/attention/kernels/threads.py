"""Work shared out over threads, by as many as PyTorch uses.

Kernels release the interpreter's lock. Each is called with a range of tasks; what a task writes
does not depend on which thread runs it, so results do not depend on the number of threads.

PyTorch's own threads go on spinning for milliseconds after a matrix product, in the hope of the
next one, and other threads would have to share the processors with them. So where PyTorch runs on
GNU OpenMP, the work is given to its team; else to a pool of our own.
"""

import ctypes
import os
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import pairwise
from types import TracebackType
from typing import Any

import torch

_PIECES_A_THREAD = 8


@cache
def _team() -> Callable[[Callable[[], None], int], None] | None:
    """What calls a function in every thread of PyTorch's team at once, if that is GNU OpenMP's.

    What a thread raises is raised again in the caller's.
    """
    try:
        openmp = ctypes.CDLL("libgomp.so.1", getattr(os, "RTLD_NOLOAD", 0))
        parallel = openmp.GOMP_parallel
    except (OSError, AttributeError):
        return None
    body = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
    parallel.argtypes = [body, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint]
    parallel.restype = None

    def run(work: Callable[[], None], count: int) -> None:
        failures: list[BaseException] = []

        def guarded(_: int | None) -> None:
            try:
                work()
            except BaseException as failure:
                failures.append(failure)

        parallel(body(guarded), None, count, 0)
        if failures:
            raise failures[0]

    return run


class Threads:
    """`torch.get_num_threads()` threads, the caller's own among them: PyTorch's, or a pool.

    >>> with Threads() as threads:
    ...     threads.share(lambda text, begin, end: print(text, begin, end), 0, "tasks")
    """

    def __init__(self) -> None:
        self.count = torch.get_num_threads()
        self.pool: ThreadPoolExecutor | None = None

    def share(self, kernel: Callable[..., Any], tasks: int, *arguments: Any) -> None:
        """Call ``kernel(*arguments, begin, end)`` over ranges that cover 0 … tasks−1."""
        if self.count < 2 or tasks < 2:
            if tasks:
                kernel(*arguments, 0, tasks)
            return
        # More pieces than threads: one that shares its processor with others takes fewer.
        parts = min(tasks, _PIECES_A_THREAD * self.count)
        bounds = [tasks * part // parts for part in range(parts + 1)]
        left = deque(pairwise(bounds))

        def work() -> None:
            while True:
                try:
                    begin, end = left.popleft()
                except IndexError:
                    return
                kernel(*arguments, begin, end)

        if (team := _team()) is not None:
            team(work, self.count)
            return
        if self.pool is None:
            self.pool = ThreadPoolExecutor(self.count - 1)
        others = [self.pool.submit(work) for _ in range(self.count - 1)]
        work()
        for other in others:
            other.result()

    def __enter__(self) -> "Threads":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.pool is not None:
            self.pool.shutdown()
