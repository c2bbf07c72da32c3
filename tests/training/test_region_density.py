"""Region density as a quantity of a tracker, against the functions for curves."""

from __future__ import annotations

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
