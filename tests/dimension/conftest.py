"""The oracle of this folder: the Jacobian in rational arithmetic, by dual numbers and by definition."""

from __future__ import annotations

from fractions import Fraction

import flint
import numpy as np
import pytest

from fiberscope.network.nodes import Add, Affine, Concat, MaxPool, PiecewiseLinear
from fiberscope.network.operators import Composition

ZERO = Fraction(0)


def places_of(net):
    """First column of every parameter, learned slopes among them, in order of use; and the number of columns."""
    starts, total = {}, 0
    for node in net.nodes:
        own = []
        if isinstance(node, Affine):
            own = [(node.weight_name, node.operator.coefficients), (node.bias_name, node.bias)]
        elif isinstance(node, PiecewiseLinear):
            own = [(node.slope_name, node.own_slopes)]
        for name, value in own:
            if name is not None and name not in starts:
                starts[name] = total
                total += value.size
    return starts, total


def bent(node, starts, vector):
    """The activation on numbers with derivatives; a slope that is a parameter has one of its own."""
    own = np.arange(node.own_slopes.size).reshape(node.own_slopes.shape)
    places = np.broadcast_to(own, node.shape).reshape(-1).tolist()
    for (v, d), s, k in zip(vector, node.slopes.tolist(), places, strict=True):
        if v > 0:
            yield v, d
            continue
        derivative = [Fraction(s) * y for y in d]
        if node.slope_name is not None:
            derivative[starts[node.slope_name] + k] += v
        yield Fraction(s) * v, derivative


def fraction_jacobian(net, x):
    """``(out_size, D)`` Fractions: every number carries its derivatives with respect to all parameters."""
    starts, total = places_of(net)

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
            value = list(bent(node, starts, values[node.source]))
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


def fraction_slopes(net, x, direction):
    """One-sided derivative of every output at ``x`` as the parameters move along ``direction``, by definition.

    Every number is a pair ``(value, slope)``. At a kink the slope decides the side, in a tie the largest slope wins:
    this is the derivative of ``t -> f(theta + t direction)`` from the right at 0.
    """
    starts, total = {}, 0
    for name, value in net.parameters.items():
        starts[name] = total
        total += value.size

    def linear(stage, name, offset, vector):
        numbers = np.arange(1.0, stage.coefficients.size + 1).reshape(stage.coefficients.shape)
        places = stage.with_coefficients(numbers).sparse().tocoo()
        flat = stage.coefficients.reshape(-1)
        result = [(ZERO, ZERO)] * stage.out_size
        for i, j, k in zip(*places.coords, places.data, strict=True):
            w, (v, dv) = Fraction(float(flat[int(k) - 1])), vector[j]
            dw = ZERO if name is None else direction[starts[name] + offset + int(k) - 1]
            result[i] = (result[i][0] + w * v, result[i][1] + w * dv + dw * v)
        return result

    values = [[(Fraction(float(v)), ZERO) for v in np.reshape(x, -1)]]
    for node in net.nodes:
        if isinstance(node, Affine):
            value, offset = values[node.source], 0
            for stage in node.operator.stages():
                value = linear(stage, node.weight_name, offset, value)
                offset += stage.coefficients.size
            if node.bias is not None:
                index = np.broadcast_to(np.arange(node.bias.size).reshape(node.bias.shape), node.operator.out_shape)
                for i, k in enumerate(index.reshape(-1)):
                    db = ZERO if node.bias_name is None else direction[starts[node.bias_name] + int(k)]
                    value[i] = (value[i][0] + Fraction(float(node.bias.reshape(-1)[k])), value[i][1] + db)
        elif isinstance(node, PiecewiseLinear):
            value = [
                pair if pair > (0, 0) else (Fraction(s) * pair[0], Fraction(s) * pair[1])
                for pair, s in zip(values[node.source], node.slopes.tolist(), strict=True)
            ]
        elif isinstance(node, MaxPool):
            value = [max(values[node.source][i] for i in w if i >= 0) for w in node.windows]
        elif isinstance(node, Add):
            columns = zip(*(values[s] for s in node.sources), strict=True)
            value = [(sum(v for v, _ in c), sum(d for _, d in c)) for c in columns]
        else:
            joined = [v for s in node.sources for v in values[s]]
            value = joined if node.order is None else [joined[i] for i in node.order]
        values.append(value)
    return [slope for _, slope in values[-1]]


def linear_in_direction(net, x, tries=12, seed=0):
    """Whether the one-sided derivative is linear in the direction, as far as ``tries`` directions show.

    A piecewise linear network is a continuous selection of polynomials of the parameters, so it has these derivatives,
    and is differentiable exactly where they are linear.
    """
    rng = np.random.default_rng(seed)
    total = net.num_parameters
    units = [[Fraction(int(i == k)) for i in range(total)] for k in range(total)]
    gradient = [fraction_slopes(net, x, unit) for unit in units]
    if any(
        fraction_slopes(net, x, [-v for v in unit]) != [-v for v in known]
        for unit, known in zip(units, gradient, strict=True)
    ):
        return False
    for _ in range(tries):
        # Sizes far apart too: where weights are huge, the other side is a thin cone.
        reach = int(rng.choice([3, 3, 700, 1100]))
        sizes = rng.integers(-reach, reach + 1, total) * (rng.random(total) < rng.choice([0.2, 0.6, 1.0]))
        signs = rng.integers(-9, 10, total)
        direction = [int(v) * Fraction(2) ** int(e) for v, e in zip(signs, sizes, strict=True)]
        expected = [
            sum((d * g[o] for d, g in zip(direction, gradient, strict=True)), ZERO) for o in range(net.out_size)
        ]
        if fraction_slopes(net, x, direction) != expected:
            return False
    return True


@pytest.fixture(scope="session")
def differentiable():
    """``f(net, x)``: whether the outputs at a point are differentiable in the parameters, by one-sided derivatives."""
    return linear_in_direction


@pytest.fixture(scope="session")
def one_sided():
    return fraction_slopes
