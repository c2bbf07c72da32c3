"""The oracle of this folder: the Jacobian in rational arithmetic, by dual numbers and by definition."""

from __future__ import annotations

from fractions import Fraction

import flint
import numpy as np
import pytest

from fiberscope.network.nodes import Add, Affine, Concat, MaxPool, PiecewiseLinear
from fiberscope.network.operators import Composition

ZERO = Fraction(0)


def fraction_jacobian(net, x):
    """``(out_size, D)`` Fractions: every number carries its derivatives with respect to all parameters."""
    starts, total = {}, 0
    for name, value in net.parameters.items():
        starts[name] = total
        total += value.size

    def constant(v):
        return Fraction(float(v)), [ZERO] * total

    def linear(stage, name, offset, vector):
        size = stage.coefficients.size
        numbers = np.arange(1.0, size + 1).reshape(stage.coefficients.shape)
        places = stage.with_coefficients(numbers).sparse().tocoo()
        flat = stage.coefficients.reshape(-1)
        result = [constant(0.0) for _ in range(stage.out_size)]
        for i, j, k in zip(*places.coords, places.data, strict=True):
            w, (v, dv) = Fraction(float(flat[int(k) - 1])), vector[j]
            derivative = [a + w * b for a, b in zip(result[i][1], dv, strict=True)]
            if name is not None:
                derivative[starts[name] + offset + int(k) - 1] += v
            result[i] = (result[i][0] + w * v, derivative)
        return result

    values = [[constant(v) for v in np.reshape(x, -1)]]
    for node in net.nodes:
        if isinstance(node, Affine):
            value, offset = values[node.source], 0
            for stage in node.operator.operators if isinstance(node.operator, Composition) else [node.operator]:
                value = linear(stage, node.weight_name, offset, value)
                offset += stage.coefficients.size
            if node.bias is not None:
                index = np.broadcast_to(np.arange(node.bias.size).reshape(node.bias.shape), node.operator.out_shape)
                for i, k in enumerate(index.reshape(-1)):
                    derivative = list(value[i][1])
                    if node.bias_name is not None:
                        derivative[starts[node.bias_name] + k] += 1
                    value[i] = (value[i][0] + Fraction(float(node.bias.reshape(-1)[k])), derivative)
        elif isinstance(node, PiecewiseLinear):
            value = [
                (v, d) if v > 0 else (Fraction(s) * v, [Fraction(s) * y for y in d])
                for (v, d), s in zip(values[node.source], node.slopes.tolist(), strict=True)
            ]
        elif isinstance(node, MaxPool):
            source = values[node.source]
            value = [source[max((i for i in w if i >= 0), key=lambda i: source[i][0])] for w in node.windows]
        elif isinstance(node, Add):
            columns = zip(*(values[s] for s in node.sources), strict=True)
            value = [(sum(v for v, _ in c), [sum(d) for d in zip(*(d for _, d in c), strict=True)]) for c in columns]
        else:
            assert isinstance(node, Concat)
            joined = [v for s in node.sources for v in values[s]]
            value = joined if node.order is None else [joined[i] for i in node.order]
        values.append(value)
    return [derivative for _, derivative in values[-1]]


def fraction_rank(rows):
    """Rank over the rationals by elimination."""
    table = [[flint.fmpq(v.numerator, v.denominator) for v in row] for row in rows]
    return int(flint.fmpq_mat(table).rank())


@pytest.fixture(scope="session")
def rational_jacobian():
    """``f(net, X)``: all rows as lists of Fractions."""
    return lambda net, X: [row for x in X for row in fraction_jacobian(net, x)]


@pytest.fixture(scope="session")
def rational_rank():
    return fraction_rank
