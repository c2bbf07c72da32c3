"""The planar engine against a slow splitter in fractions, true counts, laws, and degenerate networks."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations, pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fiberscope.errors import InputError, TooLargeError
from fiberscope.geometry.cells import Cells
from fiberscope.geometry.domains import Box, Plane, Polytope, view_of
from fiberscope.geometry.engines.planar import engine as planar
from fiberscope.geometry.engines.planar.engine import planar_cells, planar_count
from fiberscope.geometry.engines.planar.exact import TwofoldOracle
from fiberscope.geometry.engines.planar.tracked import Tracked, TrackedAlgebra
from fiberscope.geometry.regions import count_regions
from fiberscope.network.convolutions import Convolution
from fiberscope.network.io import load
from fiberscope.network.network import Network
from fiberscope.network.nodes import Add, Affine, Concat, MaxPool, PiecewiseLinear
from fiberscope.network.operators import Dense, Scale
from fiberscope.run import Run

SQUARE = Box.cube(2)

# --- the slow oracle: polygons and affine maps in fractions -------------------------------------------------------


def fractions(array: np.ndarray) -> list[list[Fraction]]:
    return [[Fraction(float(x)) for x in row] for row in np.atleast_2d(array)]


def clip(polygon: list, line: tuple, side: int) -> list:
    """The part of a convex polygon where ``side * line >= 0``, or nothing if that has no interior."""
    values = [side * (line[0] * x + line[1] * y + line[2]) for x, y in polygon]
    if max(values) <= 0:
        return []
    result = []
    for k, (point, value) in enumerate(zip(polygon, values, strict=True)):
        after, later = polygon[(k + 1) % len(polygon)], values[(k + 1) % len(polygon)]
        if value >= 0:
            result.append(point)
        if value * later < 0:
            t = value / (value - later)
            result.append(tuple(a + t * (b - a) for a, b in zip(point, after, strict=True)))
    return result


def sign_on(polygon: list, line: tuple) -> list[tuple[int, list]]:
    """The signs of a functional on the interior of a polygon, each with the part that has it."""
    if not any(line):
        return [(0, polygon)]
    return [(s, part) for s in (1, -1) if (part := clip(polygon, line, s))]


def affine_rows(node: Affine, rows: list) -> list:
    matrix = fractions(node.operator.dense())
    result = [
        tuple(sum((w * r[k] for w, r in zip(row, rows, strict=True)), Fraction(0)) for k in range(3)) for row in matrix
    ]
    if node.offset is None:
        return result
    return [(a, b, c + Fraction(float(o))) for (a, b, c), o in zip(result, node.offset, strict=True)]


def minus(a: tuple, b: tuple) -> tuple:
    return tuple(x - y for x, y in zip(a, b, strict=True))


def oracle(net: Network, corners: list, rows: list | None = None) -> dict[tuple[int, ...], Fraction]:
    """Sign vectors of all regions with their areas."""
    one, zero = Fraction(1), Fraction(0)
    rows = [(one, zero, zero), (zero, one, zero)] if rows is None else rows
    start = [(Fraction(float(x)), Fraction(float(y))) for x, y in corners]
    cells = [(start, (), [rows])]
    for node in net.nodes:
        cells = [cell for old in cells for cell in step(node, *old)]
    found: dict[tuple[int, ...], Fraction] = {}
    for polygon, signs, _ in cells:
        found[signs] = found.get(signs, zero) + area(polygon)
    return found


def step(node, polygon: list, signs: tuple, values: list) -> list:
    if isinstance(node, Affine):
        return [(polygon, signs, [*values, affine_rows(node, values[node.source])])]
    if isinstance(node, Add):
        total = [
            tuple(map(sum, zip(*entries, strict=True)))
            for entries in zip(*(values[s] for s in node.sources), strict=True)
        ]
        return [(polygon, signs, [*values, total])]
    if isinstance(node, Concat):
        return [(polygon, signs, [*values, [row for s in node.sources for row in values[s]]])]
    source = values[node.source]
    if isinstance(node, PiecewiseLinear):
        parts = [(polygon, signs, [])]
        for row, slope in zip(source, node.slopes, strict=True):
            parts = [
                (new, (*old, s), [*out, tuple((1 if s > 0 else Fraction(float(slope))) * x for x in row)])
                for poly, old, out in parts
                for s, new in (sign_on(poly, row) if slope != 1 else [(1, poly)])
            ]
        return [(poly, new, [*values, out]) for poly, new, out in parts]
    assert isinstance(node, MaxPool)
    parts = [(polygon, signs, [])]
    for window in node.windows.tolist():
        inside = [i for i in window if i >= 0]
        fine = [(p, s, o, {}) for p, s, o in parts]
        for i, j in combinations(inside, 2):
            fine = [
                (new, old, out, known | {(i, j): s, (j, i): -s})
                for poly, old, out, known in fine
                for s, new in sign_on(poly, minus(source[i], source[j]))
            ]
        parts = []
        for poly, old, out, known in fine:
            entries = tuple(-1 if i < 0 else min((known[i, j] for j in inside if j != i), default=1) for i in window)
            winner = window[next(k for k, s in enumerate(entries) if s >= 0)]
            parts.append((poly, old + entries, [*out, source[winner]]))
    return [(poly, new, [*values, out]) for poly, new, out in parts]


def area(polygon: list) -> Fraction:
    total = Fraction(0)
    for (x, y), (u, v) in zip(polygon, polygon[1:] + polygon[:1], strict=True):
        total += x * v - y * u
    return total / 2


# --- what must hold of every complex -------------------------------------------------------------------------------


def areas(cells: Cells) -> np.ndarray:
    inside = cells.vertices_of(2)
    after = np.arange(1, len(inside.indices) + 1)
    after[inside.indptr[1:] - 1] = inside.indptr[:-1]
    a = cells.points[inside.indices]
    b = a[after]
    return 0.5 * np.add.reduceat(a[:, 0] * b[:, 1] - a[:, 1] * b[:, 0], inside.indptr[:-1])


def check(net: Network, domain, cells: Cells, total: float) -> None:
    """Euler's formula, areas, every edge in one or two polygons, labels distinct and true at a witness."""
    V, E, F = (cells.count(k) for k in range(3))
    assert V - E + F == 1
    sizes = areas(cells)
    assert (sizes > -1e-12).all()  # a triangle narrower than the floats has none
    assert sizes.sum() == pytest.approx(total, rel=1e-9)
    uses = np.bincount(cells.boundary[1].indices, minlength=E)
    assert set(uses.tolist()) <= {1, 2}
    labels = cells.top_signs
    assert len(np.unique(labels, axis=0)) == F or labels.shape[1] == 0
    inside = cells.vertices_of(2)
    witness = np.add.reduceat(cells.points[inside.indices], inside.indptr[:-1], axis=0)
    witness /= np.diff(inside.indptr)[:, None]
    fat = sizes > 1e-9  # the mean of rounded vertices of a sliver may lie outside it
    if isinstance(domain, Plane):  # lifting a point rounds it; the network on the plane does not
        net = Network.from_nodes(domain.view(net).net.nodes, (2,))
    if fat.any():
        np.testing.assert_array_equal(net.signs(witness[fat]).signs, labels[fat])


