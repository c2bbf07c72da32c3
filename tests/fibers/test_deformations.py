"""Rows that can be deformed: against an exact oracle on the line, and against the decision of equality in the plane."""

from __future__ import annotations

import itertools
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fiberscope as fs
from fiberscope.fibers.row_family import Deformation

BEND = fs.Network([[[1.0], [1.0]], [[1.0, 1.0]], [[1.0]]], [[0.0, -1.0], [-2.0], [0.0]])
"""Its first layer maps the line onto a bent one in the plane."""

FLAT = fs.Network(
    [[[1.0, 1.0], [2.0, 2.0]], [[1.0, -2.0], [1.0, 1.0]], [[1.0, -1.0]]], [[0.0, 1.0], [1.0, -1.0], [0.0]]
)
"""Its first weight matrix has rank one: appendix G.3."""


def integer_network(widths: tuple[int, ...], seed: int) -> fs.Network:
    rng = np.random.default_rng(seed)
    weights = [rng.integers(-2, 3, (n, m)).astype(float) for m, n in itertools.pairwise(widths)]
    return fs.Network(weights, [rng.integers(-2, 3, n).astype(float) for n in widths[1:]])


def activations(net: fs.Network, layers: int, x: Fraction) -> list[Fraction]:
    """Of a number, in fractions."""
    values = [x]
    for W, b in zip(net.weights[:layers], net.biases[:layers], strict=False):
        rows = zip(W.tolist(), b.tolist(), strict=True)
        values = [max(sum((Fraction(w) * v for w, v in zip(r, values, strict=True)), Fraction(c)), Fraction(0))
                  for r, c in rows]  # fmt: skip
    return values


def same_on_line(net: fs.Network, layer: int, one: list[Fraction], two: list[Fraction]) -> bool:
    """Whether two rows of a layer do the same on the image of a line: all breaks of all neurons, and far out."""

    def value(row: list[Fraction], x: Fraction, here: int = layer) -> Fraction:
        inner = activations(net, here - 1, x)
        return sum((w * v for w, v in zip(row[:-1], inner, strict=True)), row[-1])

    def zeros(function: Any, marks: list[Fraction]) -> list[Fraction]:
        """Zeros of a function that is affine between the marks, and outside of them."""
        ends = [marks[0] - 2, *marks, marks[-1] + 2]
        found = []
        for a, b in itertools.pairwise(ends):
            va, vb = function(a), function(b)
            if va != vb:
                found.append(a - va * (b - a) / (vb - va))
        return [x for x in found if abs(x) < 10**9]

    marks = [Fraction(0)]
    for k in range(1, layer):
        for j in range(net.widths[k]):
            row = [Fraction(v) for v in [*net.weights[k - 1][j].tolist(), float(net.biases[k - 1][j])]]
            marks = sorted({*marks, *zeros(lambda x, row=row, k=k: value(row, x, k), marks)})
    for row in (one, two):
        marks = sorted({*marks, *zeros(lambda x, row=row: value(row, x), marks)})
    places = [marks[0] - 1000, marks[0] - 1, *marks, marks[-1] + 1, marks[-1] + 1000]
    places += [(a + b) / 2 for a, b in itertools.pairwise(marks)]
    return all(max(value(one, x), Fraction(0)) == max(value(two, x), Fraction(0)) for x in places)


def rows_around(family: Deformation, rng: np.random.Generator) -> list[list[Fraction]]:
    """Rows in the family, at its ends, just beyond them, and beside it."""
    step = family.directions[int(rng.integers(len(family.directions)))]
    ends = [t for t in family.interval(step) if t is not None]
    near = [0, Fraction(1, 3), *ends, *(t * 2 + Fraction(s, 100) for t in ends for s in (-1, 1))]
    near += [t + Fraction(s, 10**6) for t in ends for s in (-1, 1)]
    found = [list(family.row + t * step) for t in near]
    beside = family.row.copy()
    beside[int(rng.integers(len(beside)))] += Fraction(1, 7)
    return [*found, list(beside), list(2 * family.row)]


@pytest.mark.parametrize("widths", [(1, 2, 2, 1), (1, 3, 2, 1), (1, 2, 3, 2, 1)])
@given(seed=st.integers(0, 10**6))
@settings(max_examples=15, deadline=None)
def test_a_row_is_in_the_family_exactly_if_it_does_the_same(widths: tuple[int, ...], seed: int) -> None:
    net, rng = integer_network(widths, seed), np.random.default_rng(seed)
    for family in fs.deformations(net).families:
        for row in rows_around(family, rng):
            assert family.contains(row) == same_on_line(net, family.layer, list(family.row), row)


@pytest.mark.parametrize("seed", range(6))
def test_in_the_plane_the_decision_of_equality_agrees(seed: int) -> None:
    net, rng, box = integer_network((2, 4, 2, 1), seed), np.random.default_rng(seed), fs.Box.cube(2, -4.0, 4.0)
    for family in fs.deformations(net, box).families:
        for row in rows_around(family, rng):
            floats = [float(v) for v in row]
            if [Fraction(v) for v in floats] != row:
                continue
            one, two = (
                fs.Network([net.weights[0], [r[:-1]], [[1.0]]], [net.biases[0], [r[-1]], [0.0]])
                for r in ([float(v) for v in family.row], floats)
            )
            assert fs.equivalent(one, two, domain=box).equal == family.contains(floats)


