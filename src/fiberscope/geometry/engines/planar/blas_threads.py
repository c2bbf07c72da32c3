"""One thread of BLAS for each thread of ours: products that wait for each other's threads cost five times as much."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from numpy.linalg import _umath_linalg

_lock = threading.Lock()
_users: list[int] = []
"""What the number of threads was, once for every block inside :func:`single_blas`."""


def _blas() -> Any:
    """The OpenBLAS that NumPy's wheels bring along, or None: a BLAS of another kind is left as it is."""
    try:
        library = ctypes.CDLL(_umath_linalg.__file__)
        return library if hasattr(library, "scipy_openblas_set_num_threads64_") else None
    except (OSError, AttributeError):  # pragma: no cover - depends on how NumPy was built
        return None


@contextmanager
def single_blas() -> Iterator[None]:
    """Matrix products take one thread inside the block, in the whole process; afterwards as many as before."""
    library = _blas()
    if library is None:  # pragma: no cover - depends on how NumPy was built
        yield
        return
    with _lock:
        _users.append(_users[0] if _users else int(library.scipy_openblas_get_num_threads64_()))
        library.scipy_openblas_set_num_threads64_(1)
    try:
        yield
    finally:
        with _lock:
            before = _users.pop()
            if not _users:
                library.scipy_openblas_set_num_threads64_(before)
