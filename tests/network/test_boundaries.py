"""What vanishes where regions end: against plain fractions, in every algebra of rows, and on the way back."""

from __future__ import annotations

from fractions import Fraction
from itertools import chain

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fiberscope.geometry.affine_forms import crossing_gradients, neuron_gradients
from fiberscope.geometry.distances.gradients import switch_rows
from fiberscope.network.network import Network
from fiberscope.network.nodes import Affine, Concat, MaxPool, PiecewiseLinear
from fiberscope.network.operators import Dense
from fiberscope.network.walk import affine_start, boundaries, boundary, choices_of, cuts, switches
from fiberscope.numerics.algebra.ball import EXACT_ROWS
from fiberscope.numerics.algebra.bounded import BOUNDED, BOUNDED_ROWS
from fiberscope.numerics.algebra.dyadic import DyadicAlgebra
from fiberscope.numerics.algebra.twofold import TwofoldAlgebra
from fiberscope.testing import CASES, fraction_signs, fraction_values
from fiberscope.testing.hostile import hostile_batches, hostile_chains, programs


@st.composite
def questions(draw, nets=None):
    """A program and a batch; sometimes one with convolutions and pools."""
    cases = [CASES["residual"](), CASES["leaky"]()]
    net = draw(nets or st.one_of(programs(), st.sampled_from(cases)))
    X = draw(hostile_batches(net))
    return net, X, np.array([fraction_signs(net, x) for x in X], dtype=np.int8).reshape(len(X), net.num_signs)


def exact(ball) -> Fraction:
    mantissa, exponent = ball.man_exp()
    return Fraction(int(mantissa)) * Fraction(2) ** int(exponent)


def at_point(rows, x) -> list[Fraction]:
    """Rows ``(n + 1, features)`` of fractions, as affine functions at a point."""
    point = [*(Fraction(float(v)) for v in x), Fraction(1)]
    return [sum(a * b for a, b in zip(column, point, strict=True)) for column in zip(*rows, strict=True)]


def truth(net, x, signs) -> list[Fraction]:
    """By the definition, from the values of the program; None for padding."""
    values, found = fraction_values(net, x), []
    for place in net.layout.places:
        source = values[place.source]
        if isinstance(place.node, PiecewiseLinear):
            found += source
            continue
        for window, own in zip(place.node.windows, signs[place.columns].reshape(place.node.windows.shape), strict=True):
            best = source[window[int(np.flatnonzero(own >= 0)[0])]]
            found += [source[i] - best if i >= 0 else None for i in window]
    return found


def same(found, expected) -> bool:
    return all(t is None or f == t for f, t in zip(found, expected, strict=True))


@settings(max_examples=100, deadline=None)
@given(questions())
def test_boundaries_are_those_of_the_fractions(question):
    net, X, signs = question
    choices = choices_of(net.layout, signs)
    with np.errstate(all="ignore"):
        start = affine_start(net.in_size, signs, BOUNDED_ROWS)
        rows = boundaries(net.layout, {0: start}, BOUNDED_ROWS, choices)
        plain = boundaries(net.layout, {0: BOUNDED.take(X)}, BOUNDED, choices, given=False)
    for k, x in enumerate(X):
        expected = truth(net, x, signs[k])
        with EXACT_ROWS.working():
            begin = {0: affine_start(net.in_size, signs[k], EXACT_ROWS)}
            own = boundaries(net.layout, begin, EXACT_ROWS, choices_of(net.layout, signs[k]))
        own = [[exact(v) for v in row] for row in own]
        assert same(at_point(own, x), expected)
        cell = k if len(rows.value) > 1 else 0
        for v, e, t in zip(rows.value[cell].ravel(), rows.error[cell].ravel(), chain.from_iterable(own), strict=True):
            assert not np.isfinite(e) or abs(Fraction(float(v)) - t) <= Fraction(float(e))
        for v, e, t in zip(plain.value[k], plain.error[k], expected, strict=True):
            assert t is None or not np.isfinite(e) or abs(Fraction(float(v)) - t) <= Fraction(float(e))


