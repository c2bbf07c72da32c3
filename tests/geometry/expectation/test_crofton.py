"""The closed form of the first layer against Theorem 1, exact counts, and chords on the sphere."""

from __future__ import annotations

import numpy as np
import pytest

from fiberscope.errors import InputError
from fiberscope.geometry.curves.along import regions_along
from fiberscope.geometry.curves.curve import Circle, Segment, Tractrix
from fiberscope.geometry.expectation.density import expected_boundary_volume, first_layer_kinks
from fiberscope.geometry.expectation.ensemble import Ensemble, Law

CURVES = [Circle(), Tractrix(), Segment([-1.0, 1.0], [3.0, 1.0]), Circle(radius=0.5)]


@pytest.mark.parametrize("curve", CURVES, ids=repr)
@pytest.mark.parametrize("scale", [1.0, 0.3])
def test_agrees_with_theorem_one_and_with_counts(curve: Circle, scale: float) -> None:
    laws = Law.normal(1.0), Law.normal(scale)
    ensemble = Ensemble((2, 20, 1), (laws[0],) * 2, (laws[1],) * 2)
    closed = 20 * first_layer_kinks(curve, scale)
    found = expected_boundary_volume(ensemble, curve, samples=4000)
    assert abs(found.value - closed) < 4.5 * found.standard_error
    counts = [regions_along(ensemble.draw(seed), curve).visible.sum() for seed in range(60)]
    assert abs(np.mean(counts) - closed) < 4.5 * np.std(counts) / np.sqrt(60)


def test_is_the_length_on_the_sphere() -> None:
    curve = Tractrix()
    points = curve(np.linspace(*curve.interval, 100_001))
    lifted = np.column_stack([points, np.ones(len(points))])
    lifted /= np.linalg.norm(lifted, axis=1, keepdims=True)
    length = np.linalg.norm(np.diff(lifted, axis=0), axis=1).sum()
    assert first_layer_kinks(curve) == pytest.approx(length / np.pi, rel=1e-7)
    # a long line is nearly half a great circle: almost every neuron vanishes on it once
    assert first_layer_kinks(Segment([-300.0, 1.0], [300.0, 1.0])) == pytest.approx(1.0, abs=0.005)


def test_bad_input() -> None:
    with pytest.raises(InputError, match="curve"):
        first_layer_kinks("circle")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="bias_scale"):
        first_layer_kinks(Circle(), 0.0)
