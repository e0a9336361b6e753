"""Work shared out over threads, by as many as PyTorch uses.

Kernels release the interpreter's lock. Each is called with a range of tasks; what a task writes
does not depend on which thread runs it, so results do not depend on the number of threads.
"""

from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from types import TracebackType
from typing import Any

import torch

_PIECES_A_THREAD = 8


class Threads:
    """A pool of `torch.get_num_threads()` threads, the caller's own among them, once it has work.

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
