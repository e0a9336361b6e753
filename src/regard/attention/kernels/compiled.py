"""How kernels are compiled: without the interpreter's lock, kept on disk, on vectors.

``error_model="numpy"``: a division by zero gives infinity, as in NumPy; the default checks every
division, and nothing vectorizes. Sums may be reordered and divisions may go through a reciprocal
estimate with a correction; that no nan comes by is never assumed, so nan comes out where it must.
"""

from numba import njit

_LICENSES = {"reassoc", "contract", "arcp", "nsz", "afn"}

vectorized = njit(nogil=True, cache=True, error_model="numpy", fastmath=_LICENSES)
"""Compile a kernel for any numbers."""

vectorized_finite = njit(nogil=True, cache=True, error_model="numpy", fastmath=_LICENSES | {"ninf"})
"""Compile a kernel that divides by finite numbers only: the estimate is wrong for infinity."""
