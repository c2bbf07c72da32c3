"""Fold-sets and dependency graphs against a slow oracle that works by the definition, in fractions, in the plane."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations, pairwise

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fiberscope.errors import InputError, UnsupportedModelError
from fiberscope.geometry.domains import Box, Orthant, Plane, Polytope, Space
from fiberscope.geometry.folds.dependency import dependency_graph, first_layer, longest_chains
from fiberscope.geometry.folds.fold_set import FoldSet, fold_set, truncated_fold_sets
from fiberscope.geometry.folds.genericity import genericity
from fiberscope.geometry.folds.hyperplanes import form_classes, neuron_name
from fiberscope.geometry.regions import regions
from fiberscope.network.action.chain import permute, rescale
from fiberscope.network.network import Network
from fiberscope.testing import convolutional
from fiberscope.testing.cases import DEGENERATE, degenerate
from fiberscope.testing.strategies import chains

SQUARE = Box.cube(2)
Line = tuple[Fraction, Fraction, Fraction]
Point = tuple[Fraction, Fraction]


# --- the slow oracle: polygons, segments and lines in fractions ------------------------------------------------------


def at(line: Line, p: Point) -> Fraction:
    return line[0] * p[0] + line[1] * p[1] + line[2]


def clip(polygon: list[Point], line: Line, side: int) -> list[Point]:
    """The part of a convex polygon where ``side * line >= 0``; empty if it has no interior."""
    values = [side * at(line, p) for p in polygon]
    if max(values) <= 0:
        return []
    result = []
    for k, (p, v) in enumerate(zip(polygon, values, strict=True)):
        q, w = polygon[(k + 1) % len(polygon)], values[(k + 1) % len(polygon)]
        if v >= 0:
            result.append(p)
        if v * w < 0:
            t = v / (v - w)
            result.append((p[0] + t * (q[0] - p[0]), p[1] + t * (q[1] - p[1])))
    return result


def split(polygon: list[Point], line: Line) -> list[list[Point]]:
    if not any(line):
        return [polygon]
    return [part for part in (clip(polygon, line, 1), clip(polygon, line, -1)) if part]


def linear_pieces(net: Network, box: Box) -> list[tuple[list[Point], list[Line]]]:
    """Polygons with the exact affine maps of the outputs."""
    low, high = ([Fraction(float(v)) for v in corner] for corner in (box.low, box.high))
    corners = [(low[0], low[1]), (high[0], low[1]), (high[0], high[1]), (low[0], high[1])]
    one, zero = Fraction(1), Fraction(0)
    found: list[tuple[list[Point], list[Line]]] = [(corners, [(one, zero, zero), (zero, one, zero)])]
    for layer, (weight, bias) in enumerate(zip(net.weights, net.biases, strict=True)):
        after = []
        for polygon, maps in found:
            rows = []
            for w, b in zip(weight, bias, strict=True):
                row = [sum((Fraction(float(x)) * m[k] for x, m in zip(w, maps, strict=True)), zero) for k in range(3)]
                rows.append((row[0], row[1], row[2] + Fraction(float(b))))
            cells = [polygon]
            if layer < len(net.weights) - 1:
                for row in rows:
                    cells = [part for cell in cells for part in split(cell, row)]
            for cell in cells:
                centre = tuple(sum(c) / len(cell) for c in zip(*cell, strict=True))
                slopes = [Fraction(1)] * len(rows)
                if layer < len(net.weights) - 1:
                    flat = [Fraction(float(s)) for s in net.switches[layer].slopes]
                    slopes = [one if at(r, centre) > 0 else s for r, s in zip(rows, flat, strict=True)]
                after.append((cell, [tuple(s * x for x in r) for r, s in zip(rows, slopes, strict=True)]))
        found = after
    return found


def through(p: Point, q: Point) -> Line:
    """The line through two points, scaled so that equal lines are equal tuples."""
    a, b = q[1] - p[1], p[0] - q[0]
    line = (a, b, -a * p[0] - b * p[1])
    scale = next(x for x in line if x)
    return (line[0] / scale, line[1] / scale, line[2] / scale)


def overlap(one: tuple[Point, Point], two: tuple[Point, Point]) -> tuple[Point, Point] | None:
    """The common segment of two segments on one line, if it is longer than a point."""
    (a, b), (c, d) = sorted(one), sorted(two)
    low, high = max(a, c), min(b, d)
    return (low, high) if low < high else None


def edges_of(polygon: list[Point]) -> list[tuple[Point, Point]]:
    return list(zip(polygon, polygon[1:] + polygon[:1], strict=True))


def folds(net: Network, box: Box) -> dict[Line, list[tuple[Point, Point]]]:
    """Segments across which the gradient jumps, by line."""
    by_line: dict[Line, list[tuple[int, tuple[Point, Point]]]] = {}
    pieces = linear_pieces(net, box)
    for k, (polygon, _) in enumerate(pieces):
        for p, q in edges_of(polygon):
            if p != q:
                by_line.setdefault(through(p, q), []).append((k, (p, q)))
    result: dict[Line, list[tuple[Point, Point]]] = {}
    for line, members in by_line.items():
        for (i, a), (j, b) in combinations(members, 2):
            common = overlap(a, b)
            if common and i != j and any(m[:2] != n[:2] for m, n in zip(pieces[i][1], pieces[j][1], strict=True)):
                result.setdefault(line, []).append(common)
    return result


def covered(segment: tuple[Point, Point], parts: list[tuple[Point, Point]]) -> bool:
    reach, end = sorted(segment)
    for low, high in sorted(tuple(sorted(part)) for part in parts):
        if low <= reach:
            reach = max(reach, high)
    return reach >= end


def crossing(polygon: list[Point], line: Line) -> tuple[Point, Point] | None:
    """The segment in which a line meets the inside of a polygon."""
    values = [at(line, p) for p in polygon]
    if not (min(values) < 0 < max(values)):
        return None
    ends = set()
    for (p, q), (v, w) in zip(edges_of(polygon), edges_of(values), strict=True):
        if v == 0:
            ends.add(p)
        elif v * w < 0:
            t = v / (v - w)
            ends.add((p[0] + t * (q[0] - p[0]), p[1] + t * (q[1] - p[1])))
    low, high = sorted(ends)
    return low, high


def canonical(net: Network, box: Box) -> tuple[list[tuple[int, tuple[Point, Point]]], set[tuple[int, int]], bool]:
    """Pieces with their orders, edges of the graph, and whether all of the fold-set is in pieces, by the definition."""
    lines = folds(net, box)
    low, high = ([Fraction(float(v)) for v in corner] for corner in (box.low, box.high))
    cells = [[(low[0], low[1]), (high[0], low[1]), (high[0], high[1]), (low[0], high[1])]]
    pieces: list[tuple[int, tuple[Point, Point]]] = []
    order = 0
    while True:
        order += 1
        new, after = [], []
        for cell in cells:
            own = [(line, crossing(cell, line)) for line in lines]
            full = [(line, s) for line, s in own if s is not None and covered(s, lines[line])]
            new += [(order, s) for _, s in full]
            parts = [cell]
            for line, _ in full:
                parts = [part for p in parts for part in split(p, line)]
            after += parts
        if not new:
            break
        pieces, cells = pieces + new, after
    graph = {(i, j) for i, (k, h) in enumerate(pieces) for j, (m, g) in enumerate(pieces) if k < m and meets_open(h, g)}
    whole = all(covered(part, [s for _, s in pieces if through(*s) == line]) for line in lines for part in lines[line])
    return pieces, graph, whole


def meets_open(h: tuple[Point, Point], g: tuple[Point, Point]) -> bool:
    """Whether the open segment h meets the closed segment g of another line."""
    line, other = through(*h), through(*g)
    determinant = line[0] * other[1] - line[1] * other[0]
    if determinant == 0:
        return False
    x = (line[1] * other[2] - line[2] * other[1]) / determinant
    y = (line[2] * other[0] - line[0] * other[2]) / determinant
    (a, b), (c, d) = sorted(h), sorted(g)
    return a < (x, y) < b and c <= (x, y) <= d


# --- the same in the form of the library ------------------------------------------------------------------------------


def ended(order: int, ends: np.ndarray) -> tuple[float, ...]:
    """Order and end points of a piece, in the order of a direction to which no line here is orthogonal."""
    swap = (ends[1] - ends[0]) @ [1.0, 0.6180339] < 0
    return float(order), *(ends[::-1] if swap else ends).reshape(-1).tolist()


def ends_of(found: FoldSet) -> list[tuple[float, ...]]:
    """The same of every piece of a planar fold-set."""
    result = []
    for piece in found.pieces:
        vertices = found.complex.structure.boundary[0].indices.reshape(-1, 2)[found.complex.facets.cell[piece.facets]]
        points = found.complex.vertices[np.unique(vertices)]
        along = points @ np.array([-piece.normal[1], piece.normal[0]])
        result.append(ended(piece.order, points[[along.argmin(), along.argmax()]]))
    return result


def assert_like_the_oracle(net: Network, box: Box = SQUARE) -> None:
    pieces, edges, whole = canonical(net, box)
    found = fold_set(net, box)
    graph = dependency_graph(found)
    expected = [ended(order, np.array(s, dtype=float)) for order, s in pieces]
    own = ends_of(found)
    assert len(own) == len(expected)
    if not own:
        assert not edges and found.is_surface == whole
        return
    far = np.abs(np.array(own)[:, None] - np.array(expected)[None]).max(axis=2)
    match = far.argmin(axis=1)
    assert sorted(match.tolist()) == list(range(len(expected)))
    assert far.min(axis=1).max() < 1e-9
    assert {(int(match[a]), int(match[b])) for a, b in graph.edges} == edges
    assert found.is_surface == whole


@pytest.mark.parametrize("widths", [(2, 3, 1), (2, 3, 3, 1), (2, 4, 3, 2), (2, 3, 3, 2, 1)])
@pytest.mark.parametrize("seed", range(4))
def test_random_networks_against_the_definition(widths: tuple[int, ...], seed: int) -> None:
    assert_like_the_oracle(Network.random(widths, seed), Box.cube(2, -2, 2))


@pytest.mark.parametrize("kind", DEGENERATE)
def test_degenerate_networks_against_the_definition(kind: str) -> None:
    assert_like_the_oracle(degenerate(kind), SQUARE)


@settings(max_examples=40)
@given(chains(inputs=st.just(2), max_width=3))
def test_nasty_networks_against_the_definition(net: Network) -> None:
    if max(np.abs(w).max() for w in net.weights) < 1000:  # end points are compared as floats
        assert_like_the_oracle(net)


# --- by hand ----------------------------------------------------------------------------------------------------------


def test_two_lines() -> None:
    net = Network([[[1.0, 0.0], [1.0, 1.0]], [[1.0, -1.0]]], [[0.0, -0.5], [0.0]])
    found = fold_set(net, SQUARE)
    assert [(p.order, p.whole) for p in found.pieces] == [(1, (0,)), (1, (1,))]
    assert [p.size for p in found.pieces] == pytest.approx([2.0, 1.5 * np.sqrt(2)])
    assert dependency_graph(found).number_of_edges() == 0
    assert first_layer(found).well_connected  # one hidden layer needs no chain


def test_tripod_is_no_surface() -> None:
    """``max(0, x, y) = relu(x + relu(y - x))`` folds along three rays; its units have two lines and a bent one."""
    net = Network(
        [[[-1.0, 1.0], [1.0, 0.0], [-1.0, 0.0]], [[1.0, 1.0, -1.0]], [[1.0]]], [[0.0, 0.0, 0.0], [0.0], [0.0]]
    )
    found = fold_set(net, SQUARE)
    assert not found.is_surface
    assert found.pieces == ()
    assert len(found.rest) == 3
    assert repr(found) == "FoldSet(function of 2-3-1-1: pieces by order none; 3 facets in no piece)"
    units = fold_set(net, SQUARE, surface="units")
    assert units.is_surface
    # The line y = x of the first layer, x = 0 of two opposite units, and two bends of max(x, y) = 0.
    assert [(p.order, p.neurons) for p in units.pieces] == [(1, (0,)), (1, (1, 2, 3)), (2, (3,))]


def test_a_chain_of_three_layers() -> None:
    """Each layer bends at the one before: lines, then units that meet both of them, then units that meet these."""
    first = [[1.0, 0.0], [0.0, 1.0]]
    second = [[1.0, 1.0], [1.0, -0.5]]
    third = [[1.0, 1.0], [-0.5, 1.0]]
    net = Network([first, second, third, [[1.0, 1.5]]], [[0.5, 0.75], [-1.0, 0.25], [-0.25, 0.125], [0.0]])
    assert_like_the_oracle(net, Box.cube(2, -2, 2))
    found = fold_set(net, Box.cube(2, -2, 2), surface="units")
    graph = dependency_graph(found)
    assert nx.is_directed_acyclic_graph(graph)
    assert first_layer(found, graph).well_connected
    assert max(longest_chains(graph).values()) == 2


def test_last_layer_can_look_like_the_first() -> None:
    net = Network(
        [[[1.0, 0.0], [0.0, 1.0]], [[1.0, 1.0], [-1.0, -1.0]], [[1.0, 2.0]]], [[0.0, 0.0], [-0.5, 1.5], [0.0]]
    )
    found = first_layer(fold_set(net, SQUARE))
    assert found.straight == (0, 1) == found.identified
    assert len(found.pieces) == 2  # the full line of the second layer has no descendants
    assert found.well_connected


def crossing_in_one_layer() -> Network:
    """Two second-layer units that cross near ``x = 1/2``: A is a full line of the square, B bends at ``x = 0``.

    The second unit of the first layer and the third of the second are positive on the square, so the network is
    transparent there.
    """
    first = [[1.0, 0.0], [0.0, 1.0]]
    second = [[1.0, 0.125], [0.25, 1.0], [0.5, 0.75]]
    return Network([first, second, [[1.0, 1.5, -0.6875]]], [[0.0, 2.0], [-0.75, -2.0625, 0.375], [0.4375]])


def test_lemma_3_needs_edges_that_bend() -> None:
    """By the paper's edges unit A has a descendant, B, and should be of the first layer; it is of the second."""
    net = crossing_in_one_layer()
    found = genericity(net, SQUARE)
    assert found.general and found.transparent
    assert found.conditions["masked_ranks"].exhaustive and found.conditions["distinct_functions"].exhaustive
    assert_like_the_oracle(net)
    folds = fold_set(net, SQUARE)
    assert [(p.order, p.whole) for p in folds.pieces] == [(1, (0,)), (1, (2,)), (2, (3,)), (2, (3,)), (2, (3,))]
    graph = dependency_graph(folds)
    assert sorted(d for _, _, d in graph.out_edges(1, data="bends")) == [False, False]  # two halves of one line
    assert sorted(d for _, _, d in graph.out_edges(0, data="bends")) == [True, True]
    assert longest_chains(graph)[0] == 1 and longest_chains(graph)[1] == 0
    assert first_layer(folds, graph).pieces == (0,)


