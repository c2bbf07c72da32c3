"""Laws of fibers: members are the same function, dimensions are those of ranks, and yes means no other."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from fiber_cases import free_directions, magnitude, with_signs
from hypothesis import given, settings
from hypothesis import strategies as st
from test_fiber_members import bottlenecks

from fiberscope.network.network import Network
from fiberscope.symmetry.equivalence.ladder import equivalent
from fiberscope.symmetry.fiber.fibers import fiber
from fiberscope.symmetry.fiber.identifiability import identifiability
from fiberscope.symmetry.matching import same_up_to_symmetry

KINDS = {
    "hidden, one neuron": [[1, -1, -1]],
    "hidden": [[1, -1, -1]] * 2,
    "linear": [[1, 1, 1], [1, -1, 1]],
    "linear block": [[1, 1, 1], [1, 1, 1], [-1, 1, 1], [1, -1, 1]],
    "dead": [[-1, -1, -1], [1, -1, 1]],
    "rigid": [[1, -1, 1], [-1, 1, -1]],
    "mirror": [[-1, 1], [-1, 1]],
}


@pytest.mark.parametrize("name", KINDS)
def test_a_hundred_thousand_inputs(name):
    net = with_signs(3, KINDS[name], 2, 5)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100_000, 3)) * 2.0 ** rng.integers(-3, 5, (100_000, 1))
    for other in fiber(net).sample(2, 1):
        assert (np.abs(net(X) - other(X)) / (magnitude(net, X) + magnitude(other, X))).max() < 1e-10


@given(bottlenecks(), st.integers(0, 1000))
@settings(max_examples=40, deadline=None)
def test_members_are_proven_equal(net, seed):
    """Not by inputs: the ladder gives a certificate for every member, of whatever component."""
    for other in fiber(net).sample(2, seed):
        found = equivalent(net, other, time_limit=20)
        assert found.equal is True, found


@pytest.mark.parametrize("name", KINDS)
def test_dimensions_at_generic_members_are_those_of_ranks(name):
    """``D - N - functional dimension`` at a random member of every component, not only at the parameter given."""
    net = with_signs(3, KINDS[name], 2, 7)
    found = fiber(net)
    for component in found.components:
        one = type(found)(net, (component,), found.identifiability, found.setting)
        assert free_directions(one.sample(1, 0)[0]) == component.dimension


def small_networks():
    """All networks 2-2-1-1 with a few numbers, as arrays of parameters, and their exact outputs at some inputs."""
    values, shifts, signs = (-2.0, -1.0, 1.0, 2.0), (-2.0, -1.0, 1.0, 2.0), (-1.0, 1.0)
    W1 = np.array(list(itertools.product(values, repeat=4)))
    W1 = W1[W1[:, 0] * W1[:, 3] != W1[:, 1] * W1[:, 2]]
    rest = np.array(list(itertools.product(shifts, shifts, signs, signs, (-2.0, -1.0, 1.0), signs)))
    parameters = np.concatenate([np.repeat(W1, len(rest), axis=0), np.tile(rest, (len(W1), 1))], axis=1)
    rng = np.random.default_rng(0)
    X = rng.integers(-64, 65, (48, 2)) / 16  # few bits: all sums below are exact
    z = np.einsum("pij,xj->pxi", parameters[:, :4].reshape(-1, 2, 2), X) + parameters[:, None, 4:6]
    y = np.einsum("pxi,pi->px", np.maximum(z, 0), parameters[:, 6:8]) + parameters[:, None, 8]
    return parameters, np.maximum(y, 0) * parameters[:, 9:]


def network_of(p):
    return Network([p[:4].reshape(2, 2), p[None, 6:8], p[None, 9:]], [p[4:6], p[8:9], [0.0]])


def test_identifiable_agrees_with_a_search_over_all_small_networks():
    """Discrete symmetries as well: of those with one function, *yes* has only its orbit, and others are called *no*."""
    parameters, outputs = small_networks()
    order = np.lexsort(outputs.T)
    same = (outputs[order[1:]] == outputs[order[:-1]]).all(axis=1)
    groups = np.split(order, np.flatnonzero(~same) + 1)
    alive = [g for g in groups if len(g) > 1 and outputs[g[0]].any()]
    chosen = sorted(alive, key=len)[::-1][:25] + alive[:: max(1, len(alive) // 60)]
    met = {True: 0, False: 0}
    for group in chosen:
        nets = [network_of(parameters[k]) for k in group[:4]]
        first = identifiability(nets[0])
        for other in nets[1:]:
            verdict = equivalent(nets[0], other, tolerance=0)
            if verdict.equal is not True:  # alike at the inputs tried only
                continue
            orbit = bool(same_up_to_symmetry(nets[0], other))
            met[orbit] += 1
            generic = identifiability(other).identifiable is not None
            if first.identifiable is True and generic:
                assert orbit, (nets[0].weights, other.weights)
            if not orbit and generic and first.identifiable is not None:
                assert first.identifiable is False
                assert fiber(nets[0]).contains(other)
    assert met[False] > 10