def compare(net: Network, box: Box = SQUARE) -> Cells:
    """The engine's complex, checked against the oracle."""
    cells = planar_cells(net, box)
    corners = [
        (box.low[0], box.low[1]),
        (box.high[0], box.low[1]),
        (box.high[0], box.high[1]),
        (box.low[0], box.high[1]),
    ]
    expected = oracle(net, corners)
    found = dict(zip(map(tuple, cells.top_signs.tolist()), areas(cells).tolist(), strict=True))
    assert set(found) == set(expected)
    for label, size in expected.items():
        assert found[label] == pytest.approx(float(size), rel=1e-6, abs=1e-12)
    assert int(planar_count(net, box)) == len(expected)
    check(net, box, cells, box.volume)
    return cells


# --- networks --------------------------------------------------------------------------------------------------------


def from_facts(*widths: int) -> Network:
    rng = np.random.default_rng(0)
    weights, biases = [], []
    for n, m in pairwise(widths):
        weights.append(rng.normal(0, np.sqrt(2 / n), (m, n)).astype(np.float32).astype(np.float64))
        biases.append(rng.normal(0, np.sqrt(2 / n), m).astype(np.float32).astype(np.float64))
    return Network(weights, biases)


def small_integers(rows: int, columns: int | None = None):
    shape = (rows,) if columns is None else (rows, columns)
    size = rows * (columns or 1)
    entries = st.lists(st.integers(-2, 2), min_size=size, max_size=size)
    return entries.map(lambda x: np.array(x, dtype=np.float64).reshape(shape))


