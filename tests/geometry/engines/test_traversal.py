"""Traversal against counts that are known, against brute force over sign patterns, and against the complete complex."""

from __future__ import annotations

from itertools import islice, pairwise, product
from math import comb

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fiberscope.errors import InputError, NotGenericError, UnsupportedModelError
from fiberscope.geometry.domains import Box, Domain, Orthant, Plane, Polytope, Space
from fiberscope.geometry.engines.lattice.engine import lattice_cells
from fiberscope.geometry.engines.traversal import kernels
from fiberscope.geometry.engines.traversal.engine import VisitedRegion, count_by_traversal, traverse
from fiberscope.geometry.engines.traversal.exact import ExactCell, fraction
from fiberscope.geometry.engines.traversal.facet_tests import deep_points, points_behind
from fiberscope.geometry.engines.traversal.labels import Labels, pack, unpack
from fiberscope.geometry.engines.traversal.rows import copies, exact_functionals, functionals, is_open
from fiberscope.network.action.chain import permute, rescale
from fiberscope.network.network import Network
from fiberscope.network.nodes import Affine, PiecewiseLinear
from fiberscope.network.operators import Composition, Dense
from fiberscope.numerics.lp.programs import Polyhedron
from fiberscope.testing import case, convolutional, fraction_signs
from fiberscope.testing.cases import CASES, DEGENERATE
from fiberscope.testing.strategies import chains

GO = np.zeros(1, dtype=bool)
"""A flag that stops nothing."""


def measured(*widths: int) -> Network:
    """The random networks whose counts on ``[-1, 1]^n`` were established by several methods."""
    rng = np.random.default_rng(0)
    layers = []
    for m, n in pairwise(widths):
        weight, bias = rng.normal(0, np.sqrt(2 / m), (n, m)), rng.normal(0, np.sqrt(2 / m), n)
        layers.append((weight.astype(np.float32).astype(np.float64), bias.astype(np.float32).astype(np.float64)))
    return Network([w for w, _ in layers], [b for _, b in layers])


def simplex(n: int) -> Polytope:
    return Polytope(np.concatenate([np.eye(n), -np.ones((1, n))]), np.ones(n + 1))


def domains(n: int) -> dict[str, Domain]:
    return {"box": Box.cube(n), "space": Space(n), "orthant": Orthant(n), "polytope": simplex(n)}


def labels_of(net: Network, domain: Domain) -> set[bytes]:
    cells = lattice_cells(net, domain)
    return {row.tobytes() for row in cells.top_signs.astype(np.int8)}


# --- counts ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("widths", "count"),
    [((2, 16, 16, 1), 84), ((2, 32, 32, 1), 558), ((3, 16, 16, 1), 650), ((4, 16, 16, 1), 2996)],
)
def test_true_counts(widths: tuple[int, ...], count: int) -> None:
    found = count_by_traversal(measured(*widths), Box.cube(widths[0]))
    assert (found.count, found.complete, found.undecided) == (count, True, 0)
    assert found.explored == count


@pytest.mark.parametrize(("n", "neurons"), [(1, 5), (2, 7), (3, 6), (4, 6), (5, 6), (6, 5)])
def test_arrangement_in_general_position_on_the_whole_space(n: int, neurons: int) -> None:
    found = count_by_traversal(Network.random((n, neurons, 1), 3), Space(n))
    assert (found.count, found.complete) == (sum(comb(neurons, i) for i in range(n + 1)), True)


def test_central_arrangement_touches_everywhere() -> None:
    """All hyperplanes pass through one point, so rows that are no facets still touch every cell."""
    rng = np.random.default_rng(0)
    net = Network([rng.normal(size=(7, 4)), np.ones((1, 7))], [np.zeros(7), np.zeros(1)])
    expected = 2 * sum(comb(6, i) for i in range(4))
    for domain in (Space(4), Box.cube(4)):
        found = count_by_traversal(net, domain)
        assert (found.count, found.complete) == (expected, True)


