"""Work shared out over threads, by as many as PyTorch uses.

Kernels release the interpreter's lock. Each is called with a range of tasks; what a task writes
does not depend on which thread runs it, so results do not depend on the number of threads.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from types import TracebackType
from typing import Any

import torch


class Threads:
    """A pool of `torch.get_num_threads()` threads, the caller's own among them.

    >>> with Threads() as threads:
    ...     threads.share(lambda text, begin, end: print(text, begin, end), 0, "tasks")
    """

    def __init__(self) -> None:
        self.count = torch.get_num_threads()
        self.pool = ThreadPoolExecutor(self.count - 1) if self.count > 1 else None

    def share(self, kernel: Callable[..., Any], tasks: int, *arguments: Any) -> None:
        """Call ``kernel(*arguments, begin, end)`` over ranges that cover 0 … tasks−1."""
        parts = min(self.count, tasks)
        bounds = [tasks * part // parts for part in range(parts + 1)] if parts else [0]
        ranges = list(pairwise(bounds))
        if self.pool is None or len(ranges) < 2:
            for begin, end in ranges:
                kernel(*arguments, begin, end)
            return
        others = [self.pool.submit(kernel, *arguments, *each) for each in ranges[1:]]
        kernel(*arguments, *ranges[0])
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
