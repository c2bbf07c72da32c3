"""The identifiable construction: its claims by the geometry engine, its witnesses and covering in any size."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fiberscope.errors import InputError, TooLargeError
from fiberscope.fibers import construction
from fiberscope.fibers.construction import identifiable_construction, identifiable_network
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
    st.lists(st.integers(2, 6), min_size=2, max_size=5).map(lambda w: (*sorted(w, reverse=True), 1)),
    st.integers(0, 10**6),
    st.floats(-10, 10),
    st.floats(0.01, 100),
)
@settings(max_examples=30, deadline=None)
def test_witnesses_and_covering_in_any_size(widths: tuple[int, ...], seed: int, low: float, span: float) -> None:
    box = Box.cube(widths[0], low, low + span)
    net, witnesses = construction._draw(widths, box, np.random.default_rng(seed))
    assert net.widths == widths
    assert [len(points) for points in witnesses] == list(widths[1:-1])
    assert construction._margin(net, witnesses) > 1e4
    for layer, points in enumerate(witnesses):
        assert (points > box.low).all() and (points < box.high).all()
        for unit, values in enumerate(zip(*net.preactivations(points), strict=True)):
            assert all((values[k] > 0).all() for k in range(layer))
            assert np.argmin(np.abs(values[layer])) == unit
            assert (np.delete(values[layer], unit) > 0).all()
            if layer + 1 < len(witnesses):
                assert abs(values[layer + 1][0]) < 1e-3 * values[layer].max()
    assert construction._covers(net, box)
    signs = net.signs(np.random.default_rng(seed).uniform(box.low, box.high, (500, box.dimension))).signs
    for part in [place.columns for place in net.layout.places]:
        assert (signs[:, part][:, :2] >= 0).any(axis=1).all()


def test_large_ones_say_that_the_graphs_were_not_computed() -> None:
    found = identifiable_construction((6, 5, 5, 3, 1), Box.cube(6), seed=1)
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
        ((2, 3, 1), Box.cube(2), "d_0 >= d_1"),
        ((3, 2, 1, 1), Box.cube(3), ">= 2"),
        ((3, 2, 2), Box.cube(3), "output of 1"),
        ((2, 1), Box.cube(2), "at least one hidden layer"),
        ((1, 1, 1), Box.cube(1), ">= 2"),
        ((2.5, 2, 1), Box.cube(2), "integers"),
        ((2, 2, 1), Box.cube(3), "2 dimensions"),
        ((2, 2, 1), Orthant(2), "a box"),
    ],
)
def test_bad_input(widths: tuple[int, ...], domain: Box, word: str) -> None:
    with pytest.raises(InputError, match=word):
        identifiable_network(widths, domain, 0)


def test_too_deep_for_floats_is_refused() -> None:
    with pytest.raises(TooLargeError, match="too many"):
        identifiable_network((10,) * 25 + (1,), Box.cube(10), 0)
