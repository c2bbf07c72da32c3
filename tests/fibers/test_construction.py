"""The identifiable construction: its claims by the geometry engine, its witnesses and covering in any size."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fiberscope.errors import InputError
from fiberscope.fibers import construction
from fiberscope.fibers.construction import identifiable_construction, identifiable_network
from fiberscope.fibers.identifiability import identifiability
from fiberscope.fibers.local import local_identifiability
from fiberscope.fibers.witnesses import exact_witnesses
from fiberscope.geometry.domains import Box, Orthant
from fiberscope.geometry.folds.bend_chains import chains_of
from fiberscope.geometry.folds.genericity import genericity
from fiberscope.geometry.regions import regions
from fiberscope.network.network import Network

SMALL = [(2, 2, 1), (2, 2, 2, 1), (3, 2, 2, 1), (2, 2, 2, 2, 1), (3, 3, 2, 1), (3, 3, 3, 2, 1)]


@pytest.mark.parametrize("widths", SMALL, ids=str)
def test_the_lemma_holds_by_the_engine(widths: tuple[int, ...]) -> None:
    box = Box(np.linspace(-3, -1, widths[0]), np.linspace(-0.5, 4, widths[0]))
    net = identifiable_network(widths, box, seed=5)
    complex = regions(net, box)
    found = genericity(complex)
    assert (found.general, found.transparent) == (True, True), found.reasons
    for layer, chains in enumerate(chains_of(complex), start=1):
        assert chains.needed == len(widths) - 2 - layer
        assert chains.units == tuple(range(widths[layer]))
        assert chains.enough


def test_other_seeds_give_other_networks_that_pass() -> None:
    nets = [identifiable_construction((2, 2, 2, 1), Box.cube(2), seed) for seed in range(6)]
    assert all(found.checked and found.general and found.transparent for found in nets)
    assert len({found.network.weights[0].tobytes() for found in nets}) == 6
    again = identifiable_network((2, 2, 2, 1), Box.cube(2), 3)
    assert np.array_equal(again.weights[1], nets[3].network.weights[1])


@given(
    st.lists(st.integers(2, 6), min_size=2, max_size=5).map(lambda w: tuple(sorted(w, reverse=True))),
    st.integers(1, 3),
    st.integers(0, 10**6),
    st.floats(-10, 10),
    st.floats(0.01, 100),
)
@settings(max_examples=12, deadline=None)
def test_witnesses_and_covering_in_any_size(
    hidden: tuple[int, ...], outputs: int, seed: int, low: float, span: float
) -> None:
    box = Box.cube(hidden[0], low, low + span)
    net, trails = construction._draw((*hidden, outputs), box, np.random.default_rng(seed))
    assert net.widths == (*hidden, outputs)
    found = exact_witnesses(net, trails)
    assert [len(w.inputs) for w in found] == list(hidden[1:])
    for layer, witnesses in enumerate(found):
        assert witnesses.least > 0
        for unit, point in enumerate(witnesses.inputs):
            assert all(a < x < b for x, a, b in zip(point, box.low, box.high, strict=True))
            values = forward(net, point)
            assert all(z > 0 for k in range(layer) for z in values[k])
            assert values[layer][unit] == 0
            assert all(z >= witnesses.least for i, z in enumerate(values[layer]) if i != unit)
            assert layer + 1 == len(found) or values[layer + 1][0] == 0
    assert construction._covers(net, box)
    signs = net.signs(np.random.default_rng(seed).uniform(box.low, box.high, (500, box.dimension))).signs
    for part in [place.columns for place in net.layout.places]:
        assert (signs[:, part][:, :2] >= 0).any(axis=1).all()


def forward(net: Network, point: np.ndarray) -> list[list[Fraction]]:
    """Preactivations of all hidden layers, in fractions, the slow way."""
    a, found = list(point), []
    for W, b in zip(net.weights[:-1], net.biases[:-1], strict=True):
        rows = zip(W.tolist(), b.tolist(), strict=True)
        found.append([sum((Fraction(w) * x for w, x in zip(row, a, strict=True)), Fraction(c)) for row, c in rows])
        a = [max(z, Fraction(0)) for z in found[-1]]
    return found


@pytest.mark.parametrize("widths", [(2,) * 21, (12,) * 6], ids=len)
def test_depth_is_not_limited_by_floats(widths: tuple[int, ...]) -> None:
    box = Box.cube(widths[0])
    net, trails = construction._draw((*widths, 1), box, np.random.default_rng(0))
    found = exact_witnesses(net, trails)
    assert all(w.least > 0 for w in found)
    values = forward(net, found[-1].inputs[1])
    assert values[-1][1] == 0 and all(z > 0 for layer in values[:-1] for z in layer)
    rounded = net.preactivations(found[-1].inputs.astype(float))
    assert len(widths) < 20 or np.abs(np.diag(rounded[-1])).min() > 1e-9  # floats there are far from being a zero


@pytest.mark.slow
def test_ten_layers_of_twelve() -> None:
    found = identifiable_construction((12,) * 11 + (1,), Box.cube(12), 0)
    assert found.transparent and found.margin > 0.1 and len(found.witnesses) == 10


@pytest.mark.parametrize("widths", [(2, 3, 3, 1), (2, 2, 3, 2), (3, 5, 2, 4, 1), (2, 8, 1)], ids=str)
def test_widths_that_increase_are_determined_among_neighbours(widths: tuple[int, ...]) -> None:
    box = Box.cube(widths[0])
    found = identifiable_construction(widths, box, seed=3)
    net, local = found.network, found.local
    assert local.identifiable and local.rank == local.needed == net.num_parameters - net.num_hidden
    assert box.contains(local.points).all()
    # the oracle: the rank of differences of values, and a neighbour that is no rescaling has another function
    J = np.array([numerical_gradient(net, x) for x in local.points]).reshape(-1, net.num_parameters)
    sizes = np.linalg.svd(J, compute_uv=False)
    assert sizes[local.needed - 1] > 1e-7 * sizes[0]
    weights = [w.copy() for w in net.weights]
    weights[1][0, 0] += 1e-3
    assert np.abs(net(local.points) - Network(weights, net.biases)(local.points)).max() > 1e-9


def numerical_gradient(net: Network, x: np.ndarray) -> np.ndarray:
    """Of the outputs by the parameters, by differences: the network is affine in each of them nearby."""
    arrays, step, columns = [*net.weights, *net.biases], 1e-7, []
    for k, array in enumerate(arrays):
        for index in np.ndindex(*array.shape):
            moved = [a.copy() for a in arrays]
            moved[k][index] += step
            other = Network(moved[: len(net.weights)], moved[len(net.weights) :])
            columns.append((other(x[None]) - net(x[None]))[0] / step)
    return np.array(columns).T


def test_what_a_rank_does_not_prove_is_undecided() -> None:
    net = identifiable_network((2, 3, 3, 1), Box.cube(2), 0)
    weights = [w.copy() for w in net.weights]
    weights[0][1] = 2 * weights[0][0]
    twin = Network(weights, [np.array([b[0], 2 * b[0], *b[2:]]) if k == 0 else b for k, b in enumerate(net.biases)])
    found = local_identifiability(twin, Box.cube(2))
    assert found.identifiable is None and found.rank < found.needed
    assert "undecided" in repr(found)


def test_several_outputs_are_determined_by_one_of_them() -> None:
    box = Box.cube(3)
    found = identifiable_construction((3, 3, 2, 2), box, seed=0)
    assert found.checked and found.general and found.network.widths == (3, 3, 2, 2)
    verdict = identifiability(found.network, box)
    assert verdict.identifiable and "output 0 alone" in verdict.assumptions[0]


@pytest.mark.parametrize(
    ("net", "domain", "word"),
    [(Network([[[1.0, 2.0]]], [[0.0]]), None, "a hidden one"), (Network.random((2, 2, 1), 0), Orthant(2), "a box"),
     (Network.random((2, 2, 1), 0), Box.cube(3), "dimension")],
)  # fmt: skip
def test_bad_input_of_the_local_question(net: Network, domain: Box, word: str) -> None:
    with pytest.raises(InputError, match=word):
        local_identifiability(net, domain)


def test_large_ones_say_that_the_graphs_were_not_computed() -> None:
    found = identifiable_construction((8, 5, 5, 3, 1), Box.cube(8), seed=1)
    assert not found.checked and found.chains is None and found.general is None and found.transparent
    assert "graphs not computed" in repr(found)
    assert found.to_dict()["chains"] is None


def test_the_covering_check_can_fail() -> None:
    net = identifiable_network((2, 2, 2, 1), Box.cube(2), seed=0)
    weights = [w.copy() for w in net.weights]
    weights[1][1] *= 30.0  # unit 1 now falls below zero before unit 0 rises above it
    assert construction._covers(net, Box.cube(2))
    assert not construction._covers(Network(weights, net.biases), Box.cube(2))
    assert not construction._covers(net, Box.cube(2, -30.0, 30.0))


def test_a_random_network_need_not_have_the_chains() -> None:
    counts = [chains_of(regions(Network.random((2, 2, 2, 1), seed), Box.cube(2)))[0].enough for seed in range(12)]
    assert not all(counts)


@pytest.mark.parametrize(
    ("widths", "domain", "word"),
    [
        ((3, 2, 1, 1), Box.cube(3), "at least 2"),
        ((3, 2, 0), Box.cube(3), "number of outputs"),
        ((2, 1), Box.cube(2), "at least one hidden layer"),
        ((1, 1, 1), Box.cube(1), "at least 2"),
        ((2.5, 2, 1), Box.cube(2), "integers"),
        ((2, 2, 1), Box.cube(3), "2 dimensions"),
        ((2, 2, 1), Orthant(2), "a box"),
    ],
)
def test_bad_input(widths: tuple[int, ...], domain: Box, word: str) -> None:
    with pytest.raises(InputError, match=word):
        identifiable_network(widths, domain, 0)


@pytest.mark.parametrize(("widths", "checked"), [((5, 5, 5, 5, 1), True), ((9, 5, 1), False)])
def test_the_complex_is_built_up_to_eight_inputs(widths, checked):
    """Fifteen hidden neurons are proven to be general; nine inputs were an error where neurons are few."""
    found = identifiable_construction(widths, Box.cube(widths[0]))
    assert found.checked == checked and found.transparent and found.general is (True if checked else None)
