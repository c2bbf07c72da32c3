"""Small adapters to tools that a user may have installed: each imports its peer when it is asked to run.

An ``ImportError`` is shown as *not installed*; any other trouble of a peer is shown and stops nothing.
"""

from __future__ import annotations

import contextlib
import io
from typing import Any

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


def _syrenn_network(net: Network) -> Any:
    """The network as SyReNN's client has it; its server must run (see SyReNN's own pages), else it raises."""
    import pysyrenn

    if not pysyrenn.Network.has_connection():
        raise RuntimeError("pysyrenn finds no server")
    layers: list[Any] = []
    for weight, bias in zip(net.weights, net.biases, strict=True):
        layers += [pysyrenn.FullyConnectedLayer(weight.T, bias), pysyrenn.ReluLayer()]
    return pysyrenn.Network(layers[:-1])


def syrenn_segment(net: Network, a: np.ndarray, b: np.ndarray) -> Runner:
    """Regions along a segment by SyReNN: one less than the endpoints that it lists."""
    other = _syrenn_network(net)
    return lambda: len(other.exactline(a, b, compute_preimages=False, include_post=False)) - 1


def syrenn_plane(net: Network, corners: np.ndarray) -> Runner:
    """Regions on a polygon by SyReNN."""
    other = _syrenn_network(net)
    return lambda: len(other.transform_plane(corners, compute_preimages=True, include_post=False))
