"""The hostile strategies draw what they promise, and certified signs stand up to all of it."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

from fiberscope.network.network import Network
from fiberscope.network.nodes import Add, Concat, MaxPool, PiecewiseLinear
from fiberscope.testing import fraction_signs
from fiberscope.testing.hostile import (
    NUMBERS,
    TAME,
    arrays,
    hostile_batches,
    hostile_chains,
    layers,
    programs,
)

DRAWN = settings(max_examples=2000, phases=[Phase.generate], database=None)
"""For ``find``: that there is such an example is asked, not for the simplest, which would be looked for at length."""


@given(st.data())
@settings(max_examples=200)
def test_signs_of_hostile_programs_are_those_of_fractions(data: st.DataObject) -> None:
    net = data.draw(st.one_of(programs(), hostile_chains()))
    points = data.draw(hostile_batches(net))
    expected = np.array([fraction_signs(net, x) for x in points]).reshape(len(points), net.num_signs)
    assert np.array_equal(net.signs(points).signs, expected)


@pytest.mark.parametrize("style", sorted(NUMBERS))
@given(data=st.data())
@settings(max_examples=20)
def test_every_number_is_finite(style: str, data: st.DataObject) -> None:
    assert np.isfinite(data.draw(arrays((3, 4), (style,)))).all()
    weight, bias = data.draw(layers(3, 4, (style,)))
    assert np.isfinite(weight).all()
    assert np.isfinite(bias).all()


@pytest.mark.parametrize("kind", [Add, Concat, MaxPool, PiecewiseLinear])
def test_every_kind_of_node_is_drawn(kind: type) -> None:
    find(programs(), lambda net: any(isinstance(node, kind) for node in net.nodes), settings=DRAWN)


def close_rows(net: Network) -> bool:
    """Whether two neurons differ in one entry of weight and bias, and there by one unit in the last place."""
    rows = np.concatenate([net.weights[0], net.biases[0][:, None]], axis=1)
    return any(
        (a != b).sum() == 1 and np.abs(a - b).max() == np.spacing(np.minimum(abs(a), abs(b))[a != b][0])
        for a, b in combinations(rows, 2)
    )


def hidden_positive(net: Network) -> bool:
    """Whether, at the origin or at (1, ..., 1), a preactivation that is not zero rounds to zero."""
    points = np.stack([np.zeros(net.in_size), np.ones(net.in_size)])
    with np.errstate(all="ignore"):
        rounded = np.concatenate(net.preactivations(points), axis=1)
    return bool(((rounded == 0) & (net.signs(points).signs != 0)).any())


def overflows(net: Network) -> bool:
    with np.errstate(all="ignore"):
        return not np.isfinite(net(np.ones((1, net.in_size)))).all()


def test_twins_roundings_and_overflow_are_drawn() -> None:
    find(hostile_chains(styles=TAME), close_rows, settings=DRAWN)
    find(programs(styles=TAME, blocks=["act_pool"]), hidden_positive, settings=DRAWN)
    find(programs(), overflows, settings=DRAWN)
