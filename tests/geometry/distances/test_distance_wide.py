"""Distances of points with thousands of coordinates: the first layer by norms and Gram matrix, against integers."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from math import isqrt

import numpy as np
import pytest

from fiberscope import Network, boundary_distance
from fiberscope.geometry.distances.gradients import ball_margins, gradient_norms
from fiberscope.geometry.distances.reduced import reduced
from fiberscope.network.operators import Dense
from fiberscope.numerics.algebra.bounded import BOUNDED
from fiberscope.numerics.compensated import row_products

WIDTHS = (9000, 120, 7, 2)


@pytest.fixture(scope="module")
def whole() -> Network:
    """A network of small integers; all that is asked of it can be said in integers."""
    rng = np.random.default_rng(3)
    pairs = list(pairwise(WIDTHS))
    weights = [rng.integers(-9, 10, (b, a)).astype(float) for a, b in pairs]
    return Network(weights, [rng.integers(-9, 10, b).astype(float) for _, b in pairs])


def squares(net: Network, x: list[int], scale: int) -> list[tuple[int, int]]:
    """For every neuron ``(scale z(x / scale))^2`` and ``|grad z|^2``, in integers."""
    W, V = (layer.astype(np.int64) for layer in net.as_mlp().weights[:2])
    a, b = (offset.astype(np.int64) for offset in net.as_mlp().biases[:2])
    h = W.astype(object) @ np.array(x, dtype=object) + a.astype(object) * scale
    active = np.array([value > 0 for value in h])
    z = V.astype(object) @ np.where(active, h, 0) + b.astype(object) * scale
    rows = np.concatenate([W, (V * active) @ W])
    return [(int(value) ** 2, int(norm)) for value, norm in zip([*h, *z], (rows**2).sum(axis=1), strict=True)]


def within(found: float, z2: int, g2: int, scale: int, *, above: bool) -> bool:
    """Whether a bound of ``sqrt(z2 / g2) / scale`` is one, decided in integers."""
    bound = Fraction(found) * scale
    return bound * bound * g2 >= z2 if above else bound * bound * g2 <= z2


def test_distances_of_wide_inputs_against_integers(whole: Network) -> None:
    assert reduced(whole).full
    X = np.random.default_rng(4).integers(-9, 10, (6, WIDTHS[0])).astype(float)
    found = boundary_distance(whole, X)
    near = np.round((X + 0.9999999 * (found.point - X)) * 2.0**44) / 2.0**44  # what is left are steps of the grid
    for points, scale in ((X, 1), (near, 1 << 60)):
        found = boundary_distance(whole, points)
        assert (found.upper - found.lower <= 2.0**-20 * found.upper).all()
        assert found.decided.all()
        for k, x in enumerate(points):
            exact = squares(whole, [int(Fraction(v) * scale) for v in x.tolist()], scale)
            best = min(range(len(exact)), key=lambda i: Fraction(*exact[i]))
            assert found.neuron[k] == best
            assert within(found.lower[k], *exact[best], scale, above=False)
            assert within(found.upper[k], *exact[best], scale, above=True)


def test_lengths_by_the_gram_matrix(whole: Network) -> None:
    x = np.random.default_rng(5).integers(-9, 10, WIDTHS[0]).astype(float)
    found = gradient_norms(whole, whole.signs(x[None]).signs)
    for value, error, (_, g2) in zip(
        found.value[0], found.error[0], squares(whole, x.astype(int).tolist(), 1), strict=True
    ):
        low, high = Fraction(value) - Fraction(error), Fraction(value) + Fraction(error)
        assert low * low <= g2 <= high * high
        assert error < 1e-9 * isqrt(g2)


def test_visibility_is_that_of_the_whole_network(whole: Network) -> None:
    X = np.random.default_rng(6).integers(-9, 10, (3, WIDTHS[0])).astype(float)
    dead = whole.as_mlp()
    shut = Network([*dead.weights[:2], np.zeros_like(dead.weights[2])], dead.biases)
    assert boundary_distance(whole, X).visible.all()
    assert not boundary_distance(shut, X).visible.any()


def test_a_wide_product_keeps_its_bound() -> None:
    rng = np.random.default_rng(7)
    W, X = rng.normal(size=(3, 20000)), rng.normal(size=(2, 20000))
    X[1] *= 2.0**-700  # squares leave the floats: another bound
    stage = Dense(W)
    assert stage.roundings < 400
    found = BOUNDED.apply(stage, BOUNDED.take(X))
    pairs = row_products(X[:1], W, np.zeros((1, 3)))
    for i, j in np.ndindex(2, 3):
        exact = sum((Fraction(a) * Fraction(b) for a, b in zip(X[i].tolist(), W[j].tolist(), strict=True)), Fraction(0))
        assert abs(Fraction(found.value[i, j]) - exact) <= Fraction(found.error[i, j])
        if i == 0:
            gap = abs(Fraction(pairs.high[0, j]) + Fraction(pairs.low[0, j]) - exact)
            assert gap <= Fraction(pairs.error[0, j]) < Fraction(1, 10**17)
    assert (found.error[0] < 1e-9).all()


def test_balls_of_a_wide_layer_hold_the_values(whole: Network) -> None:
    x = np.random.default_rng(8).integers(-9, 10, WIDTHS[0]).astype(float) / 4
    found = ball_margins(whole, x, whole.signs(x[None]).signs[0])
    scale = 1 << 60
    for value, error, (z2, _) in zip(
        found.value, found.error, squares(whole, [int(Fraction(v) * scale) for v in x.tolist()], scale), strict=True
    ):
        low, high = (Fraction(value) - Fraction(error)) * scale, (Fraction(value) + Fraction(error)) * scale
        assert max(low, 0) ** 2 <= z2 <= high**2
        assert error <= 1e-14 * value
