"""Laws of counts on curves and surfaces: no parametrisation matters, loops have no start, refinement loses nothing."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from fiberscope.geometry.curves.along import regions_along
from fiberscope.geometry.curves.curve import Circle, Curve, Polyline, Segment
from fiberscope.geometry.curves.generated import GeneratorCurve
from fiberscope.geometry.surfaces.generated import GeneratorSurface
from fiberscope.geometry.surfaces.quadrics import Cylinder, Ellipsoid
from fiberscope.geometry.surfaces.regions_on import regions_on
from fiberscope.geometry.surfaces.round_regions import round_regions
from fiberscope.geometry.surfaces.shapes import Mesh
from fiberscope.network.network import Network

SEEDS = st.integers(0, 2**20)


def dyadic(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Coordinates whose middles, and the middles of these, are floats."""
    return rng.integers(-64, 65, shape) / 32


def grid_net(seed: int, inputs: int) -> Network:
    """Weights of few values: equal and zero neurons, folds that coincide and pass through corners."""
    rng = np.random.default_rng(seed)
    sizes = [(4, inputs), (3, 4), (1, 3)]
    weights = [rng.integers(-2, 3, size) / 2 for size in sizes]
    return Network(weights, [rng.integers(-2, 3, len(w)) / 2 for w in weights])


@settings(max_examples=25, deadline=None)
@given(seed=SEEDS, hostile=st.booleans())
def test_a_chain_with_more_points_is_the_same_chain(seed: int, hostile: bool) -> None:
    rng = np.random.default_rng(seed)
    net = grid_net(seed, 2) if hostile else Network.random((2, 5, 4, 1), seed)
    points = dyadic(rng, 5, 2)
    points = points[np.concatenate([[True], (np.diff(points, axis=0) != 0).any(axis=1)])]
    if len(points) < 2:
        return
    finer = np.insert(points, np.arange(1, len(points)), (points[1:] + points[:-1]) / 2, axis=0)
    plain = regions_along(net, Polyline(points)).num_regions
    assert regions_along(net, Polyline(finer)).num_regions == plain
    assert regions_along(net, Polyline(points[::-1])).num_regions == plain


@settings(max_examples=15, deadline=None)
@given(seed=SEEDS, start=st.floats(-3, 3), power=st.sampled_from([1.0, 2.0, 3.0]))
def test_curves_do_not_depend_on_how_they_are_run_through(seed: int, start: float, power: float) -> None:
    """A half circle faster and slower, and backwards; the whole one from any start and in both directions."""
    net = Network.random((2, 5, 4, 1), seed)
    half = regions_along(net, Circle(interval=(0.0, np.pi))).num_regions

    def bent(t: np.ndarray) -> np.ndarray:
        s = np.pi * (t + (power - 1) * t**2) / power  # from 0 to pi, never standing still
        return np.stack([np.cos(s), np.sin(s)], axis=1)

    assert regions_along(net, Curve(bent, (0.0, 1.0))).num_regions == half
    assert regions_along(net, Curve(lambda t: bent(1 - t), (0.0, 1.0))).num_regions == half
    whole = regions_along(net, Circle()).num_regions_closed
    assert regions_along(net, Circle(interval=(start, start + 2 * np.pi))).num_regions_closed == whole
    other = Network([net.weights[0] * [1.0, -1.0], *net.weights[1:]], list(net.biases))  # the circle run backwards
    assert regions_along(other, Circle(interval=(start, start + 2 * np.pi))).num_regions_closed == whole


@settings(max_examples=4, deadline=None)
@given(seed=SEEDS)
def test_round_surfaces_do_not_depend_on_their_axes(seed: int) -> None:
    """Signed permutations of axes are other charts of the same surface; so are quarter turns of a cylinder."""
    rng = np.random.default_rng(seed)
    net = Network.random((3, 4, 3, 1), seed)
    axes = np.diag([1.0, 2.0, 0.5]) + 0.1 * rng.normal(size=(3, 3))
    one = round_regions(net, Ellipsoid(axes))
    two = round_regions(net, Ellipsoid((axes * rng.choice([-1.0, 1.0], (3, 1)))[rng.permutation(3)]))
    assert (one.num_regions, one.num_patterns, one.num_arcs) == (two.num_regions, two.num_patterns, two.num_arcs)
    np.testing.assert_allclose(np.sort(one.areas), np.sort(two.areas), rtol=1e-6, atol=1e-8)
    turned = np.stack([axes[1], -axes[0], axes[2]])
    three, four = round_regions(net, Cylinder(axes)), round_regions(net, Cylinder(turned))
    upside = round_regions(net, Cylinder(axes * [[1.0], [1.0], [-1.0]], axes[2]))
    assert three.num_regions == four.num_regions == upside.num_regions
    np.testing.assert_allclose(np.sort(three.areas), np.sort(four.areas), rtol=1e-8, atol=1e-10)


@settings(max_examples=15, deadline=None)
@given(seed=SEEDS, hostile=st.booleans())
def test_refining_a_mesh_loses_no_region(seed: int, hostile: bool) -> None:
    """The surface stays where it is: no region is lost, none is won, and every sign vector is found again."""
    rng = np.random.default_rng(seed)
    net = grid_net(seed, 3) if hostile else Network.random((3, 4, 3, 1), seed)
    heights = dyadic(rng, 4, 3, 1)
    flat = np.stack(np.meshgrid(np.arange(4.0), np.arange(3.0), indexing="ij"), axis=2) - 1
    mesh = Mesh.grid(np.concatenate([flat, heights], axis=2))
    one, two = (regions_on(net, surface) for surface in (mesh, mesh.refined()))
    assert two.num_regions == one.num_regions
    assert {s.tobytes() for s in one.sign_vectors} == {s.tobytes() for s in two.sign_vectors}
    np.testing.assert_allclose(np.sort(one.areas), np.sort(two.areas), rtol=1e-9, atol=1e-12)


@settings(max_examples=15, deadline=None)
@given(seed=SEEDS)
def test_images_of_generators_do_not_depend_on_latent_coordinates(seed: int) -> None:
    """Other corners of the same parallelogram, the other end of a segment, and a generator behind a linear map."""
    inner, net = Network.random((2, 5, 3), seed), Network.random((3, 4, 1), seed + 1)
    a, b, c = np.array([-1.0, -1.0]), np.array([1.0, -1.0]), np.array([-1.0, 1.0])
    one = regions_on(net, GeneratorSurface(inner, a, b, c))
    two = regions_on(net, GeneratorSurface(inner, b + c - a, c, b))
    halved = Network([inner.weights[0] / 2, *inner.weights[1:]], list(inner.biases))
    three = regions_on(net, GeneratorSurface(halved, 2 * a, 2 * b, 2 * c))
    assert one.num_regions == two.num_regions == three.num_regions
    assert one.latent_regions == two.latent_regions == three.latent_regions
    along, back = (regions_along(net, GeneratorCurve(inner, *ends)) for ends in ((a, b), (b, a)))
    assert along.num_regions == back.num_regions
    whole = regions_along(net, GeneratorCurve.along(inner, Segment(a, b)))
    assert whole.num_regions == along.num_regions
