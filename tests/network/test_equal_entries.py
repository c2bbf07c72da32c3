"""Entries with equal numbers are one function: against fractions, on hostile programs and on images."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import fiberscope as fs
from fiberscope.network.convolutions import Convolution
from fiberscope.network.equal_entries import equal_entries
from fiberscope.network.network import Network
from fiberscope.network.nodes import Affine, MaxPool, PiecewiseLinear
from fiberscope.network.operators import Dense
from fiberscope.testing.assertions import fraction_values
from fiberscope.testing.cases import convolutional
from fiberscope.testing.hostile import programs


@settings(max_examples=150)
@given(programs(inputs=st.integers(1, 3)), st.data())
def test_equal_numbers_are_equal_functions(net: Network, data: st.DataObject) -> None:
    whole = st.integers(-2, 2)
    ends = np.array(data.draw(st.lists(st.tuples(whole, whole), min_size=net.in_size, max_size=net.in_size)), float)
    numbers = equal_entries(net.layout, ends)
    for t in (0.0, 0.25, 0.625, 1.0):
        values = fraction_values(net, ends[:, 0] + t * (ends[:, 1] - ends[:, 0]))
        for number, value in zip(numbers, values, strict=True):
            seen = dict(zip(number.tolist(), value, strict=True))
            assert all(seen[n] == v for n, v in zip(number.tolist(), value, strict=True))
            assert seen.get(0, 0) == 0


def test_what_is_the_same_is_seen() -> None:
    image = np.zeros((2, 6, 6))
    image[:, 2, 3] = 1.0
    numbers = equal_entries(convolutional(0).layout, np.stack([image.ravel(), 3 * image.ravel()], axis=1))
    behind = numbers[1].reshape(3, 6, 6)  # a kernel of 3 x 3 sees the pixel from nine places, and nothing elsewhere
    assert [len(np.unique(channel)) for channel in behind] == [10, 10, 10]
    assert len(np.unique(numbers[5])) < numbers[5].size  # and so on behind the pool
    rows = Network([[[1.0, 2.0], [2.0, 1.0], [1.0, 2.0]], [[1.0, 1.0, 1.0]]], [[1.0, 1.0, 1.0], [0.0]])
    a, b, c = equal_entries(rows.layout, np.array([[0.0, 1.0], [5.0, 6.0]]))[1]
    assert a == c != b
    assert len(set(equal_entries(rows.layout, np.array([[5.0, 6.0], [5.0, 6.0]]))[1])) == 1  # 1 + 2 = 2 + 1, sorted


def picture(seed: int) -> Network:
    rng = np.random.default_rng(seed)
    conv = Convolution(rng.normal(size=(2, 1, 3, 3)).round(2), (1, 8, 8), padding=(1, 1, 1, 1))
    nodes = [
        Affine(0, conv, rng.normal(size=(2, 1, 1)).round(2), "w", "b"),
        PiecewiseLinear(1, np.zeros(()), (2, 8, 8)),
        MaxPool(2, (2, 8, 8), (2, 2), (2, 2)),
        Affine(3, Dense(rng.normal(size=(2, 32)).round(2), (2, 4, 4)), rng.normal(size=2).round(2), "v", "c"),
    ]
    return Network.from_nodes(nodes, (1, 8, 8))


def test_ties_of_the_background_are_no_exact_decisions() -> None:
    rng = np.random.default_rng(1)
    a, b = np.zeros((2, 8, 8))
    a[2:5, 2:5], b[3:6, 3:6] = rng.random((2, 3, 3)).round(3)
    for seed in range(3):
        net = picture(seed)
        found = fs.regions_along(net, fs.Segment(a.ravel(), b.ravel()))
        assert found.exact_decisions < 20
        middles = np.convolve(np.concatenate([[0.0], found.breakpoints, [1.0]]), [0.5, 0.5], "valid")
        signs = net.signs(a.ravel() + middles[:, None] * (b - a).ravel()).signs
        # within a region of the segment the signs at its middle are the region's, and neighbours differ
        assert np.array_equal(signs, found.signs)
        assert (signs[1:] != signs[:-1]).any(axis=1).all()