@settings(max_examples=100, deadline=None)
@given(questions())
def test_dyadic_rows_are_exact_and_so_are_their_cuts(question):
    net, X, signs = question
    x, algebra, choices = X[0], DyadicAlgebra(), choices_of(net.layout, signs[0])
    values = {0: affine_start(net.in_size, signs[0], algebra)}
    expected = fraction_values(net, x)
    for place in switches(net.layout, values, algebra, choices):
        found = cuts(place.node, values[place.source], algebra)
        rows = [[Fraction(int(v)) * Fraction(2) ** found.exponent for v in row] for row in found.integers]
        source = expected[place.source]
        wanted = [source[i] - source[j] for i, j in place.node.pairs] if isinstance(place.node, MaxPool) else source
        assert at_point(rows, x) == wanted


@settings(max_examples=100, deadline=None)
@given(questions(hostile_chains()))
def test_pairs_of_floats_lie_within_their_bounds(question):
    net, _, signs = question
    if not np.isin(net.layout.slopes, (0.0, 1.0)).all():
        return
    algebra = TwofoldAlgebra()
    values = {0: affine_start(net.in_size, signs[0], algebra)}
    with EXACT_ROWS.working():
        begin = {0: affine_start(net.in_size, signs[0], EXACT_ROWS)}
        wanted = boundaries(net.layout, begin, EXACT_ROWS, choices_of(net.layout, signs[0]))
    for place in switches(net.layout, values, algebra, choices_of(net.layout, signs[0])):
        found = values[place.source]
        parts = (found.high, found.low, found.error, wanted[:, place.columns])
        for high, low, error, t in zip(*(part.ravel() for part in parts), strict=True):
            if np.isfinite(error):
                assert abs(Fraction(float(high)) + Fraction(float(low)) - exact(t)) <= Fraction(float(error))


def test_pairs_of_floats_refuse_slopes_that_they_would_round() -> None:
    with pytest.raises(NotImplementedError, match="slopes"):
        TwofoldAlgebra().gate(TwofoldAlgebra().take(np.eye(2)), np.zeros(2, bool), np.full(2, 0.5))


@pytest.mark.parametrize("name", [name for name, make in CASES.items() if make().num_signs])
def test_gradients_backward_are_the_rows_forward(name):
    net = CASES[name]()
    signs = net.signs(np.random.default_rng(0).normal(size=(2, net.in_size))).signs
    rows = switch_rows(net, signs[0])
    entries = np.flatnonzero(~net.layout.padding)[::7]
    found = neuron_gradients(net, np.repeat(signs[:1], len(entries), axis=0), entries)
    np.testing.assert_allclose(found, rows[entries, :-1], rtol=1e-9, atol=1e-12)


def test_a_crossing_in_a_window_is_that_of_its_two_winners() -> None:
    # max(x, y, 0): from x to y the difference y - x, from y to 0 minus y; the entry asked for may be any of the window
    nodes = [
        Affine(0, Dense(np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]))),
        MaxPool.over(1, (3,), [[0, 1, 2]]),
    ]
    net = Network.from_nodes(nodes, (2,))
    x, y, none = (net.signs(np.array([p])).signs for p in ([2.0, 1.0], [1.0, 2.0], [-1.0, -2.0]))
    for entry in range(2):
        assert crossing_gradients(net, x, y, np.array([entry])).tolist() == [[-1.0, 1.0]]
    assert crossing_gradients(net, y, none, np.array([1])).tolist() == [[0.0, -1.0]]
    assert crossing_gradients(net, x[:0], y[:0], np.zeros(0, dtype=np.int64)).shape == (0, 2)


def test_entries_of_one_switch_by_cell() -> None:
    nodes = [MaxPool.over(0, (2,), [[0, 1]]), PiecewiseLinear(0, np.zeros(2), (2,)), Concat((1, 2), ((1,), (2,)))]
    net = Network.from_nodes(nodes, (2,))
    signs = net.signs(np.array([[2.0, 1.0], [1.0, 2.0]])).signs
    choices = choices_of(net.layout, signs)
    value = affine_start(2, signs, BOUNDED_ROWS)
    place = net.layout.places[0]
    found = boundary(place.node, value, BOUNDED_ROWS, choices[place.index], np.array([[1], [0]]))
    assert found.value[:, :, 0].tolist() == [[-1.0, 1.0, 0.0], [1.0, -1.0, 0.0]]
    assert not found.error.any()
    assert net.layout.window.tolist() == [0, 0, 1, 2]
    assert net.layout.slopes.tolist() == [1.0, 1.0, 0.0, 0.0]
