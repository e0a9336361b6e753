"""Grids are made one strip at a time in the background, those that are looked at first."""

from collections.abc import Callable, Hashable, Sequence
from threading import Condition, Thread, main_thread

from regard.inspection.atlas.grid import Grid, GridBuild


class GridQueue:
    """Builds wanted grids on a thread of its own, in order of want.

    `start(key)` makes the build of a grid, `finish(key, grid)` receives it. After each strip the
    first wanted build goes on, so that a new want in front is served at once and what was begun is
    resumed later. The thread ends when nothing is wanted.

    >>> GridQueue(start=lambda key: None, finish=lambda key, grid: None).pending
    []
    """

    def __init__(
        self,
        start: Callable[[Hashable], GridBuild],
        finish: Callable[[Hashable, Grid], None],
    ):
        self._start, self._finish = start, finish
        self._builds: dict[Hashable, GridBuild | None] = {}
        self._failed: dict[Hashable, Exception] = {}
        self._at_work: Hashable = None
        self._changed = Condition()
        self._thread: Thread | None = None

    @property
    def pending(self) -> list[Hashable]:
        """What is wanted and not ready, first to be served first."""
        with self._changed:
            return list(self._builds)

    def want(self, keys: Sequence[Hashable]) -> None:
        """Put these in front, in their order; what was wanted before comes after them."""
        with self._changed:
            before = self._builds
            self._builds = {key: before.get(key) for key in keys}
            self._builds |= {key: build for key, build in before.items() if key not in keys}
            for key in keys:
                self._failed.pop(key, None)
            if self._builds and self._thread is None:
                self._thread = Thread(target=self._run, name="regard grids")
                self._thread.start()

    def cancel(self, keys: Sequence[Hashable] | None = None) -> None:
        """Drop these, or all: work done on them is lost."""
        with self._changed:
            for key in list(self._builds) if keys is None else keys:
                self._builds.pop(key, None)

    def progress(self, key: Hashable) -> float:
        """The share of a wanted grid that is done; 0 if it is not begun; its error if it failed."""
        with self._changed:
            if key in self._failed:
                raise self._failed[key]
            build = self._builds.get(key)
            return 0.0 if build is None else build.progress

    def take(self, key: Hashable) -> GridBuild:
        """The build, begun or not, for the caller to go on with: it is wanted no longer."""
        with self._changed:
            self._changed.wait_for(lambda: self._at_work != key)
            build = self._builds.pop(key, None)
        return self._start(key) if build is None else build

    def _run(self) -> None:
        while True:
            with self._changed:
                # A program that ends does not wait for grids that nobody will see.
                if not self._builds or not main_thread().is_alive():
                    self._thread = None
                    return
                key, build = next(iter(self._builds.items()))
                self._at_work = key
            try:
                build = build or self._start(key)
                build.step()
                if build.done:
                    self._finish(key, build.grid())
            except Exception as error:
                self._failed[key] = error
                build = None
            with self._changed:
                self._at_work = None
                if build is None or build.done:
                    self._builds.pop(key, None)
                elif key in self._builds:
                    self._builds[key] = build
                self._changed.notify_all()
