"""The lattice engine against a slow oracle in rational arithmetic, true counts, and what must hold of any complex."""

from __future__ import annotations

import itertools
import math
import subprocess
import sys
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fiberscope.errors import InputError, NotGenericError, TooLargeError
from fiberscope.geometry.cells import Cells
from fiberscope.geometry.domains import Box, Orthant, Plane, Polytope, Space
from fiberscope.geometry.engines.lattice import splitting
from fiberscope.geometry.engines.lattice.engine import LatticeBuilder, lattice_cells
from fiberscope.geometry.engines.lattice.exact import Start
from fiberscope.geometry.engines.lattice.layers import never
from fiberscope.geometry.engines.lattice.start import box_start
from fiberscope.network.action.chain import permute, rescale
from fiberscope.network.network import Network
from fiberscope.run import Run
from fiberscope.testing.cases import CASES, DEGENERATE, degenerate
from fiberscope.testing.strategies import chains

Row = list[Fraction]


def recipe(*widths: int) -> Network:
    """Normal weights and biases of standard deviation sqrt(2 / fan_in), rounded to float32, from seed 0."""
    rng = np.random.default_rng(0)
    weights, biases = [], []
    for m, n in itertools.pairwise(widths):
        weights.append(rng.normal(0, math.sqrt(2 / m), (n, m)).astype(np.float32).astype(np.float64))
        biases.append(rng.normal(0, math.sqrt(2 / m), n).astype(np.float32).astype(np.float64))
    return Network(weights, biases)


# --- the oracle: polytopes by their half-spaces, vertices by all systems of n equations -----------------


def _solve(rows: list[Row]) -> tuple[Fraction, ...] | None:
    """The one point where all rows ``(w, b)`` vanish, by elimination; None if there is not exactly one."""
    rows = [list(row) for row in rows]
    n = len(rows)
    for c in range(n):
        pivot = next((r for r in range(c, n) if rows[r][c] != 0), None)
        if pivot is None:
            return None
        rows[c], rows[pivot] = rows[pivot], rows[c]
        rows[c] = [x / rows[c][c] for x in rows[c]]
        for r in range(n):
            if r != c and rows[r][c] != 0:
                factor = rows[r][c]
                rows[r] = [x - factor * y for x, y in zip(rows[r], rows[c], strict=True)]
    return tuple(-row[-1] for row in rows)


def _at(row: Row, x: tuple[Fraction, ...]) -> Fraction:
    return sum((a * b for a, b in zip(row, x, strict=False)), start=row[-1])


def _vertices(sides: list[Row]) -> set[tuple[Fraction, ...]]:
    n = len(sides[0]) - 1
    points = {_solve(list(rows)) for rows in itertools.combinations(sides, n)}
    return {p for p in points if p is not None and all(_at(side, p) >= 0 for side in sides)}


def _slope(sign: int, slope: float) -> Fraction:
    return Fraction(1) if sign > 0 else Fraction(slope)


def oracle_regions(net: Network, sides: list[Row]) -> list[tuple[list[Row], tuple[int, ...]]]:
    """Sides and sign vectors of all regions of a chain on a polytope."""
    n = net.in_size
    identity = [[Fraction(int(i == j)) for j in range(n + 1)] for i in range(n)]
    regions: list[Any] = [(sides, (), identity)]
    for weight, bias, node in zip(net.weights[:-1], net.biases[:-1], net.switches, strict=True):
        layer = []
        for own, signs, values in regions:
            before = [
                [sum((Fraction(w) * v[c] for w, v in zip(row, values, strict=True)), Fraction(0)) for c in range(n + 1)]
                for row in weight.tolist()
            ]
            for row, b in zip(before, bias.tolist(), strict=True):
                row[-1] += Fraction(b)
            layer.append((own, signs, before, []))
        for j, slope in enumerate(node.slopes.tolist()):
            split = []
            for own, signs, before, after in layer:
                form = before[j]
                found = {(z > 0) - (z < 0) for z in (_at(form, p) for p in _vertices(own))}
                kinds = [1] if slope == 1 else sorted(found - {0}) or [0]
                for sign in kinds:
                    more = [[sign * x for x in form]] if len(kinds) == 2 else []
                    value = [_slope(sign, slope) * x for x in form]
                    split.append(([*own, *more], (*signs, sign), before, [*after, value]))
            layer = split
        regions = [(own, signs, after) for own, signs, _, after in layer]
    return [(own, signs) for own, signs, _ in regions]


