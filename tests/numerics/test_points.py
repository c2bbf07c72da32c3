"""Signs at constructed points against Fraction arithmetic."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fiberscope.errors import InputError, NotGenericError
from fiberscope.numerics.points import (
    ExactPoint,
    enclose,
    integer_rows,
    sign_at,
    signs_at_points,
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


def sign(value: Fraction) -> int:
    return (value > 0) - (value < 0)


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
        assert all(sign_at(row, point) == 0 for row in equations)


def test_points_and_shapes_are_checked() -> None:
    with pytest.raises(InputError, match="positive denominator"):
        ExactPoint((1,), 0)
    with pytest.raises(InputError, match="shape"):
        solve_point(np.zeros((2, 2)))
    with pytest.raises(InputError, match="length"):
        sign_at([1.0, 2.0], ExactPoint((1, 2), 3))
    with pytest.raises(InputError, match="functionals"):
        signs_at_points(np.ones((1, 1, 2)), np.ones((1, 3)))
    with pytest.raises(InputError, match="exact"):
        signs_at_points(np.ones((1, 1, 2)), np.ones((1, 2)), equation_errors=np.zeros((1, 1, 2)))
    assert solve_point(np.zeros((0, 1))) == ExactPoint((), 1)
    assert np.allclose(ExactPoint((1, -2), 3).floats(), [1 / 3, -2 / 3])


@settings(max_examples=200)
@given(st.integers(1, 6), st.integers(0, 2**32), st.integers(-40, 40), st.booleans())
def test_enclosures_hold_the_exact_solution(n: int, seed: int, exponent: int, nearly_singular: bool) -> None:
    rng = np.random.default_rng(seed)
    equations = rng.standard_normal((n, n + 1)) * 2.0 ** rng.integers(-abs(exponent), abs(exponent) + 1, (n, n + 1))
    if nearly_singular and n > 1:
        equations[-1, :n] = equations[0, :n] * (1 + 2.0**-45 * rng.standard_normal(n))
    points = enclose(equations[None])
    exact = cramer(equations)
    if points.enclosed[0]:
        assert exact is not None
        for approximate, bound, truth in zip(points.coordinates[0], points.error[0], exact, strict=True):
            assert abs(Fraction(float(approximate)) - truth) <= Fraction(float(bound))


def test_well_conditioned_systems_are_enclosed_tightly() -> None:
    rng = np.random.default_rng(0)
    points = enclose(rng.standard_normal((200, 4, 5)))
    assert points.enclosed.all()
    assert np.median(points.error) < 1e-13


@given(st.integers(0, 2**32))
def test_enclosures_hold_for_every_matrix_within_the_errors(seed: int) -> None:
    rng = np.random.default_rng(seed)
    true = rng.standard_normal((3, 4))
    rounded = true.astype(np.float32).astype(np.float64)
    points = enclose(rounded[None], np.abs(true - rounded)[None] * (1 + 1e-15))
    exact = cramer(true)
    if points.enclosed[0]:
        assert exact is not None
        gap = [abs(Fraction(float(a)) - t) for a, t in zip(points.coordinates[0], exact, strict=True)]
        assert all(g <= Fraction(float(b)) for g, b in zip(gap, points.error[0], strict=True))
        assert max(points.error[0]) > 1e-9  # the errors of the data were counted


@pytest.mark.parametrize("bad", [0.0, np.inf, np.nan, 1e308, 5e-324])
def test_nothing_is_claimed_for_hopeless_systems(bad: float) -> None:
    equations = np.array([[[bad, bad, 1.0], [bad, bad, 1.0]]])
    assert not enclose(equations).enclosed[0]


def test_many_lines_through_one_vertex_and_one_ulp_beside() -> None:
    """x = 1/3, y = 2/3 is no float point; lines through it are exactly zero there, shifted ones are not."""
    equations = np.array([[[3.0, 0.0, -1.0], [0.0, 3.0, -2.0]]])
    pencil = np.array([[a, b, 0.0] for a in range(-6, 7, 3) for b in range(-6, 7, 3)])
    pencil[:, 2] = -(pencil[:, 0] + 2 * pencil[:, 1]) / 3
    up, down = pencil.copy(), pencil.copy()
    up[:, 2], down[:, 2] = np.nextafter(pencil[:, 2], np.inf), np.nextafter(pencil[:, 2], -np.inf)
    result = signs_at_points(equations, np.concatenate([pencil, up, down]))
    assert result.signs.tolist() == [[0] * 25 + [1] * 25 + [-1] * 25]
    assert result.exact_points == 1
    assert result.exact_signs >= 25


def test_nearly_parallel_lines_meet_far_away() -> None:
    ulp = 2.0**-52
    equations = np.array([[[1.0, 1.0, 0.0], [1.0, 1.0 + ulp, -1.0]]])  # y = 1 / ulp, x = -y
    x = -(2.0**52)
    functionals = np.array([[1.0, 0.0, -x], [1.0, 0.0, -np.nextafter(x, 0)], [0.0, 1.0, np.nextafter(x, 0)]])
    assert signs_at_points(equations, functionals).signs.tolist() == [[0, -1, 1]]


def test_singular_systems_are_named() -> None:
    equations = np.array([[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]], [[1.0, 2.0, 0.0], [2.0, 4.0, 1.0]]])
    with pytest.raises(NotGenericError, match="point 1"):
        signs_at_points(equations, np.ones((1, 3)))


@settings(max_examples=60)
@given(st.integers(1, 4), st.integers(0, 2**32), st.booleans())
def test_signs_against_the_oracle_on_small_integers(n: int, seed: int, own: bool) -> None:
    """Small integers make zeros frequent; thirds make the points no floats."""
    rng = np.random.default_rng(seed)
    equations = rng.integers(-3, 4, (6, n, n + 1)).astype(float)
    regular = [e for e in equations if cramer(e) is not None]
    if not regular:
        return
    systems = np.array(regular)
    functionals = rng.integers(-3, 4, ((len(systems), 5, n + 1) if own else (5, n + 1))).astype(float)
    result = signs_at_points(systems, functionals)
    for i, system in enumerate(systems):
        x = [*cramer(system), Fraction(1)]
        rows = functionals[i] if own else functionals
        expected = [sign(sum((Fraction(float(w)) * v for w, v in zip(r, x, strict=True)), Fraction(0))) for r in rows]
        assert result.signs[i].tolist() == expected
    assert result.exact_signs >= int((result.signs == 0).sum())


def test_random_floats_need_no_exact_arithmetic() -> None:
    rng = np.random.default_rng(3)
    result = signs_at_points(rng.standard_normal((300, 3, 4)), rng.standard_normal((20, 4)))
    assert result.exact_signs <= 3
    assert set(np.unique(result.signs)) == {-1, 1}


def test_deep_products_given_as_integers() -> None:
    """Rows are products of many matrices: floats approximate them, integers are the truth."""
    rng = np.random.default_rng(4)
    factors = [integer_rows(rng.standard_normal((1, 9)))[0].reshape(3, 3) for _ in range(8)]
    product = factors[0]
    for factor in factors[1:]:
        product = product.dot(factor)
    assert max(abs(int(v)) for v in product.ravel()).bit_length() > 400
    equations = product[:2]
    through = 5 * equations[0] - 7 * equations[1]  # vanishes at the point
    beside = through.copy()
    beside[2] += 1  # by less than 2^-400, relatively
    exact_rows = np.array([through, beside, product[2]])
    scale = 2 ** (max(abs(int(v)) for v in exact_rows.ravel()).bit_length() - 10)
    floats = np.array([[float(Fraction(int(v), scale)) for v in row] for row in [*equations, *exact_rows]])
    errors = np.abs(floats) * 2.0**-53
    calls: list[tuple[int, list[int]]] = []

    def exact(point: int, which: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        calls.append((point, which.tolist()))
        return equations, exact_rows[which]

    result = signs_at_points(
        floats[None, :2],
        floats[2:],
        equation_errors=errors[None, :2],
        functional_errors=errors[2:],
        exact=exact,
    )
    x = [*cramer(equations), Fraction(1)]
    expected = [sign(sum((int(w) * v for w, v in zip(row, x, strict=True)), Fraction(0))) for row in exact_rows]
    assert expected[:2] == [0, 1]
    assert result.signs[0].tolist() == expected
    assert calls == [(0, [0, 1])]
    assert (result.exact_signs, result.exact_points) == (2, 1)
    assert result.to_dict()["exact_points"] == 1
