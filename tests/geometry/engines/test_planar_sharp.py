"""Vertices from pairs of floats against the same from integers."""

from __future__ import annotations

import numpy as np
import pytest

from fiberscope.geometry.domains import Box, Polytope
from fiberscope.geometry.engines.planar import engine
from fiberscope.geometry.engines.planar.engine import Engine
from fiberscope.geometry.engines.planar.sharp import sharp_points
from fiberscope.network.network import Network
from fiberscope.run import ENDLESS


def decimals(widths: tuple[int, ...], seed: int, digits: int = 1) -> Network:
    net = Network.random(widths, seed)
    return Network([w.round(digits) for w in net.weights], [b.round(digits) for b in net.biases])


def twins() -> Network:
    """Lines of one layer that differ by a unit in the last place, in front of layers that magnify it; equal ones."""
    net = Network.random((2, 8, 8, 8, 1), 3)
    first = net.weights[0].copy()
    first[1], first[3] = np.nextafter(first[0], np.inf), first[2] * (1 + 2.0**-50)
    bias = net.biases[0].copy()
    bias[1], bias[3] = bias[0], np.nextafter(bias[2], 1.0)
    second, equal = net.weights[1].copy(), net.biases[1].copy()
    second[1], equal[1] = second[0], equal[0]
    second[2], equal[2] = 3 * second[0], 3 * equal[0]
    return Network([first, second, *net.weights[2:]], [bias, equal, *net.biases[2:]])


def scaled(first: float, second: float) -> Network:
    """The same regions, with numbers far from 1 in the middle."""
    net = Network.random((2, 8, 8, 8, 1), 6)
    weights = [net.weights[0] * first, net.weights[1] * second, *net.weights[2:]]
    biases = [net.biases[0] * first, net.biases[1] * (first * second), net.biases[2] * (first * second), net.biases[3]]
    return Network(weights, biases)


def concurrent() -> Network:
    """Many lines through few points."""
    net = Network.random((2, 9, 6, 6, 1), 7)
    rows = np.array([[1, 0], [0, 1], [1, 1], [1, -1], [2, 1], [1, 2], [3, 1], [1, 3], [1, -2]], dtype=float)
    return Network([rows, *net.weights[1:]], [-rows @ np.array([0.25, 0.125]), *net.biases[1:]])


SQUARE = Box.cube(2)
TRIANGLE = Polytope([[-1.0, 0.1], [0.3, -1.0], [1.0, 1.7]], [0.1, 0.7, 1.3])
FAR = Box([1e6, -1.0], [1e6 + 0.1, 1.0])
HUGE = Polytope([[-(2.0**400), 0.0], [0.0, -(2.0**-400)], [2.0**300, 2.0**300]], [2.0**400, 2.0**-400, 2.0**300])
CASES = {
    "deep": (Network.random((2, *(10,) * 8, 1), 0), SQUARE),
    "triangle": (Network.random((2, 12, 12, 12, 1), 1), TRIANGLE),
    "decimals": (decimals((2, 8, 8, 8, 8, 1), 2), SQUARE),
    "integers": (decimals((2, 6, 6, 6, 1), 4, 0), TRIANGLE),
    "far": (Network.random((2, 8, 8, 8, 1), 5), FAR),
    "twins": (twins(), SQUARE),
    "huge": (scaled(2.0**400, 2.0**-400), SQUARE),
    "tiny": (scaled(2.0**-400, 1.0), SQUARE),
    "vanishing": (scaled(2.0**-600, 2.0**-400), SQUARE),
    "overflow": (scaled(2.0**600, 2.0**300), SQUARE),
    "sides": (Network.random((2, 8, 8, 8, 1), 8), HUGE),
    "concurrent": (concurrent(), SQUARE),
}
FEW = {"decimals", "integers", "vanishing", "overflow", "concurrent", "twins", "sides"}


@pytest.mark.parametrize("name", CASES)
def test_places_that_are_proven_are_the_nearest_floats(name: str) -> None:
    work = Engine.on(*CASES[name])
    mesh, _ = work.run(work.start(), ENDLESS)
    found = sharp_points(work.arranger.oracle, work.arranger.stages, mesh.defined, ENDLESS)
    assert found is not None
    for (number, polygon, *lines), place, sure in zip(mesh.defined.tolist(), *found, strict=True):
        if sure:
            exact = work.arranger.oracle.point(work.arranger.stages[number], polygon, *lines)
            assert np.array_equal(place, work.placed(0, exact))
    assert found[1].mean() > (0.0 if name in FEW else 0.9)


@pytest.mark.parametrize("name", CASES)
def test_the_complex_is_that_of_integers(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "PLACE", 0.0)  # every vertex is made anew
    found = engine.planar_cells(*CASES[name])
    monkeypatch.setattr(engine, "sharp_points", lambda *_: None)
    exact = engine.planar_cells(*CASES[name])
    assert np.array_equal(found.vertex_signs, exact.vertex_signs)
    assert [found.count(k) for k in range(3)] == [exact.count(k) for k in range(3)]
    assert np.array_equal(found.points, exact.points)


def test_programs_with_other_slopes_are_left_to_integers() -> None:
    net = Network.random((2, 4, 4, 1), 0)
    work = Engine.on(Network(net.weights, net.biases, activation="leaky_relu", slope=0.1), SQUARE)
    mesh, _ = work.run(work.start(), ENDLESS)
    assert sharp_points(work.arranger.oracle, work.arranger.stages, mesh.defined, ENDLESS) is None
