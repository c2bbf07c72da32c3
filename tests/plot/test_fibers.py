"""Small multiples of a fiber: one column per member, the same function above, other parameters below."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from fiberscope.errors import InputError
from fiberscope.fibers.fiber import fiber
from fiberscope.fibers.hidden_hyperplanes import translate
from fiberscope.geometry.domains import Box
from fiberscope.network.network import Network
from fiberscope.plot.fibers import fiber as draw
from fiberscope.plot.fibers import fiber_movie
from fiberscope.plot.style import save_figure


def test_columns_show_one_function_and_several_parameters(tmp_path):
    net = Network([[[1.0, 0.5], [-0.5, 1.0]], [[1.5, -1.0]], [[2.0]]], [[0.25, 0.125], [-0.5], [-0.75]])
    above, below = draw(fiber(net).sample(3, 0), Box.cube(2), resolution=40)
    images = [np.asarray(ax.images[0].get_array()) for ax in above]
    for image in images[1:]:
        np.testing.assert_allclose(image, images[0], atol=1e-12)
    bars = [[patch.get_height() for patch in ax.patches] for ax in below]
    assert len(bars[0]) == net.num_parameters and bars[0] != bars[1]
    save_figure(above[0], tmp_path / "fiber.png")
    assert (tmp_path / "fiber.png").stat().st_size > 5000


def test_bad_members_are_refused():
    box = Box.cube(2)
    for members in ([], [Network.random((3, 2, 1), 0)], [Network.random((2, 2, 1), 0), Network.random((2, 3, 1), 0)]):
        with pytest.raises(InputError, match="2 inputs"):
            draw(members, box)


def test_a_movie_shows_every_member_there_and_back(tmp_path):
    net = Network([[[1.0, 0.5], [-0.5, 1.0]], [[1.5, -1.0]], [[2.0]]], [[0.25, 0.125], [-0.5], [-0.75]])
    moved = [Network(*translate(net.weights, net.biases, 0, 0, t)) for t in (0.0, 0.5, 1.0)]
    fiber_movie(moved, Box.cube(2), tmp_path / "fiber.gif", resolution=30)
    with Image.open(tmp_path / "fiber.gif") as movie:
        assert movie.n_frames == 4
    with pytest.raises(InputError, match=r"\.gif"):
        fiber_movie(moved, Box.cube(2), tmp_path / "fiber.png")
    assert [path.name for path in tmp_path.iterdir()] == ["fiber.gif"]