# --- laws -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
def test_unit_kinks_have_at_most_as_many_orders_as_layers(seed: int) -> None:
    """Corollary A.1, and Lemma 3: a chain of m descendants puts a piece at least m layers before the last."""
    net = Network.random((2, 5, 5, 4, 1), seed)
    found = fold_set(net, Box.cube(2, -2, 2), surface="units")
    assert found.is_surface
    assert found.order <= 3
    graph = dependency_graph(found)
    for index, chain in longest_chains(graph).items():
        (layer,) = graph.nodes[index]["layers"]
        assert found.pieces[index].order <= layer <= 3 - chain
    assert first_layer(found, graph).wrong == ()
    visible = fold_set(found.complex)
    assert set(visible.facets.tolist()) <= set(found.facets.tolist())


@pytest.mark.parametrize("seed", range(3))
def test_folds_are_where_the_affine_map_changes(seed: int) -> None:
    net = Network.random((3, 5, 4, 2), seed)
    found = fold_set(net, Box.cube(3))
    complex, seen = found.complex, set(found.facets.tolist())
    for row in np.flatnonzero(~complex.facets.boundary).tolist():
        a, b = (net.affine_at(complex.points[r]).matrix for r in complex.facets.regions[row])
        assert (np.abs(a - b).max() > 1e-12) == (row in seen)


