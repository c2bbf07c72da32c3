"""The example that is identifiable pair by pair and not as a whole."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fiberscope.equality.ladder import equivalent
from fiberscope.errors import InputError
from fiberscope.fibers.canonical.matching import same_up_to_symmetry
from fiberscope.fibers.identifiability import identifiability
from fiberscope.fibers.non_local import lowest, non_localisable_network
from fiberscope.geometry.domains import Box
from fiberscope.geometry.folds.genericity import genericity
from fiberscope.geometry.ranges.domain_roles import domain_roles
from fiberscope.network.network import Network

WIDTHS = [(2, 2, 2, 1, 1), (3, 3, 2, 2, 1), (5, 4, 3, 6, 2)]


def exact_value(net: Network, x: list[Fraction]) -> list[Fraction]:
    """The real function, floats taken as rationals."""
    for layer, (weight, bias) in enumerate(zip(net.weights, net.biases, strict=True)):
        rows = zip(weight.tolist(), bias.tolist(), strict=True)
        x = [Fraction(b) + sum(Fraction(w) * v for w, v in zip(row, x, strict=True)) for row, b in rows]
        if layer + 1 < len(net.weights):
            x = [max(v, Fraction(0)) for v in x]
    return x


@pytest.mark.parametrize("widths", WIDTHS, ids=str)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_pairs_are_identifiable_and_the_whole_is_not(widths: tuple[int, ...], seed: int) -> None:
    found = non_localisable_network(widths, seed)
    for pair in found.pairs:
        assert identifiability(pair).identifiable is True
    other = found.member(shift=0.25)
    assert not same_up_to_symmetry(found.network, other)
    X = np.random.default_rng(seed).normal(size=(100_000, widths[0])) * 20
    assert np.abs(found.network(X) - other(X)).max() <= 1e-10 * np.abs(found.network(X)).max()
    for x in X[:20].tolist():
        point = [Fraction(v) for v in x]
        assert exact_value(found.network, point) == exact_value(other, point)


def test_a_matrix_acts_too() -> None:
    found = non_localisable_network((3, 3, 2, 3, 2), seed=4)
    rng = np.random.default_rng(0)
    matrix = np.eye(3) + 0.01 * rng.normal(size=(3, 3))
    other = found.member(np.zeros(3), matrix)
    assert not same_up_to_symmetry(found.network, other)
    X = rng.normal(size=(10_000, 3)) * 10
    assert np.abs(found.network(X) - other(X)).max() < 1e-12 * np.abs(X).max()


@pytest.mark.parametrize("widths", WIDTHS, ids=str)
def test_the_same_change_shows_in_the_second_pair(widths: tuple[int, ...]) -> None:
    """On the whole space before layer 2 the image is not bounded: there the change is no symmetry."""
    found = non_localisable_network(widths, seed=3)
    other = found.member(shift=0.25)
    before, after = found.pairs[1], Network(other.weights[1:], other.biases[1:])
    X = np.random.default_rng(1).normal(size=(2000, widths[1])) * 20
    assert np.abs(before(X) - after(X)).max() > 0.01


def test_layer_three_is_proven_linear_on_a_box_and_the_network_generic() -> None:
    found = non_localisable_network((3, 3, 2, 2, 1), seed=0)
    box = Box.cube(3, -5, 5)
    counts = domain_roles(found.network, box).per_layer()[2]
    assert counts["linear"] == counts["width"] == 2
    for pair in found.pairs:
        assert genericity(pair, Box.cube(3, -5, 5)).masked_ranks


@given(st.integers(0, 10**6), st.sampled_from(WIDTHS))
@settings(max_examples=40, deadline=None)
def test_slack_is_a_bound_on_what_layer_three_does(seed: int, widths: tuple[int, ...]) -> None:
    found = non_localisable_network(widths, seed)
    X = np.random.default_rng(seed).normal(size=(300, widths[0])) * 30
    values = found.network.preactivations(X)
    assert found.slack > 0
    assert values[1].max() <= found.bound.max() + 1e-12
    assert values[2].min() >= found.slack - 1e-12


def test_lowest_against_all_corners() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        weight, bias, bound = rng.normal(size=(2, 3)), rng.normal(size=2), rng.uniform(0, 2, 3)
        corners = np.array(np.meshgrid(*[[0, b] for b in bound])).reshape(3, -1).T
        assert np.isclose(lowest(weight, bias, bound), (corners @ weight.T + bias).min())


@pytest.mark.parametrize("widths", WIDTHS[:2], ids=str)
def test_equality_is_proven_and_a_real_change_refuted(widths: tuple[int, ...]) -> None:
    found = non_localisable_network(widths, seed=1)
    other = found.member(shift=0.25)
    assert equivalent(found.network, other, tolerance=0).equal is True
    biases = [*other.biases[:3], other.biases[3] + 2.0**-10]
    assert equivalent(found.network, Network(other.weights, biases), tolerance=0).equal is False


def test_bad_input() -> None:
    bad: list[Any] = [(2, 3, 2, 1, 1), (3, 3, 1, 2, 1), (3, 3, 2, 1), (3, 3, 2, 0, 1), (3.5, 3, 2, 2, 1)]
    for widths in bad:
        with pytest.raises(InputError, match="widths"):
            non_localisable_network(widths)
    found = non_localisable_network()
    with pytest.raises(InputError, match="stay positive"):
        found.member(shift=-100.0)
    with pytest.raises(InputError, match="invertible"):
        found.member(0.0, np.ones((2, 2)))
    with pytest.raises(InputError, match="shift"):
        found.member([1.0, 2.0, 3.0])
    with pytest.raises(InputError, match="matrix"):
        found.member(0.0, np.eye(3))
    with pytest.raises(InputError):
        found.member(np.nan)
