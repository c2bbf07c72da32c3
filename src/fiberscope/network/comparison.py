"""Whether two networks are one and the same program, bit for bit."""

from __future__ import annotations

from typing import Any

from fiberscope.network.io import NetworkLike, as_network
from fiberscope.network.nodes import Affine, Concat, MaxPool, PiecewiseLinear
from fiberscope.network.operators import Dense


def identical(a: NetworkLike, b: NetworkLike) -> bool:
    """Whether two networks are the same program with bit-identical numbers (not merely the same function).

    >>> from fiberscope.network.network import Network
    >>> net = Network([[[1.0]], [[3.0]]], [[0.5], [0.0]])
    >>> identical(net, Network([[[1.0]], [[3.0]]], [[0.5], [0.0]])), identical(net, Network.random((1, 1, 1), 0))
    (True, False)
    """
    a, b = as_network(a, "a"), as_network(b, "b")

    def same(x: Any, y: Any) -> bool:
        if x is None or y is None:
            return x is y
        return bool(x.shape == y.shape and x.tobytes() == y.tobytes())

    if a.input_shape != b.input_shape or len(a.nodes) != len(b.nodes):
        return False
    for p, q in zip(a.nodes, b.nodes, strict=True):
        if type(p) is not type(q) or p.sources != q.sources or p.shape != q.shape:
            return False
        if isinstance(p, Affine) and isinstance(q, Affine):
            if type(p.operator) is not type(q.operator) or not same(p.bias, q.bias):
                return False
            if (p.weight_name, p.bias_name) != (q.weight_name, q.bias_name):
                return False
            if not same(p.operator.coefficients, q.operator.coefficients):
                return False
            if not isinstance(p.operator, Dense) and (p.operator.sparse() != q.operator.sparse()).nnz:
                return False
        if (
            isinstance(p, PiecewiseLinear)
            and isinstance(q, PiecewiseLinear)
            and not (same(p.slopes, q.slopes) and p.slope_name == q.slope_name)
        ):
            return False
        if isinstance(p, MaxPool) and isinstance(q, MaxPool) and not same(p.windows, q.windows):
            return False
        if isinstance(p, Concat) and isinstance(q, Concat) and (p.shapes, p.axis) != (q.shapes, q.axis):
            return False
    return True
