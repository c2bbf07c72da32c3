"""Looks for inputs that differ: hostile boxes and values break nothing, and peaks of single outputs are found."""

from __future__ import annotations

import numpy as np
import pytest

import fiberscope as fs
from fiberscope.equality.bounding.attack import climb, evolved, looks
from fiberscope.equality.question import Question
from fiberscope.network.network import Network

HUGE = 1e308


@pytest.mark.parametrize(
    ("low", "high"),
    [
        ([-1.0, -1.0], [1.0, 1.0]),
        ([-HUGE, 0.0], [HUGE, 1.0]),
        ([0.0, 0.0], [5e-324, 1e-310]),
        ([1.0, 0.0], [1.0 + 2.0**-52, 1.0]),
    ],
)
@pytest.mark.parametrize("scale", [1.0, 1e200, 1e-320])
def test_points_lie_in_the_box(low, high, scale):
    a, b = (Network.random((2, 6, 3), seed=seed) for seed in (0, 1))
    a = Network([a.weights[0] * scale, a.weights[1]], a.biases)
    box = fs.Box(low, high)
    question = Question.of(a, b, box, 0.5, 5)
    with np.errstate(all="ignore"):
        made = [evolved(question, box), climb(question, box, box.sample(4, question.rng))[0], *looks(question, box)]
    for points in made:
        assert points.shape[1] == 2 and box.contains(points).all()


def test_a_narrow_peak_of_a_quiet_output_is_found():
    """Output 0 differs by 1/4 nearly everywhere; output 1 by 1 at a point, on a ridge oblique to all axes."""
    rows = [[1.0, -1.0], [-1.0, 1.0], [1.0, 1.0], [-1.0, -1.0]]  # |x - y|, |x + y - 1|
    biases = [0.0, 0.0, -1.0, 1.0]
    a = Network([np.array(rows), [[0.0] * 4, [-8.0, -8.0, -1.0, -1.0]], np.eye(2)], [biases, [0.25, 1.0], [0.0, 0.0]])
    b = Network([np.zeros((1, 2)), np.zeros((2, 1))], [[0.0], [0.0, 0.0]])
    box = fs.Box.cube(2, -4.0, 4.0)
    found = evolved(Question.of(a, b, box, 0.5, 5), box)
    assert np.abs(a(found) - b(found))[:, 1].max() > 0.95
