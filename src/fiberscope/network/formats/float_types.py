"""In which float type the numbers of a network are stored."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, assert_never

import numpy as np

from fiberscope.errors import InputError
from fiberscope.network.network import Network
from fiberscope.network.nodes import Add, Affine, Composite, Concat, Given, MaxPool, PiecewiseLinear
from fiberscope.network.source import coarsest
from fiberscope.numerics.floats import FloatArray


def numbers(net: Network) -> Iterator[FloatArray]:
    """Every array of numbers in a network: coefficients, biases, slopes, bounds."""
    for node in net.program:
        match node:
            case Affine():
                yield node.operator.coefficients
                if node.bias is not None:
                    yield node.bias
            case PiecewiseLinear():
                yield node.slopes
            case Composite():
                yield from node.arrays().values()
            case Add() | Concat() | MaxPool():
                pass
            case _:
                assert_never(node)


def narrowest(net: Network, wanted: str = "float32") -> str:
    """The type that is wanted, or the next one that holds every number of the network exactly.

    >>> narrowest(Network([[[0.5]]], [[1.0]])), narrowest(Network([[[0.1]]], [[1.0]]))
    ('float32', 'float64')
    """
    kinds = ("float16", "float32", "float64")
    return next(kind for kind in kinds[kinds.index(wanted) :] if holds(net, kind))


def holds(net: Network, dtype: str) -> bool:
    """Whether a float type holds every number of a network exactly."""
    with np.errstate(over="ignore", under="ignore"):
        return all(np.array_equal(a.astype(dtype).astype(np.float64), a) for a in numbers(net))


def rounded(net: Network, dtype: str = "float32") -> Network:
    """The network with every number rounded to a float type."""

    def near(array: FloatArray) -> FloatArray:
        with np.errstate(over="ignore", under="ignore"):
            result = array.astype(dtype).astype(np.float64)
        if (np.isinf(result) > np.isinf(array)).any():
            raise InputError(f"dtype: expected numbers within the range of {dtype}, got {np.abs(array).max():g}")
        return result

    nodes: list[Given] = []
    for node in net.program:
        match node:
            case Affine():
                operator = node.operator.with_coefficients(near(node.operator.coefficients))
                nodes.append(replace(node, operator=operator, bias=None if node.bias is None else near(node.bias)))
            case PiecewiseLinear():
                nodes.append(replace(node, slopes=near(node.slopes).reshape(node.shape)))
            case Composite():
                arrays: Any = {name: near(array) for name, array in node.arrays().items()}
                nodes.append(replace(node, **arrays))  # type: ignore[type-var]  # every kind is a dataclass
            case Add() | Concat() | MaxPool():
                nodes.append(node)
            case _:
                assert_never(node)
    source = replace(net.source.derived, precision=coarsest([net.source.precision, dtype]))
    return Network.from_nodes(nodes, net.input_shape, source)
