"""The picture of a function: what it shows is what the network computes."""

from __future__ import annotations

import matplotlib as mpl
import numpy as np
import pytest

import fiberscope as fs
from fiberscope.plot.functions import function


def test_colours_are_the_values():
    net = fs.Network.random((2, 5, 1), 0)
    ax = function(net, fs.Box.cube(2), np.zeros((3, 2)), [1, -1, 0], resolution=11)
    image = ax.get_images()[0].get_array()
    assert image.shape == (11, 11)
    assert image[0, 0] == net([[-1.0, -1.0]])[0, 0]
    assert image[-1, 0] == net([[-1.0, 1.0]])[0, 0]


def test_a_constant_network_can_be_drawn():
    function(fs.Network([[[0.0, 0.0]]], [[0.0]]), fs.Box.cube(2), resolution=5)


def test_settings_of_the_caller_are_left_alone():
    before = dict(mpl.rcParams)
    function(fs.Network.random((2, 3, 1), 0), fs.Box.cube(2), resolution=5)
    assert dict(mpl.rcParams) == before


def test_bad_questions():
    with pytest.raises(fs.InputError, match="2 inputs"):
        function(fs.Network.random((3, 3, 1), 0), fs.Box.cube(3))
    with pytest.raises(fs.InputError, match="output: expected 0 to 0, got 1"):
        function(fs.Network.random((2, 3, 1), 0), fs.Box.cube(2), output=1)
