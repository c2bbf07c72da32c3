"""Vertices and their values from pairs of floats against the same from integers and fractions."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from fiberscope.geometry.domains import Box, Polytope
from fiberscope.geometry.engines.planar import arrange, engine
from fiberscope.geometry.engines.planar.engine import Engine
from fiberscope.geometry.engines.planar.exact import Oracle, Stage
from fiberscope.geometry.engines.planar.sharpening import sharp_points, sharpened
from fiberscope.geometry.engines.planar.tracked import Tracked, TrackedAlgebra
from fiberscope.network.network import Network
from fiberscope.numerics.cutoffs import PLACE
from fiberscope.numerics.floats import ENTRY_FLOOR, IntArray, U
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


def preactivations(net: Network, point: tuple[Fraction, Fraction], layers: int) -> list[Fraction]:
    """What the ReLUs of a layer read at a point."""
    found = list(point)
    for k in range(layers):
        found = [max(x, Fraction(0)) for x in found] if k else found
        rows = zip(net.weights[k].tolist(), net.biases[k].tolist(), strict=True)
        found = [sum((Fraction(w) * x for w, x in zip(row, found, strict=True)), Fraction(b)) for row, b in rows]
    return found


@pytest.mark.parametrize("name", CASES)
def test_sharpened_values_lie_within_their_bounds(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    net, domain = CASES[name]
    seen = []

    def watched(oracle: Oracle, stages: list[Stage], defined: IntArray, *rest: Any) -> tuple[Tracked, Tracked]:
        found = sharpened(oracle, stages, defined, *rest)
        for v in range(0, len(defined), max(1, len(defined) // 12)):
            number, polygon, *lines = defined[v].tolist()
            x, y, w = map(int, oracle.point(stages[number], polygon, *lines))
            point = (Fraction(x, w), Fraction(y, w))
            xy, value = found
            largest = float(np.abs(xy.z).max())
            for z, t in zip(xy.z[v].tolist(), point, strict=True):  # corners of the domain are rounded
                assert abs(Fraction(z) - t) <= Fraction(xy.e2[v]) + Fraction(U * largest)
            seen.append(bool(value.c[v] < 2.0**-45 * largest))
            truth = preactivations(net, point, len(stages) - 1)
            off = [abs(Fraction(z) - t) if np.isfinite(z) else None for z, t in zip(value.z[v], truth, strict=True)]
            for error, r in zip(off, value.r.tolist(), strict=True):
                bound = value.c[v] * r + ENTRY_FLOOR
                assert not np.isfinite(bound) or (error is not None and error <= Fraction(bound))
            if np.isfinite(value.e2[v]):
                assert sum(error**2 for error in off if error is not None) <= Fraction(value.e2[v]) ** 2
        return found

    monkeypatch.setattr(Stage, "is_blurred", True)  # all values are made anew
    monkeypatch.setattr(engine, "sharpened", watched)
    engine.planar_cells(net, domain)
    assert np.mean(seen) > (0.0 if name in FEW else 0.9)


@pytest.mark.parametrize("name", CASES)
def test_sharpened_values_lead_to_the_same_complex(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = engine.planar_cells(*CASES[name])
    monkeypatch.setattr(Stage, "is_blurred", True)
    found = engine.planar_cells(*CASES[name])
    assert np.array_equal(found.vertex_signs, plain.vertex_signs)
    assert np.array_equal(found.top_signs, plain.top_signs)
    assert np.abs(found.points - plain.points).max() <= 2 * PLACE * np.abs(plain.points).max()
    assert int(engine.planar_count(*CASES[name])) == plain.count(2)


@pytest.mark.parametrize("some", [1, 1 << 40])
@pytest.mark.parametrize("name", CASES)
def test_vague_floats_lead_to_the_same_complex(name: str, some: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounds leave every decision open: values are made anew vertex by vertex, or decisions one by one."""
    plain = engine.planar_cells(*CASES[name])
    affine = TrackedAlgebra.affine

    def vague(*args: Any) -> Tracked:
        value = affine(*args)
        return Tracked(value.z, value.c + 1e3, value.e2 + 1e3, value.r)

    monkeypatch.setattr(TrackedAlgebra, "affine", vague)
    monkeypatch.setattr(Stage, "is_blurred", False)
    monkeypatch.setattr(arrange, "_SOME", some)
    found = engine.planar_cells(*CASES[name])
    assert np.array_equal(found.vertex_signs, plain.vertex_signs)
    assert np.array_equal(found.top_signs, plain.top_signs)
    assert int(engine.planar_count(*CASES[name])) == plain.count(2)


def test_deep_networks_make_few_values_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    made, single = [], []

    def watched(oracle: Oracle, stages: list[Stage], defined: IntArray, *rest: Any) -> tuple[Tracked, Tracked]:
        made.append(len(defined))
        return sharpened(oracle, stages, defined, *rest)

    sign, ranks = arrange.Arranger._sign, arrange.Arranger._ranks
    monkeypatch.setattr(engine, "sharpened", watched)
    monkeypatch.setattr(arrange.Arranger, "_sign", lambda *args: single.append(1) or sign(*args))
    monkeypatch.setattr(arrange.Arranger, "_ranks", lambda *args: single.append(1) or ranks(*args))
    net = Network.random((2, *(12,) * 20, 1), 0)
    work = Engine.on(net, SQUARE)
    mesh, _ = work.run(work.start(), ENDLESS)
    assert 0 < sum(made) < 2 * mesh.num_vertices
    assert len(single) < 100  # some tens of thousands without
    assert work.arranger.by_exact == 0


@pytest.mark.parametrize("depth", [8, 14])
def test_values_are_made_anew_early_in_front_of_many_layers(depth: int, monkeypatch: pytest.MonkeyPatch) -> None:
    net = Network.random((2, *(6,) * depth, 1), 3)
    made = []

    def watched(oracle: Oracle, stages: list[Stage], *rest: Any) -> tuple[Tracked, Tracked]:
        made.append(len(stages) - 2)
        return sharpened(oracle, stages, *rest)

    monkeypatch.setattr(engine, "sharpened", watched)
    found = engine.planar_cells(net, SQUARE)
    assert (engine.EARLY in made) == (depth == 14)
    monkeypatch.setattr(engine, "DEEP", depth)
    plain = engine.planar_cells(net, SQUARE)
    assert np.array_equal(found.vertex_signs, plain.vertex_signs)
    assert np.array_equal(found.top_signs, plain.top_signs)


def test_programs_with_other_slopes_are_left_to_integers() -> None:
    net = Network.random((2, *(4,) * 11, 1), 0)
    work = Engine.on(Network(net.weights, net.biases, activation="leaky_relu", slope=0.1), SQUARE)
    mesh, _ = work.run(work.start(), ENDLESS)
    assert mesh.num_polygons > 1
    assert sharp_points(work.arranger.oracle, work.arranger.stages, mesh.defined, ENDLESS) is None
