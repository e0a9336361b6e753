"""Progress of long work: a bar in a terminal, a plain line a minute anywhere else."""

import sys
import time
from types import TracebackType
from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

EVERY = 60.0


class Bar:
    """Shows how much of `total` is done, and `details` beside it; use as a context.

    Writes to standard error, so that results can be piped.
    """

    def __init__(self, what: str, total: int, stream: TextIO | None = None):
        self.what, self.total, self.done = what, total, 0
        self._stream = stream or sys.stderr
        self._last = time.monotonic()
        self._bar: Progress | None = None
        if self._stream.isatty():
            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                TaskProgressColumn(),
                TimeRemainingColumn(),
                TextColumn("{task.fields[details]}"),
                console=Console(file=self._stream),
            )
            self._task = self._bar.add_task(what, total=total, details="")

    def __enter__(self) -> "Bar":
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def advance(self, amount: int = 1, details: str = "") -> None:
        """`amount` more is done."""
        self.done += amount
        if self._bar is not None:
            self._bar.update(self._task, completed=self.done, details=details)
        elif time.monotonic() - self._last >= EVERY:
            self._last = time.monotonic()
            share = f"{self.done / self.total:.0%}" if self.total else ""
            print(f"{self.what}: {share} {details}".rstrip(), file=self._stream, flush=True)