def _rank(points: list[tuple[Fraction, ...]]) -> int:
    rows = [[a - b for a, b in zip(p, points[0], strict=True)] for p in points[1:]]
    rank = 0
    for c in range(len(points[0])):
        pivot = next((r for r in range(rank, len(rows)) if rows[r][c] != 0), None)
        if pivot is None:
            continue
        rows[rank], rows[pivot] = rows[pivot], rows[rank]
        for r in range(rank + 1, len(rows)):
            factor = rows[r][c] / rows[rank][c]
            rows[r] = [x - factor * y for x, y in zip(rows[r], rows[rank], strict=True)]
        rank += 1
    return rank


def oracle_f_vector(net: Network, sides: list[Row]) -> list[int]:
    """Number of cells of every dimension: all faces of all regions, each known by its set of vertices."""
    cells: set[frozenset[tuple[Fraction, ...]]] = set()
    for own, _ in oracle_regions(net, sides):
        vertices = _vertices(own)
        faces = {frozenset(vertices)}
        facets = [frozenset(p for p in vertices if _at(side, p) == 0) for side in own]
        while True:
            more = {a & b for a in faces for b in facets} - {frozenset()} - faces
            if not more:
                break
            faces |= more
        cells |= faces
    count = [0] * (net.in_size + 1)
    for cell in cells:
        count[_rank(list(cell))] += 1
    return count


def box_sides(n: int, low: int = -1, high: int = 1) -> list[Row]:
    rows = []
    for i in range(n):
        unit = [Fraction(int(i == j)) for j in range(n)]
        rows += [[*unit, Fraction(-low)], [*(-x for x in unit), Fraction(high)]]
    return rows


# --- what must hold of any complex -----------------------------------------------------------------


def f_vector(cells: Cells) -> list[int]:
    return [cells.count(k) for k in range(cells.dimension + 1)]


def assert_sound(cells: Cells) -> None:
    """The diamond property, cells with enough facets, no sign of both kinds on a cell."""
    for k in range(1, cells.dimension + 1):
        sizes = np.diff(cells.boundary[k - 1].indptr)
        assert (sizes >= k + 1).all()
        inside = cells.vertices_of(k)
        for c in range(len(inside)):
            signs = cells.vertex_signs[inside[c]]
            assert not ((signs > 0).any(axis=0) & (signs < 0).any(axis=0)).any()
    for k in range(2, cells.dimension + 1):
        outer, inner = cells.boundary[k - 1], cells.boundary[k - 2]
        for c in range(len(outer)):
            ridges = np.concatenate([inner[f] for f in outer[c]])
            assert (np.unique(ridges, return_counts=True)[1] == 2).all()


@given(chains(inputs=st.integers(1, 2), max_width=4, max_hidden=2))
@settings(max_examples=60)
def test_all_cells_of_degenerate_networks_are_those_of_the_oracle(net: Network) -> None:
    cells = lattice_cells(net, Box.cube(net.in_size))
    sides = box_sides(net.in_size)
    assert f_vector(cells) == oracle_f_vector(net, sides)
    wanted = sorted(signs for _, signs in oracle_regions(net, sides))
    assert sorted(map(tuple, cells.top_signs.tolist())) == wanted
    assert_sound(cells)


@given(chains(inputs=st.just(3), max_width=3, max_hidden=2))
@settings(max_examples=25)
def test_all_cells_in_three_dimensions_are_those_of_the_oracle(net: Network) -> None:
    cells = lattice_cells(net, Box.cube(3))
    assert f_vector(cells) == oracle_f_vector(net, box_sides(3))
    assert_sound(cells)


