"""Estimates against known counts: unbiased, with intervals that cover as often as they say, and honest bounds."""

from __future__ import annotations

from itertools import pairwise
from math import comb

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fiberscope.errors import InputError, UnsupportedModelError
from fiberscope.geometry.domains import Box, Orthant, Plane, Polytope, Space
from fiberscope.geometry.engines.lattice.engine import lattice_cells
from fiberscope.geometry.engines.traversal.estimate import chao1, estimate_regions
from fiberscope.network.network import Network
from fiberscope.testing import case, convolutional
from fiberscope.testing.cases import CASES
from fiberscope.testing.strategies import chains


def measured(*widths: int) -> Network:
    rng = np.random.default_rng(0)
    layers = []
    for m, n in pairwise(widths):
        weight, bias = rng.normal(0, np.sqrt(2 / m), (n, m)), rng.normal(0, np.sqrt(2 / m), n)
        layers.append((weight.astype(np.float32).astype(np.float64), bias.astype(np.float32).astype(np.float64)))
    return Network([w for w, _ in layers], [b for _, b in layers])


def test_a_large_population_is_an_enumeration() -> None:
    found = estimate_regions(measured(2, 16, 16, 1), Box.cube(2), samples=2000, points=100, chords=3)
    assert (found.exact, found.value, found.at_least, found.standard_error) == (True, 84, 84, 0)
    assert set(np.round(found.runs, 6)) == {84}
    assert str(found) == "84 regions"


@pytest.mark.parametrize(("widths", "count"), [((3, 16, 16, 1), 650), ((4, 16, 16, 1), 2996)])
def test_unbiased_and_calibrated(widths: tuple[int, ...], count: int) -> None:
    """Forty estimates: their mean is right within its own error, and the 95 % intervals cover as they should."""
    net, box = measured(*widths), Box.cube(widths[0])
    found = [estimate_regions(net, box, samples=300, runs=10, points=0, chords=0, seed=seed) for seed in range(40)]
    values = np.array([f.value for f in found])
    assert abs(values.mean() - count) < 4 * values.std(ddof=1) / np.sqrt(len(values))
    covered = sum(f.interval[0] <= count <= f.interval[1] for f in found)
    assert covered >= 32  # of 40 intervals at 95 %: fewer than 33 has probability below 1e-3
    assert all(f.at_least <= count for f in found)
    # the error bars are neither too small nor idle
    errors = np.array([f.standard_error for f in found])
    assert 0.5 < np.sqrt((errors**2).mean()) / values.std(ddof=1) < 2


def test_larger_samples_have_smaller_errors() -> None:
    net, box = measured(4, 16, 16, 1), Box.cube(4)
    small, large = (estimate_regions(net, box, samples=s, points=0, chords=0) for s in (100, 4000))
    assert large.standard_error < small.standard_error / 3
    assert large.at_least > small.at_least


def test_heavy_tail_is_owned_up_to() -> None:
    """Populations of one are single random descents: their weights scatter by far more than their mean."""
    found = estimate_regions(measured(5, 16, 16, 1), Box.cube(5), samples=40, runs=40, points=0, chords=0)
    assert not found.reliable
    assert "not reliable" in str(found)
    assert found.to_dict()["reliable"] is False


def test_unbounded_domain() -> None:
    net = Network.random((4, 9, 1), 5)
    count = sum(comb(9, i) for i in range(5))
    found = estimate_regions(net, Space(4), samples=1000)
    assert abs(found.value - count) < 4 * found.standard_error
    assert found.richness is None
    assert found.chords is None


@pytest.mark.parametrize("name", sorted(set(CASES) - {"convolutional", "deep"}))
def test_every_kind_of_network(name: str) -> None:
    """With populations larger than the count nothing is random, so degenerate networks can be checked exactly."""
    net = case(name)
    n = net.in_size
    triangle = Polytope(np.concatenate([np.eye(n), -np.ones((1, n))]), np.ones(n + 1))
    for domain in (Box.cube(n), Orthant(n), triangle):
        found = estimate_regions(net, domain, samples=1000, runs=2, points=0, chords=0)
        assert found.exact
        assert found.at_least == lattice_cells(net, domain).count(n)
        assert np.allclose(found.runs, found.at_least)


