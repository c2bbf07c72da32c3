"""Bounds of affine maps and their jumps, against fractions."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fiberscope.geometry.affine_forms import influence, jumps, output_forms
from fiberscope.geometry.domains import Box
from fiberscope.geometry.regions import regions
from fiberscope.network.network import Network
from fiberscope.network.nodes import Affine, MaxPool, PiecewiseLinear
from fiberscope.network.operators import Dense
from fiberscope.testing import fraction_map
from fiberscope.testing.hostile import hostile_batches, programs


@pytest.mark.parametrize("slope", [0.0, 0.1, 0.3, 0.7, 1e-20, 1.0, -0.1])
def test_the_jump_of_a_leaky_neuron_lies_within_its_bound(slope: float) -> None:
    # 1 - slope is rounded: a bound that forgets it is too small by an ulp, and for slope 1e-20 it was 0
    down, up = np.array([[-1]], dtype=np.int8), np.array([[1]], dtype=np.int8)
    for weight in np.random.default_rng(0).normal(size=200).tolist():
        neuron = Network.from_nodes([PiecewiseLinear(0, np.array([slope]), (1,))], (1,))
        found = jumps(neuron, down, up, np.array([[weight]]))
        truth = (1 - Fraction(slope)) * Fraction(weight)
        assert abs(Fraction(float(found.value[0, 0])) - truth) <= Fraction(float(found.error[0, 0]))


@pytest.mark.filterwarnings("error")
@given(st.data())
def test_affine_maps_lie_within_their_bounds_and_are_infinite_only_beyond_the_floats(data: st.DataObject) -> None:
    net = data.draw(programs())
    signs = net.signs(data.draw(hostile_batches(net))).signs
    found = output_forms(net, signs)
    for row, value, error in zip(signs.tolist(), found.value, found.error, strict=True):
        exact = [x for form in fraction_map(net, row) for x in form]
        for got, bound, truth in zip(value.ravel().tolist(), error.ravel().tolist(), exact, strict=True):
            if np.isfinite(got):
                assert bound == np.inf or abs(Fraction(got) - truth) <= Fraction(bound)
            else:
                assert abs(truth) > np.finfo(float).max and (got > 0) == (truth > 0)


@pytest.mark.filterwarnings("error")
def test_maps_and_slopes_of_a_complex_that_overflows() -> None:
    net = Network([[[1e200]], [[1e200]], [[1e-300]]], [[0.0], [0.0], [3.0]])
    found = regions(net, Box([-1.0], [1.0]))
    matrix, offset = found.affine_maps
    assert sorted(matrix.ravel()) == sorted(found.lipschitz) == [0.0, 1e100] and (offset == 3.0).all()
    beyond = regions(Network([[[1e200]], [[1e200]]], [[0.0], [0.0]]), Box([-1.0], [1.0]))
    assert sorted(beyond.lipschitz) == sorted(beyond.region(k).lipschitz for k in (0, 1)) == [0.0, np.inf]


def test_what_loses_in_a_pool_reaches_nothing_and_every_margin_knows_the_winner() -> None:
    nodes = [
        Affine(0, Dense(np.eye(2)), np.zeros(2)),
        PiecewiseLinear(1, np.zeros(2), (2,)),
        MaxPool.over(2, (2,), [[0, 1]]),
        Affine(3, Dense(np.ones((1, 1)))),
    ]
    net = Network.from_nodes(nodes, (2,))
    seeds = np.array([[False, True, False, False]])
    for winner, reached, out in ((0, [False, True], False), (1, [True, True], True)):
        active = np.array([[True, True, winner == 0, winner == 1]])
        inside, output = influence(net, seeds, active)
        assert inside[0, 2:].tolist() == reached
        assert output[0].tolist() == [out]
