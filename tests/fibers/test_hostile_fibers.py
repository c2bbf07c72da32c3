"""Questions about fibers of networks with hostile numbers: an answer or one clear line, and no warning."""

from __future__ import annotations

import warnings
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fiberscope as fs
from fiberscope.equality.bottlenecks.exact_transport import ExactNet, find_exact
from fiberscope.equality.bottlenecks.rounded_transport import check_rounded, find_rounded
from fiberscope.equality.rungs.bottleneck import is_bottleneck
from fiberscope.errors import InputError
from fiberscope.fibers.construction import identifiable_construction
from fiberscope.fibers.fiber import fiber
from fiberscope.fibers.normal_form.program_forms import normal_form
from fiberscope.fibers.normal_form.row import Row
from fiberscope.fibers.normal_form.table import Table, _rounded_ratio
from fiberscope.fibers.on_domain import on_domain
from fiberscope.fibers.witnesses import Witnesses
from fiberscope.network.network import Network
from fiberscope.testing.assertions import fraction_values


def numbers(rng, shape):
    """Ordinary, huge, tiny, subnormal, small integers, zeros, decimals, or of all sizes."""
    sign = rng.choice([-1.0, 1.0], shape)
    kinds = (
        lambda: rng.normal(size=shape),
        lambda: sign * rng.uniform(1, 1.7, shape) * 10.0 ** rng.integers(140, 308),
        lambda: sign * rng.uniform(1, 1.7, shape) * 10.0 ** -float(rng.integers(100, 300)),
        lambda: sign * rng.integers(0, 5, shape) * 5e-324,
        lambda: rng.integers(-2, 3, shape) * 1.0,
        lambda: np.zeros(shape),
        lambda: rng.integers(-20, 21, shape) / 10,
        lambda: sign * 2.0 ** rng.integers(-1000, 1000, shape),
    )
    return kinds[rng.integers(len(kinds))]()


@st.composite
def hostile(draw):
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    widths = rng.integers(1, 4, draw(st.integers(3, 4))).tolist()
    if len(widths) == 4:
        widths[0] = max(widths[:2])
    shapes = list(zip(widths[1:], widths, strict=False))
    return Network([numbers(rng, s) for s in shapes], [numbers(rng, n) for n in widths[1:]])


@given(hostile(), st.integers(0, 100))
@settings(max_examples=120, deadline=None)
def test_no_warning_and_no_raw_error(net, seed):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = fiber(net)
        assert found.to_dict()["identifiability"]["identifiable"] in (True, False, None)
        for other in found.sample(2, seed):
            assert all(np.isfinite(x).all() for x in (*other.weights, *other.biases))
            rounded = find_rounded(net, other) if is_bottleneck(net) and is_bottleneck(other) else None
            if rounded is not None:
                check_rounded(net, other, rounded)
        for question in (fs.canonical, fs.conserved_quantities):
            try:
                question(net)
            except InputError as error:
                assert "range of float" in str(error)


@given(hostile())
@settings(max_examples=60, deadline=None)
def test_identifiable_is_never_said_of_networks_with_a_known_symmetry(net):
    found = fs.identifiability(net)
    if found.identifiable is True:
        assert not found.symmetries and found.fiber_dimension == 0 and len(fiber(net).components) == 1


@pytest.mark.parametrize(("bias", "out"), [(1e200, 1e200), (1e120, 1e190), (1e308, 1.0), (3.0, 2.0)])
def test_linear_neurons_near_the_end_of_the_floats(bias, out):
    """The second neuron is on everywhere: its bias can be moved, if the numbers are floats."""
    net = Network([[[1.0]], [[1.0]], [[out]]], [[0.0], [bias], [0.0]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = fs.identifiability(net)
    assert found.identifiable is not True
    moved = on_domain(net, None).witness
    assert (moved is None) == (bias > 100)


def test_scales_beyond_the_floats_are_no_witness():
    """The first layers are multiples of each other by 1e400: no float says by how much."""
    a = Network([[[1e200, 0.0], [0.0, 1.0]], np.eye(2), [[1.0, 1.0]]], [[0.0, 0.0], [-1.0, 1.0], [0.0]])
    b = Network([[[1e-200, 0.0], [0.0, 1.0]], np.eye(2), [[1.0, 1.0]]], [[0.0, 0.0], [-1.0, 1.0], [0.0]])
    assert find_exact(ExactNet.of(a), ExactNet.of(b)) is None
    assert find_exact(ExactNet.of(b), ExactNet.of(a)) is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert find_rounded(a, b) is None
    assert fs.equivalent(a, b).equal is False


def test_ratios_beyond_the_floats_in_normal_forms():
    for a, b in ((3 << 4000, 7), (7, 3 << 4000), (1, 1), (10**40, 3)):
        m, e = _rounded_ratio(a, b)
        assert abs(Fraction(a, b) / (m * Fraction(2) ** e) - 1) <= Fraction(1, 2**53)
    table = Table(inputs=1, ulps=16)
    huge = {1: 1 << 3000, 0: 1}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        first = table.relu(Row(dict(huge), 0, {1: 1 << 3000, 0: 1 << 5000}))
        second = table.relu(Row({1: 3, 0: 1}, 0, {1: 1 << 2000, 0: 1 << 2000}))
    assert first.terms and second.terms and all(second.terms.values())


def test_a_copy_up_to_rounding_at_the_ends_of_the_range():
    """The second network's neuron is the first one's by a factor of about 1e-320, up to rounding."""
    a = Network([[[1e160], [1e160 / 3]], [[1.0, 1.0]]], [[1e160 / 7, 1e160], [0.0]])
    b = Network([[[1e-160], [1e-160 / 3]], [[1.0, 1.0]]], [[1e-160 / 7, 1e-160], [0.0]])
    table = Table(inputs=1, ulps=64)
    one, two = normal_form(a, table)[0], normal_form(b, table)[0]
    assert not table.same(one, two)
    x = np.array([1.0])
    assert fraction_values(a, x)[-1] != fraction_values(b, x)[-1]


@pytest.mark.parametrize("least", [Fraction(0), Fraction(-1, 10**30)])
def test_a_witness_that_is_not_clear_is_none(monkeypatch, least):
    tampered = Witnesses(np.full((2, 2), Fraction(1, 3), dtype=object), least)
    monkeypatch.setattr("fiberscope.fibers.construction.exact_witnesses", lambda net, trails: [tampered])
    with pytest.raises(fs.NotGenericError):
        identifiable_construction((2, 2, 1), fs.Box.cube(2), 0)
