"""Small adapters to tools that a user may have installed: each imports its peer when it is asked to run.

An ``ImportError`` is shown as *not installed*; any other trouble of a peer is shown and stops nothing.
"""

from __future__ import annotations

import contextlib
import ctypes
import io
import os
import weakref

import numpy as np

from fiberscope.network.network import Network
from harness import Runner


def relucent_regions(net: Network) -> Runner:
    """Regions on all of space by relucent's search over facets (linear programs in several processes)."""
    import relucent

    module = net.to_torch()

    def run() -> int:
        with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
            found = relucent.Complex(module)
            found.bfs()
        return len(found)

    return run


class _Syrenn:
    """A network for SyReNN's own C++, in float32, behind a shared library that the user has and names.

    It is asked for five functions, arrays being float32 and one row after the other: ``network_new() -> network``,
    ``network_free(network)``, ``network_add(network, inputs, outputs, weights as (inputs, outputs), biases, relu)``,
    ``plane(network, corners, inputs, points) -> regions`` and ``segment(network, inputs, both ends) -> regions``.
    """

    def __init__(self, net: Network) -> None:
        path = os.environ.get("SYRENN_LIBRARY")
        if not path:
            raise ImportError("SYRENN_LIBRARY names no library, see benchmarks/peers.py")
        self.library = ctypes.CDLL(path)
        self.library.network_new.restype = ctypes.c_void_p
        self.network = ctypes.c_void_p(self.library.network_new())
        weakref.finalize(self, self.library.network_free, self.network)
        last = len(net.weights) - 1
        for k, (weight, bias) in enumerate(zip(net.weights, net.biases, strict=True)):
            matrix, shift = _float32(weight.T), _float32(bias)
            self.library.network_add(self.network, *matrix.shape, _at(matrix), _at(shift), int(k < last))


def _float32(x: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(x, dtype=np.float32)


def _at(x: np.ndarray) -> ctypes.c_void_p:
    return x.ctypes.data_as(ctypes.c_void_p)


def syrenn_segment(net: Network, a: np.ndarray, b: np.ndarray) -> Runner:
    """Regions along a segment by SyReNN."""
    other, ends = _Syrenn(net), _float32(np.array([a, b]))
    return lambda: int(other.library.segment(other.network, ends.shape[1], _at(ends)))


def syrenn_plane(net: Network, corners: np.ndarray) -> Runner:
    """Regions on a polygon by SyReNN."""
    other, points = _Syrenn(net), _float32(corners)
    return lambda: int(other.library.plane(other.network, *points.shape, _at(points)))