@pytest.mark.parametrize("kind", DEGENERATE)
def test_named_degenerate_networks(kind: str) -> None:
    net = degenerate(kind)
    cells = lattice_cells(net, Box.cube(2))
    assert f_vector(cells) == oracle_f_vector(net, box_sides(2))
    assert_sound(cells)


def test_hyperplanes_through_faces_of_the_box() -> None:
    # the diagonals of a square, a side, a corner, and a neuron that vanishes on half of the square
    weights = [[[1, 1], [1, -1], [1, 0], [1, 1]], [[1, 0, 0, 0], [0, 1, 0, -1]], [[1, 1]]]
    biases = [[0, 0, 1, 2], [0, 0], [0]]
    net = Network(weights, biases)
    cells = lattice_cells(net, Box.cube(2))
    assert f_vector(cells) == oracle_f_vector(net, box_sides(2))
    assert (cells.top_signs == 0).any()
    cube = Network([[[1, 1, 0], [1, -1, 0], [0, 0, 1], [1, 1, 1]], [[1, 1, 1, 1]]], [[0, 0, 1, 1], [0]])
    assert f_vector(lattice_cells(cube, Box.cube(3))) == oracle_f_vector(cube, box_sides(3))


@pytest.mark.parametrize(
    ("widths", "count"),
    [
        ((2, 16, 16, 1), 84),
        ((2, 32, 32, 1), 558),
        ((2, 64, 64, 1), 2434),
        ((2, 32, 32, 32, 1), 1210),
        ((2, 128, 128, 1), 11619),
        ((3, 16, 16, 1), 650),
        ((3, 32, 32, 1), 12203),
        ((4, 16, 16, 1), 2996),
        ((5, 16, 16, 1), 29186),
        pytest.param((3, 64, 64, 1), 63787, marks=pytest.mark.slow),
        pytest.param((4, 32, 32, 1), 156999, marks=pytest.mark.slow),
        pytest.param((6, 16, 16, 1), 204427, marks=pytest.mark.slow),
    ],
)
def test_true_counts(widths: tuple[int, ...], count: int) -> None:
    cells = lattice_cells(recipe(*widths), Box.cube(widths[0]))
    f = f_vector(cells)
    assert f[-1] == count
    assert sum((-1) ** k * x for k, x in enumerate(f)) == 1
    assert cells.exact_decisions <= 10  # rare on random networks


def test_wide_layers_use_several_words() -> None:
    net = recipe(2, 150, 1)
    hyperplanes = lattice_cells(net, Box.cube(2))
    rng = np.random.default_rng(1)
    seen = np.unique(net.signs(rng.uniform(-1, 1, (20000, 2))).signs, axis=0)
    labels = {tuple(s) for s in hyperplanes.top_signs.tolist()}
    assert len(labels) == hyperplanes.count(2) >= len(seen)
    assert {tuple(s) for s in seen.tolist()} <= labels
    assert_sound(hyperplanes)


@pytest.mark.parametrize("name", [n for n in CASES if n not in DEGENERATE and n != "convolutional"])
def test_every_architecture(name: str) -> None:
    net = CASES[name]()
    cells = lattice_cells(net, Box.cube(net.in_size))
    assert_sound(cells)
    assert sum((-1) ** k * x for k, x in enumerate(f_vector(cells))) == 1
    rng = np.random.default_rng(0)
    seen = {tuple(s) for s in net.signs(rng.uniform(-1, 1, (3000, net.in_size))).signs.tolist()}
    labels = [tuple(s) for s in cells.top_signs.tolist()]
    assert seen <= set(labels)
    assert len(set(labels)) == len(labels)


