"""*Identifiable* is a claim about all parameters with a function: what it assumes is checked, by oracles of its own."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest
from fiber_cases import with_signs
from hypothesis import example, given, settings
from hypothesis import strategies as st

import fiberscope as fs
from fiberscope.fibers.fiber import fiber
from fiberscope.fibers.hidden_hyperplanes import cancelled_hyperplanes, translate
from fiberscope.fibers.identifiability import identifiability, silent_flips
from fiberscope.fibers.theorems import setting_of
from fiberscope.geometry.domains import Box
from fiberscope.network.network import Network
from fiberscope.testing.assertions import assert_same_function, fraction_values

CANCELLED = Network(  # column 0 of W_3 W_2 is zero
    [np.eye(3), [[-1.0, 2.0, 3.0], [-2.0, 5.0, 1.0]], [[2.0, -1.0]]], [np.zeros(3), [1.0, 3.0], [0.0]]
)


def exactly(array):
    return [[Fraction(float(v)) for v in row] for row in np.atleast_2d(array)]


def reversible(net):
    """Whether a set of neurons of one hidden layer has linear parts that cancel: all subsets, by fractions."""
    W, V = exactly(net.weights[0]), exactly(net.weights[1])
    n, d, m = len(W), len(W[0]), len(V)
    return any(
        all(sum(V[a][i] * W[i][b] for i in T) == 0 for a in range(m) for b in range(d))
        for k in range(1, n + 1)
        for T in itertools.combinations(range(n), k)
    )


@st.composite
def shallow(draw):
    """One hidden layer whose neurons have hyperplanes of their own and are read: only orientations are left."""
    d, m, n = draw(st.integers(1, 2)), draw(st.integers(1, 2)), draw(st.integers(1, 13))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    size = draw(st.sampled_from([2, 4, 40]))
    grain = draw(st.sampled_from([1.0, 0.1, 2.0**-1000, 2.0**400]))
    W, V = (rng.choice([-1, 1], s) * rng.integers(1, size, s) * grain for s in ((n, d), (m, n)))
    return Network([W, V], [W[:, 0] * np.arange(1, n + 1), np.zeros(m)])


@given(shallow())
@example(Network([[[1.0], [-1.0]] * 6, np.ones((1, 12))], [np.arange(12) / 4 - 1, [0.0]]))
@settings(max_examples=80, deadline=None)
def test_one_hidden_layer_agrees_with_all_subsets(net):
    if not setting_of(net).layer.plain:  # rounding may have made two hyperplanes one
        return
    found = identifiability(net)
    assert found.identifiable is (not reversible(net)), found
    assert found.dimension_exact and found.fiber_dimension == 0


def small_functions():
    """All networks 1-2-1 of small integers with f(0) = 0, by their values at all possible kinks and beyond."""
    values = (-2, -1, 0, 1, 2)
    places = sorted({Fraction(-b, w) for b in values for w in values if w})
    places = [places[0] - 1, *places, places[-1] + 1]
    groups = {}
    for p in itertools.product(values, repeat=6):
        (w, b, v) = p[:2], p[2:4], p[4:]

        def at(x, w=w, b=b, v=v):
            return sum(v[i] * max(w[i] * x + b[i], Fraction(0)) for i in range(2))

        key = tuple(at(x) - at(Fraction(0)) for x in places)
        groups.setdefault(key, []).append(p)
    return groups


def orbit(p):
    """A neuron up to scale: its direction, its kink and its weight; sorted."""
    (w, b, v) = p[:2], p[2:4], p[4:]
    return tuple(
        sorted(
            (np.sign(w[i]), Fraction(b[i], abs(w[i])) if w[i] else np.sign(b[i]), v[i] * abs(w[i] or b[i]))
            for i in (0, 1)
        )
    )


def test_one_hidden_layer_agrees_with_a_search_over_all_small_networks():
    met = {True: 0, False: 0}
    for members in list(small_functions().values())[::7]:
        alone = len({orbit(p) for p in members}) == 1
        for p in members[:2]:
            offset = -sum(p[4 + i] * max(p[2 + i], 0) for i in (0, 1))
            net = Network(
                [np.array(p[:2], dtype=float)[:, None], np.array([p[4:]], dtype=float)],
                [np.array(p[2:4], dtype=float), [float(offset)]],
            )
            found = identifiability(net).identifiable
            assert found is not None
            met[found] += 1
            if found:
                assert alone, (p, members)
    assert min(met.values()) > 20


def test_quantised_networks_are_not_called_identifiable():
    """All of 20 random int8 networks 1-64-1 have a vanishing subset."""
    for seed in range(20):
        rng = np.random.default_rng(seed)
        w, v, b = (rng.integers(-127, 128, 64).astype(float) for _ in range(3))
        net = Network([w[:, None], v[None]], [b, [0.0]])
        found = identifiability(net)
        assert found.identifiable is False
        layer = setting_of(net).layer
        if layer.plain:
            ((T,), complete) = silent_flips(layer)
            assert not complete and sum(int(w[i]) * int(v[i]) for i in T) == 0


def test_many_neurons_are_decided_by_independence_or_left_open():
    assert identifiability(Network.random((8, 60, 8), 0)).identifiable is True  # 60 <= 64 products
    assert identifiability(Network.random((20, 15, 1), 0)).identifiable is True
    assert identifiability(Network.random((2, 24, 1), 0)).identifiable is True
    wide = identifiability(Network.random((1, 120, 1), 0))
    assert wide.identifiable is None and "not decided" in wide.reasons[0]


# -- bottlenecks -------------------------------------------------------------------------------------------------------


def full_ranks(net):
    """Definition 8 by fractions: all masks, and all squares of (W_2 | b_2)."""

    def rank(rows):
        rows, count = [list(r) for r in rows], 0
        for column in range(len(rows[0]) if rows else 0):
            pivot = next((r for r in rows[count:] if r[column]), None)
            if pivot is None:
                continue
            rows.remove(pivot)
            rows.insert(count, pivot)
            for k in range(count + 1, len(rows)):
                f = rows[k][column] / pivot[column]
                rows[k] = [a - f * b for a, b in zip(rows[k], pivot, strict=True)]
            count += 1
        return count

    W, V = exactly(net.weights[1]), exactly(net.weights[2])
    table = [[*row, Fraction(float(b))] for row, b in zip(W, net.biases[1], strict=True)]
    n2, n1, m = len(W), len(W[0]), len(V)
    some = [S for k in range(1, max(n1, n2) + 2) for S in itertools.combinations(range(max(n1, n2) + 1), k)]
    for J in (S for S in some if max(S) < n2):
        for S in (S for S in some if max(S) <= n1):
            if rank([[table[j][k] for k in S] for j in J]) < min(len(J), len(S)):
                return False
            if n1 in S:
                continue
            paths = [[sum(V[a][j] * W[j][k] for j in J) for k in S] for a in range(m)]
            if rank(paths) < min(m, len(J), len(S)):
                return False
    return True


@st.composite
def integer_bottlenecks(draw):
    """Small integers: many are generic, and many fail in one condition only."""
    n1, n2, m = draw(st.integers(1, 3)), draw(st.integers(1, 3)), draw(st.integers(1, 2))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    size = draw(st.sampled_from([3, 6, 20]))
    W, b, V = (rng.choice([-1, 1], s) * rng.integers(1, size, s).astype(float) for s in ((n2, n1), (n2,), (m, n2)))
    first = np.eye(n1) + np.triu(rng.integers(-2, 3, (n1, n1)), 1)
    return Network([first, W, V], [rng.integers(-3, 4, n1).astype(float), b, rng.integers(-3, 4, m).astype(float)])


@given(integer_bottlenecks())
@example(CANCELLED)
@settings(max_examples=80, deadline=None)
def test_identifiable_bottlenecks_are_generic(net):
    found = identifiability(net)
    if found.identifiable is True:
        assert full_ranks(net)
        if net.in_size <= 2:
            assert fs.genericity(net, Box.cube(net.in_size, -4.0, 4.0)).generic is not False
    elif found.identifiable is None:
        assert not full_ranks(net)
    if not full_ranks(net):
        assert not found.rigid.any() and not found.dimension_exact and not fiber(net).complete


@given(integer_bottlenecks(), st.integers(0, 1000))
@example(CANCELLED, 0)
@settings(max_examples=40, deadline=None)
def test_members_agree_in_exact_arithmetic(net, seed):
    """At random inputs, as far as the numbers of the members are rounded."""
    rng = np.random.default_rng(seed)
    for other in fiber(net).sample(2, seed):
        for x in rng.integers(-16, 17, (6, net.in_size)) / 4:
            left, right = fraction_values(net, x)[-1], fraction_values(other, x)[-1]
            size = 1 + max(abs(v) for values in fraction_values(other, x) for v in values)
            assert max(abs(p - q) for p, q in zip(left, right, strict=True)) <= Fraction(1e-10) * size


@given(integer_bottlenecks())
@settings(max_examples=60, deadline=None)
def test_ranks_leave_room_for_the_fiber(net):
    """A family of k dimensions through the parameter is in the kernel: the rank is at most ``D - N - k``."""
    X = np.random.default_rng(0).normal(size=(200, net.in_size)) * 2.0 ** np.random.default_rng(1).integers(
        -2, 4, (200, 1)
    )
    rank = fs.functional_dimension(net, X).lower
    assert rank <= net.num_parameters - net.num_hidden - identifiability(net).fiber_dimension


@pytest.mark.parametrize("seed", range(6))
def test_random_identifiable_bottlenecks_have_no_free_direction(seed):
    net = with_signs(3, [[1, -1, 1], [-1, 1, -1], [-1, 1, 1]], 1, seed)
    found = identifiability(net)
    X = np.random.default_rng(0).normal(size=(400, 3)) * 4
    assert found.identifiable is True and found.dimension_exact
    assert fs.functional_dimension(net, X).lower == net.num_parameters - net.num_hidden


def test_a_hyperplane_whose_readers_cancel_can_be_moved():
    found = identifiability(CANCELLED)
    assert found.identifiable is False and not found.rigid.any() and "cancel" in found.reasons[0]
    assert fs.genericity(CANCELLED, Box.cube(3, -2.0, 2.0)).generic is False
    X = np.random.default_rng(0).integers(-64, 65, (200, 3)) / 8
    for t in (-0.75, 0.5, 100.0):
        assert_same_function(CANCELLED, Network(*translate(CANCELLED.weights, CANCELLED.biases, 0, 0, t)), X)
    moved = {round(float(other.biases[0].max()), 6) for other in fiber(CANCELLED).sample(6, 0)}
    assert len(moved) > 3 and fiber(CANCELLED).dimension >= 1


def test_two_hyperplanes_that_move_the_same_biases():
    """Each may go so far that the other may not any more."""
    net = Network([np.eye(2), [[1.0, 1.0], [2.0, 2.0]], [[2.0, -1.0]]], [np.zeros(2), [1.0, 3.0], [0.0]])
    assert [i for i, _, _ in cancelled_hyperplanes(net.weights[1], net.biases[1], net.weights[2])] == [0, 1]
    found = fiber(net)
    X = np.random.default_rng(0).normal(size=(300, 2)) * 4
    for other in found.sample(60, 0):
        assert np.abs(net(X) - other(X)).max() < 1e-10
        path = found.path(other)
        for one in path.networks(7) if path else []:
            assert np.abs(net(X) - one(X)).max() < 1e-8


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=100, deadline=None)
def test_cancelled_hyperplanes_can_be_moved_within_their_bounds(seed):
    rng = np.random.default_rng(seed)
    n1, n2, m = rng.integers(1, 4), rng.integers(1, 4), rng.integers(1, 3)
    W, V = rng.integers(-2, 3, (n2, n1)) * 1.0, rng.integers(-2, 3, (m, n2)) * 1.0
    b = rng.integers(-2, 3, n2) * 1.0
    net = Network([np.eye(n1), W, V], [np.zeros(n1), b, np.zeros(m)])
    X = rng.integers(-64, 65, (100, n1)) / 16
    for i, low, high in cancelled_hyperplanes(W, b, V):
        assert low < 0 < high
        for t in (max(low, -8.0) * 0.5, min(high, 8.0) * 0.5):
            assert_same_function(net, Network(*translate(net.weights, net.biases, 0, i, t)), X)


def test_more_neurons_than_submatrices_can_be_looked_at():
    wide = identifiability(Network.random((20, 18, 18, 1), 0))
    assert wide.identifiable is not True and not wide.rigid.any()
