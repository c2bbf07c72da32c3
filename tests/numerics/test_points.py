"""Exact rows and points against Fraction arithmetic."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fiberscope.errors import InputError, NotGenericError
from fiberscope.numerics.points import (
    ExactPoint,
    integer_rows,
    solve_point,
    to_dyadic,
)

FINITE = st.floats(allow_nan=False, allow_infinity=False)


def cramer(equations: np.ndarray) -> list[Fraction] | None:
    """Slow oracle: Gauss-Jordan over the rationals."""
    n = len(equations)
    rows = [[Fraction(float(v)) if isinstance(v, float) else Fraction(v) for v in row] for row in equations.tolist()]
    for c in range(n):
        pivot = next((i for i in range(c, n) if rows[i][c]), None)
        if pivot is None:
            return None
        rows[c], rows[pivot] = rows[pivot], rows[c]
        rows[c] = [v / rows[c][c] for v in rows[c]]
        for i in range(n):
            if i != c:
                rows[i] = [a - rows[i][c] * b for a, b in zip(rows[i], rows[c], strict=True)]
    return [-rows[i][n] for i in range(n)]


@given(hnp.arrays(np.float64, hnp.array_shapes(max_dims=2, min_side=0, max_side=4), elements=FINITE))
def test_dyadic_is_exact(x: np.ndarray) -> None:
    integers, exponent = to_dyadic(x)
    assert integers.shape == x.shape
    for value, integer in zip(x.ravel(), integers.ravel(), strict=True):
        assert Fraction(float(value)) == Fraction(integer) * Fraction(2) ** exponent


def test_dyadic_refuses_nan_and_is_small() -> None:
    with pytest.raises(InputError, match="finite"):
        to_dyadic(np.array([np.nan]))
    assert to_dyadic(np.array([3.0 * 2**500, 2.0**500]))[0].tolist() == [3, 1]
    assert to_dyadic(np.zeros(2))[1] == 0


def test_rows_have_their_own_scale() -> None:
    rows = integer_rows(np.array([[2.0**-1074, 0.0], [2.0**1000, -(2.0**1001)]]))
    assert rows.tolist() == [[1, 0], [1, -2]]


@given(hnp.arrays(np.int64, (3, 4), elements=st.integers(-3, 3)))
def test_solve_point_against_the_oracle(equations: np.ndarray) -> None:
    expected = cramer(equations)
    if expected is None:
        with pytest.raises(NotGenericError, match="singular"):
            solve_point(equations)
    else:
        point = solve_point(equations)
        assert [Fraction(p, point.denominator) for p in point.numerators] == expected
        whole = [*point.numerators, point.denominator]
        assert all(sum(Fraction(w) * v for w, v in zip(row, whole, strict=True)) == 0 for row in equations.tolist())


def test_points_and_shapes_are_checked() -> None:
    with pytest.raises(InputError, match="positive denominator"):
        ExactPoint((1,), 0)
    with pytest.raises(InputError, match="shape"):
        solve_point(np.zeros((2, 2)))
    assert solve_point(np.zeros((0, 1))) == ExactPoint((), 1)
    assert np.allclose(ExactPoint((1, -2), 3).floats(), [1 / 3, -2 / 3])
