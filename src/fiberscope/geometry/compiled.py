"""How the kernels of the geometry engines are compiled.

Compilation is paid by the first call of a user, and it is proportional to the number of statements. So nothing is
compiled that Python does not need: what only other kernels call has no wrapper and no cache of its own, kernels
allocate nothing, assign no slices and hand on few tuples.
"""

from __future__ import annotations

import numba

kernel = numba.njit(cache=True, nogil=True, error_model="numpy", no_cfunc_wrapper=True)
"""A function that Python calls."""

inner = numba.njit(nogil=True, error_model="numpy", no_cfunc_wrapper=True, no_cpython_wrapper=True)
"""A function that only kernels call."""