def test_signs_at_vertices_are_those_of_the_network() -> None:
    net = degenerate("integer", 3)
    cells = lattice_cells(net, Box.cube(2, -2, 2))
    dyadic = np.flatnonzero((cells.points * 64 == np.round(cells.points * 64)).all(axis=1))
    assert len(dyadic) > 5
    # floats that happen to be dyadic with few bits are the exact vertices here
    assert (net.signs(cells.points[dyadic]).signs == cells.vertex_signs[dyadic]).all()


def test_invariance_under_permutation_and_scaling_by_powers_of_two() -> None:
    net = recipe(3, 8, 8, 1)
    rng = np.random.default_rng(2)
    f = f_vector(lattice_cells(net, Box.cube(3)))
    turned = permute(net, [rng.permutation(8), rng.permutation(8)])
    assert f_vector(lattice_cells(turned, Box.cube(3))) == f
    scaled = rescale(net, [2.0 ** rng.integers(-9, 9, 8), 2.0 ** rng.integers(-9, 9, 8)])
    assert f_vector(lattice_cells(scaled, Box.cube(3))) == f


def test_an_appended_layer_refines() -> None:
    net = recipe(3, 6, 6, 6, 1)
    short = Network(net.weights[:3], net.biases[:3])
    coarse, fine = (lattice_cells(n, Box.cube(3)) for n in (short, net))
    assert {tuple(s[:12]) for s in fine.top_signs.tolist()} == {tuple(s) for s in coarse.top_signs.tolist()}
    assert fine.count(3) >= coarse.count(3)


# --- who bounds whom ----------------------------------------------------------------------------------------


def assert_facets_by_signs(cells: Cells) -> None:
    """A face of a cell is what has its signs, some of them zero: the whole incidence again, pair by pair.

    Those of the domain's sides count, and are zero or negative.
    """
    assert cells.domain_signs is not None
    joint = replace(cells, vertex_signs=np.hstack([cells.domain_signs, cells.vertex_signs]))
    for k in range(1, cells.dimension + 1):
        below, above = joint.signs(k - 1), joint.signs(k)
        assert len({tuple(s) for s in above.tolist()}) == len(above)
        for c, signs in enumerate(above):
            faces = np.flatnonzero(((below == signs) | (below == 0)).all(axis=1))
            assert sorted(cells.boundary[k - 1][c].tolist()) == faces.tolist()


@given(chains(inputs=st.integers(2, 4), max_width=4, max_hidden=2))
@settings(max_examples=40)
def test_facets_are_those_that_the_signs_tell(net: Network) -> None:
    assert_facets_by_signs(lattice_cells(net, Box.cube(net.in_size)))


@pytest.mark.parametrize("widths", [(3, 20, 6, 1), (3, 3, 40, 1), (4, 9, 5, 1), (5, 6, 4, 1), (6, 5, 2, 1)])
def test_facets_of_large_networks_are_those_that_the_signs_tell(widths: tuple[int, ...]) -> None:
    assert_facets_by_signs(lattice_cells(recipe(*widths), Box.cube(widths[0])))


def through_a_point(n: int, seed: int, *, layers: int = 1) -> Network:
    """More neurons than dimensions vanish at one point inside of the box, in every layer, and all else is general.

    So the first coincidence is found inside of a top cell, when what is inside of lower ones has been let go of.
    """
    rng = np.random.default_rng(seed)
    weights, biases = [], []
    point = rng.integers(-8, 8, n) / 32
    for _ in range(layers):
        weight = rng.integers(-16, 17, (n + 2, len(point))).astype(float)
        weights.append(weight)
        biases.append(-weight @ point)
        biases[-1][-1] += 0.5  # one neuron elsewhere
        point = np.maximum(weight @ point + biases[-1], 0.0)
    return Network([*weights, np.ones((1, n + 2))], [*biases, np.zeros(1)])


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("n", "layers"), [(2, 1), (2, 2), (3, 1), (4, 1), (3, 2)])
def test_coincidences_deep_inside(n: int, layers: int, seed: int) -> None:
    net = through_a_point(n, seed, layers=layers)
    cells = lattice_cells(net, Box.cube(n))
    assert ((cells.vertex_signs == 0).sum(axis=1) > n).any()
    assert sum((-1) ** k * x for k, x in enumerate(f_vector(cells))) == 1
    assert_sound(cells)
    assert_facets_by_signs(cells)
    if n < 4 and layers == 1:
        assert f_vector(cells) == oracle_f_vector(net, box_sides(n))


