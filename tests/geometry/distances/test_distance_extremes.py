"""Distances where floats overflow, underflow or lose everything: the bounds against fractions, by definition."""

from __future__ import annotations

import itertools
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fiberscope.geometry.distances.distance import boundary_distance
from fiberscope.geometry.distances.gradients import gradient_norms
from fiberscope.geometry.distances.nearest_visible import visible_boundary_distance
from fiberscope.network.network import Network
from fiberscope.network.nodes import Affine, Clip, Given
from fiberscope.network.operators import Dense
from fiberscope.numerics.floats import FloatArray

Row = list[Fraction]


def rows_of(x: Any) -> list[Row]:
    return [[Fraction(float(v)) for v in row] for row in np.atleast_2d(x)]


def squares(net: Network, x: FloatArray) -> list[Fraction | None]:
    """``|z|^2 / |grad z|^2`` of every neuron on the region of ``x``, in fractions; None where the gradient vanishes."""
    point = [Fraction(float(v)) for v in x]
    n = len(point)
    forms: list[Row] = [[Fraction(int(i == j)) for j in range(n + 1)] for i in range(n)]
    found: list[Fraction | None] = []
    for W, b in zip(net.weights[:-1], net.biases[:-1], strict=True):
        new = []
        for row, c in zip(rows_of(W), b, strict=True):
            form = [sum((w * f[k] for w, f in zip(row, forms, strict=True)), Fraction(0)) for k in range(n + 1)]
            form[n] += Fraction(float(c))
            z = sum((g * p for g, p in zip(form, point, strict=False)), form[n])
            steep = sum((g * g for g in form[:n]), Fraction(0))
            found.append(z * z / steep if steep else None)
            new.append(form if z > 0 else [Fraction(0)] * (n + 1))
        forms = new
    return found


def scaled(rng: np.random.Generator, shape: tuple[int, ...], style: str) -> FloatArray:
    plain = np.round(rng.normal(size=shape), 1)
    factor = {"decimal": 1.0, "huge": 1e160, "tiny": 1e-160, "subnormal": 5e-324, "edge": 1e-308, "far": 1e300}
    if style == "mixed":
        return np.asarray(plain * 10.0 ** rng.integers(-300, 301, shape))
    return np.asarray(np.round(plain * 10) * factor[style] if style == "subnormal" else plain * factor[style])


STYLES = st.sampled_from(["decimal", "huge", "tiny", "subnormal", "edge", "far", "mixed"])


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_the_bounds_hold_in_fractions_at_every_scale(data: st.DataObject) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    sizes = [data.draw(st.integers(1, 3)) for _ in range(data.draw(st.integers(2, 4)))] + [1]
    weights = [scaled(rng, (m, n), data.draw(STYLES)) for n, m in itertools.pairwise(sizes)]
    biases = [scaled(rng, (m,), data.draw(STYLES)) for m in sizes[1:]]
    net = Network(weights, biases)
    X = scaled(rng, (2, sizes[0]), data.draw(STYLES))
    with np.errstate(all="raise", under="ignore"):
        found = boundary_distance(net, X)
    for row, x in enumerate(X):
        truth = squares(net, x)
        known = [d for d in truth if d is not None]
        assert not np.isnan([found.distance[row], found.lower[row], found.upper[row]]).any()
        assert found.lower[row] <= found.distance[row] <= found.upper[row]
        if not known:
            assert found.neuron[row] == -1 and found.lower[row] == np.inf
            continue
        assert found.neuron[row] >= 0 and np.isfinite(found.distance[row])
        assert Fraction(float(found.lower[row])) ** 2 <= min(known)
        assert found.upper[row] == np.inf or min(known) <= Fraction(float(found.upper[row])) ** 2
        own = truth[found.neuron[row]]
        assert own is not None
        # the neuron that is named is nearest up to the bounds
        assert found.upper[row] == np.inf or own <= (Fraction(float(found.upper[row])) * Fraction(1001, 1000)) ** 2
        assert np.isfinite(found.point[row]).all()
        gap, high = found.upper[row] - found.lower[row], found.upper[row]
        assert gap <= 1e-9 * high or high < 1e-290 or high == np.inf, "nine digits, where floats have them"


def test_a_value_that_cancels_has_a_distance_with_its_digits() -> None:
    """Bounds of size ``2^25 eps`` around .1125 enclose it, and still show a wrong number in the eighth digit."""
    far = 2.0**25
    nodes: list[Given] = [
        Affine(0, Dense([[-1.0]]), np.array([-1.0])),
        Clip(1, np.array([-far]), np.array([0.1875]), (1,)),
    ]
    net = Network.from_nodes(nodes, (1,))
    found = visible_boundary_distance(net, [[-1.3]])
    truth = Fraction(1.3) - Fraction(1.1875)
    assert found.complete[0] and found.upper[0] - found.lower[0] < 1e-10
    assert Fraction(float(found.lower[0])) <= truth <= Fraction(float(found.upper[0]))
    assert float(found.distance[0]) == pytest.approx(float(truth), rel=1e-9)