@pytest.mark.parametrize("surface", ["function", "units"])
def test_permutations_and_rescalings_change_nothing(surface: str) -> None:
    net = Network.random((2, 5, 4, 1), 3)
    rng = np.random.default_rng(0)
    order = [rng.permutation(5), rng.permutation(4)]
    other = rescale(permute(net, order), [2.0 ** rng.integers(-3, 4, 5), 2.0 ** rng.integers(-3, 4, 4)])
    one, two = (fold_set(n, SQUARE, surface=surface) for n in (net, other))
    assert np.array(sorted(ends_of(one))) == pytest.approx(np.array(sorted(ends_of(two))), abs=1e-12)
    graphs = [dependency_graph(f) for f in (one, two)]
    assert nx.is_isomorphic(*graphs, node_match=lambda a, b: a["order"] == b["order"])
    assert graphs[0].number_of_edges() > 0
    back = np.concatenate([order[0], 5 + order[1]])
    assert {tuple(sorted(back[list(p.neurons)])) for p in two.pieces} == {p.neurons for p in one.pieces}


@pytest.mark.parametrize("seed", range(3))
def test_in_space_over_the_plane(seed: int) -> None:
    """A network of (x, y) plus ``relu(z)``: prisms over the planar pieces, all but the full ones cut in two."""
    flat = Network.random((2, 4, 3, 1), seed)
    w1, w2, w3 = flat.weights
    first = np.block([[w1, np.zeros((4, 1))], [np.zeros((1, 2)), np.ones((1, 1))]])
    second = np.block([[w2, np.zeros((3, 1))], [np.zeros((1, 4)), np.ones((1, 1))]])
    third = np.concatenate([w3, [[1.0]]], axis=1)
    b1, b2, b3 = flat.biases
    solid = Network([first, second, third], [np.append(b1, 0.0), np.append(b2, 0.0), b3])
    plane, space = fold_set(flat, Box.cube(2, -2, 2)), fold_set(solid, Box.cube(3, -2, 2))
    below = {k: len(plane.of_order(k)) for k in range(1, plane.order + 1)}
    above = {k: len(space.of_order(k)) for k in range(1, space.order + 1)}
    assert above == {k: n + 1 if k == 1 else 2 * n for k, n in below.items()} | ({1: 1} if not below else {})
    thin, thick = dependency_graph(plane), dependency_graph(space)
    later = sum(n for k, n in below.items() if k > 1)
    doubled = sum(1 if thin.nodes[a]["order"] == 1 else 0 for a, _ in thin.edges)
    assert thick.number_of_edges() == 2 * doubled + 2 * (thin.number_of_edges() - doubled) + 2 * later