def test_a_coincidence_behind_many_cells_in_general_position() -> None:
    """Memory of lower dimensions has been given back when the first neurons vanish together, and is needed again."""
    rng = np.random.default_rng(0)
    weight, bias = rng.integers(-64, 65, (16, 4)).astype(float), rng.integers(-16, 17, 16) + 0.5
    bias[-6:] = -weight[-6:] @ (rng.integers(-4, 5, 4) / 32)
    before = rng.normal(size=(10, 4)) * 0.3
    net = Network([np.vstack([before, weight]), np.ones((1, 26))], [[*rng.normal(size=10) * 0.1, *bias], np.zeros(1)])
    cells = lattice_cells(net, Box.cube(4))
    assert ((cells.vertex_signs == 0).sum(axis=1) > 4).any()
    assert sum((-1) ** k * x for k, x in enumerate(f_vector(cells))) == 1
    assert (np.bincount(cells.boundary[3].indices) <= 2).all()


# --- other domains -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "neurons"), [(1, 4), (2, 2), (2, 7), (3, 6), (4, 7)])
def test_all_of_space_by_the_formula_of_arrangements(n: int, neurons: int) -> None:
    cells = lattice_cells(Network.random((n, neurons, 1), 5), Space(n))
    assert cells.count(n) == sum(math.comb(neurons, i) for i in range(n + 1))
    assert cells.rays is not None
    finite = [int((~_all_rays(cells, k)).sum()) for k in range(n + 1)]
    # k-faces of a simple arrangement: flats of dimension k, each an arrangement of the other hyperplanes
    wanted = [
        math.comb(neurons, n - k) * sum(math.comb(neurons - n + k, i) for i in range(k + 1)) for k in range(n + 1)
    ]
    assert finite == wanted


def _all_rays(cells: Cells, k: int) -> Any:
    assert cells.rays is not None
    inside = cells.vertices_of(k)
    return np.array([cells.rays[inside[c]].all() for c in range(len(inside))])


def test_a_deep_network_on_all_of_space_is_the_limit_of_large_boxes() -> None:
    for seed in range(4):
        net = Network.random((2, 4, 4, 1), seed)
        cells = lattice_cells(net, Space(2))
        assert_sound(cells)
        large = lattice_cells(net, Box.cube(2, -1e6, 1e6))
        assert {tuple(s) for s in cells.top_signs.tolist()} == {tuple(s) for s in large.top_signs.tolist()}


def test_orthants_and_polytopes() -> None:
    net = Network.random((2, 4, 4, 1), 3)
    orthant = lattice_cells(net, Orthant(2))
    large = lattice_cells(net, Box([0, 0], [1e6, 1e6]))
    assert {tuple(s) for s in orthant.top_signs.tolist()} == {tuple(s) for s in large.top_signs.tolist()}
    # a box as a polytope with redundant sides
    A = [[1, 0], [-1, 0], [0, 1], [0, -1], [1, 1], [1, 1]]
    same = lattice_cells(net, Polytope(A, [1, 1, 1, 1, 2, 5]))
    assert f_vector(same) == f_vector(lattice_cells(net, Box.cube(2)))
    assert same.rays is None


@given(chains(inputs=st.just(2), max_width=3, max_hidden=2))
@settings(max_examples=25)
def test_a_triangle_with_rational_corners(net: Network) -> None:
    cells = lattice_cells(net, Polytope([[-1, 0], [0, -1], [3, 7]], [0, 0, 5]))
    zero = Fraction(0)
    sides = [[Fraction(1), zero, zero], [zero, Fraction(1), zero], [Fraction(-3), Fraction(-7), Fraction(5)]]
    assert f_vector(cells) == oracle_f_vector(net, sides)
    assert_sound(cells)


