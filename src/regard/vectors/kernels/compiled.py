"""How every kernel is compiled."""

from collections.abc import Callable
from typing import Any

from numba import njit

# _nrt off: no counting of references to arrays, which would cost more than the arithmetic.
OPTIONS: Any = {"nogil": True, "error_model": "numpy", "fastmath": True, "_nrt": False}

_INNER: Any = OPTIONS | {
    "forceinline": True,
    "no_cpython_wrapper": True,
    "no_cfunc_wrapper": True,
}


def compiled(function: Callable) -> Callable:
    """Compile `function` for use inside another kernel, of which it becomes a part.

    A call would pass seven words for every array. `function` stands under ``@no_type_check``: Numba
    compiles it as it is, so nothing may wrap it.
    """
    return njit(**_INNER)(function)
