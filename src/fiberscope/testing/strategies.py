"""Hypothesis strategies: networks from tame to nasty, and batches that sit on their hyperplanes."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from hypothesis import strategies as st

from fiberscope.network.network import Network
from fiberscope.numerics.floats import FloatArray


@st.composite
def widths(draw: Any, inputs: Any = None, max_width: int = 4, max_hidden: int = 3) -> tuple[int, ...]:
    """Widths ``(n_0, ..., n_L)`` with at least one hidden layer."""
    sizes = st.integers(1, max_width)
    hidden = draw(st.lists(sizes, min_size=1, max_size=max_hidden))
    return (draw(sizes if inputs is None else inputs), *hidden, draw(st.integers(1, 3)))


@st.composite
def chains(draw: Any, inputs: Any = None, max_width: int = 4, max_hidden: int = 3) -> Network:
    """Chains with weights that are small integers, halves, ordinary floats, or many zeros."""
    shape = draw(widths(inputs, max_width, max_hidden))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    style = draw(st.sampled_from(["integer", "dyadic", "normal", "sparse", "duplicated", "wild"]))
    weights, biases = [], []
    for m, n in itertools.pairwise(shape):
        weights.append(_array(rng, (n, m), style))
        biases.append(_array(rng, (n,), style))
        if style == "duplicated" and n > 1:
            weights[-1][n // 2 :], biases[-1][n // 2 :] = weights[-1][: n - n // 2], biases[-1][: n - n // 2]
    activation = draw(st.sampled_from(["relu", "relu", "leaky_relu"]))
    return Network(weights, biases, activation, slope=0.25)


def _array(rng: np.random.Generator, shape: tuple[int, ...], style: str) -> FloatArray:
    if style == "integer":
        return rng.integers(-2, 3, shape).astype(np.float64)
    if style == "dyadic":
        return rng.integers(-8, 9, shape) / 4.0
    if style == "sparse":
        return np.asarray(rng.normal(size=shape) * (rng.random(shape) < 0.4))
    if style == "wild":
        return np.asarray(rng.normal(size=shape) * 2.0 ** rng.integers(-40, 40, shape))
    return rng.normal(size=shape)


@st.composite
def batches(draw: Any, net: Network, max_points: int = 5) -> FloatArray:
    """A batch for ``net``: integer, ordinary and extreme points, so that some lie exactly on hyperplanes."""
    count = draw(st.integers(1, max_points))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    style = draw(st.sampled_from(["integer", "dyadic", "normal", "wild"]))
    return _array(rng, (count, net.in_size), style)