@pytest.mark.parametrize("kind", ["integer", "through_origin", "opposite_neurons", "zero_rows"])
def test_degenerate_networks_on_all_of_space(kind: str) -> None:
    for seed in range(3):
        net = degenerate(kind, seed)
        cells = lattice_cells(net, Space(2))
        assert_sound(cells)
        assert sum((-1) ** k * x for k, x in enumerate(f_vector(cells))) == 1  # closed at infinity: a disc
        # all vertices are well inside of this box, so that it cuts every unbounded region
        size = 10 + int(np.abs(cells.points[~cells.rays]).max()) if cells.rays is not None else 10
        boxed = oracle_regions(net, box_sides(2, -size, size))
        assert sorted(map(tuple, cells.top_signs.tolist())) == sorted(signs for _, signs in boxed)


def test_a_plane_through_a_residual_network() -> None:
    net = CASES["residual"]()
    rng = np.random.default_rng(0)
    plane = Plane(*rng.normal(size=(3, 4)))
    view = plane.view(net)
    cells = lattice_cells(view.net, view.domain)
    assert_sound(cells)
    st_points = rng.uniform(-1, 1, (2000, 2))
    seen = {tuple(s) for s in net.signs(plane.lift(st_points)).signs.tolist()}
    assert seen <= {tuple(s) for s in cells.top_signs.tolist()}


# --- room and interruptions -------------------------------------------------------------------------


def assert_identical(a: Cells, b: Cells) -> None:
    assert (a.exact_decisions, a.float_decisions, a.complete) == (b.exact_decisions, b.float_decisions, b.complete)
    np.testing.assert_array_equal(a.points, b.points)
    np.testing.assert_array_equal(a.vertex_signs, b.vertex_signs)
    for one, two in zip(a.boundary, b.boundary, strict=True):
        np.testing.assert_array_equal(one.indptr, two.indptr)
        np.testing.assert_array_equal(one.indices, two.indices)


def test_tight_arrays_make_the_same_complex_bit_by_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    nets = [
        recipe(3, 9, 8, 1),
        recipe(4, 7, 6, 1),
        recipe(2, 9, 40, 1),
        through_a_point(3, 0, layers=2),
        *(degenerate(k, 1) for k in DEGENERATE),
    ]
    wanted = [lattice_cells(net, Box.cube(net.in_size)) for net in nets]
    monkeypatch.setattr("fiberscope.geometry.engines.lattice.splitter._SPARE", (8, 4, 4, 60, 60))
    monkeypatch.setattr("fiberscope.geometry.engines.lattice.levels._roomy", barely_grown)
    monkeypatch.setattr("fiberscope.geometry.engines.lattice.splitter.grown", barely_grown)
    monkeypatch.setattr("fiberscope.geometry.engines.lattice.layers.grown", barely_grown)
    for net, cells in zip(nets, wanted, strict=True):
        assert_identical(lattice_cells(net, Box.cube(net.in_size)), cells)


def test_a_cell_with_more_facets_than_there_is_room_for_writes_nowhere_else() -> None:
    k = 600  # corners on a parabola, cut by a line between two of them
    sides = tuple((i, (i + 1) % k) for i in range(k))
    start = Start(tuple((i, i * i, 1) for i in range(k)), (sides, (tuple(range(k)),)), np.zeros((k, 0), dtype=np.int8))
    builder = LatticeBuilder(Network([[[1.0, 0.0]], [[1.0]]], [[-7.5], [0.0]]), start)
    memory = np.full(4000, 77, dtype=np.int32)
    builder._splitter.lists = memory[:4]
    builder.walk(Run(), never)
    assert (memory[4:] == 77).all()
    cells = builder.cells()
    assert f_vector(cells) == [k + 2, k + 3, 2]
    assert_sound(cells)


