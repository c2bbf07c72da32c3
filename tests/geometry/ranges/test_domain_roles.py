"""Roles on a domain against the regions of the network and against points."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fiberscope as fs
from fiberscope.geometry.ranges.domain_roles import domain_roles, roles
from fiberscope.geometry.ranges.intervals import ranges
from fiberscope.geometry.ranges.relaxation import Relaxation
from fiberscope.geometry.regions import regions
from fiberscope.network.convolutions import Convolution
from fiberscope.network.network import Network
from fiberscope.network.nodes import Affine, MaxPool, PiecewiseLinear
from fiberscope.testing import CASES, case, fraction_values
from fiberscope.testing.strategies import chains

DOMAINS = (
    fs.Box.cube(2, -1, 1),
    fs.Orthant(2),
    fs.Space(2),
    fs.Polytope([[1.0, 1.0], [-1.0, 0.0], [0.0, -1.0]], [1.0, 0.5, 0.5]),
)


@settings(max_examples=60)
@given(chains(inputs=st.just(2), max_hidden=2), st.sampled_from(DOMAINS), st.integers(0, 99))
def test_no_point_contradicts_a_role(net, domain, seed):
    found = domain_roles(net, domain, time_limit=1.0)
    masks = np.stack([found.dead, found.linear, found.switching, found.undecided])
    assert (masks.sum(axis=0) == 1).all()
    points = domain.sample(64, seed)
    assert domain.contains(points).all()
    signs = net.signs(points).signs
    assert not (signs[:, found.nonnegative & ~net.linear_entries] < 0).any()
    assert not (signs[:, found.nonpositive & ~net.linear_entries] > 0).any()


@settings(max_examples=40)
@given(chains(inputs=st.just(2), max_hidden=2))
def test_roles_on_a_square_are_those_of_the_regions(net):
    box = fs.Box.cube(2)
    found = domain_roles(net, box)
    signs = regions(net, box).sign_vectors
    slopes = np.concatenate([n.slopes for n in net.nodes if isinstance(n, PiecewiseLinear)])
    dead = (signs <= 0).all(axis=0) & (slopes == 0)
    switching = (signs > 0).any(axis=0) & (signs < 0).any(axis=0) & (slopes != 1)
    zero = (signs == 0).all(axis=0)  # both dead and linear
    np.testing.assert_array_equal(found.dead & ~zero, dead & ~zero)
    np.testing.assert_array_equal(found.switching, switching)
    assert not found.undecided.any()


def test_relaxation_and_branching_prove_what_intervals_do_not():
    # relu(x) - relu(x - 1) <= 1 on [-5, 5], so the second-layer neuron is dead; intervals only give 5
    net = Network([[[1.0], [1.0]], [[1.0, -1.0]], [[1.0]]], [[0.0, -1.0], [-1.5], [0.0]])
    wide = Network([[[1.0, 0, 0, 0], [1.0, 0, 0, 0]], [[1.0, -1.0]], [[1.0]]], [[0.0, -1.0], [-1.5], [0.0]])
    for model in (net, wide):
        box = fs.Box.cube(model.in_size, -5, 5)
        assert ranges(model, box)[3].high[0] > 1
        found = domain_roles(model, box)
        assert found.dead.tolist() == [False, False, True]


def test_a_point_found_by_a_relaxation_shows_that_a_neuron_switches():
    # positive only in a corner that random points of a 6-dimensional box hardly meet
    net = Network([np.eye(6), np.ones((1, 6)), [[1.0]]], [np.zeros(6), [-5.99], [0.0]])
    found = domain_roles(net, fs.Box.cube(6, -1, 1))
    assert found.switching[-1]


@pytest.mark.parametrize("name", sorted(CASES))
def test_ranges_hold(name):
    net = case(name)
    box = fs.Box.cube(net.in_size)
    found = ranges(net, box)
    for x in box.sample(3, 0):
        for value, bound in zip(fraction_values(net, x), found, strict=True):
            assert all(low <= v <= high for v, low, high in zip(value, bound.low, bound.high, strict=True))


def test_first_layer_on_an_orthant_is_exact():
    rows = [[-1.0, -1.0], [1.0, 0.0], [-1.0, 1.0], [0.0, 0.0], [1.0, 1.0], [-1.0, 0.0]]
    net = Network([rows, np.ones((1, 6))], [[0.0, 1.0, 0.0, -2.0, -1.0, 1.0], [0.0]])
    found = domain_roles(net, fs.Orthant(2))
    assert found.dead.tolist() == [True, False, False, True, False, False]
    assert found.linear.tolist() == [False, True, False, False, False, False]
    assert found.switching.tolist() == [False, False, True, False, True, True]


def test_dispatch_and_errors():
    net = Network.random((2, 3, 1), 0)
    assert type(roles(net, np.zeros((4, 2)))).__name__ == "Roles"
    assert type(roles(net, fs.Plane.along(2, (0, 1)))).__name__ == "DomainRoles"
    with pytest.raises(fs.InputError, match="dimension"):
        domain_roles(net, fs.Box.cube(3))
    with pytest.raises(fs.InputError, match="interior"):
        domain_roles(net, fs.Polytope([[1.0, 0.0], [-1.0, 0.0]], [0.0, 0.0]))
    with pytest.raises(fs.InputError, match="expected a Box"):
        domain_roles(net, np.zeros(2))
    assert domain_roles(case("affine")).dead.size == 0


@pytest.mark.parametrize("slope", [0.0, 0.5])
@pytest.mark.parametrize("domain", [fs.Orthant(2), fs.Space(2)])
def test_first_layers_are_decided_by_their_weights_alone(domain, slope):
    """Every row and bias out of {-1, 0, 1}: nothing is left open, and a constant neuron does not switch."""
    rows = np.array(list(itertools.product([-1.0, 0.0, 1.0], repeat=3)))
    net = Network([rows[:, :2], np.ones((1, len(rows)))], [rows[:, 2], [0.0]], "leaky_relu", slope=slope)
    found = domain_roles(net, domain)
    low = 0.0 if isinstance(domain, fs.Orthant) else -100.0
    X = np.array(list(itertools.product([low, low + 0.001, 0.01, 100.0, 99.0], repeat=2)))
    values = X @ rows[:, :2].T + rows[:, 2]
    up, down = (values > 0).any(axis=0), (values < 0).any(axis=0)
    assert not found.undecided.any()
    assert np.array_equal(found.switching, up & down)
    assert np.array_equal(found.nonnegative, ~down)
    assert np.array_equal(found.nonpositive, ~up)


def test_a_point_outside_by_rounding_shows_nothing():
    """``0.6 - 0.9 x`` on ``0.9 x <= 0.6``: the optimum of a linear program, rounded, lies beyond the border."""
    net = Network([[[0.0], [-0.9], [0.0]], np.zeros((2, 3))], [[0.0, 0.6, 0.0], [0.0, 0.0]])
    domain = fs.Polytope([[-1.0], [1.0], [0.9], [0.2]], [2.0, 1.0, 0.6, 0.2])
    assert not domain_roles(net, domain).switching[1]


def test_equal_entries_of_pools_take_no_exact_numbers(monkeypatch):
    """Behind activations most windows hold zeros, which float bounds do not tell apart, and which no role asks for."""
    rng = np.random.default_rng(0)
    kernels = rng.normal(size=(4, 1, 3, 3)), rng.normal(size=(3, 4, 2, 2))
    nodes = [
        Affine(0, Convolution(kernels[0], (1, 8, 8))),
        PiecewiseLinear(1, 0.0, (4, 6, 6)),
        MaxPool(2, (4, 6, 6), (3, 3), (1, 1)),
        Affine(3, Convolution(kernels[1], (4, 4, 4)), rng.normal(size=(3, 1, 1))),
        PiecewiseLinear(4, 0.0, (3, 3, 3)),
    ]
    net = Network.from_nodes(nodes, (1, 8, 8))
    asked, signs = [], Network.signs
    monkeypatch.setattr(Network, "signs", lambda self, X: asked.append(len(X)) or signs(self, X))
    found = domain_roles(net, fs.Box.cube(64, -1.0, 1.0))
    assert not asked and found.switching.sum() > 100


def test_neurons_that_floats_leave_open_are_worth_exact_numbers(monkeypatch):
    """A neuron that is ``2^-70 x``, behind two terms that cancel."""
    tiny = 2.0**-70
    net = Network([[[1.0]] * 3, [[1.0, -1.0, tiny]], [[1.0]]], [[5.0] * 3, [-5.0 * tiny], [0.0]])
    monkeypatch.setattr(Relaxation, "of", lambda *args: None)
    assert domain_roles(net, fs.Box([-1.0], [1.0])).switching.tolist() == [False, False, False, True]