# --- degenerate networks -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["box", "space", "orthant", "polytope"])
@pytest.mark.parametrize("name", sorted(set(CASES) - {"convolutional", "deep"}))
def test_every_kind_of_network_and_domain(name: str, kind: str) -> None:
    net = case(name)
    domain = domains(net.in_size)[kind]
    stream = traverse(net, domain)
    regions = list(stream)
    assert stream.summary.complete
    try:
        expected = labels_of(net, domain)
    except NotGenericError:  # no cell has a vertex; then there is one region in these cases
        assert len(regions) == 1
        return
    assert len(regions) == len(expected)
    assert {r.signs.tobytes() for r in regions} == expected
    assert count_by_traversal(net, domain).count == len(expected)


@given(chains(inputs=st.integers(1, 3)), st.sampled_from(["box", "space", "orthant", "polytope"]))
@settings(max_examples=60)
def test_same_regions_as_the_complete_complex(net: Network, kind: str) -> None:
    domain = domains(net.in_size)[kind]
    try:
        expected = labels_of(net, domain)
    except NotGenericError:
        assume(False)
    stream = traverse(net, domain)
    found = {region.signs.tobytes() for region in stream}
    assert found <= expected
    # weights of wildly different size make regions that hold no float; these must be owned up to
    assert found == expected or stream.summary.undecided > 0
    assert stream.summary.complete == (stream.summary.undecided == 0)


@pytest.mark.parametrize("name", DEGENERATE)
def test_symmetries_keep_the_count(name: str) -> None:
    net, box = case(name), Box.cube(2)
    rng = np.random.default_rng(1)
    count = count_by_traversal(net, box).count
    permuted = permute(net, [rng.permutation(n) for n in net.widths[1:-1]])
    assert count_by_traversal(permuted, box).count == count
    rescaled = rescale(net, [2.0 ** rng.integers(-9, 9, n) for n in net.widths[1:-1]])
    assert count_by_traversal(rescaled, box).count == count


def test_the_start_does_not_matter() -> None:
    net = measured(3, 16, 16, 1)
    assert {count_by_traversal(net, Box.cube(3), seed=seed).count for seed in range(4)} == {650}


