"""The tangent kernel of a plain ReLU chain with one output at few points, where calls are dearer than arithmetic.

The same sum as in :mod:`fiberscope.dimension.kernels.kernel`, ``sum_l (Delta_l Delta_l^T) * (A_{l-1} A_{l-1}^T + 1)``,
with the signs of the same floats, and nothing between the matrix products.
"""

from __future__ import annotations

from weakref import WeakKeyDictionary

import numpy as np

from fiberscope.network.network import Network
from fiberscope.network.nodes import Affine
from fiberscope.numerics.floats import FloatArray

MOST_POINTS = 180
"""Two matrices of so many rows and columns stay in a core's cache."""

_chains: WeakKeyDictionary[Network, tuple[Affine, ...] | None] = WeakKeyDictionary()


def plain_chain(net: Network) -> tuple[Affine, ...] | None:
    """The layers, if all have a weight and a bias of their own, ReLUs between them, and there is one output."""
    if net not in _chains:
        _chains[net] = net.layout.affine if _is_plain(net) else None
    return _chains[net]


def _is_plain(net: Network) -> bool:
    if not net.is_chain or net.out_size != 1 or net.layout.slopes.any() or net.linear_entries.any():
        return False
    layers = net.layout.affine
    names = {name for node in layers for name in (node.weight_name, node.bias_name) if name is not None}
    shapes = all(node.bias is not None and node.bias.shape == (node.operator.out_size,) for node in layers)
    return shapes and len(names) == 2 * len(layers)


def small_kernel(layers: tuple[Affine, ...], X: FloatArray) -> FloatArray:
    """The kernel of a batch with itself, ``(points, points)``."""
    inputs, masks = [X], []
    for node in layers[:-1]:
        z = node.operator.apply(inputs[-1])
        assert node.offset is not None
        z += node.offset
        masks.append(z > 0)
        inputs.append(np.maximum(z, 0.0, out=z))
    result = inputs[-1] @ inputs[-1].T
    result += 1.0
    left, right = np.empty((2, *result.shape))
    delta = layers[-1].operator.coefficients
    for k in range(len(masks) - 1, -1, -1):
        delta = delta * masks[k]
        np.matmul(delta, delta.T, out=left)
        np.matmul(inputs[k], inputs[k].T, out=right)
        right += 1.0
        left *= right
        result += left
        if k:
            delta = delta @ layers[k].operator.coefficients
    return np.asarray(result)
