"""Connected components of fibers: known cases, and a slow oracle with named neurons and no theory about them."""

from __future__ import annotations

import itertools
from math import factorial

import networkx as nx
import numpy as np
import pytest

import fiberscope as fs


def layer(planes, weights, linear, neurons):
    """``linear x + sum weights relu(planes)`` with so many neurons, those for the linear part and dead ones too."""
    planes = [list(map(float, p)) for p in planes]
    rows, out = list(planes), list(map(float, weights))
    if any(linear):
        rows += [[*linear, 0.5], [*(-v for v in linear), -0.5]]
        out += [1.0, -1.0]
    rows += [[0.0] * (len(linear) + 1)] * (neurons - len(rows))
    out += [0.0] * (neurons - len(out))
    table = np.array(rows, dtype=float)
    return fs.Network([table[:, :-1], np.array([out])], [table[:, -1], np.zeros(1)])


def oracle(planes, weights, linear, neurons):
    """Components with named neurons and up to order, by listing where each neuron is, with ranks in floats.

    A neuron is dead, on a side of a hyperplane, or on a side of one more hyperplane. Two strata meet if one neuron
    goes between dead and a place while the others can do without it, or if that hyperplane goes to a visible one.
    """
    normals = np.array([p[:-1] for p in planes], dtype=float).reshape(len(planes), len(linear))
    d = len(linear)

    def open_part(places):
        """What is left to be made, and by which normals it can be."""
        A, mixed = np.array(linear, dtype=float), []
        for h in range(len(planes)):
            along, against = (h, 1) in places, (h, -1) in places
            if not along and not against:
                return None
            if not along:
                A = A + weights[h] * normals[h]
            if along and against:
                mixed.append(normals[h])
        return A, np.array(mixed).reshape(-1, d)

    def rank(matrix):
        return np.linalg.matrix_rank(matrix, tol=1e-9) if matrix.size else 0

    def possible(places):
        found = open_part(places)
        if found is None:
            return False
        A, mixed = found
        if {("g", 1), ("g", -1)} <= set(places):
            return rank(np.vstack([mixed, A])) > rank(mixed)  # a group that is not needed is dead
        return not any(p and p[0] == "g" for p in places) and rank(np.vstack([mixed, A])) == rank(mixed)

    spots = [None, *((h, s) for h in range(len(planes)) for s in (1, -1)), ("g", 1), ("g", -1)]
    states = [s for s in itertools.product(spots, repeat=neurons) if possible(s)]
    graph = nx.Graph()
    graph.add_nodes_from(states)
    plain = {s: tuple(None if p and p[0] == "g" else p for p in s) for s in states}
    for state in states:
        for i, spot in itertools.product(range(neurons), spots):
            if state[i] is None and spot is not None:
                more = (*state[:i], spot, *state[i + 1 :])
                if more in graph:
                    graph.add_edge(state, more)
                bare = tuple(None if p and p[0] == "g" else p for p in more)
                if bare in graph and state != plain[state]:
                    graph.add_edge(state, bare)  # the group has become superfluous
        if state != plain[state]:
            A, mixed = open_part(state)
            for h in range(len(planes)):
                here = np.vstack([mixed, normals[h]])
                if rank(np.vstack([here, A])) == rank(here):
                    # A = c n_h + ...: neurons along A go to the side of h that looks along c n_h
                    c = np.linalg.lstsq(here.T, A, rcond=None)[0][-1]
                    to = {("g", 1): (h, int(np.sign(c))), ("g", -1): (h, -int(np.sign(c)))}
                    graph.add_edge(state, tuple(to.get(p, p) for p in state))
    parts = list(nx.connected_components(graph))
    orbits = nx.Graph()
    name = {s: k for k, part in enumerate(parts) for s in part}
    orbits.add_nodes_from(range(len(parts)))
    for state, (i, j) in itertools.product(states, itertools.combinations(range(neurons), 2)):
        swapped = list(state)
        swapped[i], swapped[j] = swapped[j], swapped[i]
        orbits.add_edge(name[state], name[tuple(swapped)])
    return nx.number_connected_components(orbits), len(parts)


