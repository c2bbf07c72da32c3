"""Curvature against closed forms, and against Christoffel symbols of the metric by finite differences in mpmath."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import pytest
import torch

from fiberscope.errors import InputError
from fiberscope.geometry.curvature import curvature, from_derivatives
from fiberscope.geometry.surfaces.generated import GeneratorSurface
from fiberscope.geometry.surfaces.quadrics import Cylinder, Ellipsoid
from fiberscope.geometry.surfaces.shapes import Sphere, Torus
from fiberscope.network.network import Network


def by_christoffel(chart: Callable[..., list[Any]], at: list[float]) -> float:
    """From the metric alone: ``R = g^jl (d_i G^i_jl - d_l G^i_ji + G^i_ip G^p_jl - G^i_lp G^p_ji)``."""
    with mpmath.workdps(60):
        m, step = len(at), mpmath.mpf("1e-12")

        def shifted(x: list[Any], k: int, h: Any) -> list[Any]:
            return [v + (h if i == k else 0) for i, v in enumerate(x)]

        def slope(f: Callable[[list[Any]], Any], x: list[Any], k: int) -> Any:
            return (f(shifted(x, k, step)) - f(shifted(x, k, -step))) / (2 * step)

        def metric(x: list[Any]) -> Any:
            d = [slope(lambda y: mpmath.matrix(chart(*y)), x, k) for k in range(m)]
            return mpmath.matrix([[(d[i].T * d[j])[0] for j in range(m)] for i in range(m)])

        def gamma(x: list[Any]) -> Any:
            inverse, d = metric(x) ** -1, [slope(metric, x, k) for k in range(m)]
            return mpmath.matrix(
                [[sum(inverse[i, p] * (d[k][p, j] + d[j][p, k] - d[p][j, k]) for p in range(m)) / 2
                  for j in range(m) for k in range(m)] for i in range(m)]
            )  # fmt: skip

        x = [mpmath.mpf(v) for v in at]
        G, dG, inverse = gamma(x), [slope(gamma, x, k) for k in range(m)], metric(x) ** -1
        total = mpmath.mpf(0)
        for j in range(m):
            for k in range(m):
                own = sum(dG[i][i, j * m + k] - dG[k][i, j * m + i] for i in range(m))
                own += sum(
                    G[i, i * m + p] * G[p, j * m + k] - G[i, k * m + p] * G[p, j * m + i]
                    for i in range(m)
                    for p in range(m)
                )
                total += inverse[j, k] * own
        return float(total)


def test_built_in_surfaces_have_closed_forms() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(6, 3))
    np.testing.assert_allclose(curvature(Sphere(radius=3.0), X).scalar, 2 / 9, rtol=1e-13)
    np.testing.assert_allclose(curvature(Cylinder([1.0, 2.0, 3.0]), X).scalar, 0.0, atol=1e-13)
    v = rng.uniform(-3, 3, 6)
    at = np.stack([1 + 0.4 * np.cos(v), 0 * v, 0.4 * np.sin(v)], axis=1)
    found = curvature(Torus(radius=1.0, tube=0.4), at)
    np.testing.assert_allclose(found.scalar, 2 * np.cos(v) / (0.4 * (1 + 0.4 * np.cos(v))), rtol=1e-12)
    np.testing.assert_allclose(found.ricci, found.scalar[:, None, None] / 2 * found.metric, rtol=1e-10, atol=1e-12)
    a, b, c = 1.0, 2.0, 0.5
    u = X / np.linalg.norm(X, axis=1, keepdims=True)
    gauss = 1 / (a * b * c) ** 2 / (u**2 @ [a**-2.0, b**-2.0, c**-2.0]) ** 2
    np.testing.assert_allclose(curvature(Ellipsoid([a, b, c]), u * [a, b, c]).scalar, 2 * gauss, rtol=1e-12)


def test_the_total_curvature_of_a_torus_is_zero_and_of_a_sphere_four_pi() -> None:
    """Gauss and Bonnet, by sums over a grid."""
    torus = Torus(radius=1.0, tube=0.3)
    v = (np.arange(400) + 0.5) * (2 * np.pi / 400)
    at = np.stack([1 + 0.3 * np.cos(v), 0 * v, 0.3 * np.sin(v)], axis=1)
    weights = 1 + 0.3 * np.cos(v)
    assert abs((curvature(torus, at).scalar * weights).sum()) < 1e-9
    z = np.linspace(-1, 1, 2001)[:-1] + 0.0005  # Archimedes: heights are uniform in area
    egg = np.stack([np.sqrt(1 - z**2), 0 * z, z], axis=1)
    long = Ellipsoid([1.0, 1.0, 2.0])
    element = np.sqrt((egg**2) @ [1.0, 1.0, 0.25]) * 2  # of the image of the unit sphere
    total = (curvature(long, egg * [1.0, 1.0, 2.0]).scalar / 2 * element).mean() * 4 * np.pi
    assert total == pytest.approx(4 * np.pi, rel=1e-3)


def test_small_discs_of_figure_10() -> None:
    """A disc of radius e on the unit sphere has the area 2 pi (1 - cos e): 1/12 e^2 less than the flat one."""
    found = curvature(Sphere(), [[0.0, 0.0, 1.0]])
    e = 0.01
    assert found.ball_deficit[0] * e**2 == pytest.approx(1 - 2 * (1 - np.cos(e)) / e**2, rel=1e-4)


@pytest.mark.parametrize("latent", [2, 3])
def test_decoders_against_christoffel_symbols(latent: int) -> None:
    torch.manual_seed(latent)
    decoder = torch.nn.Sequential(
        torch.nn.Linear(latent, 4), torch.nn.Tanh(), torch.nn.Linear(4, 5), torch.nn.Sigmoid()
    )
    A, B = (layer.weight.detach().double().numpy() for layer in (decoder[0], decoder[2]))
    a, b = (layer.bias.detach().double().numpy() for layer in (decoder[0], decoder[2]))

    def chart(*z: Any) -> list[Any]:
        hidden = [
            mpmath.tanh(sum(w * v for w, v in zip(row, z, strict=True)) + s)
            for row, s in zip(A.tolist(), a.tolist(), strict=True)
        ]
        return [
            1 / (1 + mpmath.exp(-sum(w * v for w, v in zip(row, hidden, strict=True)) - s))
            for row, s in zip(B.tolist(), b.tolist(), strict=True)
        ]

    at = np.random.default_rng(1).normal(size=(2, latent))
    found = curvature(decoder, at)
    for z, value in zip(at.tolist(), found.scalar, strict=True):
        assert value == pytest.approx(by_christoffel(chart, z), rel=1e-8)
    assert next(decoder.parameters()).dtype == torch.float32  # the model is left alone


def test_it_does_not_depend_on_the_chart() -> None:
    """A linear change of latent coordinates, and a surface cut out of the latent space."""
    torch.manual_seed(0)
    decoder = torch.nn.Sequential(torch.nn.Linear(2, 5), torch.nn.SiLU(), torch.nn.Linear(5, 4)).double()
    turn = torch.tensor([[2.0, 1.0], [-0.5, 3.0]], dtype=torch.float64)
    other = torch.nn.Sequential(torch.nn.Linear(2, 2, bias=False).double(), decoder)
    other[0].weight.data = turn
    Z = np.random.default_rng(0).normal(size=(4, 2))
    one, two = curvature(decoder, Z @ turn.numpy().T), curvature(other, Z)
    np.testing.assert_allclose(two.scalar, one.scalar, rtol=1e-10)
    np.testing.assert_allclose(two.metric, turn.numpy().T @ one.metric @ turn.numpy(), rtol=1e-10)
    surface = GeneratorSurface(decoder, [0.0, 0.0], [2.0, 0.5], [0.3, 1.0])
    st = np.random.default_rng(1).random((3, 2))
    np.testing.assert_allclose(
        curvature(surface, st).scalar, curvature(decoder, surface.plane.lift(st)).scalar, rtol=1e-9
    )


def test_flat_pieces_ranks_and_bad_input() -> None:
    flat = curvature(Network.random((2, 8, 4), 0), [[0.3, 0.2]])
    assert flat.scalar[0] == 0.0 and flat.dimension == 2 and "0 to 0" in repr(flat)
    lost = from_derivatives(np.ones((1, 2, 3)), np.zeros((1, 2, 2, 3)))[2]
    assert np.isnan(lost).all()
    assert curvature(torch.nn.Sequential(torch.nn.Linear(1, 3), torch.nn.Tanh()), [[0.5]]).scalar[0] == pytest.approx(
        0.0
    )
    with pytest.raises(InputError, match="off the axis or centre"):
        curvature(Sphere(), [[0.0, 0.0, 0.0]])
    with pytest.raises(InputError, match="a torch module"):
        curvature(lambda Z: Z, [[0.0, 1.0]])
