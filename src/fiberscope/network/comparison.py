"""Whether two networks are one and the same program, bit for bit."""

from __future__ import annotations

from typing import Any, assert_never

from fiberscope.network.border import NetworkLike, as_network
from fiberscope.network.nodes import Add, Affine, Composite, Concat, Given, MaxPool, PiecewiseLinear
from fiberscope.network.operators import Dense, Operator


def identical(a: NetworkLike, b: NetworkLike) -> bool:
    """Whether two networks are the same program with bit-identical numbers (not merely the same function).

    >>> from fiberscope.network.network import Network
    >>> net = Network([[[1.0]], [[3.0]]], [[0.5], [0.0]])
    >>> identical(net, Network([[[1.0]], [[3.0]]], [[0.5], [0.0]])), identical(net, Network.random((1, 1, 1), 0))
    (True, False)
    """
    a, b = as_network(a, "a"), as_network(b, "b")
    if a.input_shape != b.input_shape or len(a.program) != len(b.program):
        return False
    for p, q in zip(a.program, b.program, strict=True):
        if type(p) is not type(q) or p.sources != q.sources or p.shape != q.shape:
            return False
        if not _same_node(p, q):
            return False
    return True


def _same(x: Any, y: Any) -> bool:
    if x is None or y is None:
        return x is y
    return bool(x.shape == y.shape and x.tobytes() == y.tobytes())


def _same_node(p: Given, q: Any) -> bool:
    """Two nodes of one kind that read the same values and have one shape."""
    match p:
        case Affine():
            names = (p.weight_name, p.bias_name) == (q.weight_name, q.bias_name)
            return names and _same(p.bias, q.bias) and _same_operator(p.operator, q.operator)
        case PiecewiseLinear():
            return p.slope_name == q.slope_name and _same(p.slopes, q.slopes)
        case MaxPool():
            return _same(p.windows, q.windows)
        case Concat():
            return (p.shapes, p.axis) == (q.shapes, q.axis)
        case Add():
            return True
        case Composite():
            theirs = q.arrays()
            return all(_same(array, theirs[name]) for name, array in p.arrays().items())
        case _:
            assert_never(p)


def _same_operator(p: Operator, q: Operator) -> bool:
    if type(p) is not type(q) or not _same(p.coefficients, q.coefficients):
        return False
    return isinstance(p, Dense) or not (p.sparse() != q.sparse()).nnz