def test_thin_regions_are_found() -> None:
    """Two parallel hyperplanes one part in 10^13 apart, crossed by others."""
    weight = np.array([[1.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [1.0, 1.0, 1.0]])
    net = Network([weight, np.ones((1, 4))], [np.array([0.0, 1e-13, 0.5, 0.25]), np.zeros(1)])
    found = count_by_traversal(net, Box.cube(3))
    assert (found.count, found.complete) == (lattice_cells(net, Box.cube(3)).count(3), True)


def test_copies_of_a_linear_neuron_still_count() -> None:
    """The first of two equal neurons is linear and has no kink; the second has one."""
    weights, biases = [[[1.0], [1.0]], [[1.0, 1.0]]], [[0.0, 0.0], [0.0]]
    net = Network(weights, biases, linear=[np.array([True, False])])
    assert count_by_traversal(net, Box.cube(1)).count == 2


def test_copies_are_not_read_off_a_rounded_product() -> None:
    """Two rows that agree only after a product of matrices is rounded are two neurons."""
    inner = Dense(np.array([[1.0], [2.0**-60]]))
    outer = Dense(np.array([[1.0, 0.0], [1.0, 1.0]]))
    nodes = [Affine(0, Composition([inner, outer]), np.array([-0.5, -0.5])), PiecewiseLinear(1, np.zeros(2), (2,))]
    net = Network.from_nodes([*nodes, Affine(2, Dense(np.ones((1, 2))))], (1,))
    assert copies(net).tolist() == [0, 1]


# --- what a region says ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["chain", "leaky", "mixed_linear", "residual", "integer", "equal_neurons"])
def test_witness_and_map_of_every_region(name: str) -> None:
    net = case(name)
    for region in traverse(net, Box.cube(net.in_size)):
        assert (fraction_signs(net, region.witness) == region.signs).all()
        assert (np.abs(region.witness) < 1).all()
        assert np.allclose(region.affine_map(region.witness[None]), net(region.witness[None]))
        assert region.to_dict()["signs"] == region.signs.tolist()


def essential_rows(net: Network, region: VisitedRegion, box: Box) -> set[tuple[str, int]]:
    """Facets by dropping one hyperplane at a time; rows of one class are asked once."""
    signs = region.signs
    rows = [[int(s) * v for v in f] for f, s in zip(exact_functionals(net, signs), signs, strict=True)]
    A, b = box.halfspaces()
    floats = np.array([[float(v.p) / float(v.q) for v in row] for row in rows])
    H = np.concatenate([floats, np.column_stack([-A, b])])
    cell = ExactCell(rows + [[float(v).as_integer_ratio()[0] for v in row] for row in H[len(rows) :]], region.witness)
    first = [k for k, group in enumerate(cell.classes) if group and group[0] == k]
    body = Polyhedron(-H[first, :-1], H[first, -1])
    found = {k for place, k in enumerate(first) if body.essential(place)}
    return {("neuron", k) if k < len(rows) else ("side", k - len(rows)) for k in found}


@pytest.mark.parametrize("seed", range(4))
def test_facets_are_the_essential_rows(seed: int) -> None:
    rng = np.random.default_rng(seed)
    shapes = [(4, 3), (3, 4), (1, 3)]
    net = Network(
        [rng.integers(-2, 3, s).astype(float) for s in shapes],
        [rng.integers(-2, 3, s[0]).astype(float) for s in shapes],
    )
    box = Box.cube(3, -4, 4)
    for region in traverse(net, box):
        found = {("neuron", f.neurons[0]) if f.neurons else ("side", f.side) for f in region.facets}
        assert found == essential_rows(net, region, box)


@pytest.mark.parametrize("widths", [(4, 5, 6, 1), (5, 4, 4, 4, 1), (3, 6, 2, 5, 1)])
def test_facets_of_unbounded_cells_behind_bottlenecks(widths: tuple[int, ...]) -> None:
    """Few neurons are alive in most cells, so that most multipliers are zero by structure."""
    net = Network.random(widths, seed=1)
    stream = traverse(net, Space(widths[0]))
    for region in islice(stream, 60):
        signs = region.signs
        rows = [[int(s) * v for v in f] for f, s in zip(exact_functionals(net, signs), signs, strict=True)]
        cell = ExactCell(rows, region.witness)
        firsts = {group[0]: group for group in cell.classes if group}
        truth = {group for k, group in firsts.items() if cell.beyond(k) is not None}
        assert {facet.neurons for facet in region.facets} == truth
    assert 100 * stream.summary.exact <= stream.summary.explored


@pytest.mark.parametrize("domain", [Space(5), Box.cube(5)], ids=["space", "box"])
def test_exact_decisions_are_rare_on_random_networks(domain: Domain) -> None:
    found = count_by_traversal(Network.random((5, 10, 10, 1), seed=0), domain)
    assert found.complete and found.count > 1000
    assert 1000 * found.exact <= found.explored


@pytest.mark.parametrize(("c", "count"), [(0.0, 4), (2.0**-70, 7), (-(2.0**-70), 4), (1.0, 7)])
def test_a_margin_near_the_limit_behind_a_bottleneck(c: float, count: int) -> None:
    """``|x|_+ + |y|_+ - c`` in three dimensions: a triangle of the size of c, or none; floats alone cannot tell."""
    net = Network([[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]], [[1.0, 1.0]], [[1.0]]], [[0.0, 0.0], [-c], [0.0]])
    found = count_by_traversal(net, Space(3))
    assert found.complete and found.count == count
    assert (found.exact > 0) == (abs(c) < 1.0)


def test_a_deep_point_is_far_from_all_sides() -> None:
    rows = np.array([[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [-1.0, -1.0, 1.0], [0.0, 0.0, -1.0]]])
    kinds = np.array([[kernels.WANTED, kernels.WANTED, kernels.SKIP, kernels.OFF]], dtype=np.int8)
    deep = deep_points(rows, kinds, np.array([[1e-13, 0.5]]))
    assert (rows[0, :3] @ np.append(deep[0], 1.0) > 0.1).all()
    far, on = np.split(points_behind(rows, kinds, deep, np.array([[0, 1]]))[0], 2)
    assert far[1] < -0.1 and far[0] > 0.1 and abs(on[1]) < 1e-12 and on[0] > 0.1


def test_facets_name_all_neurons_that_vanish_there() -> None:
    net = Network([[[1.0, 0.0], [2.0, 0.0]], [[1.0, 1.0]]], [[0.0, 0.0], [0.0]])
    regions = list(traverse(net, Box.cube(2)))
    assert len(regions) == 2
    for region in regions:
        assert [f.neurons for f in region.facets if f.neurons] == [(0, 1)]
        assert len([f for f in region.facets if f.side is not None]) == 3