@st.composite
def degenerate_chains(draw) -> Network:
    widths = [2, *draw(st.lists(st.integers(1, 4), min_size=1, max_size=3)), 1]
    weights = [draw(small_integers(m, n)) for n, m in pairwise(widths)]
    biases = [draw(small_integers(m)) for m in widths[1:]]
    kind = draw(st.sampled_from(["relu", "relu", "relu", "leaky_relu"]))
    linear = None
    if draw(st.booleans()):
        linear = [np.array(draw(st.lists(st.booleans(), min_size=m, max_size=m))) for m in widths[1:-1]]
    return Network(weights, biases, kind, slope=-0.5 if draw(st.booleans()) else 0.25, linear=linear)


def pooled(kernel, bias, head, stride=(2, 2), padding=(0, 0, 0, 0), after=True, size=(1, 4, 4)) -> Network:
    """Convolution, pooling and ReLU in either order, one dense layer with ReLU, an output."""
    conv = Convolution(kernel, size, padding=(1, 1, 1, 1))
    channels = conv.out_shape
    relu = PiecewiseLinear(1, np.zeros(1), channels)
    pool = MaxPool(2, channels, (2, 2), stride, padding) if after else MaxPool(1, channels, (2, 2), stride, padding)
    if not after:
        relu = PiecewiseLinear(2, np.zeros(1), pool.shape)
    width = int(np.prod(pool.shape))
    matrix = np.resize(head, (3, width))
    middle = [relu, pool] if after else [pool, relu]
    nodes = [
        Affine(0, conv, np.asarray(bias).reshape(-1, 1, 1)),
        *middle,
        Affine(3, Dense(matrix), np.array([0.0, 1.0, -1.0])),
        PiecewiseLinear(4, np.zeros(3), (3,)),
        Affine(5, Dense(np.ones((1, 3))), None),
    ]
    return Network.from_nodes(nodes, size)


def residual(weights, biases) -> Network:
    """Two residual blocks of width ``n`` and a concatenation with the input."""
    first, a, b, c, last = weights
    n = len(first)
    nodes = [
        Affine(0, Dense(first), biases[0]),
        PiecewiseLinear(1, np.zeros(n), (n,)),
        Affine(2, Dense(a), biases[1]),
        PiecewiseLinear(3, np.zeros(n), (n,)),
        Affine(4, Dense(b), None),
        Add((2, 5), (n,)),
        PiecewiseLinear(6, np.full(n, 0.5), (n,)),
        Concat((7, 0), ((n,), (2,))),
        Affine(8, Scale(np.full(n + 2, -2.0), (n + 2,)), None),
        Affine(9, Dense(c), biases[2]),
        PiecewiseLinear(10, np.zeros(n), (n,)),
        Affine(11, Dense(last), None),
    ]
    return Network.from_nodes(nodes, (2,))


# --- tests ---------------------------------------------------------------------------------------------------

