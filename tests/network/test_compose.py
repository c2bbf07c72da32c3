"""Composing consecutive affine maps never changes the real function."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fiberscope as fs
from fiberscope.network.nodes import Add, Affine, PiecewiseLinear
from fiberscope.network.operators import Dense
from fiberscope.testing import CASES, assert_same_function, case


def stack(rng: np.random.Generator, style: str) -> fs.Network:
    """Three affine maps, an activation, two affine maps."""

    def array(*shape):
        if style == "float":
            return rng.normal(size=shape)
        if style == "tiny":
            return rng.integers(-3, 4, shape) * 2.0**-600
        return rng.integers(-3, 4, shape) * 2.0 ** rng.integers(-8, 8)

    nodes = [
        Affine(0, Dense(array(3, 2)), array(3), "a", "b"),
        Affine(1, Dense(array(4, 3)), array(4), "c", "d"),
        Affine(2, Dense(array(2, 4)), None, "e"),
        PiecewiseLinear(3, np.zeros(2), (2,)),
        Affine(4, Dense(array(3, 2)), array(3), "f", "g"),
        Affine(5, Dense(array(1, 3)), array(1), "h", "i"),
    ]
    return fs.Network.from_nodes(nodes, (2,))


@settings(max_examples=80, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from(["integer", "float", "tiny"]))
def test_the_real_function_is_the_same(seed, style):
    rng = np.random.default_rng(seed)
    net = stack(rng, style)
    assert_same_function(net, net.composed, rng.normal(size=(3, 2)))


def test_exact_products_are_merged_and_inexact_ones_are_not():
    rng = np.random.default_rng(0)
    merged = stack(rng, "integer").composed
    assert merged.widths == (2, 2, 1)
    assert merged.num_parameters == 0
    assert len(stack(rng, "float").composed.nodes) == 6
    assert len(stack(rng, "tiny").composed.nodes) == 6


@pytest.mark.parametrize("name", CASES)
def test_every_case_keeps_its_function(name):
    net = case(name)
    assert_same_function(net, net.composed, np.random.default_rng(0).normal(size=(1, net.in_size)))


def test_a_value_that_is_read_twice_stays():
    nodes = [
        Affine(0, Dense(np.eye(2)), np.ones(2)),
        Affine(1, Dense(2 * np.eye(2))),
        Add((1, 2), (2,)),
    ]
    net = fs.Network.from_nodes(nodes, (2,))
    assert len(net.composed.nodes) == 3
    assert net.composed([[1.0, 1.0]]).tolist() == [[6.0, 6.0]]