def test_unbounded_domains_and_lines() -> None:
    net = Network([[[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], [[1.0, 1.0, 1.0]]], [[0.0, 0.0, -1.0], [0.0]])
    assert [p.order for p in fold_set(net, Space(2)).pieces] == [1, 1, 1]
    assert [p.neurons for p in fold_set(net, Orthant(2)).pieces] == [(2,)]
    triangle = Polytope([[-1.0, 0.0], [0.0, -1.0], [1.0, 1.0]], [1.0, 1.0, 0.5])
    assert len(fold_set(net, triangle).pieces) == 2
    line = Network([[[1.0], [1.0]], [[1.0, -2.0]]], [[0.0, -0.5], [0.0]])
    assert [p.offset * p.normal[0] for p in fold_set(line, Box.cube(1)).pieces] == [0.0, 0.5]
    slice = Plane([0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 1.0, 1.0])
    assert len(fold_set(Network.random((3, 4, 1), 0), slice).pieces) >= 1


# --- truncations ------------------------------------------------------------------------------------------------------


def test_truncation_by_one_layer_is_the_rest_on_the_image() -> None:
    """With an orthogonal first layer the image is a box that floats describe, so the rest can be asked directly."""
    rest = Network.random((2, 5, 4, 1), 8)
    net = Network([np.eye(2), *rest.weights], [[1.0, 1.0], *rest.biases])
    part = truncated_fold_sets(regions(net, Box.cube(2, -3, 3)), 2)
    assert part.whole
    direct = fold_set(rest, Box.cube(2, 0, 4))
    shifted = np.add(sorted(ends_of(part.parts[0])), [0.0, 1.0, 1.0, 1.0, 1.0])
    assert shifted == pytest.approx(np.array(sorted(ends_of(direct))), abs=1e-9)
    graphs = [dependency_graph(part.parts[0]), dependency_graph(direct)]
    assert graphs[0].number_of_edges() == graphs[1].number_of_edges() == 14


def test_truncations_say_what_they_cover() -> None:
    complex = regions(Network.random((2, 5, 2, 3, 1), 1), Box.cube(2, -3, 3))
    assert truncated_fold_sets(complex, 1).coverage == "the whole domain"
    behind = truncated_fold_sets(complex, 2)
    assert behind.parts == () and behind.coverage == "the image has no interior"  # five units of two inputs
    several = truncated_fold_sets(complex, 3)
    assert several.whole == (len(several.parts) <= 1)
    for part in several.parts:
        assert part.inside is not None and part.inside.any()
        assert all(min(p.neurons) >= 7 for p in part.pieces)
    with pytest.raises(InputError, match="layer: expected 1 to 4, got 5"):
        truncated_fold_sets(complex, 5)


# --- parts ------------------------------------------------------------------------------------------------------------


def test_form_classes_are_exact() -> None:
    """Forms that differ by one unit in the last place are told apart, multiples are not, in the second layer too."""
    third = 1.0 / 3.0
    close = np.nextafter(third, 1)
    net = Network([[[1.0, third], [2.0, 2 * third], [1.0, close], [0.0, 0.0]], np.ones((1, 4))], [np.zeros(4), [0.0]])
    found = form_classes(net, np.ones((4, 4), np.int8), np.arange(4))
    assert found.label.tolist() == [0, 0, 1, -1]
    assert found.exact_decisions >= 3
    deep = Network([np.eye(2), [[third, 0.1], [third, 0.1]], [[1.0, 1.0]]], [np.zeros(2), [0.5, 0.5], [0.0]])
    signs = np.array([[1, 1, 1, 1], [1, -1, 1, 1], [1, 1, 1, 1]], np.int8)
    assert form_classes(deep, signs, np.array([2, 2, 3])).label.tolist() == [0, 1, 0]


@settings(max_examples=40)
@given(st.integers(0, 2**32 - 1))
def test_form_classes_against_fractions(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = rng.integers(-2, 3, (12, 3)).astype(float) * 2.0 ** rng.integers(-30, 30, (12, 1))
    net = Network([rows[:, :2], np.ones((1, 12))], [rows[:, 2], [0.0]])
    label = form_classes(net, np.ones((12, 12), np.int8), np.arange(12)).label

    def ray(row: np.ndarray) -> tuple[Fraction, ...] | None:
        exact = [Fraction(float(x)) for x in row]
        scale = next((x for x in exact if x), None)
        return None if scale is None else tuple(x / scale for x in exact)

    for a, b in combinations(range(12), 2):
        assert (label[a] == label[b]) == (ray(rows[a]) == ray(rows[b]))
    assert [bool(x) for x in label < 0] == [ray(row) is None for row in rows]
    seen = [x for x in dict.fromkeys(label.tolist()) if x >= 0]
    assert all(a < b for a, b in pairwise(seen))


def test_bad_input() -> None:
    net = Network.random((2, 3, 1), 0)
    complex = regions(net, SQUARE)
    with pytest.raises(InputError, match="domain: expected one beside a network"):
        fold_set(net)
    with pytest.raises(InputError, match="domain: expected none beside a complex"):
        fold_set(complex, Box.cube(2, 0, 1))
    with pytest.raises(InputError, match="surface: expected"):
        fold_set(complex, surface="all")  # type: ignore[arg-type]
    with pytest.raises(UnsupportedModelError, match="max pooling"):
        fold_set(convolutional(), Plane(np.zeros(72), np.eye(72)[0], np.eye(72)[1]))
    assert neuron_name(Network.random((2, 3, 4, 1), 0), 3) == "neuron 0 of layer 2"


def test_results_are_plain_data() -> None:
    found = fold_set(Network.random((2, 4, 3, 1), 1), SQUARE)
    data = found.to_dict()
    assert data["order"] == found.order
    assert [p["index"] for p in data["pieces"]] == list(range(len(found.pieces)))
    assert found.units.sum() == len(data["units"])
    assert first_layer(found).to_dict()["width"] == 4