def test_wide_numbers_make_the_same_complex(monkeypatch: pytest.MonkeyPatch) -> None:
    nets = [recipe(3, 9, 8, 1), recipe(4, 20, 1), degenerate("integer", 1)]
    wanted = [lattice_cells(net, Box.cube(net.in_size)) for net in nets]
    monkeypatch.setattr("fiberscope.geometry.engines.lattice.levels._NARROW", 500)
    for net, cells in zip(nets, wanted, strict=True):
        assert_identical(lattice_cells(net, Box.cube(net.in_size)), cells)


def test_nothing_but_the_answer_is_kept() -> None:
    cells = lattice_cells(recipe(4, 9, 8, 1), Box.cube(4))
    arrays = [x for inside in cells.boundary for x in (inside.indptr, inside.indices)]
    assert all(x.base is None and x.dtype == np.int32 for x in arrays)
    assert [len(inside.indices) for inside in cells.boundary] == [inside.indptr[-1] for inside in cells.boundary]
    assert cells.vertex_signs.base is None and cells.points.base is None


PEAK = """
import sys
from resource import RUSAGE_SELF, getrusage
from fiberscope.geometry.domains import Box
from fiberscope.geometry.engines.lattice.engine import lattice_cells
from fiberscope.network.network import Network
lattice_cells(Network.random((3, 4, 4, 1), 0), Box.cube(3))
before = getrusage(RUSAGE_SELF).ru_maxrss
cells = lattice_cells(Network.random((5, 16, 16, 1), 0), Box.cube(5))
print((getrusage(RUSAGE_SELF).ru_maxrss - before) * (1 if sys.platform == "darwin" else 1024) / cells.count(5))
"""


@pytest.mark.slow
def test_memory_while_a_complex_is_made() -> None:
    pytest.importorskip("resource")
    told = subprocess.run([sys.executable, "-c", PEAK], check=True, capture_output=True, text=True, timeout=300)
    assert float(told.stdout) < 4000  # 2,850 when it was measured, 5,420 when cells that were split stayed


def test_more_cells_than_numbers_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("levels", "splitter"):
        monkeypatch.setattr(f"fiberscope.geometry.engines.lattice.{module}.MOST_CELLS", 3000)
        with pytest.raises(TooLargeError, match="a complex of more than 3000 cells"):
            lattice_cells(recipe(4, 16, 16, 1), Box.cube(4))
        monkeypatch.undo()