TRUE_COUNTS = [
    ((2, 16, 16, 1), 84),
    ((2, 32, 32, 1), 558),
    ((2, 64, 64, 1), 2434),
    ((2, 32, 32, 32, 1), 1210),
    ((2, 128, 128, 1), 11619),
    ((2, 256, 256, 1), 43184),
    ((2, 64, 64, 64, 64, 1), 8488),
]


@pytest.mark.parametrize(("widths", "count"), TRUE_COUNTS)
def test_true_counts(widths, count):
    net = from_facts(*widths)
    found = planar_count(net, SQUARE)
    assert int(found) == count
    assert found.exact_decisions <= 1e-4 * found.float_decisions
    cells = planar_cells(net, SQUARE)
    assert cells.count(2) == count
    if count < 20000:
        check(net, SQUARE, cells, 4.0)


def test_slice_of_a_wide_network():
    net = from_facts(784, 256, 64, 1)
    u, v = np.random.default_rng(10000).normal(size=(2, 784)).astype(np.float32).astype(np.float64)
    plane = Plane(np.zeros(784), u, v)
    view = plane.view(net)
    assert int(planar_count(view.net, view.domain)) == 50124


@pytest.mark.parametrize("widths", [(2, 1, 1), (2, 5, 1), (2, 4, 4, 1), (2, 3, 3, 3, 1)])
@pytest.mark.parametrize("seed", [0, 1])
def test_random_networks_against_the_oracle(widths, seed):
    compare(Network.random(widths, seed))


@settings(max_examples=150)
@given(degenerate_chains())
def test_degenerate_networks_against_the_oracle(net):
    compare(net)


@settings(max_examples=25)
@given(st.lists(small_integers(3, 3), min_size=3, max_size=3), st.lists(small_integers(3), min_size=3, max_size=3))
def test_residual_networks_against_the_oracle(matrices, biases):
    a, b, c = matrices
    first, wide = a[:, :2], np.hstack([c, b[:, :2]])
    compare(residual([first, a, b, wide, np.ones((1, 3))], biases))


@settings(max_examples=15)
@given(st.booleans(), st.integers(0, 2**32), st.sampled_from([(2, 2), (1, 1)]), st.booleans())
def test_pooling_against_the_oracle(after, seed, stride, integers):
    rng = np.random.default_rng(seed)
    draw = (lambda *s: rng.integers(-1, 2, s).astype(float)) if integers else (lambda *s: rng.normal(size=s))
    padding = (1, 0, 0, 1) if stride == (2, 2) else (0, 0, 0, 0)
    net = pooled(draw(1, 1, 3, 3), draw(1), draw(3, 5), stride, padding, after, size=(1, 3, 3))
    origin, u, v = draw(3, 9)
    plane = Plane(origin, u, v)
    view = plane.view(net)
    cells = planar_cells(view.net, view.domain)
    rows = [tuple(Fraction(float(x)) for x in row) for row in zip(u, v, origin, strict=True)]
    expected = oracle(net, [(-1, -1), (1, -1), (1, 1), (-1, 1)], rows)
    found = dict(zip(map(tuple, cells.top_signs.tolist()), areas(cells).tolist(), strict=True))
    assert set(found) == set(expected)
    for label, size in expected.items():
        assert found[label] == pytest.approx(float(size), rel=1e-6, abs=1e-12)
    assert int(planar_count(view.net, view.domain)) == len(expected)
    check(net, plane, cells, 4.0)
    assert_no_straight_inner_vertices(cells)


def test_pooling_first_last_and_trivial():
    rng = np.random.default_rng(5)
    pool = MaxPool(0, (1, 1, 2), (1, 2), (1, 1))
    alone = Network.from_nodes([pool], (2,))  # the maximum of the two coordinates
    assert sorted(map(tuple, compare(alone).top_signs.tolist())) == [(-1, 1), (1, -1)]
    single = Network.from_nodes([MaxPool(0, (1, 1, 2), (1, 1), (1, 1))], (2,))
    assert compare(single).top_signs.tolist() == [[1, 1]]
    last = Network.from_nodes(
        [
            Affine(0, Dense(rng.normal(size=(9, 2))), rng.normal(size=9)),
            PiecewiseLinear(1, np.zeros(9), (1, 3, 3)),
            MaxPool(2, (1, 3, 3), (2, 2), (1, 1)),
            MaxPool(3, (1, 2, 2), (2, 2), (1, 1)),
        ],
        (2,),
    )
    assert_no_straight_inner_vertices(compare(last))