# --- limits and interruption -------------------------------------------------------------------------------------


def test_limit_gives_at_least() -> None:
    net = measured(4, 16, 16, 1)
    found = count_by_traversal(net, Box.cube(4), limit=500)
    assert (found.count, found.at_least, found.complete, found.stopped) == (500, 500, False, "limit")
    assert str(found) == "at least 500 regions (limit)"
    assert found.to_dict()["complete"] is False


@pytest.mark.parametrize("limit", [1, 83, 84, 85, 1000])
def test_limit_near_the_true_count(limit: int) -> None:
    found = count_by_traversal(measured(2, 16, 16, 1), Box.cube(2), limit=limit)
    assert found.count == min(limit, 84)
    assert not (found.complete and limit < 84)
    assert found.complete or limit <= 84
    assert len(list(traverse(measured(2, 16, 16, 1), Box.cube(2), limit=limit))) == min(limit, 84)


def test_stream_can_be_stopped_at_any_time() -> None:
    stream = traverse(measured(4, 16, 16, 1), Box.cube(4))
    first = [next(stream) for _ in range(3)]
    assert len({r.signs.tobytes() for r in first}) == 3
    assert not stream.summary.complete
    assert stream.summary.at_least >= 3


def test_interruption_returns_what_was_found() -> None:
    calls: list[tuple[int, int]] = []

    def progress(explored: int, found: int, text: str) -> None:
        calls.append((explored, found))
        if len(calls) == 3:
            raise KeyboardInterrupt

    found = count_by_traversal(measured(4, 16, 16, 1), Box.cube(4), progress=progress)
    assert found.stopped == "interrupted"
    assert not found.complete
    assert found.count == calls[-1][1] < 2996
    assert str(found) == f"at least {found.count} regions (interrupted)"


# --- bad input ---------------------------------------------------------------------------------------------------


def test_bad_input() -> None:
    net = Network.random((2, 3, 1), 0)
    with pytest.raises(InputError, match="expected dimension 2"):
        count_by_traversal(net, Box.cube(3))
    with pytest.raises(InputError, match="expected dimension 2"):
        count_by_traversal(net, Plane([0, 0, 0], [1, 0, 0], [0, 1, 0]))
    with pytest.raises(InputError, match="limit"):
        count_by_traversal(net, Box.cube(2), limit=0)
    with pytest.raises(InputError, match="interior"):
        count_by_traversal(net, Polytope([[1.0, 0.0], [-1.0, 0.0]], [0.0, 0.0]))
    with pytest.raises(UnsupportedModelError, match="max pooling"):
        count_by_traversal(convolutional(), Box.cube(72))


# --- parts -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["chain", "deep", "leaky", "mixed_linear", "residual", "zero_rows", "dead_layer"])
def test_functionals_enclose_the_exact_ones(name: str) -> None:
    net = case(name)
    signs = net.signs(np.random.default_rng(0).normal(size=(5, net.in_size))).signs
    found = functionals(net, signs)
    for cell in range(5):
        exact = exact_functionals(net, signs[cell])
        for k, row in enumerate(exact):
            for c, value in enumerate(row):
                gap = abs(value - fraction(found.value[cell, k, c]))
                assert gap <= fraction(found.error[cell, k, c])


def test_functionals_without_hidden_neurons() -> None:
    assert functionals(case("affine"), np.zeros((2, 0), dtype=np.int8)).value.shape == (2, 0, 4)


def test_a_zero_on_a_border_is_not_a_region() -> None:
    net = Network([[[1.0], [0.0]], [[1.0, 1.0]]], [[0.0, 0.0], [0.0]])
    assert is_open(net, np.array([[0, 0], [1, 0]], dtype=np.int8)).tolist() == [False, True]


@given(st.integers(1, 150), st.integers(0, 2**32 - 1))
def test_labels_pack_and_unpack(size: int, seed: int) -> None:
    signs = np.random.default_rng(seed).integers(-1, 2, (4, size)).astype(np.int8)
    assert (unpack(pack(signs), size) == signs).all()


