"""In which float type the numbers of a network are stored."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from fiberscope.errors import InputError
from fiberscope.network.network import Network
from fiberscope.network.nodes import Affine, Node, PiecewiseLinear
from fiberscope.network.source import Source, coarsest
from fiberscope.numerics.floats import FloatArray


def numbers(net: Network) -> Iterator[FloatArray]:
    """Every array of numbers in a network: coefficients, biases, slopes."""
    for node in net.nodes:
        if isinstance(node, Affine):
            yield node.operator.coefficients
            if node.bias is not None:
                yield node.bias
        elif isinstance(node, PiecewiseLinear):
            yield node.slopes


def narrowest(net: Network) -> str:
    """``"float32"`` where it holds every number of the network exactly, else ``"float64"``.

    >>> narrowest(Network([[[0.5]]], [[1.0]])), narrowest(Network([[[0.1]]], [[1.0]]))
    ('float32', 'float64')
    """
    with np.errstate(over="ignore", under="ignore"):
        exact = all(np.array_equal(a.astype(np.float32).astype(np.float64), a) for a in numbers(net))
    return "float32" if exact else "float64"


def rounded(net: Network) -> Network:
    """The network with every number rounded to float32."""

    def near(array: FloatArray) -> FloatArray:
        with np.errstate(over="ignore", under="ignore"):
            result = array.astype(np.float32).astype(np.float64)
        if not np.isfinite(result).all():
            raise InputError(f"dtype: expected numbers within the range of float32, got {np.abs(array).max():g}")
        return result

    nodes: list[Node] = []
    for node in net.nodes:
        if isinstance(node, Affine):
            operator = node.operator.with_coefficients(near(node.operator.coefficients))
            nodes.append(replace(node, operator=operator, bias=None if node.bias is None else near(node.bias)))
        elif isinstance(node, PiecewiseLinear):
            nodes.append(replace(node, slopes=near(node.slopes).reshape(node.shape)))
        else:
            nodes.append(node)
    return Network.from_nodes(nodes, net.input_shape, Source(coarsest([net.source.precision, "float32"])))
