"""Facets, ridges and decision boundaries: weight formulas, visibility, balance, what does not change the function."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fiberscope.errors import TooLargeError, UnsupportedModelError
from fiberscope.geometry.complex import Complex
from fiberscope.geometry.decision import decision_boundary, difference_network
from fiberscope.geometry.domains import Box, Domain, Orthant, Plane, Space
from fiberscope.geometry.engines.lattice.engine import lattice_cells
from fiberscope.geometry.facets import to_scale, unit
from fiberscope.geometry.folds.conditions import cancels_nothing, is_honest
from fiberscope.geometry.function import function_from
from fiberscope.geometry.regions import regions
from fiberscope.network.action.chain import permute, rescale
from fiberscope.network.network import Network
from fiberscope.testing.cases import CASES, degenerate
from fiberscope.testing.strategies import chains


def test_weights_of_one_hidden_layer() -> None:
    net = Network.random((3, 7, 2), 1)
    complex = regions(net, Box.cube(3))
    facets = complex.facets
    W, V = net.weights
    for row in np.flatnonzero(~facets.boundary):
        (i,) = facets.neurons[int(row)]
        length = np.linalg.norm(W[i])
        np.testing.assert_allclose(facets.weight[row], V[:, i] * length, rtol=1e-12)
        np.testing.assert_allclose(np.abs(facets.normal[row] @ W[i]), length, rtol=1e-14)
    assert facets.visible[~facets.boundary].all()
    assert not facets.visible[facets.boundary].any()


def test_neurons_that_share_a_hyperplane_add_their_weights() -> None:
    net = Network([[[1.0, 2.0], [1.0, 2.0], [-0.5, -1.0]], [[3.0, 1.0, -4.0]]], [[0.5, 0.5, -0.25], [0.0]])
    facets = regions(net, Box.cube(2)).facets
    (row,) = np.flatnonzero(~facets.boundary)
    assert facets.neurons[int(row)].tolist() == [0, 1, 2]
    np.testing.assert_allclose(facets.weight[row], [(3 + 1 - 4 * 0.5) * np.sqrt(5)])
    hidden = Network((*net.weights[:1], np.array([[1.0, 1.0, -4.0]])), net.biases)
    facets = regions(hidden, Box.cube(2)).facets
    assert not facets.visible.any()  # 1 + 1 - 4 / 2 = 0: a cancellation
    assert not cancels_nothing(regions(hidden, Box.cube(2))).holds


def test_weights_of_a_deep_network() -> None:
    net = Network.random((3, 6, 5, 4, 2), 3)
    complex = regions(net, Box.cube(3))
    facets, signs = complex.facets, complex.structure.signs(2)
    starts = np.cumsum([0, 6, 5, 4])
    for row in np.flatnonzero(~facets.boundary)[::3]:
        (neuron,) = facets.neurons[int(row)]
        layer = int(np.searchsorted(starts, neuron, side="right")) - 1
        active = signs[facets.cell[row]] > 0
        masks = [np.diag(active[a:b].astype(float)) for a, b in itertools.pairwise(starts)]
        gradient = np.eye(3)
        for k in range(layer):
            gradient = masks[k] @ net.weights[k] @ gradient
        gradient = (net.weights[layer] @ gradient)[neuron - starts[layer]]
        after = np.eye(len(net.weights[layer]))[:, neuron - starts[layer]]
        for k in range(layer + 1, 4):
            after = net.weights[k] @ after
            after = masks[k] @ after if k < 3 else after
        np.testing.assert_allclose(facets.weight[row], after * np.linalg.norm(gradient), atol=1e-13)


def test_visibility_is_exact() -> None:
    # behind a dead second layer nothing is visible, though the first layer has its facets
    dead = regions(degenerate("dead_layer"), Box.cube(2))
    assert (~dead.facets.boundary).any()
    assert not dead.facets.visible.any()
    assert cancels_nothing(dead).holds  # no active path, so no cancellation
    # a weight of one unit in the last place is visible
    tiny = Network([[[1.0], [1.0]], [[1.0, -np.nextafter(1, 0)]]], [[0.0, 0.0], [0.0]])
    assert regions(tiny, Box([-1], [1])).breakpoint_complex.size == 1
    none = Network([[[1.0], [1.0]], [[1.0, -1.0]]], [[0.0, 0.0], [0.0]])
    assert regions(none, Box([-1], [1])).breakpoint_complex.size == 0


# --- gradients at the ends of the floats ----------------------------------------------------------------


@pytest.mark.parametrize("scale", [1e-200, 1e200, 1e-307, 1e307, 5e-324])
def test_unit_vectors_of_any_length(scale: float) -> None:
    vectors = np.array([[3.0, -4.0], [0.0, 1.0], [0.0, 0.0]]) * scale
    (scaled,) = to_scale(vectors)
    assert (np.abs(scaled[:2]).max(axis=1) >= 0.5).all()
    assert (np.abs(scaled[:2]).max(axis=1) < 1).all()
    np.testing.assert_allclose(unit(vectors), np.array([[0.6, -0.8], [0, 1], [0, 0]]), rtol=1e-15)


@pytest.mark.parametrize(
    "weights",
    [[1e-200, 1e200], [1e200, 1e-200], [1e-300, 1e300], [1e300, 1e-300], [1e-150, 1e-150, 1e300], [1.0, 1.0]],
)
def test_facets_of_tiny_and_huge_gradients(weights: list[float]) -> None:
    net = Network([[[w]] for w in weights], [[-0.25 * weights[0]]] + [[0.0]] * (len(weights) - 1))
    complex = regions(net, Box([-1], [1]))
    facets = complex.facets
    row = int(np.flatnonzero(~facets.boundary)[0])
    assert facets.visible[row]
    assert abs(facets.normal[row, 0]) == 1
    assert facets.offset[row] == pytest.approx(0.25 * facets.normal[row, 0])
    assert facets.weight[row] == pytest.approx(np.prod(weights), rel=1e-12)
    assert complex.verify().ok
    X = np.linspace(-1, 1, 9)[:, None]
    for region in (None, 0, 1):
        np.testing.assert_allclose(function_from(complex, region)(X), net(X), rtol=1e-12, atol=1e-12)


def test_a_gradient_beyond_the_floats_has_an_exact_normal() -> None:
    # the second layer's gradient is (3, 4) 1e400 in exact numbers, and infinite in floats
    net = Network([[[3e200, 4e200]], [[1e200]], [[1e-300]]], [[1e200], [-1e308], [0.0]])
    complex = regions(net, Box.cube(2))
    facets = complex.facets
    inner = ~facets.boundary
    assert inner.any()
    np.testing.assert_allclose(np.abs(facets.normal[inner]), [[0.6, 0.8]] * int(inner.sum()), rtol=1e-14)
    np.testing.assert_allclose(np.abs(facets.offset[inner]), 0.2, rtol=1e-12)
    assert facets.visible[inner].any()


def test_ridges_of_tiny_and_huge_gradients_balance() -> None:
    plain = Network.random((2, 5, 4, 1), 3)
    expected = regions(plain, Box.cube(2))
    for scale in (2.0**-700, 2.0**700):
        (A, B, C), (a, b, c) = plain.weights, plain.biases
        net = Network([A * scale, B / scale, C], [a * scale, b, c])
        complex = regions(net, Box.cube(2))
        assert complex.num_regions == expected.num_regions
        assert complex.verify().ok
        assert complex.balance().unchecked == expected.balance().unchecked == 0
        np.testing.assert_allclose(
            np.sort(complex.facets.weight[:, 0]), np.sort(expected.facets.weight[:, 0]), atol=1e-12
        )
        assert complex.bending.sum() == expected.bending.sum()


def test_the_certificate_sees_wrong_facets() -> None:
    net = Network.random((2, 4, 1), 0)
    underflow = regions(Network([[[1e-300]], [[1e-100]]], [[0.0], [0.0]]), Box([-1], [1]))
    assert underflow.facets.visible.any()
    assert not underflow.facets.weight.any()  # 1e-400 in exact numbers
    assert underflow.verify().ok
    row = int(np.flatnonzero(regions(net, Box.cube(2)).facets.visible)[0])
    for name, value in [("normal", 0.0), ("offset", np.nan), ("weight", 0.0), ("visible", False), ("normal", np.nan)]:
        complex = regions(net, Box.cube(2))
        assert complex.verify().ok
        changed = getattr(complex.facets, name).copy()
        changed[row] = value
        complex.__dict__["facets"] = dataclasses.replace(complex.facets, **{name: changed})
        failed = [check.name for check in complex.verify().checks if not check.ok]
        assert "facets" in failed, name


def breakpoints(net: Network, box: Box) -> list[list[float]]:
    """Visible facets as rows that do not depend on the parameter: normal up to sign, offset, weight, size, centre."""
    complex = Complex(net, box, lattice_cells(net, box))
    facets, rows = complex.facets, complex.breakpoint_complex
    total: dict[tuple[float, ...], Any] = {}
    for row in rows:
        normal, offset = facets.normal[row], facets.offset[row]
        turn = np.sign(normal[np.flatnonzero(np.abs(normal) > 1e-9)[0]])
        key = tuple(np.round([*(turn * normal), turn * offset, *facets.weight[row]], 7) + 0.0)
        # one facet of the function may be cut into several by what does not show: add up what lies in one plane
        total[key] = total.get(key, 0.0) + complex.wall_sizes[facets.cell[row]]
    return sorted([*key, round(size, 7)] for key, size in total.items())


def test_the_weighted_breakpoint_complex_belongs_to_the_function() -> None:
    box = Box.cube(2)
    net = Network.random((2, 7, 6, 1), 5)
    wanted = breakpoints(net, box)
    assert len(wanted) > 5
    rng = np.random.default_rng(0)
    same = [
        permute(net, [rng.permutation(7), rng.permutation(6)]),
        rescale(net, [rng.uniform(0.3, 3, 7), rng.uniform(0.3, 3, 6)]),
        _split_neuron(net),
        _with_cancelling_pair(net),
    ]
    for other in same:
        X = rng.uniform(-1, 1, (50, 2))
        np.testing.assert_allclose(other(X), net(X), atol=1e-12)
        assert breakpoints(other, box) == wanted
    assert breakpoints(Network.random((2, 7, 6, 1), 8), box) != wanted


def _split_neuron(net: Network) -> Network:
    """Neuron 0 of the first layer twice, with a third and two thirds of its outgoing weights."""
    W, V, *rest = net.weights
    weights = [np.concatenate([W, W[:1]]), np.concatenate([V, V[:, :1] * (2 / 3)], axis=1), *rest]
    weights[1][:, 0] = V[:, 0] / 3
    return Network(weights, [np.concatenate([net.biases[0], net.biases[0][:1]]), *net.biases[1:]])


def _with_cancelling_pair(net: Network) -> Network:
    """Two more second-layer neurons with opposite outgoing weights: more facets, the same function."""
    W, V, U = net.weights
    row = np.random.default_rng(5).normal(size=(1, V.shape[1]))
    weights = [W, np.concatenate([V, row, row]), np.concatenate([U, [[0.7, -0.7]]], axis=1)]
    return Network(weights, [net.biases[0], np.concatenate([net.biases[1], [0.1, 0.1]]), net.biases[2]])


# --- ridges ---------------------------------------------------------------------------------------------


def test_only_the_interaction_of_two_layers_bends() -> None:
    flat = regions(Network.random((3, 6, 1), 0), Box.cube(3))
    assert len(flat.ridges) > 5
    assert not flat.bending.any()
    assert is_honest(flat).holds
    deep = regions(Network.random((3, 6, 6, 1), 0), Box.cube(3))
    zero = deep.structure.signs(1)[deep.ridges.cell] == 0
    first, second = zero[:, :6].sum(axis=1), zero[:, 6:].sum(axis=1)
    assert (deep.bending == ((first == 1) & (second == 1))).all()
    assert is_honest(deep).holds
    assert cancels_nothing(deep).holds


def test_a_bend_that_vanishes_makes_a_network_dishonest() -> None:
    # the second neuron of the second layer does not see the first neuron: its line goes straight across
    weights = [[[1.0, 0.0], [0.0, 1.0], [0.0, -1.0]], [[0.0, 1.0, -1.0]], [[1.0]]]
    complex = regions(Network(weights, [[0.0, 2.0, 2.0], [-0.5], [0.0]]), Box.cube(2))
    crossing = len(complex.ridges)
    assert crossing == 1
    assert not complex.bending.any()
    assert not is_honest(complex).holds


@pytest.mark.parametrize("name", ["chain", "deep", "residual", "leaky", "integer", "through_origin", "zero_rows"])
def test_weights_balance(name: str) -> None:
    net = CASES[name]()
    complex = regions(net, Box.cube(net.in_size))
    found = complex.balance()
    assert found.ok
    assert found.unchecked == 0
    assert found.residual < 1e-11
    # the check can fail: turn one weight around
    facets, ridges = complex.facets, complex.ridges
    busy = ridges.facets.indices[np.abs(facets.weight[ridges.facets.indices]).max(axis=1).argmax()]
    facets.weight[busy] *= 1.001
    try:
        assert not complex.balance().ok
    finally:
        facets.weight[busy] /= 1.001


@given(chains(inputs=st.integers(2, 3), max_width=4, max_hidden=2))
@settings(max_examples=30)
def test_ridges_of_degenerate_networks(net: Network) -> None:
    complex = Complex(net, Box.cube(net.in_size), lattice_cells(net, Box.cube(net.in_size)))
    assert complex.balance().ok
    normals = complex.facets.normal[complex.ridges.facets.indices]
    numbers = np.abs(np.concatenate([w.reshape(-1) for w in net.weights]))
    tame = numbers.max() < 100 and numbers[numbers > 0].min(initial=1.0) > 0.01
    for row in range(len(complex.ridges)):
        own = normals[complex.ridges.facets.indptr[row] : complex.ridges.facets.indptr[row + 1]]
        gram = np.abs(own @ own.T)
        alone = ((gram > 1 - 1e-12).sum(axis=1) == 1).any()
        # floats show a bend that is large enough; the exact answer may know of more
        assert complex.bending[row] == alone or (complex.bending[row] and not tame)


# --- decision boundaries --------------------------------------------------------------------------------


def test_decision_boundary_of_three_classes() -> None:
    net = Network.random((2, 6, 5, 3), 5)
    complex = regions(net, Box.cube(2))
    boundary = decision_boundary(complex)
    refined = boundary.complex
    X = np.random.default_rng(0).uniform(-1, 1, (2000, 2))
    assert set(net(X).argmax(axis=1)) <= set(boundary.labels)
    assert (net(refined.points).argmax(axis=1) == boundary.labels).all()
    # a facet is on the boundary iff the classes on its sides differ
    sides = refined.sides
    inner = sides[:, 1] >= 0
    differ = inner & (boundary.labels[sides[:, 0]] != boundary.labels[sides[:, 1]])
    assert boundary.cells[1].tolist() == np.flatnonzero(differ).tolist()
    assert boundary.num_facets > 0
    assert boundary.to_dict()["components"] == boundary.num_components >= 1


def test_decision_boundary_of_one_output() -> None:
    # |x| + |y| = 1/2: a diamond of four edges, in one piece
    weights = [[[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]], [[1.0, 1.0, 1.0, 1.0]]]
    net = Network(weights, [[0.0] * 4, [-0.5]])
    boundary = decision_boundary(regions(net, Box.cube(2)))
    assert boundary.num_facets == 4
    assert boundary.num_components == 1
    assert boundary.area == pytest.approx(4 * np.sqrt(0.5))
    assert sorted(set(boundary.labels.tolist())) == [0, 1]


def test_decision_boundary_where_classes_tie_everywhere() -> None:
    net = Network([[[1.0]], [[1.0], [1.0]]], [[0.0], [0.0, 0.0]])
    boundary = decision_boundary(regions(net, Box([-1], [1])))
    assert (boundary.labels == -1).all()
    with pytest.raises(TooLargeError, match="classes"):
        difference_network(Network.random((2, 50), 0))


@pytest.mark.parametrize("domain", [Space(2), Orthant(2)])
@pytest.mark.parametrize("classes", [1, 3])
def test_decision_boundary_of_an_unbounded_domain(domain: Domain, classes: int) -> None:
    found = []
    for seed in range(4):
        boundary = decision_boundary(regions(Network.random((2, 4, classes), seed), domain))
        found.append(boundary.area)
        assert boundary.to_dict()["components"] == boundary.num_components <= boundary.num_facets
        assert (boundary.num_components > 0) == (boundary.num_facets > 0)
        assert str(boundary.num_facets) in repr(boundary)
    assert np.inf in found or (domain, classes) == (Orthant(2), 1)


def test_pieces_that_meet_only_at_infinity_are_two() -> None:
    # |x - 2| = 1: two parallel rays in the quadrant, two parallel lines in the plane, cut by y = 0
    net = Network([[[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0]], [[1.0, 1.0, 0.0]]], [[-2.0, 2.0, 0.0], [-1.0]])
    cases: list[tuple[Domain, int]] = [(Space(2), 4), (Orthant(2), 2)]
    for domain, facets in cases:
        boundary = decision_boundary(regions(net, domain))
        assert boundary.num_facets == facets
        assert boundary.num_components == 2


def test_ties_that_change_no_decision_are_on_the_boundary() -> None:
    # the outputs |x| and 0 touch at 0, where the first is the larger one on both sides
    net = Network([[[1.0], [-1.0]], [[1.0, 1.0], [0.0, 0.0]]], [[0.0, 0.0], [0.0, 0.0]])
    boundary = decision_boundary(regions(net, Box([-1], [1])))
    assert boundary.labels.tolist() == [0, 0]
    assert boundary.num_facets == boundary.num_components == 1


def test_max_pooling_has_facets_but_no_exact_bends() -> None:
    net = CASES["convolutional"]()
    plane = Plane(*np.random.default_rng(0).normal(size=(3, 72)), Box.cube(2, -0.1, 0.1))
    complex = regions(net, plane)
    facets = complex.facets
    one, two = complex.affine_maps[0][facets.regions[~facets.boundary].T]
    jump = np.abs(two - one).max(axis=(1, 2))
    assert (facets.visible[~facets.boundary] == (jump > 1e-9)).all()
    with pytest.raises(UnsupportedModelError, match="as_mlp"):
        _ = complex.bending