def assert_no_straight_inner_vertices(cells: Cells) -> None:
    """A vertex of degree two is a corner of the square: joined faces leave nothing behind."""
    degree = np.bincount(cells.boundary[0].indices, minlength=cells.count(0))
    corners = (np.abs(cells.points) == 1).all(axis=1)
    assert (degree[~corners] >= 3).all()


@pytest.mark.parametrize("scale", [2.0**-1060, 2.0**-600, 2.0**500, 2.0**700])
def test_extreme_scales(scale):
    """Rounding, overflow and underflow leave decisions to exact arithmetic, never to chance."""
    net = from_facts(2, 4, 4, 1)
    W, b = net.weights, net.biases
    expected = planar_cells(net, SQUARE)
    # not powers of two that cancel: the first layer alone is scaled, the biases of the second with it
    scaled = Network([W[0] * scale, W[1], W[2]], [b[0] * scale, b[1] * scale, b[2]])
    found = compare(scaled)
    if scale > 2.0**-700:  # subnormal weights are rounded
        assert {tuple(r) for r in found.top_signs.tolist()} == {tuple(r) for r in expected.top_signs.tolist()}


def test_named_degenerate_cases():
    def layer(rows, biases):
        return Network([rows, np.ones((1, len(rows)))], [biases, [0.0]])

    through_corners = layer([[1.0, -1.0], [1.0, 1.0], [2.0, 2.0], [-3.0, 3.0]], [0.0, 0.0, 0.0, 0.0])
    assert compare(through_corners).count(2) == 4
    zero_rows = layer([[0.0, 0.0], [0.0, 0.0], [0.0, 0.0], [1.0, 0.0]], [0.0, 1.0, -1.0, 0.0])
    assert compare(zero_rows).count(2) == 2
    side = layer([[1.0, 0.0], [1.0, 0.0]], [-1.0, 1.0])  # lines along two sides of the square
    assert compare(side).count(2) == 1
    pencil = layer([[np.cos(a), np.sin(a)] for a in np.arange(7)], np.zeros(7))
    assert compare(pencil).count(2) == 14
    dead = Network([[[1.0, 0.0]], [[1.0], [0.0]], [[1.0, 1.0]]], [[-5.0], [0.0, 2.0], [0.0]])
    assert compare(dead).top_signs.tolist() == [[-1, 0, 1]]
    vanishing = Network(
        [[[1.0, 0.0], [0.0, 1.0]], [[1.0, 0.0], [1.0, -1.0]], [[1.0, 1.0]]], [[0.0, 0.0], [0.0, 0.0], [0.0]]
    )
    assert sorted(map(tuple, compare(vanishing).top_signs.tolist())) == [
        (-1, -1, 0, 0), (-1, 1, 0, -1), (1, -1, 1, 1), (1, 1, 1, -1), (1, 1, 1, 1),
    ]  # fmt: skip