@pytest.mark.parametrize("weight", [1e160, 1e-160, 1e-310, 5e-324])
def test_two_layers_beyond_the_floats_have_a_distance(weight: float) -> None:
    net = Network([[[weight]], [[weight]], [[1.0]]], [[0.0], [0.0], [0.0]])
    found = boundary_distance(net, [[1.0]])
    assert found.distance[0] == pytest.approx(1.0) and found.neuron[0] == 0
    assert found.lower[0] <= 1 <= found.upper[0]
    assert found.decided[0] and found.visible[0]


def test_a_distance_beyond_the_largest_float_is_not_called_none() -> None:
    net = Network([[[1e-300]], [[1.0]]], [[1e200], [0.0]])  # at 1e500
    found = boundary_distance(net, [[1.0]])
    assert found.neuron[0] == 0 and np.isfinite(found.distance[0])
    assert np.isfinite(found.lower[0]) and found.upper[0] == np.inf
    assert visible_boundary_distance(net, [[1.0]]).neuron[0] == 0


def test_a_gradient_that_overflowed_is_never_proven_to_vanish() -> None:
    net = Network([[[1e200]], [[1e200]], [[0.0], [1.0]], [[1.0, 1.0]]], [[0.0], [0.0], [1.0, 0.0], [0.0]])
    found = gradient_norms(net, np.ones((1, 4), dtype=np.int8))
    assert found.error[0, 1] == np.inf and found.error[0, 3] == np.inf
    on_it = boundary_distance(net, [[0.0]])  # zero there, with a gradient that floats cannot hold
    assert on_it.distance[0] == 0 and on_it.neuron[0] >= 0


@pytest.mark.parametrize("weight", [1e-200, 1e200, 5e-324])
def test_the_search_beyond_an_invisible_facet_does_not_lose_rows(weight: float) -> None:
    # y is not listened to; x + 1, through two layers whose product floats do not hold, is
    net = Network([[[weight, 0.0], [0.0, 1.0]], [[weight, 0.0]], [[1.0]]], [[weight, 0.0], [0.0], [0.0]])
    found = visible_boundary_distance(net, [[2.0, 1.0]])
    assert found.distance[0] == pytest.approx(3.0) and found.ended[0]


def test_twins_one_ulp_apart_are_told_apart() -> None:
    """``x - relu(z) + relu(z - 4e-16)``: the first of two kinks that nearly coincide is a kink."""
    rows, biases = [[1.0, 0.0], [-2.0, 1.0], [-2.0, 1.0]], [0.0, -2.0, -2.0000000000000004]
    net = Network([rows, [[1.0, -1.0, 1.0]]], [biases, [0.0]])
    found = boundary_distance(net, [[-0.4658481237826916, 1.0]])
    assert found.neuron[0] == 1 and found.decided[0] and found.visible[0]
    far = visible_boundary_distance(net, [[-0.4658481237826916, 1.0]])
    assert far.distance[0] == found.distance[0] and far.complete[0]


def test_the_nearest_of_a_tie_that_bounds_do_not_tell() -> None:
    # -x, and -x + 3.6e-310 to which nobody listens: that one is nearer to 2
    net = Network([[[-1.0], [-1.0]], [[1.0, 0.0]]], [[0.0, 3.60091173648834e-310], [0.0]])
    found = boundary_distance(net, [[2.0], [-5.0]])
    assert found.neuron.tolist() == [1, 0] and found.decided.all()
    assert found.visible.tolist() == [False, True]


def test_exact_copies_are_crossed_together() -> None:
    net = Network([[[3.0], [1.0], [-2.0]], [[1.0, -3.0, 0.0]]], [[-3.0, -1.0, 2.0], [0.0]])
    found = boundary_distance(net, [[0.0], [2.5]])
    assert found.decided.all() and found.visible.tolist() == [False, False]
    assert found.tied.tolist() == [3, 3]
    assert np.isinf(visible_boundary_distance(net, [[0.0]]).distance[0])


def test_far_hyperplanes_are_not_taken_for_one_another() -> None:
    """Kinks at 0 (invisible), 7e13 and -1.8e13: the last one is seen, and no copy of the one before."""
    net = Network([[[-(2.0**-30)]], [[-1.0], [1.0]], [[0.0, -1.0]]], [[0.0], [-65536.0, -16384.0], [0.0]])
    found = visible_boundary_distance(net, [[1.395]])
    assert found.distance[0] == pytest.approx(2.0**44 + 1.395) and found.neuron[0] == 2


def test_a_coordinate_far_larger_than_the_others_is_not_called_complete() -> None:
    """What is near beside 1e9 may be far beside the kinks: the search says that it does not know."""
    weights = [[[1.0, 0.0]], [[0.0], [-1.0]], [[-0.6, 1.0]], [[1.0]]]
    net = Network(weights, [[0.0], [2.0, 1.0], [0.5], [0.0]])
    near, far = (visible_boundary_distance(net, [[0.8, y]]) for y in (0.0, -1e9))
    assert near.distance[0] == pytest.approx(0.5) and near.ended[0]
    assert far.searched[0] <= 0.5 * (1 + 1e-6) and far.lower[0] <= 0.5
    assert not far.ended[0] or far.distance[0] == pytest.approx(0.5, abs=1e-6)
