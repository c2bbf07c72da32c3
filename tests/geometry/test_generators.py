"""Curves and surfaces through generators: exact by composition, refined where the generator is smooth."""

from __future__ import annotations

import json
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from fiberscope.errors import InputError
from fiberscope.geometry.curves.along import regions_along
from fiberscope.geometry.curves.curve import Polyline, Segment
from fiberscope.geometry.curves.generated import GeneratorCurve
from fiberscope.geometry.domains import Box, Plane
from fiberscope.geometry.generators import composition
from fiberscope.geometry.regions import count_regions
from fiberscope.geometry.surfaces.generated import GeneratorSurface
from fiberscope.geometry.surfaces.regions_on import regions_on
from fiberscope.geometry.surfaces.shapes import Mesh
from fiberscope.network.io import load
from fiberscope.network.network import Network
from fiberscope.testing import convolutional
from fiberscope.testing.strategies import chains


def circle(Z: np.ndarray) -> np.ndarray:
    """A smooth generator that is no torch module."""
    return np.stack([np.cos(3 * Z[:, 0]), np.sin(3 * Z[:, 0])], axis=1)


def decoder(seed: int, *widths: int, smooth: bool = False) -> nn.Sequential:
    torch_rng = torch.Generator().manual_seed(seed)
    layers: list[nn.Module] = []
    for m, n in pairwise(widths):
        layer = nn.Linear(m, n)
        for p in layer.parameters():
            p.data = torch.randn(p.shape, generator=torch_rng) / m**0.5
        layers += [layer, nn.Tanh() if smooth else nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def net_for(size: int, seed: int = 0) -> Network:
    return Network.random((size, 10, 8, 2), seed)


# --- piecewise linear generators ----------------------------------------------------------------------------------


@settings(max_examples=40)
@given(chains(inputs=st.just(2), max_width=4, max_hidden=2), st.integers(0, 1000))
def test_a_curve_is_the_polyline_of_its_image(inner, seed):
    """Between the generator's breakpoints the image is straight, so a polyline through them has the same regions."""
    rng = np.random.default_rng(seed)
    net = Network.random((inner.out_size, 5, 4, 1), rng)
    z0, z1 = rng.integers(-3, 4, (2, 2)).astype(float)
    z1 = z1 + (z0 == z1).all()
    found = regions_along(net, GeneratorCurve(inner, z0, z1))
    both = regions_along(composition(net, inner), Segment(z0, z1))
    assert found.latent_regions == both.num_regions >= found.num_regions
    signs = both.signs[:, inner.num_signs :]
    changes = (signs[1:] != signs[:-1]).any(axis=1).sum()
    touches = found.tangential.sum()
    assert found.num_regions == 1 + changes + touches
    assert (found.signs[1:] != found.signs[:-1]).any(axis=1).sum() == changes
    assert found.signs.shape == (found.num_regions, net.num_signs)
    for t, names in zip(found.breakpoints, found.neurons, strict=True):
        assert t in both.breakpoints and names and max(names) < net.num_signs
    assert found.lengths.sum() == pytest.approx(found.curve.length)


def test_lengths_are_those_of_the_image():
    inner = load(decoder(1, 2, 8, 5).double())
    curve = GeneratorCurve(inner, [-3.0, 1.0], [3.0, 2.0])
    t = np.linspace(0, 1, 20001)
    fine = np.linalg.norm(np.diff(curve(t), axis=0), axis=1).sum()
    assert fine <= curve.length == pytest.approx(fine, rel=1e-3)
    found = regions_along(net_for(5), curve)
    assert found.lengths.sum() == pytest.approx(curve.length)
    assert found.certified and found.exact_breakpoint(0) > 0
    ahead = (curve([0.3 + 1e-7]) - curve([0.3])) / 1e-7
    np.testing.assert_allclose(curve.derivative([0.3]), ahead, rtol=1e-4)


def test_a_generator_without_kinks_adds_nothing():
    inner = Network([np.random.default_rng(0).integers(-2, 3, (6, 2)).astype(float)], [np.zeros(6)])
    net = net_for(6)
    z0, z1, z2 = np.array([[-2.0, -1.0], [2.0, 0.0], [-1.0, 3.0]])
    found = regions_along(net, GeneratorCurve(inner, z0, z1))
    assert found.num_regions == found.latent_regions
    assert found.num_regions == regions_along(net, Segment(*inner(np.stack([z0, z1])))).num_regions
    over = regions_on(net, GeneratorSurface(inner, z0, z1, z2))
    a, b, c = inner(np.stack([z0, z1, z2]))
    assert over.num_regions == over.latent_regions == count_regions(net, Plane(a, b - a, c - a, Box([0, 0], [1, 1])))


@settings(max_examples=25)
@given(chains(inputs=st.just(2), max_width=3, max_hidden=2), st.integers(0, 1000))
def test_a_surface_is_the_mesh_of_its_image(inner, seed):
    """The image of a fan over the generator's regions is a mesh; it has the same classifier regions and areas."""
    rng = np.random.default_rng(seed)
    net = Network.random((inner.out_size, 5, 1), rng)
    corners = np.array([[-1.0, -1.0], [1.0, -1.0], [-1.0, 1.0]])
    found = regions_on(net, GeneratorSurface(inner, *corners))
    both = count_regions(composition(net, inner), Plane(corners[0], [2.0, 0.0], [0.0, 2.0], Box([0, 0], [1, 1])))
    assert found.latent_regions == found.num_pieces == both >= found.num_regions
    assert found.areas.sum() == pytest.approx(found.area)
    samples = net.pattern(found.surface(rng.random((500, 2))))
    known = {tuple(row) for row in (found.sign_vectors > 0).tolist()}
    assert sum(tuple(row) not in known for row in np.unique(samples, axis=0).tolist()) <= 1
    assert found.visible_length <= found.boundary_length * (1 + 1e-12)


def test_the_area_of_an_image_is_that_of_a_fine_mesh():
    rng = np.random.default_rng(0)
    weights, biases = [rng.normal(size=(2, 2)), rng.normal(size=(4, 2))], [rng.normal(size=2), rng.normal(size=4)]
    inner = Network(weights, biases, "leaky_relu", slope=0.5)  # nothing collapses
    surface = GeneratorSurface(inner, [-2.0, -2.0], [2.0, -2.0], [-2.0, 2.0])
    found = regions_on(net_for(4), surface)
    assert found.area == pytest.approx(surface.grid(129).area, rel=1e-3)
    assert found.latent is not None and found.latent.min() >= 0 and found.latent.max() <= 1
    fine = regions_on(net_for(4), surface.grid(65))
    assert found.boundary_length == pytest.approx(fine.boundary_length, rel=0.02)


def test_torch_modules_and_image_shapes():
    module = nn.Sequential(decoder(3, 4, 8, 72), nn.Unflatten(1, (2, 6, 6)))
    net = convolutional()
    state = {k: v.clone() for k, v in module.state_dict().items()}
    module.train()
    curve = GeneratorCurve(module, np.zeros(4), np.ones(4))
    assert curve.exact and curve.ambient == 72
    found = regions_along(net, curve)
    assert found.latent_regions >= found.num_regions > 1
    assert module.training
    assert all(torch.equal(state[k], v) for k, v in module.state_dict().items())
    with torch.no_grad():
        image = module(torch.zeros(1, 4)).reshape(1, -1).double().numpy()
    np.testing.assert_allclose(curve([0.0]), image, rtol=1e-5, atol=1e-6)


# --- smooth generators --------------------------------------------------------------------------------------------


def test_a_smooth_curve_is_refined_until_the_count_settles():
    module = decoder(4, 3, 16, 16, 5, smooth=True)
    net = net_for(5, 1)
    curve = GeneratorCurve(module, -2 * np.ones(3), 2 * np.ones(3), points=4)
    assert not curve.exact and "Tanh" in curve.generator.reason
    found = regions_along(net, curve)
    assert found.settled and len(found.refinement) >= 3 and found.latent_regions is None
    assert [row.points for row in found.refinement] == [3 * 2**k + 1 for k in range(len(found.refinement))]
    assert {row.num_regions for row in found.refinement[-3:]} == {found.num_regions}
    fine = regions_along(net, Polyline(curve(np.linspace(0, 1, 4001))))
    assert found.num_regions == fine.num_regions
    assert not found.certified and 0 < found.residual < 0.5
    # the breakpoints are near the true ones
    np.testing.assert_allclose(found.breakpoints, fine.breakpoints / 4000, atol=2e-2)
    assert json.loads(json.dumps(found.to_dict()))["refinement"][0]["points"] == 4
    assert "settled" in repr(found)


def test_a_circle_from_a_function_has_the_known_count():
    lines = Network([[[1.0, 0.0], [0.0, 1.0]], [[1.0, 1.0]]], [[0.0, 0.0], [0.0]])
    found = regions_along(lines, GeneratorCurve(circle, [0.1], [0.1 + 2 * np.pi / 3], points=5))
    assert found.num_regions == 5
    assert found.curve.length == pytest.approx(2 * np.pi, rel=0.2)


def test_a_count_that_does_not_settle_says_so():
    def wild(Z):
        return np.stack([np.sin(200 * Z[:, 0] ** 2), np.cos(200 * Z[:, 0] ** 2)], axis=1)

    lines = Network([[[1.0, 0.0], [0.0, 1.0]], [[1.0, 1.0]]], [[0.0, 0.0], [0.0]])
    found = regions_along(lines, GeneratorCurve(wild, [0.0], [1.0], points=5, most=20))
    assert not found.settled
    assert [row.points for row in found.refinement] == [5, 9, 17]
    assert "not settled" in repr(found)


def test_a_smooth_surface_is_refined():
    module = decoder(5, 2, 8, 3, smooth=True)
    net = Network([np.eye(3), np.ones((1, 3))], [np.zeros(3), np.zeros(1)])
    surface = GeneratorSurface(module, [-1.0, -1.0], [1.0, -1.0], [-1.0, 1.0], points=3)
    found = regions_on(net, surface)
    assert found.settled and found.latent_regions is None
    assert found.num_regions == regions_on(net, surface.grid(65)).num_regions
    assert found.to_dict()["refinement"] == [row.to_dict() for row in found.refinement]
    assert "settled" in repr(found) and "from 3 x 3 points" in repr(found)


# --- refused ---------------------------------------------------------------------------------------------------------


def test_refused():
    inner = Network.random((2, 4, 3), 0)
    net = net_for(5)
    for ask in (
        lambda: regions_along(net, GeneratorCurve(inner, [0.0, 0.0], [1.0, 1.0])),
        lambda: regions_on(net, GeneratorSurface(inner, [0.0, 0.0], [1.0, 1.0], [0.0, 1.0])),
        lambda: composition(net, inner),
    ):
        with pytest.raises(InputError, match=r"5|R\^5"):
            ask()
    with pytest.raises(InputError, match="equal"):
        GeneratorCurve(inner, [0.0, 0.0], [0.0, 0.0])
    with pytest.raises(InputError, match="one shape"):
        GeneratorCurve(inner, [0.0, 0.0], [0.0])
    with pytest.raises(InputError, match="finite"):
        GeneratorCurve(inner, [0.0, np.nan], [0.0, 1.0])
    with pytest.raises(InputError, match="points"):
        GeneratorCurve(inner, [0.0, 0.0], [1.0, 0.0], points=1)
    with pytest.raises(InputError, match="most"):
        GeneratorCurve(inner, [0.0, 0.0], [1.0, 0.0], points=50, most=20)
    with pytest.raises(InputError, match=r"expected a Network, a torch module, .* or a function, got int"):
        GeneratorCurve(3, [0.0], [1.0])
    with pytest.raises(InputError, match="not zero"):
        GeneratorSurface(inner, [0.0, 0.0], [1.0, 1.0], [2.0, 2.0])
    with pytest.raises(InputError, match="at least 2"):
        GeneratorSurface(circle, [0.0], [1.0], [2.0])
    with pytest.raises(InputError, match="finite outputs"):
        GeneratorCurve(lambda Z: Z * np.nan, [1.0, 1.0], [2.0, 2.0])([0.5])
    with pytest.raises(InputError, match="that moves"):
        regions_along(Network.random((2, 3, 1), 0), GeneratorCurve(lambda Z: np.ones((len(Z), 2)), [0.0], [1.0]))
    with pytest.raises(InputError, match="one output per point"):
        GeneratorCurve(nn.Flatten(0), [0.0, 1.0], [1.0, 1.0])([0.1, 0.5])


def test_meshes_of_grids_are_meshes():
    surface = GeneratorSurface(Network.random((2, 4, 3), 0), [0.0, 0.0], [1.0, 0.0], [0.0, 1.0])
    assert isinstance(surface.grid(3), Mesh) and len(surface.grid(3).triangles) == 8