def test_nearly_concurrent_lines_are_told_apart():
    """Three lines through a point up to one unit in the last place, and up to far less than that."""
    rows = [[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]
    total = Fraction(1 / 3) + Fraction(0.25)
    touching = np.array([-1 / 3, -0.25, -float(total)])
    cells = compare(Network([rows, np.ones((1, 3))], [touching, [0.0]]))
    assert cells.count(2) == (6 if Fraction(float(total)) == total else 7)
    touching[2] = np.nextafter(touching[2], 0)
    cells = compare(Network([rows, np.ones((1, 3))], [touching, [0.0]]))
    assert cells.count(2) == 7
    assert cells.exact_decisions == 0, "twice the precision of floats tells them apart"


@pytest.mark.parametrize(("gap", "count"), [(0.0, 6), (2.0**-90, 7), (2.0**-130, 7), (-(2.0**-130), 7)])
def test_what_the_sharper_filter_cannot_see_is_decided_exactly(gap, count):
    """The lines x = -1/2, y = 1/2 and x + y = gap: at the limit of 106 bits, and far below it."""
    rows = [[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]
    cells = compare(Network([rows, np.ones((1, 3))], [[0.5, -0.5, -gap], [0.0]]))
    assert cells.count(2) == count
    assert cells.exact_decisions > 0


def test_deep_networks_need_no_exact_decisions(monkeypatch):
    """Error bounds of values grow with the depth; those of composed rows in twice the precision are still tiny."""
    net = Network.random((2, *[10] * 25, 1), seed=3)
    sharp = planar_count(net, SQUARE)
    assert sharp.exact_decisions == 0
    monkeypatch.setattr(TwofoldOracle, "of", lambda oracle: None)
    plain = planar_count(net, SQUARE)
    assert plain.exact_decisions > 100
    assert int(plain) == int(sharp)


def test_never_below_dense_sampling():
    net = from_facts(2, 24, 24, 24, 1)
    points = np.random.default_rng(1).uniform(-1, 1, (20000, 2))
    seen = {tuple(row) for row in net.signs(points).signs.tolist()}
    known = {tuple(row) for row in planar_cells(net, SQUARE).top_signs.tolist()}
    assert seen <= known


def test_permutation_and_rescaling_change_nothing():
    net = from_facts(2, 12, 10, 1)
    rng = np.random.default_rng(2)
    p, q = rng.permutation(12), rng.permutation(10)
    s = 2.0 ** rng.integers(-30, 30, 12)
    W, b = net.weights, net.biases
    other = Network([(W[0] * s[:, None])[p], (W[1] / s)[q][:, p], W[2][:, q]], [(b[0] * s)[p], b[1][q], b[2]])
    first, second = planar_cells(net, SQUARE), planar_cells(other, SQUARE)
    assert [first.count(k) for k in range(3)] == [second.count(k) for k in range(3)]
    moved = first.top_signs[:, np.concatenate([p, 12 + q])]
    assert {tuple(r) for r in moved.tolist()} == {tuple(r) for r in second.top_signs.tolist()}


def test_appending_a_layer_refines():
    net = from_facts(2, 10, 10, 10, 1)
    shorter = Network(net.weights[:3], net.biases[:3])
    fine = {tuple(r[:20]) for r in planar_cells(net, SQUARE).top_signs.tolist()}
    assert fine == {tuple(r) for r in planar_cells(shorter, SQUARE).top_signs.tolist()}


def test_general_position_formula():
    """``n`` lines in general position with all crossings inside: ``1 + n + n (n - 1) / 2`` regions."""
    rng = np.random.default_rng(0)
    net = Network([rng.normal(size=(12, 2)), np.ones((1, 12))], [rng.normal(size=12), [0.0]])
    assert int(planar_count(net, Box.cube(2, -1e4, 1e4))) == 1 + 12 + 66


def test_polytopes():
    net = Network([[[1.0, 0.0], [0.0, 1.0], [3.0, -1.0]], [[1.0, 1.0, 1.0]]], [[-0.2, -0.3, 0.0], [0.0]])
    triangle = Polytope([[-1.0, 0.0], [0.0, -3.0], [3.0, 7.0], [1.0, 1.0]], [0.0, 0.0, 5.0, 9.0])
    cells = planar_cells(net, triangle)
    assert areas(cells).sum() == pytest.approx(0.5 * 5 / 3 * 5 / 7)
    check(net, triangle, cells, 0.5 * 5 / 3 * 5 / 7)
    square = Polytope(*SQUARE.halfspaces())
    assert planar_cells(net, square).count(2) == planar_cells(net, SQUARE).count(2)


@pytest.mark.parametrize(
    ("A", "b", "word"),
    [
        ([[1.0, 0.0]], [1.0], "bounded"),
        ([[1.0, 0.0], [-1.0, 0.0]], [1.0, 1.0], "bounded"),
        ([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]], [0.0, 0.0, 1.0, 1.0], "interior"),
        ([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]], [-1.0, 0.0, 1.0, 1.0], "interior"),
        ([[0.0, 0.0]], [-1.0], "empty"),
    ],
)
def test_bad_polytopes(A, b, word):
    with pytest.raises(InputError, match=word):
        planar_count(from_facts(2, 3, 1), Polytope(A, b))