@given(chains(inputs=st.integers(1, 3)))
@settings(max_examples=30)
def test_enumeration_of_degenerate_networks(net: Network) -> None:
    n = net.in_size
    found = estimate_regions(net, Box.cube(n), samples=2000, runs=2, points=20, chords=0)
    count = lattice_cells(net, Box.cube(n)).count(n)
    assert found.at_least <= count
    # weights of wildly different size make regions that hold no float
    assert found.undecided > 0 or (found.exact and found.at_least == count)


def test_same_seed_same_estimate() -> None:
    net, box = measured(3, 16, 16, 1), Box.cube(3)
    first, second = (estimate_regions(net, box, samples=100, points=50, chords=3, seed=7).to_dict() for _ in range(2))
    assert first == second


# --- uniform points ----------------------------------------------------------------------------------------------


def test_uniform_points_bound_from_below() -> None:
    found = estimate_regions(measured(3, 16, 16, 1), Box.cube(3), samples=40, points=4000, chords=0)
    assert found.richness is not None
    assert found.richness.distinct <= found.at_least <= 650
    assert found.richness.distinct < found.richness.chao1 < 1.1 * 650
    assert found.richness.interval[0] <= found.richness.chao1 <= found.richness.interval[1]
    assert found.richness.points == 4000


def test_chao_covers_equally_likely_classes() -> None:
    """With equal probabilities the bound is sharp, so its interval must cover the truth."""
    covered = 0
    for seed in range(200):
        draws = np.random.default_rng(seed).integers(0, 100, 120)
        found = chao1(np.unique(draws, return_counts=True)[1])
        covered += found.interval[0] <= 100 <= found.interval[1]
    assert covered >= 180


def test_chao_is_a_lower_bound_on_average() -> None:
    weights = 1 / np.arange(1, 401)
    weights /= weights.sum()
    rng = np.random.default_rng(0)
    estimates = []
    for _ in range(200):
        counts = rng.multinomial(300, weights)
        estimates.append(chao1(counts[counts > 0]).chao1)
    assert np.mean(estimates) < 400


def test_chao_without_singletons_has_nothing_to_add() -> None:
    found = chao1(np.array([2, 3, 7]))
    assert (found.chao1, found.interval) == (3.0, (3.0, 3.0))


def test_points_on_a_border_are_not_regions() -> None:
    """A neuron that is zero at representable points with a chance worth the name: a box of a few ulps."""
    net = Network([[[1.0]], [[1.0]]], [[-1.0], [0.0]])
    box = Box([1 - 2.0**-50], [1 + 2.0**-49])
    X = np.random.default_rng(0).uniform(box.low, box.high, (500, 1))
    assert (net.signs(X).signs == 0).any()
    found = estimate_regions(net, box, samples=4, runs=2, points=500, chords=0)
    assert found.richness is not None
    assert (found.richness.distinct, found.at_least, found.exact) == (2, 2, True)


# --- chords ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 2, 3])
def test_chords_measure_boundaries(n: int) -> None:
    """One hyperplane through the middle of a cube of side 2 has measure 2^(n-1), a half per unit volume."""
    weight = np.zeros((1, n))
    weight[0, 0] = 1.0
    net = Network([weight, [[1.0]]], [[0.0], [0.0]])
    found = estimate_regions(net, Box.cube(n), samples=4, runs=2, points=0, chords=400).chords
    assert found is not None
    scale = found.boundary / found.density
    assert abs(found.boundary - 0.5) <= 4 * scale * found.standard_error + 1e-12
    assert found.crossings <= found.chords


# --- bad input ---------------------------------------------------------------------------------------------------


def test_bad_input() -> None:
    net = Network.random((2, 3, 1), 0)
    with pytest.raises(InputError, match="samples"):
        estimate_regions(net, Box.cube(2), samples=1)
    with pytest.raises(InputError, match="runs"):
        estimate_regions(net, Box.cube(2), runs=1)
    with pytest.raises(InputError, match="dimension"):
        estimate_regions(net, Box.cube(3))
    with pytest.raises(InputError, match="dimension"):
        estimate_regions(net, Plane([0, 0, 0], [1, 0, 0], [0, 1, 0]))
    with pytest.raises(UnsupportedModelError, match="max pooling"):
        estimate_regions(convolutional(), Box.cube(72))