def barely_grown(array: Any, size: int) -> Any:
    """Arrays that are full all the time, so that work is given up and begun again."""
    larger = np.full((size + len(array) // 8, *array.shape[1:]), 77, dtype=array.dtype)
    larger[: len(array)] = array
    return larger


def test_interruption_inside_a_block_gives_up_the_block(monkeypatch: pytest.MonkeyPatch) -> None:
    net = recipe(3, 6, 6, 1)
    monkeypatch.setattr("fiberscope.geometry.engines.lattice.splitter._PAUSE", 50)

    def stop(done: int, total: int, text: str) -> None:
        if done == 6 and stop_at.append(done) is None and len(stop_at) > 2:
            raise KeyboardInterrupt

    stop_at: list[int] = []
    part = lattice_cells(net, Box.cube(3), Run(stop))
    assert not part.complete
    assert_sound(part)
    assert not part.vertex_signs[:, 6:].any()
    first = Network([net.weights[0], np.zeros((1, 6))], [net.biases[0], np.zeros(1)])
    assert f_vector(part) == f_vector(lattice_cells(first, Box.cube(3)))


def test_pauses_come_whatever_dimension_is_at_work(monkeypatch: pytest.MonkeyPatch) -> None:
    net, calls = recipe(4, 12, 1), []
    builder = LatticeBuilder(net, box_start(Box.cube(4)))
    builder.walk(Run(), never)
    work = int(builder._splitter.at[splitting.WORK])
    monkeypatch.setattr("fiberscope.geometry.engines.lattice.splitter._PAUSE", work // 3)
    again = LatticeBuilder(net, box_start(Box.cube(4)))
    again.walk(Run(lambda done, total, text: calls.append(done)), never)
    assert calls.count(0) in (2, 3)
    assert_identical(again.cells(), builder.cells())


# --- bad input and interruption --------------------------------------------------------------------------


def test_bad_input() -> None:
    net = Network.random((2, 3, 1), 0)
    with pytest.raises(InputError, match="interior"):
        lattice_cells(net, Polytope([[1, 0], [-1, 0], [0, 1], [0, -1]], [-1, -1, 1, 1]))
    with pytest.raises(InputError, match="interior"):
        lattice_cells(net, Polytope([[1, 0], [-1, 0], [0, 1], [0, -1]], [0, 0, 1, 1]))
    with pytest.raises(NotGenericError, match="rank 1"):
        lattice_cells(Network([[[1, 0]], [[1]]], [[0], [0]]), Space(2))


def decimals(seed: int) -> Network:
    """One layer of small decimals: nearly everything that meets is decided exactly."""
    rng = np.random.default_rng(seed)
    return Network([rng.integers(-2, 3, (10, 3)) / 10, np.ones((1, 10))], [rng.integers(-1, 2, 10) / 10, np.zeros(1)])


STOPS = [
    ("integer", 1),
    ("multiples", 3),
    *(("point", k) for k in (2, 3, 6, 7, 8, 9)),
    *(("decimals", k) for k in range(3, 10)),
]


@pytest.mark.parametrize(("name", "after"), [*STOPS, *(("random", k) for k in (5, 12, 17, 21, 25, 40, 43))])
def test_a_stop_inside_of_a_block_is_a_smaller_network(name: str, after: int) -> None:
    net = {
        "integer": lambda: degenerate("integer", 2),
        "point": lambda: through_a_point(3, 1, layers=2),
        "decimals": lambda: decimals(58),
        "random": lambda: recipe(3, 22, 22, 1),
        "multiples": lambda: Network(  # four neurons, and then minus twice the same
            [np.kron([[1.0], [-2.0]], recipe(3, 4, 1).weights[0]), np.ones((1, 8))],
            [np.kron([1.0, -2.0], recipe(3, 4, 1).biases[0]), np.zeros(1)],
        ),
    }[name]()

    def stop(done: int, total: int, text: str) -> None:
        if done >= after:
            raise KeyboardInterrupt

    part = lattice_cells(net, Box.cube(net.in_size), Run(stop))
    assert not part.complete
    assert not part.vertex_signs[:, after:].any()
    weights, biases = [w.copy() for w in net.weights], [b.copy() for b in net.biases]
    for layer, first in enumerate(place.start for place in net.layout.places):
        weights[layer][max(after - first, 0) :], biases[layer][max(after - first, 0) :] = 0.0, 0.0
    small = lattice_cells(Network(weights, biases), Box.cube(net.in_size))
    assert f_vector(part) == f_vector(small)
    found, wanted = (sorted(map(tuple, cells.top_signs[:, :after].tolist())) for cells in (part, small))
    assert found == wanted
    assert_sound(part)
    assert_facets_by_signs(part)


def test_interruption_leaves_the_complex_of_the_neurons_reached() -> None:
    net = recipe(3, 6, 6, 1)
    whole = lattice_cells(net, Box.cube(3))

    def stop(done: int, total: int, text: str) -> None:
        if done >= 8:
            raise KeyboardInterrupt

    part = lattice_cells(net, Box.cube(3), Run(stop))
    assert not part.complete
    assert_sound(part)
    assert part.count(3) < whole.count(3)
    assert {tuple(s[:8]) for s in whole.top_signs.tolist()} == {tuple(s[:8]) for s in part.top_signs.tolist()}
    assert not part.vertex_signs[:, 8:].any()
    limited = lattice_cells(net, Box.cube(3), Run(limit=10))
    assert not limited.complete
    assert 10 < limited.count(3) < whole.count(3)
