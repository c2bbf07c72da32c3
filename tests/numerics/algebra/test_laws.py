"""Laws of the algebras: transposes, shapes, bounds, and what an algebra does not have."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fiberscope.network.convolutions import Convolution, TransposedConvolution
from fiberscope.network.operators import Composition, Dense, Gather, Scale, Sparse
from fiberscope.numerics.algebra.ball import EXACT, BallAlgebra, balls
from fiberscope.numerics.algebra.base import Constant, aligned
from fiberscope.numerics.algebra.bits import BitAlgebra
from fiberscope.numerics.algebra.bounded import BOUNDED, Bounded, BoundedAlgebra
from fiberscope.numerics.algebra.floating import FLOAT, FloatAlgebra
from fiberscope.numerics.algebra.residue import ModularAlgebra
from fiberscope.testing.hostile import arrays

PRIME = (1 << 61) - 1
RNG = np.random.default_rng(0)
STAGES = {
    "dense": Dense(RNG.integers(-4, 5, (4, 6)).astype(float)),
    "sparse": Sparse(RNG.integers(-4, 5, (5, 6)) * (RNG.random((5, 6)) < 0.4)),
    "empty rows": Sparse(np.zeros((3, 6))),
    "scale": Scale(RNG.integers(-4, 5, (2, 1)).astype(float), (2, 3)),
    "convolution": Convolution(RNG.integers(-4, 5, (3, 2, 1, 2)).astype(float), (2, 1, 3), padding=(0, 1, 0, 0)),
}
STAGES["gather"] = Gather(np.array([[5, -1], [0, 0]]), (2, 3))
STAGES["transposed"] = TransposedConvolution(RNG.integers(-4, 5, (2, 3, 1, 2)).astype(float), (2, 1, 3))
RINGS = {"float": FLOAT, "float32": FloatAlgebra(np.float32), "residue": ModularAlgebra(PRIME)}


def inner(ring, a, b):
    return ring.total(ring.multiply(a, b), (a.ndim - 1,))


def integers(ring, *shape):
    return ring.take(RNG.integers(-9, 10, shape).astype(float))


@pytest.mark.parametrize("ring", RINGS.values(), ids=RINGS)
@pytest.mark.parametrize("name", STAGES)
@pytest.mark.parametrize("lead", [(7,), (2, 3), (1, 0)])
def test_the_adjoint_is_the_transpose_and_leading_axes_are_rows(ring, name, lead):
    stage = STAGES[name]
    x, y = integers(ring, *lead, stage.in_size), integers(ring, *lead, stage.out_size)
    image, back = ring.apply(stage, x), ring.adjoint(stage, y)
    assert image.shape == y.shape and back.shape == x.shape
    assert np.array_equal(inner(ring, image, y), inner(ring, x, back))
    rows = ring.apply(stage, x.reshape(-1, stage.in_size)) if x.size else image
    assert np.array_equal(rows.reshape(image.shape), image)


@pytest.mark.parametrize("ring", RINGS.values(), ids=RINGS)
@pytest.mark.parametrize("index", [np.array([2, 0, 2]), np.array([[2, 0, 2], [1, 1, 1]])], ids=["one", "each"])
def test_scatter_is_the_transpose_of_pick(ring, index):
    x, y = integers(ring, 2, 5, 4), integers(ring, 2, 5, 3)
    assert np.array_equal(inner(ring, ring.pick(x, index), y), inner(ring, x, ring.scatter(y, index, 4)))
    one = ring.scatter(y[:1], index, 4)  # one block stands for all
    assert len(one) == (2 if index.ndim == 2 else 1)
    assert np.array_equal(one[-1], ring.scatter(y[0], index if index.ndim == 1 else index[1], 4))


@pytest.mark.parametrize("ring", RINGS.values(), ids=RINGS)
@pytest.mark.parametrize("order", [None, np.array([3, 0, 4, 1, 2])], ids=["in order", "mixed"])
def test_split_is_the_transpose_of_concat(ring, order):
    parts, y = [integers(ring, 3, 2), integers(ring, 3, 3)], integers(ring, 3, 5)
    back = ring.split(y, order, [2, 3])
    total = ring.add([inner(ring, a, b) for a, b in zip(parts, back, strict=True)])
    assert np.array_equal(inner(ring, ring.concat(parts, order), y), total)


@pytest.mark.parametrize("ring", RINGS.values(), ids=RINGS)
@pytest.mark.parametrize("slopes", [None, np.array([0.0, 0.5, 1.0, -2.0])], ids=["relu", "leaky"])
def test_a_gate_is_its_own_transpose(ring, slopes):
    x, y, active = integers(ring, 3, 2, 4), integers(ring, 3, 2, 4), RNG.random((3, 4)) < 0.5
    assert np.array_equal(inner(ring, ring.gate(x, active, slopes), y), inner(ring, x, ring.gate(y, active, slopes)))


def test_one_row_beside_many_is_repeated():
    many, one = np.arange(6.0).reshape(3, 2), np.array([[9.0]])
    assert FLOAT.concat([many, one], np.array([2, 0, 1])).tolist() == [[9, 0, 1], [9, 2, 3], [9, 4, 5]]


def test_choices_go_to_the_first_axes():
    assert aligned(np.zeros((2, 3)), 4).shape == (2, 1, 1, 3)
    assert aligned(np.zeros(3), 4).shape == (3,)
    assert aligned(np.zeros((2, 3)), 2).shape == (2, 3)


@pytest.mark.parametrize("constant", Constant)
def test_a_bias_goes_where_the_constant_stands(constant):
    start, offset = np.arange(12.0).reshape(2, 3, 2), np.array([10.0, 20.0])
    mask = {Constant.EVERYWHERE: [1, 1, 1], Constant.LAST: [0, 0, 1], Constant.NOWHERE: [0, 0, 0]}[constant]
    expected = start + np.array(mask)[:, None] * offset
    assert np.array_equal(FloatAlgebra(constant=constant).shift(start, offset), expected)
    bounded = BoundedAlgebra(constant).shift(BOUNDED.take(start), offset)
    assert np.array_equal(bounded.value, expected)
    touched = np.broadcast_to(np.array(mask)[:, None], start.shape[1:]) > 0
    assert (bounded.error[:, touched] > 0).sum() == (start[:, touched] != 0).sum()  # nothing plus something is exact
    assert not bounded.error[:, ~touched].any()
    exact = BallAlgebra(EXACT, constant)
    with exact.working():
        assert np.array_equal(exact.shift(balls(start), offset).astype(float), expected)
    ring = ModularAlgebra(PRIME, constant)
    assert np.array_equal(ring.shift(ring.take(start), offset), ring.take(expected))
    assert np.array_equal(start, np.arange(12.0).reshape(2, 3, 2))


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_bounded_gates_sums_and_shifts_contain_the_truth(data):
    size = data.draw(st.integers(1, 4))
    value, other, slopes = (data.draw(arrays((size,))) for _ in range(3))
    error = np.abs(data.draw(arrays((size,)))) * data.draw(st.sampled_from([0.0, 2.0**-60]))
    active = np.array([data.draw(st.booleans()) for _ in range(size)])
    truth = [
        Fraction(float(v)) + data.draw(st.sampled_from([-1, 0, 1])) * Fraction(float(e))
        for v, e in zip(value, error, strict=True)
    ]
    given_value = Bounded(value, error)
    exact = [Fraction(float(v)) for v in other]
    scale = [Fraction(float(s)) for s in slopes]
    with np.errstate(all="ignore"):
        found = {
            "relu": (
                BOUNDED.gate(given_value, active, None),
                [t if a else 0 for t, a in zip(truth, active, strict=True)],
            ),
            "leaky": (
                BOUNDED.gate(given_value, active, slopes),
                [t if a else s * t for t, a, s in zip(truth, active, scale, strict=True)],
            ),
            "shift": (BOUNDED.shift(given_value, other), [t + b for t, b in zip(truth, exact, strict=True)]),
            "add": (
                BOUNDED.add([given_value, BOUNDED.take(other)]),
                [t + b for t, b in zip(truth, exact, strict=True)],
            ),
        }
    for name, (result, expected) in found.items():
        for v, e, t in zip(result.value, result.error, expected, strict=True):
            assert not np.isfinite([v, e]).all() or abs(Fraction(float(v)) - t) <= Fraction(float(e)), name
            assert not np.isnan(e), name


def test_a_flat_piece_is_flat_behind_an_overflow():
    wide = Bounded(np.array([np.inf, np.nan]), np.array([np.inf, np.nan]))
    for slopes in (None, np.zeros(2)):
        with np.errstate(invalid="ignore"):
            found = BOUNDED.gate(wide, np.zeros(2, dtype=bool), slopes)
        assert found.value.tolist() == found.error.tolist() == [0.0, 0.0]


def test_no_coefficient_makes_zero_of_an_overflow():
    wide = Bounded(np.array([[np.inf, 1.0]]), np.array([[np.inf, 0.0]]))
    with np.errstate(all="ignore"):
        found = BOUNDED.apply(Dense(np.array([[0.0, 0.0], [0.0, 2.0], [1.0, 0.0]])), wide)
    assert found.value[0, 0] == found.error[0, 0] == 0.0
    assert not found.decided[0, 1:].any()


def test_bits_follow_coefficients_that_are_not_zero():
    bits = BitAlgebra()
    tiny = np.nextafter(0, 1)
    chain = Composition([Dense(np.array([[tiny, 0.0], [0.0, 0.0]])), Dense(np.array([[1e300, 1.0]]))])
    start = bits.take(np.eye(2))
    assert bits.affine(chain, np.array([5.0]), start).tolist() == [[True], [False]]
    assert bits.gate(start, np.array([False, True]), None).tolist() == [[False, False], [False, True]]
    assert bits.gate(start, np.array([False, True]), np.array([0.5, 0.5])).tolist() == start.tolist()


@pytest.mark.parametrize(
    ("call", "what"),
    [
        (lambda: ModularAlgebra(PRIME).active(np.zeros((1, 1), np.uint64)), "ModularAlgebra has no order"),
        (lambda: ModularAlgebra(PRIME).winners(np.zeros((1, 1), np.uint64), np.zeros((1, 1), int)), "no order"),
        (lambda: BallAlgebra(EXACT).adjoint(STAGES["dense"], balls(np.zeros((1, 4)))), "BallAlgebra has no way back"),
        (lambda: BitAlgebra().window_max(np.zeros((1, 1), bool), np.zeros((1, 1), int)), "BitAlgebra has no order"),
    ],
)  # fmt: skip
def test_what_an_algebra_does_not_have_is_said(call, what):
    with pytest.raises(NotImplementedError, match=what):
        call()


@given(st.sampled_from(sorted(STAGES)), st.data())
@settings(max_examples=100)
def test_bounds_hold_on_the_way_back(name, data):
    stage = STAGES[name]
    if name != "gather":
        stage = stage.with_coefficients(data.draw(arrays(stage.coefficients.shape)))
    y = data.draw(arrays((2, stage.out_size)))
    error = np.abs(data.draw(arrays((2, stage.out_size))))
    with np.errstate(all="ignore"):
        found = BOUNDED.adjoint(stage, Bounded(y, error))
    matrix = [[Fraction(float(v)) for v in row] for row in stage.dense().T]
    for row, off, value, bound in zip(y, error, found.value, found.error, strict=True):
        for ways, v, e in zip(matrix, value, bound, strict=True):
            exact = sum(w * Fraction(float(c)) for w, c in zip(ways, row, strict=True))
            spread = sum(abs(w) * Fraction(float(c)) for w, c in zip(ways, off, strict=True))
            assert not np.isfinite(e) or abs(Fraction(float(v)) - exact) + spread <= Fraction(float(e))


def test_bounds_of_what_is_scattered_and_split():
    value = Bounded(np.array([[1.0, 2.0**-60, -3.0]]), np.array([[0.0, 0.5, 0.25]]))
    found = BOUNDED.scatter(value, np.array([1, 1, 0]), 3)
    assert found.value.tolist() == [[-3.0, 1.0, 0.0]]
    assert found.error[0, 0] >= 0.25 and found.error[0, 1] >= 0.5 + 2.0**-60
    left, right = BOUNDED.split(value, np.array([2, 0, 1]), (1, 2))
    assert left.value.tolist() == [[2.0**-60]] and right.error.tolist() == [[0.25, 0.0]]
