"""Colours that mean something stay apart for colour-blind eyes, simulated, and on the paper of the pictures."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from matplotlib.colors import to_rgb

from fiberscope.plot.style import FUNCTION, LAYERS, MOSAIC, ORDERED, PAPER, mosaic_colors

# Full protanopia, deuteranopia and tritanopia in linear RGB, after Machado, Oliveira and Fernandes (2009).
EYES = {
    "usual": np.eye(3),
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.3039]],
}
XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])


def seen(colours: list[object], eye: str) -> np.ndarray:
    """What an eye sees, in CIE Lab, where distances are about as large as they look."""
    rgb = np.array([to_rgb(colour) for colour in colours])  # type: ignore[arg-type]
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    white = np.clip(linear @ np.array(EYES[eye]).T, 0, 1) @ XYZ.T / XYZ.sum(axis=1)
    f = np.where(white > 0.008856, np.cbrt(white), 7.787 * white + 16 / 116)
    return np.stack([116 * f[:, 1] - 16, 500 * (f[:, 0] - f[:, 1]), 200 * (f[:, 1] - f[:, 2])], axis=1)


def apart(colours: list[object], eye: str) -> float:
    found = seen(colours, eye)
    return min(float(np.linalg.norm(a - b)) for a, b in combinations(found, 2))


@pytest.mark.parametrize("eye", EYES)
def test_layers_are_told_apart(eye: str) -> None:
    assert apart(list(LAYERS[:6]), eye) > 20
    assert apart(list(LAYERS), eye) > 12


@pytest.mark.parametrize("eye", EYES)
def test_signs_of_a_function_are_told_apart(eye: str) -> None:
    for distance in (0.15, 0.3, 0.5):
        assert apart([FUNCTION(0.5 - distance), FUNCTION(0.5 + distance)], eye) > 15


@pytest.mark.parametrize("eye", EYES)
def test_lines_in_an_order_go_from_light_to_dark_and_stand_out_from_the_paper(eye: str) -> None:
    line = seen([ORDERED(x) for x in np.linspace(0, 1, 9)], eye)
    assert (np.diff(line[:, 0]) < 0).all()
    assert min(np.linalg.norm(line - seen([PAPER], eye), axis=1)) > 25


def test_the_palette_before_this_test_would_fail_it() -> None:
    assert apart(["#1b4965", "#8f2d56"], "protanopia") < 12


def test_neighbours_in_a_mosaic_have_other_colours() -> None:
    side = 12
    at = np.arange(side * side).reshape(side, side)
    pairs = np.concatenate(
        [np.stack([at[1:], at[:-1]], -1).reshape(-1, 2), np.stack([at[:, 1:], at[:, :-1]], -1).reshape(-1, 2)]
    )
    found = mosaic_colors(side * side, 0, pairs)
    assert np.array_equal(found, mosaic_colors(side * side, 0, pairs))
    closest = min(float(np.linalg.norm(found[a] - found[b])) for a, b in pairs)
    assert closest > 0.15
    alone = mosaic_colors(side * side, 0)
    assert min(float(np.linalg.norm(alone[a] - alone[b])) for a, b in pairs) < 0.1
    assert len(MOSAIC) == 10
