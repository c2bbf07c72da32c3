"""Closed curves: what is said of the loop does not depend on where it starts."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fiberscope.geometry.curves.along import regions_along
from fiberscope.geometry.curves.curve import Circle, Curve, Polyline, Tractrix
from fiberscope.geometry.curves.curve_regions import CurveRegions
from fiberscope.geometry.curves.ensembles import count_along
from fiberscope.geometry.distances.along_curve import distance_along
from fiberscope.geometry.expectation.exact import boundary_volume
from fiberscope.network.network import Network
from fiberscope.testing import strategies as nets

from .oracle import along
from .test_pools_and_rounding import programs

HEIGHT = Network([[[0.0, 1.0]], [[1.0]]], [[0.0], [0.0]])


def loop_of(found: CurveRegions) -> dict[str, Any]:
    """What is the same wherever the loop starts, as sorted lists."""
    order = np.lexsort(found.points.round(9).T) if len(found.points) else np.zeros(0, dtype=int)
    return {
        "regions": found.num_regions_closed,
        "pieces": found.num_pieces_closed,
        "points": found.points[order].round(9).tolist(),
        "neurons": [found.neurons[k] for k in order],
        "visible": found.visible[order].tolist(),
        "tangential": found.tangential[order].tolist(),
        "signs": sorted({tuple(s) for s in found.signs.tolist()}),
        "lengths": np.sort(found.loop_lengths).round(9).tolist(),
    }


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_closed_polylines_do_not_depend_on_their_start(data: st.DataObject) -> None:
    net = data.draw(st.one_of(programs(), nets.chains(max_width=3, max_hidden=2)))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**20)))
    corners = rng.integers(-2, 3, (data.draw(st.integers(2, 5)), net.in_size)).astype(np.float64)
    if (corners == np.roll(corners, 1, axis=0)).all(axis=1).any():
        return
    truth: set[tuple[Fraction, tuple[int, ...]]] | None = None
    count = len(corners)
    for start in range(count):
        turned = np.roll(corners, -start, axis=0)
        points = np.concatenate([turned, turned[:1]])
        found, expected = regions_along(net, Polyline(points)), along(net, points)
        assert found.certified and found.num_regions_closed == expected.loop
        assert found.num_regions == len(expected.t) + 1
        assert found.found.closes == bool(expected.closing)
        if expected.closing:
            assert found.neurons[-1] == expected.closing
            assert found.exact_breakpoint(len(found.breakpoints) - 1) == count
        places = zip(range(len(found.breakpoints)), found.neurons, strict=True)
        marks = {((found.exact_breakpoint(i) + start) % count, names) for i, names in places}
        assert truth is None or marks == truth
        truth = marks


@pytest.mark.parametrize("seed", range(12))
def test_circles_do_not_depend_on_their_start(seed: int) -> None:
    rng = np.random.default_rng(seed)
    if seed % 2:
        net = Network.random((2, 5, 4, 1), seed)
    else:  # lines through the points of the circle at multiples of pi / 2, and tangents there
        W, b = rng.integers(-1, 2, (4, 2)).astype(float), rng.integers(-1, 2, 4).astype(float)
        net = Network([W, rng.integers(-2, 3, (3, 4)).astype(float), np.ones((1, 3))], [b, np.zeros(3), [0.0]])
    expected = None
    marks = regions_along(net, Circle()).breakpoints
    starts = [
        -np.pi,
        0.0,
        np.pi / 2,
        -np.pi / 2,
        -3 * np.pi,
        0.3,
        -2.5,
        1e-17,
        *marks.tolist(),
        *np.nextafter(marks, 9),
    ]
    for start in starts:
        curve = Circle(interval=(start, start + 2 * np.pi))
        assert curve.closed
        found = regions_along(net, curve)
        assert found.certified
        assert expected is None or loop_of(found) == expected, start
        expected = loop_of(found)
        assert count_along([net], curve).counts.tolist() == [found.num_regions]


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_circles_through_pools_and_residuals(data: st.DataObject) -> None:
    """Certified, the same wherever the loop starts, and with the signs of the points inside of the regions."""
    net = data.draw(programs(2))
    starts = [-np.pi, 0.0, data.draw(st.floats(-4.0, 4.0)), data.draw(st.sampled_from([np.pi / 2, 1.0, -0.7]))]
    expected = None
    for start in starts:
        found = regions_along(net, Circle(interval=(start, start + 2 * np.pi)))
        assert found.certified
        kept = {name: loop_of(found)[name] for name in ("regions", "pieces", "neurons", "visible", "signs")}
        kept["neurons"] = sorted(kept["neurons"])
        kept["visible"] = sorted(kept["visible"])
        assert expected is None or kept == expected
        expected = kept
        wide = np.flatnonzero(np.diff(found.intervals)[:, 0] > 1e-6)
        middles = found.intervals.mean(axis=1)[wide]
        if len(wide):
            seen = net.signs(found.curve(middles)).signs
            # a float point is beside the circle by a rounding, which a neuron that vanishes along it would notice
            differs = (seen != found.signs[wide]).any(axis=1)
            assert not differs.any() or (found.signs[wide][differs] == 0).any()


def brute(found: CurveRegions, marks: Any, t: float) -> float:
    """The shorter way round to the nearest of some parameters."""
    whole = found.curve.length
    here = float(found.curve.arc_length([t])[0])
    ways = [abs(float(found.curve.arc_length([m])[0]) - here) for m in marks]
    return min((min(w, whole - w) for w in ways), default=np.inf)


@pytest.mark.parametrize(
    "curve",
    [
        Circle(),
        Circle(interval=(0.0, 2 * np.pi)),
        Polyline([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, -1.0], [1.0, 0.0]]),
    ],
    ids=repr,
)
def test_the_closing_point_is_a_breakpoint_like_any_other(curve: Any) -> None:
    found = regions_along(HEIGHT, curve)
    assert found.visible.tolist() == [True, True] and found.neurons == ((0,), (0,))
    assert found.num_regions == found.num_regions_closed == found.num_pieces == found.num_pieces_closed == 2
    assert len(found.signs) == len(found.lengths) == len(found.intervals) == 2
    assert boundary_volume(HEIGHT, curve) == 2.0
    lo, hi = curve.interval
    for t in np.linspace(lo, hi, 23):
        assert found.distance([t])[0] == pytest.approx(brute(found, found.breakpoints, float(t)), abs=1e-12)
        assert distance_along(found, [t], visible=True).nearest[0] == pytest.approx(found.distance([t])[0], abs=1e-12)
    assert found.distance([lo, hi]).tolist() == [0.0, 0.0]
    assert found.region_at([hi]).tolist() == found.region_at([lo]).tolist() == [0]
    assert np.allclose(found.weights, found.weights[0])


def test_the_example_of_the_circle() -> None:
    found = regions_along(HEIGHT, Circle())
    assert found.distance([3.1])[0] == pytest.approx(np.pi - 3.1)
    assert found.visible.sum() == 2


def test_a_closing_point_that_is_only_touched() -> None:
    touch = Network([[[1.0, 0.0]], [[1.0]]], [[1.0], [0.0]])  # x + 1, zero at (-1, 0) alone
    found = regions_along(touch, Circle())
    assert found.tangential.tolist() == [True] and found.visible.tolist() == [False]
    assert (found.num_regions, found.num_regions_closed, found.num_pieces_closed) == (1, 1, 1)
    assert found.distance([3.0])[0] == pytest.approx(np.pi - 3)


def test_open_curves_have_no_closing_point() -> None:
    for curve in (Circle(interval=(0.0, np.pi)), Tractrix(), Polyline([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])):
        found = regions_along(HEIGHT, curve)
        assert not found.found.closes and found.num_regions == found.num_regions_closed == 1


@pytest.mark.parametrize("start", [0.0, -np.pi, 0.7])
def test_closed_smooth_curves(start: float) -> None:
    ellipse = Curve(lambda t: np.stack([2 * np.cos(t), np.sin(t)], axis=1), (start, start + 2 * np.pi))
    assert ellipse.closed
    found = regions_along(HEIGHT, ellipse)
    assert found.num_regions_closed == 2 and found.visible.tolist() == [True, True]
    assert found.distance([start + 0.01])[0] == pytest.approx(brute(found, found.breakpoints, start + 0.01))
    assert not found.certified
