"""Definition 22 against brute force: every parameter of a small grid, grouped by its function."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest
from fiber_cases import free_directions, tail
from hypothesis import given, settings
from hypothesis import strategies as st

from fiberscope.errors import InputError, NotGenericError, TooLargeError
from fiberscope.fibers.canonical.matching import same_up_to_symmetry
from fiberscope.fibers.fiber import fiber
from fiberscope.fibers.identifiability import identifiability
from fiberscope.fibers.one_layer.assignments import Assignment, assignment_of, count_assignments, list_assignments
from fiberscope.fibers.one_layer.layer import OneLayer
from fiberscope.fibers.one_layer.realisations import Cell, cells
from fiberscope.fibers.one_layer.representation import form_of
from fiberscope.network.network import Network
from fiberscope.numerics.exact_arrays import nearest


def grid(n, d, m, orthant, values=(-1, 0, 1), count=None, seed=0):
    """Layers with all numbers among a few, or so many random ones of them."""
    size = n * d + n + m * n + m
    every = itertools.product(values, repeat=size)
    if count is not None:
        every = np.random.default_rng(seed).choice(values, (count, size))
    for flat in every:
        W, b, V, c = np.split(np.array(flat, dtype=float), np.cumsum([n * d, n, m * n]))
        yield OneLayer(W.reshape(n, d), b, V.reshape(m, n), c, orthant)


def key_of(layer):
    form = form_of(layer.W, layer.b, layer.V, layer.c, layer.orthant)
    return tuple(sorted(form.planes.items())), form.affine


@pytest.mark.parametrize(
    ("n", "d", "m", "orthant", "count"),
    [
        (1, 1, 1, False, None),
        (1, 2, 2, True, None),
        (2, 1, 1, False, None),
        (2, 1, 1, True, None),
        (2, 2, 1, True, 3000),
        (3, 1, 1, True, 3000),
        (3, 2, 1, True, 2000),
        (3, 2, 1, False, 1000),
    ],
)
def test_every_parameter_of_a_fiber_has_an_assignment_that_is_listed(n, d, m, orthant, count):
    fibers = {}
    for layer in grid(n, d, m, orthant, count=count):
        fibers.setdefault(key_of(layer), []).append(layer)
    largest = sorted(fibers.values(), key=len)[::-1]
    for group in [*largest[:10], *largest[10 :: max(1, len(largest) // 30)]]:
        listed = {cell.assignment: cell for cell in cells(group[0])}
        assert all(cell.nonempty for cell in listed.values())
        for layer in group:
            mine = [cell for cell in listed.values() if cell.contains(layer)]
            assert len(mine) == 1, layer.rows  # in exactly one set


@given(st.integers(0, 10**6), st.booleans())
@settings(max_examples=30, deadline=None)
def test_members_are_exactly_the_function_with_the_assignment(seed, orthant):
    rng = np.random.default_rng(seed)
    n, d, m = (int(rng.integers(1, 4)) for _ in range(3))
    layer = OneLayer(
        rng.integers(-2, 3, (n, d)),
        rng.integers(-1, 2, n),
        rng.integers(-1, 2, (m, n)),
        rng.integers(-1, 2, m),
        orthant,
    )
    found = list(cells(layer))
    assert sum(bool(cell.contains(layer)) for cell in found) == 1
    for cell in found[:: max(1, len(found) // 8)]:
        W, b, V, c = cell.member(seed)
        assert form_of(W, b, V, c, orthant) == cell.form
        rows = [(*w, beta) for w, beta in zip(W, b, strict=True)]
        assert assignment_of(cell.form, rows, orthant) == cell.assignment
        assert cell.dimension >= 0 and len(cell.constraints) > len(cell.assignment.visible)


def test_empty_sets_are_empty_by_the_theorem_of_the_paper():
    """Linear neurons alone: the nonnegative column rank decides, the rank for a pointed cone and one more otherwise."""
    for columns, least in (([1.0, 2.0], 1), ([1.0, -1.0], 2), ([0.0, 0.0], 0)):
        layer = OneLayer(np.eye(2), [1.0, 1.0], [columns], [0.0], True)
        form = form_of(layer.W, layer.b, layer.V, layer.c, True)
        answers = [Cell(form, Assignment((), (), ell, 2 - ell), True).nonempty for ell in range(3)]
        assert answers == [ell >= least for ell in range(3)]
    # x needs a group of both sides on all of space
    line = form_of(np.array([[1.0], [-1.0]]), np.zeros(2), np.array([[1.0, -1.0]]), np.zeros(1), False)
    assert Cell(line, Assignment((), ((1, 1),), 0, 0), False).nonempty
    assert not Cell(line, Assignment((), ((2, 0),), 0, 0), False).nonempty
    assert not Cell(line, Assignment((), (), 2, 0), False).nonempty
    with pytest.raises(InputError, match="members"):
        Cell(line, Assignment((), (), 2, 0), False).member(0)


def test_superfluous_linear_neurons_of_the_specification():
    """relu(x1+.5) - relu(x2+.2) + relu(x1+2 x2-1) - .3: also with one linear neuron and the hyperplane reversed."""
    layer = OneLayer([[1, 0], [0, 1], [1, 2]], [0.5, 0.25, -1], [[1, -1, 1]], [-0.25], True)
    found = {(c.assignment.visible, c.assignment.linear, c.assignment.dead) for c in cells(layer)}
    assert (((0, 1),), 1, 1) in found and (((1, 0),), 2, 0) in found and (((1, 0),), 1, 1) not in found


def test_dimensions_agree_with_the_formula_and_with_ranks():
    rng = np.random.default_rng(0)
    for ell, d, m in ((1, 2, 2), (2, 3, 2), (2, 2, 3), (2, 3, 1)):
        W = np.concatenate([rng.integers(1, 9, (ell, d)), [[3] + [-1] * (d - 1)]]).astype(float)
        layer = OneLayer(W, np.ones(ell + 1), rng.integers(1, 9, (m, ell + 1)), np.zeros(m), True)
        mine = next(c for c in cells(layer) if c.contains(layer))
        assert mine.dimension == layer.cell_dimension() == free_directions(tail(W, layer.b, layer.V, layer.c))


@pytest.mark.parametrize("seed", range(4))
def test_no_set_is_larger_than_the_kernel_of_the_jacobian_at_its_members(seed):
    """``D - N - functional dimension`` bounds the dimension of a fiber from above, at every member."""
    rng = np.random.default_rng(seed)
    layer = OneLayer(rng.integers(-2, 3, (3, 2)), rng.integers(-2, 3, 3), rng.integers(-2, 3, (1, 3)), [0.0], True)
    for cell in cells(layer):
        at = max(cell.strata, key=lambda k: cell._dimension_at(k, np.random.default_rng(0)))
        only = Cell(cell.form, cell.assignment, True)
        only.__dict__["strata"] = (at,)
        W, b, V, c = (nearest(x) for x in only.member(0))
        assert cell.dimension <= free_directions(tail(W, b, V, c)), cell


def test_counts_match_the_list():
    for planes, neurons in itertools.product(range(4), range(6)):
        found = list(list_assignments(planes, neurons))
        assert len(found) == len(set(found)) == count_assignments(planes, neurons)
        assert all(a.neurons == neurons and len(a.visible) == planes for a in found)
        assert all(sum(pair) for a in found for pair in a.visible)


def test_too_many_are_refused_at_once_and_lazily_listed():
    with pytest.raises(TooLargeError, match="more than the limit of 10000"):
        list_assignments(3, 30)
    first = list(itertools.islice(list_assignments(3, 30, None), 5))
    assert len(first) == 5 and count_assignments(3, 30) > 10**6
    assert next(fiber(Network.random((3, 5, 1), 0)).assignments(None)) is not None
    with pytest.raises(TooLargeError):
        fiber(Network.random((3, 5, 1), 0)).assignments(10)


def test_degenerate_fibers_of_one_layer_are_listed_whole():
    twice = Network([[[1.0], [2.0]], [[1.0, 1.0]]], [[1.0, 2.0], [0.0]])
    found = fiber(twice)
    assert found.complete and {c.kind for c in found.components} == {"assignment"} and len(found.components) == 5
    X = np.linspace(-5, 5, 101)[:, None]
    for other in found.sample(20, 0):
        assert np.abs(other(X) - twice(X)).max() < 1e-11
        assert found.contains(other).contained is True
    assert found.components[0].to_dict()["text"]


def test_identifiability_of_a_degenerate_layer_by_all_assignments():
    corner = Network([[[1.0], [-1.0]], [[1.0, 1.0]]], [[0.0, 0.0], [0.0]])  # |x|
    found = identifiability(corner)
    assert found.identifiable is True and found.assumptions == ("among all parameters",)
    # brute force: the same function on a grid is the same up to the group
    wanted = key_of(OneLayer.of(corner, False))
    for layer in grid(2, 1, 1, False, values=(-2, -1, 0, 1, 2), count=8_000):
        if key_of(layer) == wanted:
            assert same_up_to_symmetry(corner, Network([layer.W, layer.V], [layer.b, layer.c]))
    many = Network([[[1.0], [-1.0], [1.0]], [[1.0, -1.0, -1.0]]], [[0.0, 0.0, -1.0], [0.0]])  # x - relu(x - 1)
    assert identifiability(many).identifiable is False


def test_identifiable_agrees_with_brute_force_on_one_hidden_layer():
    """Two neurons, all numbers among -1, 0, 1: a *yes* has no other member on the grid up to the group."""
    fibers = {}
    for layer in grid(2, 1, 1, False):
        fibers.setdefault(key_of(layer), []).append(Network([layer.W, layer.V], [layer.b, layer.c]))
    for group in fibers.values():
        answer = identifiability(group[0])
        orbits = all(same_up_to_symmetry(group[0], other).same is not False for other in group)
        if answer.identifiable is True:
            assert orbits
        if not orbits:
            assert answer.identifiable is False


def test_where_no_theorem_speaks_nothing_is_listed():
    with pytest.raises(NotGenericError, match="bottleneck"):
        fiber(Network.random((2, 3, 2, 1), 0)).assignments()
    layer = OneLayer([[1.0]], [1.0], [[1.0]], [0.0], False)
    cell = next(cells(layer))
    assert not cell.contains(OneLayer([[1.0]], [1.0], [[1.0]], [0.0], True))
    assert cell.to_dict()["nonempty"] is True and "Cell" in repr(cell)
    assert cell.form.planes == {(1, 1): (Fraction(1),)}
