"""How every kernel is compiled."""

from collections.abc import Callable

from numba import njit

# _nrt off: no counting of references to arrays, which would cost more than the arithmetic.
OPTIONS = {"nogil": True, "error_model": "numpy", "fastmath": True, "_nrt": False}


def compiled(function: Callable) -> Callable:
    """Compile `function` for use inside another kernel, of which it becomes a part.

    A call would pass seven words for every array.
    """
    return njit(forceinline=True, **OPTIONS)(function)