@given(st.lists(st.lists(st.integers(0, 3), min_size=2, max_size=2), min_size=1, max_size=40))
def test_label_set_is_a_set(rows: list[list[int]]) -> None:
    labels, seen = Labels(2), set()
    for row in rows:
        fresh = labels.add(np.array([row], dtype=np.uint64))
        assert fresh[0] == (tuple(row) not in seen)
        seen.add(tuple(row))
        assert len(labels) == len(seen)
    asked = np.array(list(product(range(4), repeat=2)), dtype=np.uint64)
    assert labels.contain(asked).tolist() == [tuple(row) in seen for row in asked.tolist()]


def test_label_set_grows() -> None:
    rng = np.random.default_rng(0)
    values = rng.integers(0, 2**63, (5000, 3), dtype=np.uint64)
    labels = Labels(3)
    assert labels.add(values).all()
    assert not labels.add(values).any()
    assert labels.contain(values).all()
    assert len(labels) == 5000


@pytest.mark.parametrize("bounded", [True, False])
@pytest.mark.parametrize("seed", range(5))
def test_kernel_decides_like_the_exact_cell(seed: int, bounded: bool) -> None:
    """Random half-spaces around the origin; what the kernel proves must be so."""
    rng = np.random.default_rng(seed)
    m, n = 14, 3
    rows = np.column_stack([rng.normal(size=(m, n)), rng.uniform(0.1, 1, m)])
    low, high = np.full(n, -2.0), np.full(n, 2.0)
    state, beyond = np.empty((1, m), np.int8), np.empty((1, m, 2 * n))
    kinds = np.full((1, m), kernels.WANTED, np.int8)
    box = np.concatenate([np.eye(n), -np.eye(n)])
    every = np.concatenate([rows, np.column_stack([box, np.full(2 * n, 2.0)])]) if bounded else rows
    kinds = np.full((1, len(every)), kernels.WANTED, np.int8)
    state, beyond = np.empty((1, len(every)), np.int8), np.empty((1, len(every), 2 * n))
    none, origin = np.zeros_like(every)[None], np.zeros((1, n))
    kernels.prove_cells(every[None], none, kinds, origin, low, high, bounded, state, beyond, GO)
    exact = ExactCell([[fraction(v) for v in row] for row in every], np.zeros(n))
    truth = [kernels.ABSENT if exact.beyond(k) is None else kernels.FACET for k in range(len(every))]
    assert state[0].tolist() == truth


def test_kernel_leaves_a_touching_row_open() -> None:
    """The row x + y <= 2 touches the square in a corner: no float can prove that it is no facet."""
    rows = np.array([[-1.0, 0, 1], [0, -1, 1], [1, 0, 1], [0, 1, 1], [-1, -1, 2]])
    errors = np.full_like(rows, 1e-17)
    kinds = np.full((1, 5), kernels.WANTED, np.int8)
    state, beyond = np.empty((1, 5), np.int8), np.empty((1, 5, 4))
    box = np.full(2, -1.0), np.full(2, 1.0)
    kernels.prove_cells(rows[None], errors[None], kinds, np.zeros((1, 2)), *box, True, state, beyond, GO)
    assert state[0].tolist() == [kernels.FACET] * 4 + [kernels.OPEN]
    cell = ExactCell([[fraction(v) for v in row] for row in rows], [0.0, 0.0])
    assert cell.beyond(4) is None


def test_kernel_respects_errors_of_coefficients() -> None:
    """A row that is redundant by a margin smaller than the stated error of its coefficients stays open."""
    rows = np.array([[-1.0, 0, 1], [0, -1, 1], [1, 0, 1], [0, 1, 1], [-1, -1, 2 + 1e-6]])
    box = np.full(2, -1.0), np.full(2, 1.0)
    for error, expected in ((1e-9, kernels.ABSENT), (1e-5, kernels.OPEN)):
        errors = np.zeros_like(rows)
        errors[4] = error
        state, beyond = np.empty((1, 5), np.int8), np.empty((1, 5, 4))
        kinds = np.full((1, 5), kernels.WANTED, np.int8)
        kernels.prove_cells(rows[None], errors[None], kinds, np.zeros((1, 2)), *box, True, state, beyond, GO)
        assert state[0, 4] == expected
