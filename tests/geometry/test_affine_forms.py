"""Bounds of affine maps and their jumps, against fractions."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from fiberscope.geometry.affine_forms import jumps
from fiberscope.network.network import Network
from fiberscope.network.nodes import PiecewiseLinear


@pytest.mark.parametrize("slope", [0.0, 0.1, 0.3, 0.7, 1e-20, 1.0, -0.1])
def test_the_jump_of_a_leaky_neuron_lies_within_its_bound(slope: float) -> None:
    # 1 - slope is rounded: a bound that forgets it is too small by an ulp, and for slope 1e-20 it was 0
    down, up = np.array([[-1]], dtype=np.int8), np.array([[1]], dtype=np.int8)
    for weight in np.random.default_rng(0).normal(size=200).tolist():
        neuron = Network.from_nodes([PiecewiseLinear(0, np.array([slope]), (1,))], (1,))
        found = jumps(neuron, down, up, np.array([[weight]]))
        truth = (1 - Fraction(slope)) * Fraction(weight)
        assert abs(Fraction(float(found.value[0, 0])) - truth) <= Fraction(float(found.error[0, 0]))
