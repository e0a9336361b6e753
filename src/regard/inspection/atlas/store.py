"""What has been computed is kept, the least recently used dropped past a budget of bytes.

>>> store = Store(budget=10)
>>> store.put("a", b"123456", 6)
>>> store.put("b", b"123456", 6)
>>> store.get("a") is None, store.nbytes
(True, 6)
"""

from collections import OrderedDict
from collections.abc import Hashable
from threading import Lock
from typing import Any

from regard.errors import OptionError


class Store:
    """A cache of at most `budget` bytes, shared by threads. What alone exceeds it is not kept."""

    def __init__(self, budget: int):
        if budget < 0:
            raise OptionError(f"the budget is a number of bytes, at least 0, not {budget}")
        self.budget, self.nbytes = budget, 0
        self._kept: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()
        self._lock = Lock()

    def get(self, key: Hashable) -> Any:
        """What is kept under the key, or None; it is now the most recently used."""
        with self._lock:
            if key not in self._kept:
                return None
            self._kept.move_to_end(key)
            return self._kept[key][0]

    def put(self, key: Hashable, value: Any, nbytes: int) -> None:
        """Keep a value of `nbytes` bytes, and drop others until the budget holds."""
        with self._lock:
            if key in self._kept:
                self.nbytes -= self._kept.pop(key)[1]
            if nbytes > self.budget:
                return
            self._kept[key] = value, nbytes
            self.nbytes += nbytes
            while self.nbytes > self.budget:
                self.nbytes -= self._kept.popitem(last=False)[1][1]

    def __len__(self) -> int:
        return len(self._kept)