def test_no_family_means_that_every_direction_is_noticed() -> None:
    net = fs.Network.random((2, 4, 3, 1), 1)
    found = fs.deformations(net)
    assert found.complete and found.families == () and found.dimension == 0
    assert fs.fiber(net).components[0].kind == "known" and len(fs.fiber(net).components) == 1


def test_the_hyperplane_turns_about_where_it_meets_the_image() -> None:
    family = fs.deformations(BEND).families[0]
    meeting = np.array([Fraction(3, 2), Fraction(1, 2), Fraction(1)])
    for t in (Fraction(-5), Fraction(1, 3), Fraction(2)):
        row = family.row + t * family.directions[0]
        assert row @ meeting == 0 and family.contains(row)
    assert not family.contains(family.row + Fraction(201, 100) * family.directions[0])


@pytest.mark.parametrize(
    "net", [BEND, FLAT, fs.non_localisable_network(seed=0).network, fs.Network.random((1, 3, 2, 1), 0)]
)
def test_members_of_the_fiber_are_the_same_function(net: fs.Network) -> None:
    fiber, box = fs.fiber(net), fs.Box.cube(net.in_size, -8.0, 8.0)
    X = np.random.default_rng(0).uniform(-8, 8, (500, net.in_size))
    for other in fiber.sample(6, seed=3):
        np.testing.assert_allclose(other(X), net(X), rtol=0, atol=1e-12)
        if net in (BEND, FLAT):  # short numbers: nothing is rounded
            assert fs.equivalent(net, other, domain=box).equal


def test_members_are_joined_by_paths_inside_of_the_fiber() -> None:
    fiber = fs.fiber(BEND)
    turned = [o for o in fiber.sample(12, seed=1) if "deformed" in fiber.connection(o).reason]
    assert turned
    X = np.linspace(-5, 5, 301)[:, None]
    for other in turned:
        path = fiber.path(other)
        for net in path.networks(7):
            np.testing.assert_allclose(net(X), BEND(X), rtol=0, atol=1e-12)
        order = path.permutations[0]
        assert np.array_equal(path(1.0).weights[0], other.weights[0][order])


def test_a_rank_that_is_not_full_frees_every_reader() -> None:
    found = fs.deformations(FLAT)
    assert found.complete and [(f.layer, f.neuron, f.dimension) for f in found.families] == [(2, 0, 1), (2, 1, 1)]
    assert fs.identifiability(FLAT).identifiable is False


def test_on_a_domain_there_are_more() -> None:
    net, box = fs.Network([[[1.0], [1.0]], [[1.0, 1.0]], [[1.0]]], [[0.0, -1.0], [-0.5], [0.0]]), fs.Box([-1.0], [0.75])
    assert fs.deformations(net).families == ()
    family = fs.deformations(net, box).families[0]
    assert family.dimension == 1 and family.contains([1.0, 9.0, -0.5]) and not family.contains([1.0, 1.0, -0.25])
    found = fs.fiber(net, box)
    assert {c.kind for c in found.components} == {"known", "deformation"}
    assert all(fs.equivalent(net, o, domain=box).equal for o in found.sample(5, seed=0))
    verdict = fs.identifiability(net, box)
    assert verdict.identifiable is False and fs.equivalent(net, verdict.witness, domain=box).equal


def test_membership_of_networks_is_exact() -> None:
    found = fs.deformations(BEND)
    other = fs.Network([[[1.0], [1.0]], [[0.0, 2.0]], [[1.0]]], [[0.0, -1.0], [-1.0], [0.0]])
    assert found.contains(other) and found.contains(BEND)
    nearly = fs.Network([[[1.0], [1.0]], [[0.0, 2.0]], [[1.0]]], [[0.0, -1.0], [np.nextafter(-1.0, 0.0)], [0.0]])
    assert not found.contains(nearly)
    assert not found.contains(fs.Network([*BEND.weights[:2], [[2.0]]], list(BEND.biases)))


def test_what_cannot_be_looked_at_is_said() -> None:
    wide = fs.Network.random((2, 6, 6, 1), 0)
    assert "more than 5 regions" in repr(fs.deformations(wide, fs.Box.cube(2), limit=5))
    constant = fs.Network([[[0.0, 0.0]], [[1.0]], [[1.0]]], [[1.0], [1.0], [0.0]])  # nothing to start from
    assert not fs.deformations(constant).complete and fs.deformations(constant).reason
    with pytest.raises(fs.InputError, match="expected a chain of dense layers and ReLU"):
        fs.deformations(fs.Network([[[1.0], [1.0]], [[1.0, 1.0]]], [[0.0, -1.0], [0.0]], "leaky_relu"))
    family = fs.deformations(BEND).families[0]
    for row in ([1.0, 2.0], [np.nan, 0.0, 0.0], [np.inf, 0.0, 0.0]):
        with pytest.raises(fs.InputError, match="row: expected"):
            family.contains(row)
    with pytest.raises(fs.InputError, match="direction: expected"):
        family.interval([1.0, 0.0, 0.0])


def test_one_hidden_layer_reads_all_of_its_domain() -> None:
    assert fs.deformations(fs.Network.random((2, 5, 1), 0)).families == ()