RAMP = ([(1, 0), (1, -1)], [1, -1], [0])
CASES = [
    (*RAMP, 2), (*RAMP, 3), (*RAMP, 4),
    ([(1, 0)], [1], [0], 1), ([(1, 0)], [1], [0], 2), ([(1, 0)], [1], [0], 3), ([(1, 0)], [1], [2], 3),
    ([], [], [1], 2), ([], [], [1], 3), ([], [], [0], 2),
    ([(1, 0, 0), (0, 1, -1)], [1, -1], [0, 0], 3), ([(1, 0, 0), (0, 1, -1)], [1, -1], [0, 0], 4),
    ([(1, 0, 0), (0, 1, -1)], [1, 2], [1, 0], 4), ([(1, 2, 0), (1, 2, -1)], [2, -2], [0, 0], 4),
    ([(1, 0, 0), (0, 1, 0), (1, 1, 0)], [1, 1, -1], [0, 0], 3),
    ([(1, 0, 0), (0, 1, 0), (1, 1, 0)], [1, 1, -1], [0, 0], 4),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_components_are_those_of_the_slow_enumeration(case):
    found = fs.fiber(layer(*case)).topology()
    assert (found.components, found.labelled) == oracle(*case)
    assert found.components == len(set(found.component)) and found.graph.number_of_nodes() == len(found.strata)


def test_known_cases():
    counts = {n: fs.fiber(layer(*RAMP, n)).topology() for n in (2, 3, 4)}
    assert [(t.components, t.labelled) for t in counts.values()] == [(2, 4), (2, 2), (1, 1)]
    plain = fs.Network([np.array([[1.0, 0.3], [0.2, 1.0], [1.0, -1.0]]), np.array([[1.0, 2.0, -0.7], [0.5, 1.0, 1.0]])],
                       [np.array([0.1, 0.2, 0.3]), np.zeros(2)])  # fmt: skip
    found = fs.fiber(plain).topology()
    assert (found.components, found.labelled) == (1, factorial(3)) and found.among == "all parameters"


def test_a_walk_through_strata_stays_in_the_fiber():
    net = layer(*RAMP, 4)
    other = fs.Network([[[0.0], [-2.0], [-1.0], [1.0]], [[0.0, 0.5, -1.0, 0.0]]], [[1.0, 0.0, 1.0, 5.0], [1.0]])
    X = np.linspace(-4, 4, 41)[:, None]
    assert np.abs(net(X) - other(X)).max() < 1e-12
    found = fs.fiber(net).connection(other)
    assert found and "strata" in found.reason
    nets = found.path.networks(101)
    assert max(np.abs(n(X) - net(X)).max() for n in nets) < 1e-9
    flat = np.array([np.concatenate([a.ravel() for a in (*n.weights, *n.biases)]) for n in nets])
    assert np.abs(np.diff(flat, axis=0)).max() < 0.6  # no jumps
    assert fs.identical(fs.permute(other, [found.path.permutations[0]]), nets[-1])


def test_members_of_different_components_are_told_apart():
    other = fs.Network([[[-2.0], [-1.0], [0.0]], [[0.5, -1.0, 0.0]]], [[0.0, 1.0, 0.0], [1.0]])
    found = fs.fiber(layer(*RAMP, 3)).connection(other)
    assert found.connected is False and "different components" in found.reason


def test_bottlenecks_and_what_is_not_proven():
    hidden = fs.Network([[[1.0, 0.5], [0.0, 1.0]], [[1.0, -2.0]], [[1.0]]], [[0.0, 0.0], [-0.5], [0.0]])
    found = fs.fiber(hidden).topology()
    assert (found.components, found.labelled, found.among) == (2, 4, "generic parameters")
    deep = fs.fiber(fs.Network.random((2, 2, 2, 2, 1), 0)).topology()
    assert deep.components is None and "proven for" in deep.reason
    wide = fs.Network.random((2, 16, 1), 0)
    assert fs.fiber(wide).topology().components is None
