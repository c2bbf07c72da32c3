"""Region density as a quantity of a tracker, against the functions for curves."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

import fiberscope as fs
from fiberscope.errors import InputError

NET = fs.Network.random((3, 8, 6, 2), 1)
X = np.random.default_rng(0).normal(size=(20, 3))
LABELS = np.arange(20) % 3
NAMES = ["segment_regions", "chord_regions", "circle_regions"]


def record(net, data, names):
    return fs.track(net, data, quantities=names)(0).values


def test_counts_are_those_of_the_curves():
    values = record(NET, (X, LABELS), NAMES)
    chain = fs.regions_along(NET, fs.Polyline(X[:17]))
    assert values["segment_regions"]["breakpoints"] == chain.num_regions - 1
    assert values["segment_regions"]["density"] == pytest.approx((chain.num_regions - 1) / chain.curve.length)
    pairs = [(i, j) for i in range(20) for j in range(i + 1, 20)]
    for kind, same in (("within", True), ("between", False)):
        own = [pair for pair in pairs if (LABELS[pair[0]] == LABELS[pair[1]]) == same][:24]
        found = sum(fs.regions_along(NET, fs.Segment(X[i], X[j])).num_regions - 1 for i, j in own)
        assert values["chord_regions"][kind]["breakpoints"] == found
    assert 1 <= values["circle_regions"]["mean"] <= values["circle_regions"]["largest"]


def test_circles_do_not_change_with_a_rescaled_network():
    """The same function and signs: the same regions."""
    scaled = fs.rescale(NET, [np.full(8, 4.0), np.full(6, 0.5)])
    assert record(NET, (X, LABELS), NAMES) == record(scaled, (X, LABELS), NAMES)


def test_what_cannot_be_asked_says_so():
    values = record(NET, X, ["segment_regions"])
    assert values["segment_regions"]["breakpoints"] > 0
    for data, name, message in (
        (X, "chord_regions", "targets"),
        ((X, X[:, :2]), "chord_regions", "expected labels"),
        (np.ones((3, 3)), "segment_regions", "two different"),
        (np.ones((3, 3)), "circle_regions", "two different"),
    ):
        try:
            value = record(NET, data, [name])[name]
        except InputError as error:
            value = {"error": str(error)}
        assert message in value["error"]
    line = fs.Network.random((1, 3, 1), 0)
    try:
        value = record(line, np.arange(4.0)[:, None], ["circle_regions"])["circle_regions"]
    except InputError as error:
        value = {"error": str(error)}
    assert "at least 2 inputs" in value["error"]


MORE = ["sphere_regions", "adversarial_regions", "boundary_topology"]


def test_spheres_and_topology_are_those_of_the_functions():
    values = record(NET, (X, LABELS % 2), MORE)
    frame = np.linalg.qr(np.random.default_rng(0).normal(size=(3, 3)))[0].T
    away = [np.sort(np.linalg.norm(X - x, axis=1))[1] / 2 for x in X[:4]]
    own = [fs.round_regions(NET, fs.Sphere(x, r, 0, frame)).num_regions for x, r in zip(X, away, strict=False)]
    assert values["sphere_regions"] == {"mean": np.mean(own), "largest": max(own), "open": 0}
    weights, biases = [*NET.weights], [*NET.biases]
    weights[-1], biases[-1] = weights[-1][1:] - weights[-1][:1], biases[-1][1:] - biases[-1][:1]
    found = fs.level_topology(fs.Network(weights, biases), fs.Box(X.min(axis=0), X.max(axis=0)))
    assert values["boundary_topology"]["boundary"] == list(found.boundary)
    wide = fs.Network.random((5, 6, 2), 0)
    assert len(record(wide, np.eye(5), MORE[2:])["boundary_topology"]["above"]) == 3  # a plane


def test_an_adversarial_path_climbs_and_its_breakpoints_are_dense_samples():
    from fiberscope.training.region_density import _ascent

    paths = [_ascent(NET, x, label, 0.5) for x, label in zip(X[:4], LABELS % 2, strict=False)]
    for path, label in zip(paths, LABELS % 2, strict=False):
        corners = np.array(path)
        assert np.linalg.norm(np.diff(corners, axis=0), axis=1).sum() == pytest.approx(0.5)
        outputs = NET(corners)
        loss = np.log(np.exp(outputs).sum(axis=1)) - outputs[:, label]
        assert loss[-1] > loss[0]
        t = np.linspace(0, 1, 4001)[:, None]
        fine = np.concatenate([(1 - t) * a + t * b for a, b in pairwise(corners)])
        changes = (np.diff(NET.pattern(fine), axis=0)).any(axis=1).sum()
        assert fs.regions_along(NET, fs.Polyline(corners)).num_regions - 1 >= changes
    values = record(NET, (X, LABELS % 2), ["adversarial_regions"])["adversarial_regions"]
    assert values["breakpoints"] > 0
    assert 0 <= values["fooled"] <= 1


def test_counts_are_reused_while_the_hidden_layers_stay_and_only_then(monkeypatch):
    from fiberscope.training import region_density

    calls = []
    monkeypatch.setattr(region_density, "_known", type(region_density._known)(maxlen=8))
    counted = region_density.polyline_breaks
    monkeypatch.setattr(region_density, "polyline_breaks", lambda *a: calls.append(1) or counted(*a))
    names = ["segment_regions", "circle_regions", "sphere_regions"]
    first = record(NET, X, names)
    head = fs.Network(NET.weights, [*NET.biases[:-1], NET.biases[-1] + 1.0])
    assert record(head, X, names) == first
    assert len(calls) == 1
    biases = [np.array(b) for b in NET.biases]
    biases[0][0] = np.nextafter(biases[0][0], 9.0)
    moved = fs.Network(NET.weights, biases)
    again = record(moved, X, names)
    assert len(calls) == 2
    region_density._known.clear()
    assert record(moved, X, names) == again
    assert record(NET, X[::-1].copy(), names) != first
