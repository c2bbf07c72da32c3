"""Numbers at the ends of the floats, and each shortcut in front of exact arithmetic with an adversary of its own."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fiberscope.errors import InputError
from fiberscope.geometry.affine_forms import jumps, neuron_forms, output_forms
from fiberscope.geometry.complex import Complex
from fiberscope.geometry.domains import Box, Domain, Orthant, Plane, Polytope, Space
from fiberscope.geometry.engines.lattice.engine import lattice_cells
from fiberscope.geometry.engines.lattice.layers import HomogeneousBounds
from fiberscope.geometry.engines.planar import tracked as track
from fiberscope.geometry.engines.planar.engine import planar_cells
from fiberscope.geometry.engines.planar.kernels import float_signs
from fiberscope.geometry.engines.planar.tracked import Tracked, TrackedAlgebra
from fiberscope.geometry.engines.traversal.engine import count_by_traversal, traverse
from fiberscope.geometry.engines.traversal.estimate import estimate_regions
from fiberscope.geometry.engines.traversal.exact import towards
from fiberscope.geometry.engines.traversal.rows import functionals
from fiberscope.geometry.facets import bends_across
from fiberscope.geometry.folds.hyperplanes import form_classes
from fiberscope.geometry.function import function_from
from fiberscope.geometry.regions import count_regions, regions
from fiberscope.network.network import Network
from fiberscope.network.nodes import Affine, MaxPool, Node, PiecewiseLinear
from fiberscope.network.operators import Dense, Scale
from fiberscope.network.walk import cuts, switches
from fiberscope.numerics.algebra.bounded import Bounded
from fiberscope.numerics.floats import ENTRY_FLOOR
from fiberscope.testing import fraction_map, fraction_regions, fraction_values
from fiberscope.testing.hostile import programs

TINY = 5e-324
HUGE = 1.7e308


def pooled_twins(scale: float = 1.0) -> Network:
    """A ReLU and a maximum over three neurons, the last two one unit in the last place apart."""
    weight = np.array([[0.3, 0.5, -0.3, 0.4], [0.1, -0.2, -0.1, 0.9], [0.1, -0.20000000000000004, -0.1, 0.9]])
    nodes: list[Node] = [
        Affine(0, Dense(scale * weight), scale * np.array([-0.7, 0.2, 0.2])),
        PiecewiseLinear(1, np.zeros(3), (1, 1, 3)),
        MaxPool(2, (1, 1, 3), (1, 3), (1, 1)),
    ]
    return Network.from_nodes(nodes, (4,))


def on_plane(net: Network, plane: Plane) -> Network:
    lift = Affine(0, Dense(np.stack([plane.u, plane.v], axis=1)), plane.origin)
    nodes = [lift]
    for node in net.nodes:
        source = node.source + 1  # type: ignore[union-attr]  # no sums here
        if isinstance(node, Affine):
            nodes.append(Affine(source, node.operator, node.bias))
        elif isinstance(node, PiecewiseLinear):
            nodes.append(PiecewiseLinear(source, node.slopes, node.shape))  # type: ignore[arg-type]
        elif isinstance(node, MaxPool):
            nodes.append(MaxPool(source, node.in_shape, node.kernel, node.stride))  # type: ignore[arg-type]
    return Network.from_nodes(nodes, (2,))


TIGHT = TrackedAlgebra(tight=True)


# --- a float zero is no proof --------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [1.0, 1e16])
def test_a_positive_neuron_that_rounds_to_zero_is_not_dead(scale: float) -> None:
    net = pooled_twins(scale)
    ends = np.array([[-0.6, 1.2, 1.2, -1.0], [0.2, -1.7, 1.6, 1.9]])
    for third in ([0.0, 0.0, 0.0, 0.0], [1.0, 0.5, -0.5, 0.3], [-1.2, 0.4, 0.1, 1.7]):
        plane = Plane.through(*ends, third)
        truth = fraction_regions(on_plane(net, plane), *plane.box.halfspaces())
        complex = regions(net, plane)
        assert {tuple(row) for row in complex.sign_vectors.tolist()} == truth
        assert count_regions(net, plane) == complex.num_regions == len(truth)
        assert complex.verify().at_least == len(truth)


def test_marked_zeros_are_those_of_signs() -> None:
    """The float is 0.0 three times; the signs say positive, zero and negative."""
    value = Tracked(np.zeros((1, 3)), np.full(1, 1e-16), np.full(1, 1e-16), np.ones(3))
    signs = np.array([[1, 0, -1]], dtype=np.int8)
    for slopes, zeros in ((0.0, [[False, True, True]]), (0.5, [[False, True, False]])):
        found = track.activate(PiecewiseLinear(0, np.full(3, slopes), (3,)), value, signs, False, mark=True)
        assert found.zeros is not None
        assert found.zeros.tolist() == zeros
        assert found.e2[0] > 0
        pool = MaxPool(0, (1, 1, 3), (1, 2), (1, 1))
        joined = track.pool(pool, found).zeros
        assert joined is not None
        assert joined.tolist() == [[a and b for a, b in zip(zeros[0], zeros[0][1:], strict=False)]]


def test_a_row_of_live_neurons_that_are_zero_by_rounding_has_an_error() -> None:
    value = Tracked(np.zeros((1, 1)), np.full(1, 2.0**-1000), np.full(1, 2.0**-1000), np.full(1, 2.0**-300))
    live = track.activate(PiecewiseLinear(0, np.zeros(1), (1,)), value, np.ones((1, 1), dtype=np.int8), False)
    assert live.e2[0] > 0
    with np.errstate(over="ignore"):
        behind = TIGHT.affine(Dense(np.array([[1e300]])), np.array([0.0]), replace(live, norm=None))
    assert behind.c[0] > 0


# --- underflow and overflow in bounds -------------------------------------------------------------------------------


def decided(value: Tracked) -> list[int]:
    signs = np.zeros(value.z.shape, dtype=np.int8)
    with np.errstate(all="ignore"):
        float_signs(value.z, value.c, value.r, ENTRY_FLOOR, signs)
    return list(signs[0].tolist())


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_bounds_that_overflowed_decide_nothing(bad: float) -> None:
    with np.errstate(all="ignore"):
        for value in (
            Tracked(np.zeros((1, 1)), np.zeros(1), np.full(1, bad), np.ones(1)),
            Tracked(np.full((1, 1), bad), np.full(1, bad), np.full(1, bad), np.ones(1)),
            Tracked(np.full((1, 1), bad), np.zeros(1), np.zeros(1), np.ones(1)),
            Tracked(np.zeros((1, 1)), np.full(1, bad), np.full(1, bad), np.full(1, bad)),
        ):
            layer = TIGHT.affine(Dense(np.array([[0.5]])), np.array([1.0]), value)
            assert decided(layer) == [2]
            again = TIGHT.affine(Dense(np.array([[0.5]])), np.array([1.0]), layer)
            assert decided(again) == [2]
            block = (np.zeros(1, int), np.zeros(1, int), np.full(1, 0.5), np.full(1, 1e-16))
            both = TIGHT.pick(layer.extended([block]), np.array([0]))
            assert decided(TIGHT.difference(both, both)) == [2]


@pytest.mark.parametrize("far", [np.inf, -np.inf])
def test_values_that_overflowed_decide_nothing(far: float) -> None:
    """Infinity plus whatever comes behind it, with a bound that is finite: the true sum may be on the other side."""
    value = Tracked(np.array([[far, 3.0]]), np.full(1, 1e-5), np.full(1, 1e290), np.array([1e300, 1.0]))
    assert decided(value) == [2, 1]
    assert np.isnan(track.pool(MaxPool(0, (1, 1, 2), (1, 2), (1, 2)), value).z).all()


def test_a_sum_that_overflows_on_the_wrong_side() -> None:
    """``3e300 * 8e9 - 5e300 * max(0, -17e9 x)``: a fused product adds what is larger to an infinity."""
    nodes: list[Node] = [
        Affine(0, Dense(np.array([[0.0, 0.0], [-(2.0**34), 0.0], [0.0, 0.0]])), np.array([2.0**33, 0.0, 0.0])),
        PiecewiseLinear(1, np.zeros(3), (3,)),
        Affine(2, Dense(np.array([[0.0, 0.0, 0.0], [3e300, -5e300, 0.0]])), np.zeros(2)),
        PiecewiseLinear(3, np.zeros(2), (2,)),
    ]
    net = Network.from_nodes(nodes, (2,))
    complex = regions(net, Box.cube(2))
    assert set(map(tuple, complex.sign_vectors.tolist())) == fraction_regions(net, *Box.cube(2).halfspaces())
    assert complex.verify().ok


@given(programs(st.just(2), styles=("integer", "decimal", "grown", "huge", "root")), st.integers(0, 2**32 - 1))
def test_signs_that_tracked_bounds_prove_are_the_exact_ones(net: Network, seed: int) -> None:
    X = np.random.default_rng(seed).integers(-8, 9, (4, 2)) / 8
    exact = net.signs(X).signs
    values = {0: Tracked.exact(X)}
    with np.errstate(all="ignore"):
        for place in switches(net.layout, values, TIGHT, {}):
            node, own, source = place.node, np.ascontiguousarray(exact[:, place.columns]), values[place.source]
            cut = cuts(node, source, TIGHT)
            found = np.zeros(cut.z.shape, dtype=np.int8)
            float_signs(cut.z, cut.c, cut.r, ENTRY_FLOOR, found)
            if isinstance(node, MaxPool):
                inputs = [fraction_values(net, x)[place.source] for x in X]
                truth = [[(z[i] > z[j]) - (z[i] < z[j]) for i, j in node.pairs] for z in inputs]
                assert ((found == 2) | (found == np.array(truth).reshape(found.shape))).all()
            else:
                assert ((found == 2) | (found == own) | (node.slopes == 1)).all()
            values[place.index + 1] = track.behind(node, source, own, reuse=False, mark=False)


def test_products_that_underflow_are_not_exact() -> None:
    """A row of exact numbers times a small factor is zero in floats and not in truth."""
    exact = Tracked.exact(np.array([[TINY, 1e-320]]))
    scaled = TrackedAlgebra(tight=False).affine(Scale(np.array([0.25, 1e-3]), (2,)), None, exact)
    leaky = track.activate(PiecewiseLinear(0, np.full(2, 0.01), (2,)), Tracked.exact(np.array([[-TINY, -1e-322]])),
                           np.full((1, 2), -1, dtype=np.int8), False)  # fmt: skip
    for value in (scaled, leaky):
        assert 2 in decided(value)
        assert (value.e2 > 0).all()


def test_a_column_of_small_weights_does_not_lose_its_error() -> None:
    """Entries of weight 1e-305 on a box of width 1e300: the values are ordinary, and so are errors of new points."""
    net = Network([[[1e-305, 0.0], [0.0, 1e-305]], [[1.0, -1.0]], [[1.0]]], [[0.0, 1e-6], [1e-7], [0.0]])
    ends = Tracked(np.array([[0.0], [1.0]]), np.full(2, 1e280), np.full(2, 1e-20), np.full(1, 2.0**-1001))
    point = (np.array([0]), np.array([1]), np.array([0.5]), np.array([0.1]))
    between = ends.extended([point])
    assert between.c[2] * between.r[0] >= 0.1
    box = Box.cube(2, -1e300, 1e300)
    found = {tuple(row) for row in planar_cells(net, box).top_signs.tolist()}
    assert found == fraction_regions(net, *box.halfspaces())


def test_a_crossing_between_values_whose_sum_overflows() -> None:
    """``a / (a + b)`` is zero where the sum is infinite; then the crossing would be at the end of the edge."""
    weight = np.array([[HUGE / 2, 0.0], [HUGE / 2, 1.0]])
    net = Network([weight, [[1.0, -1.0]], [[1.0]]], [[0.0, 1.0], [0.0], [0.0]])
    box = Box.cube(2, -1.9, 1.9)
    truth = fraction_regions(net, *box.halfspaces())
    for cells in (planar_cells(net, box), lattice_cells(net, box)):
        assert {tuple(row) for row in cells.top_signs.tolist()} == truth
        assert np.abs(cells.points).max() <= 1.9
    assert regions(net, box).verify().ok is not False
    line = Network([[[HUGE / 2], [HUGE / 2]], [[1.0, 1.0]]], [[0.0, 1.0], [0.0]])
    assert sorted(lattice_cells(line, Box([-1.9], [1.9])).points.ravel().round(6).tolist())[1:-1] == [0.0, 0.0]


def test_a_bias_that_underflows_at_infinity_is_not_zero() -> None:
    bounds = HomogeneousBounds(lambda: Bounded(np.full((1, 1), 0.25), np.zeros((1, 1))))
    with np.errstate(all="ignore"):
        found = bounds.affine(Dense(np.zeros((1, 1))), np.array([-TINY]), Bounded(np.zeros((1, 1)), np.zeros((1, 1))))
    assert not found.decided[0, 0]


@pytest.mark.parametrize("domain", [Orthant(2), Space(2), Orthant(1), Space(1)])
def test_subnormal_biases_on_unbounded_domains(domain: Domain) -> None:
    n = domain.dimension
    weight = np.array([[3.0, 1.0], [1.0, 3.0], [1.0, 1.0]])[:, :n]
    for biases in ([-TINY, -TINY, -1e-320], [TINY, -TINY, 0.0], [-TINY, 2.0, 1e300]):
        net = Network([weight, np.ones((1, 3))], [biases, [0.0]])
        truth = fraction_regions(net, *domain.halfspaces())
        assert {tuple(row) for row in regions(net, domain).sign_vectors.tolist()} == truth
        assert count_regions(net, domain) == len(truth)
        found = count_by_traversal(net, domain)
        assert found.count == len(truth) if found.complete else found.count < len(truth)


def test_slopes_that_underflow_leave_no_exact_zeros() -> None:
    net = Network([[[1e-320]], [[1e300]], [[1.0]]], [[0.0], [1.0], [0.0]], "leaky_relu", slope=1e-5)
    signs = np.array([[-1, 1]], dtype=np.int8)
    for found in (functionals(net, signs), output_forms(net, signs)):
        assert (found.error[0, -1] > 0).any()


def test_flat_pieces_stay_flat_behind_an_overflow() -> None:
    """Zero times infinity is zero where the slope is zero."""
    net = Network([[[HUGE]], [[HUGE]], [[1.0]]], [[HUGE], [-1.0], [0.0]])
    with np.errstate(all="ignore"):
        found = output_forms(net, np.array([[1, -1]], dtype=np.int8))
    assert found.value.tolist() == [[[0.0, 0.0]]]
    assert found.error.tolist() == [[[0.0, 0.0]]]


def test_small_forms_are_told_apart_by_their_direction_and_not_by_their_rounding() -> None:
    """Squares of 1e-162 are subnormal: a length from them is off by half."""
    rows = np.array([[3e-162, 1e-162], [6e-162, 2e-162], [3e-162, 1.1e-162]])
    net = Network([rows, np.ones((1, 3))], [np.zeros(3), np.zeros(1)])
    entries = np.arange(3)
    found = form_classes(net, np.ones((3, 3), dtype=np.int8), entries)
    assert found.label[0] == found.label[1] != found.label[2]


# --- beyond the floats ------------------------------------------------------------------------------------------------

FAR = Network([[[1e-300], [1e-300]], [[1.0, 1.0]]], [[-1e300, 1.0], [0.0]])
"""Kinks at 1e600 and -1e300."""


@pytest.mark.parametrize("domain", [Space(1), Orthant(1), Polytope([[-1.0]], [0.0]), Polytope([[1.0]], [5.0])])
def test_kinks_beyond_the_floats(domain: Domain) -> None:
    truth = fraction_regions(FAR, *domain.halfspaces())
    complex = regions(FAR, domain)
    assert {tuple(row) for row in complex.sign_vectors.tolist()} == truth
    assert complex.verify().ok is not False
    assert complex.verify().at_least == len(truth)
    assert count_regions(FAR, domain) == len(truth)
    found = count_by_traversal(FAR, domain)
    assert found.count == len(truth) if found.complete else found.count < len(truth)
    stream = traverse(FAR, domain)
    assert len(list(stream)) <= len(truth)
    guess = estimate_regions(FAR, domain, samples=10, runs=2)
    assert guess.at_least <= len(truth)
    assert not guess.exact or guess.at_least == len(truth)


def test_points_towards_what_no_float_reaches_are_infinite() -> None:
    assert np.isinf(towards([1, -(10**400)], [0], [10**401])).all()


def test_a_polygon_with_corners_beyond_the_floats_is_refused() -> None:
    far = Polytope([[1e-300, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]], [1e300, 1.0, 1.0, 1.0])
    with pytest.raises(InputError, match="corners within the range of floats"):
        planar_cells(Network.random((2, 2, 1), 0), far)
    assert count_regions(Network([[[1.0, 0.0]], [[1.0]]], [[0.0], [0.0]]), far) == 2


def test_boxes_wider_than_the_largest_float() -> None:
    box = Box.cube(2, -HUGE, HUGE)
    assert np.isfinite(box.draw(np.random.default_rng(0), 100)).all()
    net = Network([[[1.0, 0.0], [0.0, 1.0]], [[1.0, 1.0]]], [[1.0, -1.0], [0.0]])
    assert count_regions(net, box) == 4
    assert count_by_traversal(net, box).count == 4
    certificate = regions(net, box).verify()
    assert certificate.ok is not False
    assert certificate.at_least == 4


# --- pools -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("windows", [1, 2, 3])
def test_a_pool_before_the_first_activation_on_a_polytope(windows: int) -> None:
    pool = MaxPool(0, (1, 1, 3), (1, windows), (1, 1))
    size = int(np.prod(pool.shape))
    net = Network.from_nodes([pool, PiecewiseLinear(1, np.zeros(size), (size,))], (3,))
    A, b = Box.cube(3).halfspaces()
    domain = Polytope(np.vstack([A, np.ones((1, 3))]), np.append(b, 1.0))
    truth = fraction_regions(net, *domain.halfspaces())
    assert {tuple(row) for row in regions(net, domain).sign_vectors.tolist()} == truth
    assert count_regions(net, domain) == len(truth)


def test_the_form_of_a_loser_is_what_it_loses_by() -> None:
    nodes: list[Node] = [
        Affine(0, Dense(np.array([[1.0], [3.0]])), np.array([0.5, 0.0])),
        MaxPool(1, (1, 1, 2), (1, 2), (1, 1)),
    ]
    net = Network.from_nodes(nodes, (1,))
    found = neuron_forms(net, np.array([[1, -1], [-1, 1]], dtype=np.int8), np.array([1, 0]))
    assert found.value.tolist() == [[2.0, -0.5], [-2.0, 0.5]]


# --- slivers ----------------------------------------------------------------------------------------------------------


def test_no_direction_is_no_proof_of_invisibility() -> None:
    """Along the zero vector every jump is zero; the kink is there all the same."""
    net = Network([[[1.0, 0.0]], [[1.0]]], [[0.0], [0.0]])
    top, pair = np.array([[-1], [1]], dtype=np.int8), np.array([[0, 1]])
    for direction in ([0.0, 0.0], [0.0, 1.0]):
        jump = jumps(net, top[:1], top[1:], np.array([direction]))
        assert bends_across(net, top, pair, jump)[0].tolist() == [True]


def sliver_networks() -> list[tuple[int, Network]]:
    """Pools over one-decimal neurons, some of which nearly coincide, drawn until slivers abound."""
    found = []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        weight, bias = rng.integers(-9, 10, (4, 2)) / 10, rng.integers(-9, 10, 4) / 10
        weight[1], bias[1] = weight[0] / 3, bias[0] / 3
        nodes: list[Node] = [
            Affine(0, Dense(weight), bias),
            PiecewiseLinear(1, np.zeros(4), (1, 1, 4)),
            MaxPool(2, (1, 1, 4), (1, 2), (1, 1)),
            Affine(3, Dense(rng.integers(-9, 10, (2, 3)) / 10), rng.integers(-9, 10, 2) / 10),
            PiecewiseLinear(4, np.zeros(2), (2,)),
            Affine(5, Dense(np.ones((1, 2))), None),
        ]
        found.append((seed, Network.from_nodes(nodes, (2,))))
    return found


@pytest.mark.parametrize(("seed", "net"), sliver_networks())
def test_kinks_beside_slivers(seed: int, net: Network) -> None:
    complex = regions(net, Box.cube(2))
    gradients = [[form[:-1] for form in fraction_map(net, row)] for row in complex.sign_vectors.tolist()]
    pairs = complex.facets.regions.tolist()
    expected = [two >= 0 and gradients[one] != gradients[two] for one, two in pairs]
    assert complex.facets.visible.tolist() == expected
    assert complex.verify().ok is not False


# --- certificates -----------------------------------------------------------------------------------------------------


def plain() -> Complex:
    return regions(Network.random((2, 6, 4, 1), 0), Box.cube(2))


def forged(complex: Complex, **changes: Any) -> Complex:
    return Complex(complex.net, complex.domain, replace(complex.structure, **changes))


def test_a_certificate_says_what_it_proves() -> None:
    certificate = plain().verify()
    assert [check.name for check in certificate.checks if check.independent] == ["witnesses", "labels"]
    assert certificate.at_least == plain().num_regions
    text = f"proven anew: at least {certificate.at_least} regions; that there are no more is the word of the engine"
    assert certificate.claim.startswith(text)
    assert text in repr(certificate)
    assert certificate.to_dict()["at_least"] == certificate.at_least
    assert certificate.to_dict()["claim"] == certificate.claim


def test_a_wrong_label_proves_nothing() -> None:
    complex = plain()
    signs = complex.structure.vertex_signs.copy()
    signs[:, 0] = -signs[:, 0]
    certificate = forged(complex, vertex_signs=signs).verify()
    assert certificate.ok is False
    assert certificate.at_least is None
    assert certificate.claim.startswith("nothing is proven")


def test_a_witness_outside_of_the_domain_proves_nothing() -> None:
    """The same complex, said to be that of a smaller box: its regions reach out of it."""
    complex = plain()
    smaller = Complex(complex.net, Box.cube(2, -0.25, 0.25), complex.structure)
    certificate = smaller.verify()
    assert certificate.ok is False
    assert certificate.at_least is None


def test_volumes_that_are_not_numbers_are_undecided() -> None:
    complex = plain()
    points = complex.structure.points.copy()
    points[0] = np.nan
    checks = {check.name: check for check in forged(complex, points=points).verify().checks}
    assert checks["volumes"].ok is None


def test_out_of_time_leaves_checks_undecided() -> None:
    certificate = plain().verify(time_limit=1e-9)
    assert certificate.ok is None
    assert certificate.at_least is None
    assert "out of time" in repr(certificate)


def test_the_error_of_a_function_is_never_not_a_number() -> None:
    net = Network([[[HUGE, 0.0], [0.0, HUGE]], [[HUGE, HUGE]]], [[0.0, 1.0], [0.0]])
    with np.errstate(all="ignore"):
        found = function_from(regions(net, Box.cube(2)))
        error = found.error([[0.5, 0.5], [-0.5, -0.5], [0.0, 0.0]])
    assert not np.isnan(error).any()
