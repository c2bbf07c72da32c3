"""How the kernels of the geometry engines are compiled.

Compilation is paid by the first call of a user, and it is proportional to the number of statements. So nothing is
compiled that Python does not need: what only other kernels call has no wrapper and no cache of its own, kernels
allocate nothing, assign no slices and hand on few tuples.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numba
from numba.core import event

kernel = numba.njit(cache=True, nogil=True, error_model="numpy", no_cfunc_wrapper=True)
"""A function that Python calls."""

sums = numba.njit(cache=True, nogil=True, no_cfunc_wrapper=True, fastmath={"reassoc", "contract"})
"""A function that Python calls, whose sums may be taken in any order."""

inner = numba.njit(nogil=True, error_model="numpy", no_cfunc_wrapper=True, no_cpython_wrapper=True)
"""A function that only kernels call."""

adding = numba.njit(
    nogil=True, error_model="numpy", no_cfunc_wrapper=True, no_cpython_wrapper=True, fastmath={"reassoc", "contract"}
)
"""A function that only kernels call, whose sums may be taken in any order."""

once = numba.njit(nogil=True, error_model="numpy", no_cfunc_wrapper=True, no_cpython_wrapper=True, inline="always")
"""A function that is called in one place and calls others: inside its caller they are optimised once less."""


@contextmanager
def compile_times() -> Iterator[list[float]]:
    """A list that receives, for every function compiled inside the block, the seconds that it took.

    Functions that others call are compiled inside those, and are not listed again.
    """
    times: list[float] = []
    with event.install_timer("numba:compile", times.append):
        yield times
