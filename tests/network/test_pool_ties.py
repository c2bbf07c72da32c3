"""Ties in pooling windows that are proven without arithmetic, against rational numbers."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from fiberscope.network.convolutions import Convolution
from fiberscope.network.network import Network
from fiberscope.network.nodes import Add, Affine, MaxPool, PiecewiseLinear
from fiberscope.network.pool_ties import settle_ties, signs_at
from fiberscope.numerics.signs import UNDECIDED
from fiberscope.testing import fraction_signs
from fiberscope.testing.hostile import programs

SIDE = 4
PIXELS = (0.0, 0.1, 0.3, float(np.nextafter(0.1, 1)), -0.1, 5e-324, 1e300)


def convolutional(seed: int, weights: tuple[float, ...], residual: bool) -> Network:
    """Convolution, activation, a skip connection or another activation, overlapping windows with padding."""
    rng = np.random.default_rng(seed)
    one, shape = (1, SIDE, SIDE), (2, SIDE, SIDE)
    first = Convolution(rng.choice(weights, (2, 1, 3, 3)), one, padding=(1, 1, 1, 1))
    second = Convolution(rng.choice(weights, (2, 2, 3, 3)), shape, padding=(1, 1, 1, 1))
    biases = rng.choice(weights, (2, 2, 1, 1))
    relu = np.zeros(2 * SIDE**2)
    nodes = [Affine(0, first, biases[0]), PiecewiseLinear(1, relu, shape), Affine(2, second, biases[1])]
    nodes += [Add((2, 3), shape) if residual else PiecewiseLinear(3, relu, shape)]
    return Network.from_nodes([*nodes, MaxPool(4, shape, (3, 3), (2, 2), (1, 1, 1, 1))], one)


@settings(max_examples=25)
@given(st.integers(0, 50), st.booleans(), st.lists(st.sampled_from(PIXELS), min_size=SIDE**2, max_size=SIDE**2))
def test_signs_on_images_of_few_values_are_those_of_fractions(seed, residual, pixels):
    net = convolutional(seed, (0.1, 0.3, -0.1, 1 / 3), residual)
    assert np.array_equal(signs_at(net, np.array([pixels]))[0], fraction_signs(net, pixels))


@settings(max_examples=25)
@given(programs(inputs=st.integers(1, 3)), st.lists(st.sampled_from((-1.0, 0.0, 0.5, 0.1)), min_size=3, max_size=3))
def test_what_is_settled_is_true_whatever_was_open(net, x):
    """All signs are open, so that everything that is settled rests on the numbers alone."""
    x = np.array(x[: net.in_size])
    signs = np.full((1, len(net.layout.pooled)), UNDECIDED, dtype=np.int8)
    settled = settle_ties(net.layout, x[None], signs)
    known = signs[0] != UNDECIDED
    assert settled == known.sum()
    assert not known[~net.layout.pooled].any()
    assert np.array_equal(signs[0][known], fraction_signs(net, x)[known])


def test_a_blank_image_needs_no_exact_numbers():
    """The bound of floats cannot prove that the equal patches of the background tie."""
    shape, kernel = (1, 6, 6), np.random.default_rng(0).normal(size=(1, 1, 3, 3))
    net = Network.from_nodes([Affine(0, Convolution(kernel, shape)), MaxPool(1, (1, 4, 4), (2, 2), (2, 2))], shape)
    blank = np.full((1, 36), 0.1)
    signs = np.full((1, 16), UNDECIDED, dtype=np.int8)
    assert settle_ties(net.layout, blank, signs) == 16
    assert (signs == 0).all()
    assert (signs_at(net, blank) == 0).all()


def test_one_ulp_breaks_a_tie():
    """The same number but for the last bit is another number."""
    shape = (1, 1, 2)
    kernel = Convolution(np.full((1, 1, 1, 1), 0.3), shape)
    net = Network.from_nodes([Affine(0, kernel), MaxPool(1, shape, (1, 2), (1, 2))], shape)
    above = float(np.nextafter(0.1, 1))
    X = np.array([[0.1, 0.1], [above, 0.1], [0.1, above]])
    assert signs_at(net, X).tolist() == [[0, 0], [1, -1], [-1, 1]]