def test_bad_dimensions():
    with pytest.raises(InputError, match="two dimensions"):
        planar_count(from_facts(3, 3, 1), Box.cube(3))
    with pytest.raises(InputError, match="expected dimension 3"):
        view_of(from_facts(3, 3, 1), Plane(np.zeros(4), np.ones(4), np.arange(4.0)))


def test_networks_without_kinks():
    affine_map = Network([[[1.0, 2.0]]], [[0.0]])
    assert int(planar_count(affine_map, SQUARE)) == 1
    assert [planar_cells(affine_map, SQUARE).count(k) for k in range(3)] == [4, 4, 1]
    linear = Network([np.ones((2, 2)), np.ones((1, 2))], [np.zeros(2), [0.0]], linear=[np.array([True, True])])
    cells = planar_cells(linear, SQUARE)
    assert cells.top_signs.tolist() == [[1, 1]]


def test_flat_plane_is_allowed():
    """A plane whose two directions agree: every line is parallel to one, and the count is that along a segment."""
    net = from_facts(3, 8, 8, 1)
    u = np.array([1.0, -0.5, 0.25])
    view = Plane(np.zeros(3), u, u).view(net)
    cells = planar_cells(view.net, view.domain)
    check(net, Plane(np.zeros(3), u, u), cells, 4.0)


def test_pieces_of_bounded_memory(monkeypatch):
    net = from_facts(2, 20, 20, 20, 1)
    whole = int(planar_count(net, SQUARE))
    monkeypatch.setattr(planar, "_CHUNK_BYTES", 4000)
    calls = []
    assert int(planar_count(net, SQUARE, Run(lambda *x: calls.append(x)))) == whole
    assert calls
    vanishing = Network(
        [[[1.0, 0.0], [0.0, 1.0]], [[1.0, 0.0], [1.0, -1.0]], [[1.0, 1.0]]], [[0.0, 0.0], [0.0, 0.0], [0.0]]
    )
    monkeypatch.setattr(planar, "_CHUNK_BYTES", 40)
    assert int(planar_count(vanishing, SQUARE)) == 5


@pytest.mark.parametrize("sharp", [False, True])
def test_useless_error_bounds_give_the_same(monkeypatch, sharp):
    """Then every decision is exact, or made by the sharper filter; the complex does not change."""
    net = from_facts(2, 6, 6, 1)
    expected = planar_cells(net, SQUARE)
    plain = TrackedAlgebra.affine

    def vague(*args):
        value = plain(*args)
        return Tracked(value.z, value.c + 1e3, value.e2 + 1e3, value.r)

    monkeypatch.setattr(TrackedAlgebra, "affine", vague)
    if not sharp:
        monkeypatch.setattr(TwofoldOracle, "of", lambda oracle: None)
    found = planar_cells(net, SQUARE)
    assert found.exact_decisions == 0 if sharp else found.exact_decisions > expected.float_decisions / 2
    assert {tuple(r) for r in found.top_signs.tolist()} == {tuple(r) for r in expected.top_signs.tolist()}
    assert [found.count(k) for k in range(3)] == [expected.count(k) for k in range(3)]
    assert int(planar_count(net, SQUARE)) == expected.count(2)


