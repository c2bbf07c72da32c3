"""Pictures of regions along curves show as many pieces as there are."""

from __future__ import annotations

import numpy as np
import pytest

from fiberscope.errors import InputError
from fiberscope.geometry.curves.along import regions_along
from fiberscope.geometry.curves.curve import Circle, Segment, Tractrix
from fiberscope.geometry.domains import Box
from fiberscope.geometry.regions import regions
from fiberscope.network.network import Network
from fiberscope.plot.curves import curve_bars, under_curve
from fiberscope.plot.style import figure_png


def test_bars_have_all_regions():
    net = Network.random((2, 6, 6, 1), 0)
    found = [regions_along(net, curve) for curve in (Circle(), Tractrix(), Segment([-1.0, 0.0], [1.0, 0.5]))]
    ax = curve_bars(found, labels=["circle", "tractrix", "segment"])
    bars = [c for c in ax.collections if len(c.get_facecolor())]
    assert [len(c.get_paths()) for c in bars] == [f.num_regions for f in found]
    assert [t.get_text() for t in ax.get_yticklabels()] == ["circle", "tractrix", "segment"]
    assert figure_png(ax).startswith(b"\x89PNG")
    assert len(curve_bars(found[0]).get_yticks()) == 1
    many = curve_bars(found * 20)
    assert len(many.get_yticks()) <= 24


def test_the_curve_lies_on_the_regions():
    net = Network.random((2, 5, 4, 1), 1)
    found = regions_along(net, Circle())
    ax = under_curve(regions(net, Box.cube(2, -1.5, 1.5)), found)
    dots = ax.collections[-1].get_offsets()
    assert np.allclose(dots, found.points)


def test_bad_input():
    net = Network.random((3, 5, 1), 1)
    found = regions_along(net, Circle(center=[0.0, 0.0, 0.0]))
    flat = Network.random((2, 5, 1), 1)
    with pytest.raises(InputError, match="in the plane"):
        under_curve(regions(flat, Box.cube(2)), found)
    with pytest.raises(InputError, match="at least one"):
        curve_bars([])
    with pytest.raises(InputError, match="expected 1, one for each"):
        curve_bars(found, labels=["a", "b"])
