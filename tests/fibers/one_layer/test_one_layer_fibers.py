"""One hidden layer on space and orthant: roles, hyperplanes, cones, factorisations, dimensions."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest
from fiber_cases import free_directions, tail, with_signs
from hypothesis import given, settings
from hypothesis import strategies as st

from fiberscope.errors import InputError
from fiberscope.fibers.fiber import fiber
from fiberscope.fibers.one_layer.factorisations import first_factors, walk
from fiberscope.fibers.one_layer.layer import OneLayer, nonnegative_rank, pointed, rational_rank


def random_layer(d, m, ell, r, seed):
    """``ell`` linear and ``r`` nonlinear neurons on the orthant."""
    rng = np.random.default_rng(seed)
    rows = rng.uniform(0.5, 2.0, (ell + r, d + 1))
    for i in range(ell, ell + r):
        signs = rng.choice([-1.0, 1.0], d + 1)
        signs[:2] = 1.0, -1.0
        rows[i] *= rng.permutation(signs)
    return OneLayer(rows[:, :-1], rows[:, -1], rng.normal(size=(m, ell + r)), rng.normal(size=m), True)


def test_roles_on_space_and_orthant():
    W = [[1.0, 2.0], [-1.0, -2.0], [1.0, -1.0], [0.0, 0.0], [0.0, 0.0], [1.0, 0.0]]
    b = [0.0, -1.0, 3.0, 1.0, 0.0, -1.0]
    V = np.ones((1, 6))
    assert OneLayer(W, b, V, [0.0], True).roles.tolist() == [1, -1, 0, 1, -1, 0]
    assert OneLayer(W, b, V, [0.0], False).roles.tolist() == [0, 0, 0, 1, -1, 0]


@given(st.integers(0, 10**6))
@settings(max_examples=40, deadline=None)
def test_roles_agree_with_values_at_corners(seed):
    rng = np.random.default_rng(seed)
    layer = OneLayer(rng.integers(-1, 2, (6, 2)), rng.integers(-1, 2, 6), np.ones((1, 6)), [0.0], True)
    corners = np.array([[0, 0], [9, 0], [0, 9], [9, 9], [1, 1], [5, 2], [2, 5], [0.1, 0.1]])
    z = corners @ layer.W.T + layer.b
    assert [(r < 0) == bool((z[:, i] <= 0).all()) for i, r in enumerate(layer.roles)] == [True] * 6
    assert [(r > 0) == bool((z[:, i] >= 0).all() and (z[:, i] > 0).any()) for i, r in enumerate(layer.roles)] == [
        True
    ] * 6


def test_coincident_and_cancelling_hyperplanes():
    W = [[1.0, -1.0], [2.0, -2.0], [-0.5, 0.5], [0.1, -0.3], [0.2, -0.6]]
    b = [0.5, 1.0, -0.25, 0.7, 1.4]
    V = [[1.0, 1.0, 4.0, 1.0, -0.5]]
    planes = OneLayer(W, b, V, [0.0], True).hyperplanes
    assert [p.neurons for p in planes] == [(0, 1, 2), (3, 4)]
    assert planes[0].along == (True, True, False) and planes[0].mixed
    assert planes[0].weight[0] == pytest.approx((1 + 2 + 4 * 0.5) * np.sqrt(2))
    assert planes[0].visible and not planes[1].visible  # 1 - 0.5 * 2 = 0, exactly
    nearly = OneLayer(W, b, [[1.0, 1.0, 4.0, 1.0, -0.5 - 2.0**-53]], [0.0], True).hyperplanes
    assert nearly[1].visible


def test_the_superfluous_linear_neuron_of_the_specification():
    """relu(x1+.5) - relu(x2+.2) + relu(x1+2 x2-1) - .3 = relu(2 x1+x2) + relu(1-x1-2 x2) - 1 on the orthant."""
    layer = OneLayer([[1, 0], [0, 1], [1, 2]], [0.5, 0.2, -1], [[1, -1, 1]], [-0.3], True)
    small = OneLayer([[2, 1], [-1, -2]], [0, 1], [[1, 1]], [-1], True)
    x = np.random.default_rng(0).exponential(1.0, (1000, 2))
    value = [np.maximum(x @ k.W.T + k.b, 0) @ k.V.T + k.c for k in (layer, small)]
    np.testing.assert_allclose(value[0], value[1], atol=1e-13)
    assert nonnegative_rank(layer, []) == 2 and nonnegative_rank(layer, [2]) == 1
    assert not fiber(tail(layer.W, layer.b, layer.V, layer.c)).complete


@pytest.mark.parametrize("seed", range(6))
def test_nonempty_orientations_by_the_numbers_of_neurons(seed):
    def kept(d, m, ell, r=3):
        layer = random_layer(d, m, ell, r, seed)
        subsets = [T for k in range(r + 1) for T in itertools.combinations(range(ell, ell + r), k)]
        return layer, subsets, [T for T in subsets if nonnegative_rank(layer, T) <= ell]

    layer, subsets, found = kept(4, 4, 2)  # ell < min(d, m)
    assert found == [()]
    layer, subsets, found = kept(2, 3, 2)  # ell = d
    assert found == subsets
    layer, subsets, found = kept(4, 2, 3)  # ell = m + 1
    assert found == subsets
    layer, subsets, found = kept(4, 2, 2)  # ell = m < d
    assert found == [T for T in subsets if pointed(layer, T)]


@pytest.mark.parametrize(
    ("d", "m", "ell"), [(2, 2, 1), (3, 2, 2), (2, 3, 2), (3, 3, 3), (3, 1, 2), (3, 2, 3), (4, 1, 1)]
)
def test_dimension_formulas_and_functional_dimension(d, m, ell):
    for r, seed in ((1, 0), (2, 1)):
        layer = random_layer(d, m, ell, r, seed)
        rank = min(ell, d, m)
        expected = ell * (d + m) - rank * (d + m - rank)
        assert expected == (ell**2 if ell <= min(d, m) else m * (m + 1) + d)
        assert layer.cell_dimension() == expected
        net = tail(layer.W, layer.b, layer.V, layer.c)
        assert fiber(net).dimension == free_directions(net) == expected


@given(st.integers(0, 10**6))
@settings(max_examples=25, deadline=None)
def test_nonnegative_rank_against_rational_search(seed):
    """One output: the columns are numbers, and the cone is pointed if they have one sign."""
    rng = np.random.default_rng(seed)
    W, V = rng.integers(0, 3, (3, 3)).astype(float), rng.integers(-2, 3, (1, 3)).astype(float)
    layer = OneLayer(W, np.ones(3), V, [0.0], True)
    A = [sum(Fraction(v) * Fraction(w) for v, w in zip(V[0], column, strict=True)) for column in W.T]
    signs = {np.sign(a) for a in A if a}
    least = nonnegative_rank(layer, [])
    assert least == len(signs)
    assert rational_rank(layer.linear_part([])) == int(bool(signs))


def test_the_walk_reaches_the_extremes():
    """Two linear neurons: rows of sum one in a plane are a segment, and the walk comes near both of its ends."""
    rng = np.random.default_rng(0)
    W = np.array([[3.0, 1.0, 1.0, 1.0], [1.0, 1.0, 2.0, 4.0]])
    V = rng.normal(size=(2, 2))
    start = W / W.sum(axis=1, keepdims=True)
    direction = start[1] - start[0]
    steps = -start[0] / direction
    low, high = steps[direction > 0].max(), steps[direction < 0].min()
    seen = []
    A, v, w = V @ W, V, W
    for _ in range(600):
        v, w = walk(v, w, 1, rng)
        assert (w >= 0).all() and np.abs(v @ w - A).max() < 1e-10
        row = w[0] / w[0].sum()
        seen.append((row - start[0]) @ direction / (direction @ direction))
    place = (np.array(seen) - low) / (high - low)
    assert place.min() < 0.02 and place.max() > 0.98


@pytest.mark.parametrize(("m", "d", "inner"), [(1, 3, 2), (2, 5, 3), (3, 2, 2), (2, 2, 3), (3, 6, 4)])
def test_first_factors_of_any_matrix(m, d, inner):
    A = np.random.default_rng(m + d).normal(size=(m, d))
    V, W = first_factors(A, inner)
    assert W.shape == (inner, d) and (W >= 0).all()
    np.testing.assert_allclose(V @ W, A, atol=1e-12)
    assert np.linalg.matrix_rank(W) == min(inner, d)


@pytest.mark.parametrize(("m", "inner"), [(1, 1), (2, 2), (3, 1), (2, 3), (1, 5)])
def test_first_factors_of_the_zero_matrix(m, inner):
    V, W = first_factors(np.zeros((m, 4)), inner, 0)
    assert V.shape == (m, inner) and not V.any()
    assert W.shape == (inner, 4) and (W > 0).all() and np.linalg.matrix_rank(W) == min(inner, 4)


@pytest.mark.parametrize("m", [1, 2, 3, 4])
def test_first_factors_of_a_pointed_cone_and_refusal(m):
    rng = np.random.default_rng(m)
    axis = rng.normal(size=m)
    A = rng.normal(size=(m, 7))
    A = A * np.sign(axis @ A)
    V, W = first_factors(A, m)
    np.testing.assert_allclose(V @ W, A, atol=1e-9)
    with pytest.raises(InputError, match="pointed"):
        first_factors(np.concatenate([A, -A], axis=1), m)


def test_dead_neurons_add_their_freedom():
    layer = random_layer(3, 2, 1, 2, 0)
    W = np.concatenate([layer.W, -np.ones((2, 3))])
    more = OneLayer(W, [*layer.b, -1, -1], np.concatenate([layer.V, np.ones((2, 2))], axis=1), layer.c, True)
    assert more.cell_dimension() == layer.cell_dimension() + 2 * (3 + 2)
    assert free_directions(tail(more.W, more.b, more.V, more.c)) == more.cell_dimension()


def test_wrong_shapes_are_named():
    with pytest.raises(InputError, match="expected b"):
        OneLayer([[1.0]], [1.0, 2.0], [[1.0]], [0.0], True)
    assert with_signs(2, [[1, 1, 1]], 1, 0).widths == (2, 2, 1, 1)