@given(st.integers(0, 2**32))
def test_error_bounds_hold(seed):
    rng = np.random.default_rng(seed)
    net = Network.random((3, 7, 5, 1), rng)
    x = rng.normal(size=(4, 3)) * 2.0 ** rng.integers(-20, 20)
    node, tight = net.nodes[0], TrackedAlgebra(tight=True)
    value = tight.affine(node.operator, node.offset, Tracked.exact(x))
    value = tight.affine(Dense(rng.normal(size=(5, 7))), rng.normal(size=5), value)
    assert (value.c > 0).all()
    again = TrackedAlgebra(tight=False).affine(node.operator, node.offset, Tracked.exact(x))
    for row, z, c in zip(x, again.z, again.c, strict=True):
        for j in range(7):
            true = sum(
                (Fraction(float(w)) * Fraction(float(a)) for w, a in zip(node.operator.matrix[j], row, strict=True)),
                Fraction(float(node.offset[j])),
            )
            assert abs(true - Fraction(float(z[j]))) <= Fraction(float(c * again.r[j]))


def test_real_network_with_coinciding_hyperplanes(shared_nets: Path):
    net = load(shared_nets / "tll_8_0.onnx")
    box = Box.cube(2, -2.0, 2.0)
    cells = planar_cells(net, box)
    check(net, box, cells, 16.0)
    assert int(planar_count(net, box)) == cells.count(2)


def test_an_interrupted_count_is_a_growing_lower_bound(monkeypatch):
    """Whenever Ctrl-C comes, what was not counted yet goes in as the polygons that hold it."""
    monkeypatch.setattr(planar, "_CHUNK_BYTES", 1 << 11)
    net, box = Network.random((2, 30, 10, 1), 0), Box.cube(2)
    whole = planar_count(net, box)
    assert whole.complete
    found, stop, calls = [], 0, 0

    def progress(done: int, total: int, text: str) -> None:
        nonlocal calls
        calls += 1
        if calls == stop:
            raise KeyboardInterrupt

    planar_count(net, box, Run(progress))
    last = calls
    assert last > 4
    for stop in range(1, last + 1):
        calls = 0
        part = planar_count(net, box, Run(progress))
        assert not part.complete and calls == stop
        found.append(int(part))
        calls = 0
        one = count_regions(net, box, progress=progress)
        assert not one.complete and repr(one) == f"at least {found[-1]}"
    assert found == sorted(found)
    assert found[0] < int(whole) and found[-1] <= int(whole)


def test_what_memory_does_not_hold_is_refused_before_it_is_built(monkeypatch):
    """The message says how many polygons there would be, which is right; with a limit the layers before are given."""
    net, box = Network.random((2, 10, 40, 1), 0), Box.cube(2)
    first, whole = planar_cells(Network.random((2, 10, 1), 0), box).count(2), planar_cells(net, box).count(2)
    monkeypatch.setattr(planar, "MEMORY", 60_000)
    with pytest.raises(TooLargeError, match=rf"layer 2 of 2 makes {whole:,} polygons and needs about .* GB"):
        planar_cells(net, box)
    part = planar_cells(net, box, Run(limit=whole))
    assert not part.complete and part.count(2) == first
    assert int(planar_count(net, box)) == whole  # counted in pieces


@pytest.mark.parametrize("stop", ["interrupt", "limit"])
def test_what_was_found_before_a_stop_is_returned_and_marked(stop):
    net = Network.random((2, 6, 6, 6, 1), 0)
    whole = planar_cells(net, Box.cube(2))

    def progress(done: int, total: int, text: str) -> None:
        if stop == "interrupt" and done == 2:
            raise KeyboardInterrupt

    limit = None if stop == "interrupt" else planar_cells(Network.random((2, 6, 1), 0), Box.cube(2)).count(2)
    part = planar_cells(net, Box.cube(2), Run(progress, limit=limit))
    assert whole.complete
    assert not part.complete
    assert 1 < part.count(2) < whole.count(2)
    assert (part.top_signs[:, -6:] == 0).all()
    assert part.count(0) - part.count(1) + part.count(2) == 1
