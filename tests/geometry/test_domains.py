"""Domains: what fits a network, exact membership, samples, and views in a domain's own coordinates."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fiberscope.errors import InputError
from fiberscope.geometry.complex import Complex
from fiberscope.geometry.domains import Box, Domain, Orthant, Plane, Polytope, Space, view_of
from fiberscope.geometry.engines.traversal.engine import count_by_traversal, traverse
from fiberscope.geometry.engines.traversal.estimate import estimate_regions
from fiberscope.geometry.regions import count_regions, regions
from fiberscope.network.network import Network
from fiberscope.numerics.floats import FloatArray

TRIANGLE = Polytope([[-1.0, 0.0], [0.0, -1.0], [3.0, 7.0]], [0.0, 0.0, 1.0])
DOMAINS: list[Domain] = [
    Box.cube(2),
    Box([-1.0, 0.3, 0.0], [2.0, 0.3, 1e300]),
    Orthant(3),
    Space(2),
    TRIANGLE,
    Polytope([[1.0, 1.0]], [0.25]),
]


def dyadic(rng: np.random.Generator, *shape: int) -> FloatArray:
    """Numbers that add up and multiply without rounding."""
    return rng.integers(-16, 17, shape) / 8


def small_network(seed: int, inputs: int) -> Network:
    rng = np.random.default_rng(seed)
    sizes = [(5, inputs), (4, 5), (1, 4)]
    return Network([dyadic(rng, *size) for size in sizes], [dyadic(rng, size[0]) for size in sizes])


def substituted(net: Network, box: Box) -> Network:
    """The network with the fixed coordinates put into the first layer by hand."""
    free = box.free
    first = net.weights[0]
    bias = net.biases[0] + first[:, ~free] @ box.low[~free]
    return Network([first[:, free], *net.weights[1:]], [bias, *net.biases[1:]])


def labels(signs: np.ndarray) -> set[tuple[int, ...]]:
    return {tuple(row) for row in signs.tolist()}


@pytest.mark.parametrize("domain", DOMAINS, ids=repr)
def test_samples_belong_to_the_domain(domain: Domain) -> None:
    points = domain.sample(101, 3)
    assert points.shape == (101, domain.ambient)
    assert domain.contains(points).all()
    assert np.array_equal(points, domain.sample(101, np.random.default_rng(3)))
    assert len(np.unique(points, axis=0)) > 30


def test_samples_of_a_plane_are_lifted_points_of_its_box() -> None:
    plane = Plane([0.5, 0.0, 1.0], [1.0, 2.0, 0.0], [0.0, 1.0, 1.0], Box([0, 0], [2, 1]))
    points = plane.sample(20, 0)
    s, t = points[:, 0] - 0.5, points[:, 2] - 1.0
    assert np.allclose(points[:, 1], 2 * s + t)
    assert (s >= -1e-12).all() and (s <= 2 + 1e-12).all()


@pytest.mark.parametrize("domain", [*DOMAINS, Plane([0, 0], [1, 0], [0, 1])], ids=repr)
def test_what_is_not_finite_is_no_point(domain: Domain) -> None:
    X = np.zeros((3, domain.ambient))
    X[:, 0] = [np.nan, np.inf, -np.inf]
    assert not domain.contains(X).any()
    with pytest.raises(InputError, match=f"expected points of {domain.ambient} coordinates"):
        domain.contains(np.zeros((1, domain.ambient + 1)))


@given(st.lists(st.integers(0, 3), min_size=2, max_size=2), st.sampled_from([-1, 0, 1]))
def test_membership_is_exact_beside_a_side(share: list[int], ulps: int) -> None:
    """Points beside the hypotenuse 3 x + 7 y = 1, where the float value of the row is rounded."""
    x = share[0] / 11
    y = float(np.nextafter((1 - 3 * x) / 7, np.inf * ulps)) if ulps else (1 - 3 * x) / 7
    truth = 3 * Fraction(x) + 7 * Fraction(y) <= 1 and y >= 0
    assert TRIANGLE.contains([[x, y]])[0] == truth


def test_membership_in_a_polytope_beyond_the_floats() -> None:
    huge = Polytope([[1e300, -1e300]], [0.0])
    assert huge.contains([[1e300, 1e300], [1e300, np.nextafter(1e300, np.inf)]]).tolist() == [True, True]
    assert not huge.contains([[np.nextafter(1e300, np.inf), 1e300]])[0]


def test_membership_in_a_plane() -> None:
    plane = Plane([0.5, 0.0, 1.0], [1.0, 2.0, 0.0], [0.0, 1.0, 1.0], Box([0, 0], [2, 1]))
    inside = plane.lift([[0.25, 0.5], [2.0, 1.0], [0.0, 0.0]])
    assert plane.contains(inside).all()
    off = np.nextafter(inside, np.inf)
    assert not plane.contains(off).any()
    assert not plane.contains(plane.lift([[2.25, 0.5], [0.5, -0.25]])).any()
    segment = Plane([0.0, 0.0], [1.0, 2.0], [-2.0, -4.0], Box([0, 0], [1, 1]))
    assert segment.contains([[1.0, 2.0], [-2.0, -4.0], [0.25, 0.5]]).all()
    assert not segment.contains([[1.5, 3.0], [-2.5, -5.0], [0.25, 0.25], [0.0, 0.5]]).any()
    point = Plane([1.0, 2.0], [0.0, 0.0], [0.0, 0.0])
    assert point.contains([[1.0, 2.0], [1.0, 2.5]]).tolist() == [True, False]


def test_bad_input() -> None:
    net = Network.random((2, 3, 1), 0)
    with pytest.raises(InputError, match=r"expected low <= high, got \[1, 0\] in coordinate 1"):
        Box([0.0, 1.0], [1.0, 0.0])
    with pytest.raises(InputError, match="a single point"):
        Box([0.0, 1.0], [0.0, 1.0])
    with pytest.raises(InputError, match="two-dimensional box"):
        Plane([0, 0], [1, 0], [0, 1], Box([0, 0, 1], [1, 1, 1]))
    with pytest.raises(InputError, match="expected a Box, Plane, Polytope, Orthant or Space, got tuple"):
        view_of(net, (-1, 1))  # type: ignore[arg-type]
    for wrong in (Box.cube(3), Box([0, 0, 1], [1, 1, 1]), Orthant(1), Space(3), Plane([0.0], [1.0], [1.0])):
        with pytest.raises(InputError, match="expected dimension 2, the network's input"):
            view_of(net, wrong)
    with pytest.raises(InputError, match="interior points, got Polytope"):
        view_of(net, Polytope([[1.0, 0.0], [-1.0, 0.0]], [0.0, 0.0]))


@given(st.integers(0, 10_000), st.integers(2, 4), st.data())
@settings(max_examples=60)
def test_a_flat_box_is_the_network_with_fixed_coordinates(seed: int, inputs: int, data: st.DataObject) -> None:
    rng = np.random.default_rng(seed)
    free = np.array(data.draw(st.lists(st.booleans(), min_size=inputs, max_size=inputs).filter(any)))
    free[:1] |= free.sum() > 3
    low = dyadic(rng, inputs)
    box = Box(low, np.where(free, low + 1.5, low))
    net = small_network(seed, inputs)
    view = view_of(net, box)
    points = view.domain.sample(50, seed)
    assert np.array_equal(view.net.signs(points).signs, net.signs(view.lift(points)).signs)
    assert box.contains(view.lift(points)).all()
    found, truth = regions(net, box), regions(substituted(net, box), Box(low[free], low[free] + 1.5))
    assert labels(found.sign_vectors) == labels(truth.sign_vectors)
    assert found.f_vector == truth.f_vector
    assert count_regions(net, box) == found.num_regions == count_by_traversal(net, box).count
    assert found.verify().ok


def test_questions_on_a_flat_box(tmp_path: Path) -> None:
    net, box = small_network(1, 4), Box([-1, 0.5, -1, 0.25], [1, 0.5, 1, 0.25])
    found = regions(net, box)
    assert found.dimension == 2 and found.view.lift(found.points).shape == (found.num_regions, 4)
    assert np.array_equal(net.signs(found.view.lift(found.points)).signs, found.sign_vectors)
    found.save(tmp_path / "flat.npz")
    again = Complex.load(tmp_path / "flat.npz")
    assert again.f_vector == found.f_vector and np.array_equal(again.domain.sample(3), box.sample(3))
    assert found.volumes.sum() == pytest.approx(box.volume) == 4.0
    assert estimate_regions(net, box, samples=400).at_least <= found.num_regions


def test_streams_and_estimates_on_a_plane() -> None:
    net = Network.random((5, 6, 4, 1), 2)
    plane = Plane.along(5, (0, 3), np.full(5, 0.25))
    found = regions(net, plane)
    stream = list(traverse(net, plane))
    assert {tuple(region.signs.tolist()) for region in stream} == labels(found.sign_vectors)
    lifted = found.view.lift(np.stack([region.witness for region in stream]))
    assert np.array_equal(net.signs(lifted).signs, np.stack([region.signs for region in stream]))
    guess = estimate_regions(net, plane, samples=2000)
    assert guess.exact and guess.at_least == found.num_regions
