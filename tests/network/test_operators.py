"""Every operator against its dense matrix."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse as sp

from fiberscope.errors import InputError, TooLargeError
from fiberscope.network.convolutions import Convolution, TransposedConvolution
from fiberscope.network.operators import Composition, Dense, Gather, Scale, Sparse
from fiberscope.numerics.algebra.ball import EXACT, BallAlgebra, balls

RNG = np.random.default_rng(0)
OPERATORS = {
    "dense": Dense(RNG.normal(size=(4, 6)), (2, 3)),
    "sparse": Sparse(RNG.normal(size=(5, 6)) * (RNG.random((5, 6)) < 0.4)),
    "empty_rows": Sparse(np.zeros((3, 6))),
    "scale": Scale(RNG.normal(size=(2, 1)), (2, 3)),
    "convolution": Convolution(RNG.normal(size=(3, 2, 3, 2)), (2, 5, 4), padding=(1, 0, 2, 1)),
    "strided": Convolution(RNG.normal(size=(2, 2, 2, 2)), (2, 6, 5), stride=(2, 3), dilation=(2, 1)),
    "depthwise": Convolution(RNG.normal(size=(4, 1, 3, 3)), (2, 4, 4), padding=(1, 1, 1, 1), groups=2),
    "transposed": TransposedConvolution(RNG.normal(size=(2, 3, 3, 2)), (2, 3, 4), (2, 3), (1, 0, 0, 1)),
    "transposed_larger": TransposedConvolution(RNG.normal(size=(2, 3, 2, 2)), (2, 3, 2), (2, 2), (0, 1, -1, -3)),
    "transposed_groups": TransposedConvolution(
        RNG.normal(size=(4, 1, 3, 2)), (4, 3, 3), (2, 1), dilation=(2, 3), groups=2
    ),
    "gather": Gather(np.array([[3, -1, 0], [0, 5, 5]]), (2, 3)),
    "gather_nothing": Gather(np.array([-1, -1]), (6,)),
    "composition": Composition([Dense(RNG.normal(size=(3, 6))), Dense(RNG.normal(size=(5, 3)))]),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_all_views_of_an_operator_agree(name):
    operator = OPERATORS[name]
    matrix = operator.dense()
    X = RNG.normal(size=(7, operator.in_size))
    Y = RNG.normal(size=(7, operator.out_size))
    np.testing.assert_allclose(operator.apply(X), X @ matrix.T, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(operator.adjoint(Y), Y @ matrix, rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(operator.sparse().toarray(), matrix)
    assert (operator.apply_abs(np.abs(X)) >= np.abs(X) @ np.abs(matrix).T * (1 - 1e-12)).all()
    same = operator.with_coefficients(operator.coefficients)
    np.testing.assert_array_equal(same.apply(X), operator.apply(X))


@pytest.mark.parametrize("name", OPERATORS)
def test_exact_application_equals_integer_arithmetic(name):
    operator = OPERATORS[name]
    rounded = operator.with_coefficients(np.round(4 * operator.coefficients))
    X = RNG.integers(-5, 6, (2, operator.in_size)).astype(float)
    with BallAlgebra(EXACT).working():
        exact = rounded.apply_scalars(balls(X))
    np.testing.assert_array_equal(exact.astype(float), rounded.apply(X))
    assert all(value.is_exact() for value in exact.reshape(-1))


@settings(max_examples=60, deadline=None)
@given(
    kernel=st.tuples(*[st.integers(1, 3)] * 4),
    size=st.tuples(st.integers(3, 7), st.integers(3, 7)),
    stride=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    padding=st.tuples(*[st.integers(0, 2)] * 4),
    dilation=st.tuples(st.integers(1, 2), st.integers(1, 2)),
    groups=st.integers(1, 3),
)
def test_convolution_equals_its_definition(kernel, size, stride, padding, dilation, groups):
    out, per_group, kh, kw = kernel
    rng = np.random.default_rng(1)
    weights = rng.integers(-3, 4, (out * groups, per_group, kh, kw)).astype(float)
    shape = (per_group * groups, *size)
    reach = [d * (k - 1) + 1 for d, k in zip(dilation, (kh, kw), strict=True)]
    if any(n + padding[a] + padding[a + 2] < reach[a] for a, n in enumerate(size)):
        with pytest.raises(InputError, match="does not fit"):
            Convolution(weights, shape, stride, padding, dilation, groups)
        return
    operator = Convolution(weights, shape, stride, padding, dilation, groups)
    x = rng.integers(-3, 4, shape).astype(float)
    padded = np.pad(x, ((0, 0), (padding[0], padding[2]), (padding[1], padding[3])))
    expected = np.zeros(operator.out_shape)
    for o, i, j in np.ndindex(*operator.out_shape):
        group = o // out
        for c, p, q in np.ndindex(per_group, kh, kw):
            row, column = i * stride[0] + p * dilation[0], j * stride[1] + q * dilation[1]
            expected[o, i, j] += weights[o, c, p, q] * padded[group * per_group + c, row, column]
    np.testing.assert_array_equal(operator.apply(x.reshape(1, -1)).reshape(operator.out_shape), expected)


@settings(max_examples=60, deadline=None)
@given(
    kernel=st.tuples(*[st.integers(1, 3)] * 4),
    size=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    stride=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    padding=st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(-3, 2), st.integers(-3, 2)),
    dilation=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    groups=st.integers(1, 3),
)
def test_transposed_convolution_equals_its_definition(kernel, size, stride, padding, dilation, groups):
    per_group, out, kh, kw = kernel
    rng = np.random.default_rng(1)
    weights = rng.integers(-3, 4, (per_group * groups, out, kh, kw)).astype(float)
    shape = (per_group * groups, *size)
    whole = [(size[a] - 1) * stride[a] + dilation[a] * (kernel[2 + a] - 1) + 1 for a in (0, 1)]
    lengths = [whole[a] - padding[a] - padding[a + 2] for a in (0, 1)]
    if min(lengths) < 1:
        with pytest.raises(InputError, match="leaves nothing"):
            TransposedConvolution(weights, shape, stride, padding, dilation, groups)
        return
    operator = TransposedConvolution(weights, shape, stride, padding, dilation, groups)
    x = rng.integers(-3, 4, shape).astype(float)
    expected, terms = np.zeros((out * groups, *lengths)), np.zeros((out * groups, *lengths), dtype=int)
    for c, i, j in np.ndindex(*shape):
        for o, p, q in np.ndindex(out, kh, kw):
            row = i * stride[0] + p * dilation[0] - padding[0]
            column = j * stride[1] + q * dilation[1] - padding[1]
            if 0 <= row < lengths[0] and 0 <= column < lengths[1]:
                place = (c // per_group * out + o, row, column)
                expected[place] += weights[c, o, p, q] * x[c, i, j]
                terms[place] += 1
    np.testing.assert_array_equal(operator.apply(x.reshape(1, -1)).reshape(operator.out_shape), expected)
    assert operator.fan_in >= terms.max()


def test_a_gather_with_other_numbers_is_a_sparse_map():
    gather = OPERATORS["gather"]
    assert gather.with_coefficients(np.ones(5)) is gather
    other = gather.with_coefficients(np.arange(5.0))
    assert isinstance(other, Sparse)
    np.testing.assert_array_equal(other.dense(), gather.dense() * np.array([0, 0, 1, 2, 3, 4])[:, None])


def test_operators_keep_their_own_numbers():
    assert OPERATORS["convolution"].coefficients.shape == (3, 2, 3, 2)
    matrix = np.ones((2, 2))
    operator = Dense(matrix)
    matrix[0, 0] = 9
    assert operator.matrix[0, 0] == 1
    with pytest.raises(ValueError, match="read-only"):
        operator.matrix[0, 0] = 2


def test_a_dense_matrix_that_is_too_large_is_refused_with_an_estimate():
    with pytest.raises(TooLargeError, match=r"GiB, the limit is 0\.0 GiB"):
        OPERATORS["convolution"].dense(memory=10)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Dense(np.zeros((2, 3)), (4,)), "expected 4 columns"),
        (lambda: Dense(np.array([[np.nan]])), "expected finite numbers, got nan at index"),
        (lambda: Dense(np.array([[1]])), "floating-point"),
        (lambda: Sparse(sp.csr_array(np.eye(3)), (2,)), r"expected \(3, 2\), got \(3, 3\)"),
        (lambda: Scale(np.ones(3), (2,)), "expected factors for"),
        (lambda: Convolution(np.zeros((1, 2, 1, 1)), (3, 4, 4)), "expected 2 input channels"),
        (lambda: TransposedConvolution(np.zeros((2, 1, 1, 1)), (3, 4, 4)), "expected 2 input channels"),
        (lambda: Gather(np.array([3]), (3,)), "from -1 to 2"),
        (lambda: Gather(np.array([-2]), (3,)), "from -1 to 2"),
        (lambda: Gather(np.array([0.5]), (3,)), "expected integers"),
        (lambda: Gather(np.array([0]), (3,), (2,)), "expected 2 entries"),
        (lambda: Composition([]), "at least one operator"),
        (lambda: Composition([Dense(np.eye(2)), Dense(np.eye(3))]), "does not fit"),
    ],
)
def test_bad_operators(build, message):
    with pytest.raises(InputError, match=message):
        build()
