"""Proven LP verdicts against vertex enumeration with fractions, and against a solver that errs."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations

import highspy
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fiberscope.errors import InputError
from fiberscope.numerics.floats import gamma
from fiberscope.numerics.lp.floats import DualModel, directed, inside, safe_bound
from fiberscope.numerics.lp.programs import Polyhedron
from fiberscope.numerics.lp.rational import (
    Constraints,
    Sense,
    check_infeasible,
    check_no_interior,
    check_point,
    check_ray,
    dual_bound,
    exact_simplex,
    rational_point,
)
from fiberscope.numerics.lp.simplex import SmallModel
from fiberscope.numerics.points import ExactPoint

Vector = list[Fraction]


# --- the slow oracle -----------------------------------------------------------------------------------


def solve(rows: list[Vector]) -> Vector | None:
    """The point where n rows ``(w, g)`` are tight; None if they are dependent."""
    n = len(rows)
    rows = [list(r) for r in rows]
    for c in range(n):
        pivot = next((i for i in range(c, n) if rows[i][c]), None)
        if pivot is None:
            return None
        rows[c], rows[pivot] = rows[pivot], rows[c]
        rows[c] = [v / rows[c][c] for v in rows[c]]
        for i in range(n):
            if i != c and rows[i][c]:
                f = rows[i][c]
                rows[i] = [a - f * b for a, b in zip(rows[i], rows[c], strict=True)]
    return [r[n] for r in rows]


def dot(w: Vector, x: Vector) -> Fraction:
    return sum((a * b for a, b in zip(w, x, strict=True)), Fraction(0))


def vertices(constraints: Constraints) -> list[Vector]:
    """All vertices of a bounded polyhedron, by trying all sets of n rows."""
    oriented, _, _ = constraints.oriented()
    rows = [[Fraction(float(v)) for v in row] for row in oriented]
    found = []
    for subset in combinations(rows, len(constraints.lower)):
        x = solve(list(subset))
        if x is not None and all(dot(r[:-1], x) <= r[-1] for r in rows):
            found.append(x)
    return found


def has_interior(constraints: Constraints) -> bool:
    """The mean of the vertices is strict in every inequality in which any point is strict."""
    corners = vertices(constraints)
    if not corners:
        return False
    mean = [sum(column, Fraction(0)) / len(corners) for column in zip(*corners, strict=True)]
    oriented, origin, _ = constraints.oriented()
    for row, k in zip(oriented, origin, strict=True):
        gap = Fraction(float(row[-1])) - dot([Fraction(float(v)) for v in row[:-1]], mean)
        if gap <= 0 and not (k >= 0 and constraints.sense[k] == Sense.EQUAL):
            return False
    return True


def plain_highs(A: np.ndarray, b: np.ndarray, c: np.ndarray) -> tuple[str, float]:
    """What the solver says by itself, with its default tolerances."""
    h = highspy.Highs()
    h.setOptionValue("output_flag", False)
    n = A.shape[1]
    for _ in range(n):
        h.addVar(-1.0, 1.0)
    for row, bound in zip(A, b, strict=True):
        h.addRow(-highspy.kHighsInf, float(bound), n, np.arange(n, dtype=np.int32), row)
    h.changeColsCost(n, np.arange(n, dtype=np.int32), c)
    h.changeObjectiveSense(highspy.ObjSense.kMaximize)
    h.run()
    return h.modelStatusToString(h.getModelStatus()), h.getInfo().objective_function_value


# --- properties ----------------------------------------------------------------------------------------

NUMBERS = st.one_of(
    st.integers(-3, 3).map(float),
    st.sampled_from([0.5, -0.25, 1e-9, -1e-9, 1.0 + 2.0**-52, 0.1, 1e6]),
)


@st.composite
def programs(draw: st.DrawFn) -> tuple[Polyhedron, np.ndarray]:
    n = draw(st.integers(1, 3))
    m = draw(st.integers(0, 5))
    A = np.array(draw(st.lists(st.lists(NUMBERS, min_size=n, max_size=n), min_size=m, max_size=m))).reshape(m, n)
    b = np.array(draw(st.lists(NUMBERS, min_size=m, max_size=m)), float)
    equations = None
    if n > 1 and draw(st.booleans()):
        E = np.array([draw(st.lists(NUMBERS, min_size=n, max_size=n))])
        equations = (E, np.array([draw(NUMBERS)]))
    c = np.array(draw(st.lists(NUMBERS, min_size=n, max_size=n)))
    low, high = draw(st.sampled_from([(-1.0, 1.0), (0.0, 2.0), (-3.0, 0.5)]))
    return Polyhedron(A, b, equations=equations, lower=low, upper=high), c


@settings(max_examples=150, deadline=None)
@given(programs())
def test_all_verdicts_against_the_oracle(program: tuple[Polyhedron, np.ndarray]) -> None:
    polyhedron, c = program
    data = polyhedron.constraints
    corners = vertices(data)
    cost = [Fraction(float(v)) for v in c]

    feasible = polyhedron.feasible()
    assert feasible.answer is bool(corners)
    inner = polyhedron.interior()
    assert inner.answer is has_interior(data)
    for verdict, strict in ((feasible, False), (inner, True)):
        if verdict.answer:
            point = verdict.point if verdict.exact_point is None else verdict.exact_point
            assert check_point(data, point, strict=strict)
    if not feasible.answer:
        assert check_infeasible(data, feasible.multipliers)
    if not inner.answer:
        assert check_no_interior(data, inner.multipliers)

    for exact in (False, True):
        answer = polyhedron.maximize(c, exact=exact)
        if not corners:
            assert answer.status == "infeasible"
            assert check_infeasible(data, answer.multipliers)
            continue
        optimum = max(dot(cost, x) for x in corners)
        assert answer.status == "optimal"
        assert Fraction(answer.lower) <= optimum <= Fraction(answer.upper)
        assert answer.upper - answer.lower <= 1e-5 * max(1.0, abs(answer.upper))
        bound = dual_bound(data, c, answer.multipliers)
        assert bound is not None
        assert optimum <= bound <= Fraction(answer.upper)
        assert check_point(data, answer.point if answer.exact_point is None else answer.exact_point)
        if exact:
            assert answer.exact == bound == optimum


@settings(max_examples=60, deadline=None)
@given(programs(), st.lists(st.tuples(st.integers(0, 4), st.sampled_from(list(Sense)), NUMBERS), max_size=4))
def test_a_warm_polyhedron_answers_like_a_new_one(
    program: tuple[Polyhedron, np.ndarray], changes: list[tuple[int, Sense, float]]
) -> None:
    polyhedron, c = program
    for row, sense, bound in changes:
        if row < len(polyhedron.constraints.b):
            polyhedron.set_rows(row, sense, bound)
            assert polyhedron.interior().answer is has_interior(polyhedron.constraints)
    data = polyhedron.constraints
    corners = vertices(data)
    answer = polyhedron.maximize(c, exact=True)
    if corners:
        assert answer.exact == max(dot([Fraction(float(v)) for v in c], x) for x in corners)
    else:
        assert answer.status == "infeasible"
    for k in range(len(data.b)):
        if abs(int(data.sense[k])) == 1:
            sense = int(data.sense[k])
            assert polyhedron.essential(k) is grows_without(data, k)
            assert polyhedron.constraints.sense[k] == sense


def grows_without(data: Constraints, k: int) -> bool:
    sense = data.sense.copy()
    sense[k] = Sense.OFF
    relaxed = Constraints(data.A, data.b, sense, data.lower, data.upper)
    side = int(data.sense[k])
    row, bound = [Fraction(float(v)) for v in data.A[k]], Fraction(float(data.b[k]))
    return any(side * (dot(row, x) - bound) > 0 for x in vertices(relaxed))


# --- where the float solver errs -----------------------------------------------------------------------


def test_infeasible_by_less_than_the_solvers_tolerance() -> None:
    A = np.array([[1.0, 1.0], [-1.0, -1.0]])
    b = np.array([0.5, -0.5 - 1e-9])
    assert plain_highs(A, b, np.zeros(2))[0] == "Optimal"  # it calls this feasible
    polyhedron = Polyhedron(A, b, lower=-1.0, upper=1.0)
    verdict = polyhedron.feasible()
    assert verdict.answer is False
    assert check_infeasible(polyhedron.constraints, verdict.multipliers)
    assert polyhedron.interior().answer is False
    assert polyhedron.maximize([1.0, 0.0]).status == "infeasible"


@pytest.mark.parametrize("thickness", [1e-9, 1e-12, 2.0**-53])
def test_a_thin_interior_is_found(thickness: float) -> None:
    A = np.array([[0.6, 0.8], [-0.6, -0.8]])
    b = np.array([0.125 + thickness, -0.125])
    polyhedron = Polyhedron(A, b, lower=-1.0, upper=1.0)
    inner = polyhedron.interior()
    assert inner.answer is True
    assert check_point(
        polyhedron.constraints, inner.exact_point if inner.exact_point is not None else inner.point, strict=True
    )
    b[0] = 0.125
    flat = Polyhedron(A, b, lower=-1.0, upper=1.0)
    assert flat.interior().answer is False
    assert check_no_interior(flat.constraints, flat.interior().multipliers)
    assert flat.feasible().answer is True
    b[0] = np.nextafter(0.125, 0)
    empty = Polyhedron(A, b, lower=-1.0, upper=1.0)
    assert empty.feasible().answer is False


def test_tiny_coefficients_that_the_solver_drops() -> None:
    A, b = np.array([[1e-10, 0.0], [-1.0, 0.0]]), np.array([1e-12, -0.5])  # x <= 0.01 and x >= 0.5
    assert plain_highs(A, b, np.zeros(2))[0] == "Optimal"
    polyhedron = Polyhedron(A, b, lower=-1.0, upper=1.0)
    assert polyhedron.feasible().answer is False
    assert polyhedron.essential(0) is True


def test_a_maximum_that_the_solver_gets_wrong() -> None:
    """The solver takes coefficients below 1e-9 for zeros and the row for no constraint."""
    A, b, c = np.array([[1e-10, 1e-10]]), np.array([0.0]), np.array([1.0, 1.0])
    assert plain_highs(A, b, c) == ("Optimal", 2.0)
    polyhedron = Polyhedron(A, b, lower=-1.0, upper=1.0)
    assert polyhedron.maximize(c).upper < 1e-12
    assert polyhedron.maximize(c, exact=True).exact == 0


@pytest.mark.parametrize("scale", [2.0**-300, 1e-30, 1e30, 2.0**300])
def test_the_scale_of_rows_does_not_matter(scale: float) -> None:
    A, b = np.array([[1.0, 2.0], [-1.0, 1.0]]), np.array([0.5, 0.25])
    polyhedron = Polyhedron(np.array([[scale], [1.0]]) * A, np.array([scale, 1.0]) * b, lower=-1.0, upper=1.0)
    assert polyhedron.interior().answer is True
    answer = polyhedron.maximize([1.0, 1.0], exact=True)
    assert answer.exact == Fraction(answer.exact)
    assert float(answer.exact) == pytest.approx(0.75, rel=1e-12)  # x = 1, y = -1/4


def test_numbers_beyond_the_solver_are_still_decided() -> None:
    polyhedron = Polyhedron([[1.0], [-1.0]], [1e300, 1e299])
    assert polyhedron.maximize([1.0], exact=True).exact == Fraction(1e300)
    assert polyhedron.interior().answer is True


# --- shapes of answers ---------------------------------------------------------------------------------


def test_unbounded_programs_carry_a_ray() -> None:
    polyhedron = Polyhedron([[1.0, -1.0]], [1.0], lower=0.0)
    answer = polyhedron.maximize([1.0, 1.0])
    assert answer.status == "unbounded"
    assert answer.upper == np.inf
    assert answer.ray is not None
    assert check_ray(polyhedron.constraints, [1.0, 1.0], answer.ray)
    assert not check_ray(polyhedron.constraints, [-1.0, -1.0], answer.ray)
    assert not check_ray(polyhedron.constraints, [1.0, 1.0], (1, 0))
    assert polyhedron.maximize([1.0, -1.0], exact=True).exact == 1


def test_lines_inside_the_polyhedron() -> None:
    """A strip has no vertex at all."""
    strip = Polyhedron([[1.0, 1.0], [-1.0, -1.0]], [1.0, 0.0])
    assert strip.interior().answer is True
    assert strip.maximize([2.0, 2.0], exact=True).exact == 2
    assert strip.maximize([1.0, 0.0]).status == "unbounded"


def test_no_rows_and_crossed_bounds() -> None:
    box = Polyhedron(np.zeros((0, 2)), [], lower=[0.0, 1.0], upper=[1.0, 3.0])
    assert box.maximize([1.0, 1.0], exact=True).exact == 4
    assert Polyhedron(np.zeros((0, 1)), []).interior().answer is True
    crossed = Polyhedron(np.zeros((0, 1)), [], lower=1.0, upper=0.0)
    assert crossed.feasible().answer is False
    assert check_infeasible(crossed.constraints, crossed.feasible().multipliers)
    fixed = Polyhedron(np.zeros((0, 1)), [], lower=1.0, upper=1.0)
    assert (fixed.feasible().answer, fixed.interior().answer) == (True, False)
    assert check_no_interior(fixed.constraints, [])


@pytest.mark.parametrize(("bound", "answer"), [(1.0, True), (0.0, False), (-1.0, False)])
def test_zero_rows(bound: float, answer: bool) -> None:
    polyhedron = Polyhedron([[0.0]], [bound], lower=0.0, upper=1.0)
    assert polyhedron.interior().answer is answer
    assert polyhedron.feasible().answer is (bound >= 0)


def test_equations_give_a_relative_interior() -> None:
    segment = Polyhedron(np.zeros((0, 2)), [], equations=([[3.0, 1.0]], [1.0]), lower=0.0, upper=1.0)
    inner = segment.interior()
    assert inner.answer is True
    assert check_point(
        segment.constraints, inner.exact_point if inner.exact_point is not None else inner.point, strict=True
    )
    assert segment.maximize([1.0, 0.0], exact=True).exact == Fraction(1, 3)
    parallel = Polyhedron(np.zeros((0, 2)), [], equations=([[1.0, 1.0], [2.0, 2.0]], [1.0, 2.0 + 1e-15]))
    assert parallel.feasible().answer is False


def test_certificates_that_prove_nothing_are_refused() -> None:
    polyhedron = Polyhedron([[1.0], [-1.0]], [1.0, 0.0], equations=([[0.0]], [0.0]))
    data = polyhedron.constraints
    assert not check_infeasible(data, [1.0, 1.0, 0.0])
    assert dual_bound(data, [1.0], [1.0, 0.0, 0.0]) == 1
    assert dual_bound(data, [1.0], [0.5, 0.0, 0.0]) is None  # the rest would need a finite bound
    assert dual_bound(data, [1.0], [2.0, -1.0, 0.0]) is None  # a wrong sign
    assert not check_no_interior(data, [0.0, 0.0, 0.0])
    assert not check_no_interior(data, [0.0, 0.0, 5.0])  # equations alone do not forbid strictness
    assert not check_no_interior(data, [1.0, 1.0, 0.0])
    polyhedron.set_rows(0, Sense.OFF)
    assert dual_bound(polyhedron.constraints, [1.0], [1.0, 0.0, 0.0]) is None
    assert not check_point(data, [1.5])
    assert check_point(data, ExactPoint((1,), 3), strict=True)
    assert rational_point([0.25, 3.0]) == ExactPoint((1, 12), 4)


def test_input_is_checked() -> None:
    with pytest.raises(InputError, match="finite"):
        Polyhedron([[np.nan]], [0.0])
    with pytest.raises(InputError, match="as many rows"):
        Polyhedron([[1.0]], [0.0, 1.0])
    with pytest.raises(InputError, match="NaN"):
        Polyhedron([[1.0]], [0.0], lower=np.nan)
    with pytest.raises(InputError, match="variable"):
        Polyhedron(np.zeros((1, 0)), [0.0])
    with pytest.raises(InputError, match="shape"):
        Polyhedron([[1.0]], [0.0], equations=([[1.0, 2.0]], [0.0]))
    polyhedron = Polyhedron([[1.0]], [0.0], equations=([[1.0]], [0.0]))
    with pytest.raises(InputError, match="length"):
        polyhedron.maximize([1.0, 2.0])
    with pytest.raises(InputError, match="EQUAL"):
        polyhedron.essential(1)
    with pytest.raises(InputError, match="senses"):
        polyhedron.set_rows(0, 3)


# --- float bounds and the exact method by themselves -----------------------------------------------------


@given(st.integers(0, 2**32), st.booleans())
def test_safe_bounds_are_above_the_exact_bound_of_the_same_multipliers(seed: int, mixed: bool) -> None:
    rng = np.random.default_rng(seed)
    m, n = 6, 3
    A, b, c, y = (rng.standard_normal(s) * 2.0 ** rng.integers(-40, 40, s) for s in ((m, n), m, n, m))
    sense = rng.integers(-1, 3, m).astype(np.int8) if mixed else np.ones(m, np.int8)
    data = Constraints(A, b, sense, -np.ones(n), 2 * np.ones(n))
    proper = np.select([sense == 1, sense == -1, sense == 0], [np.maximum(y, 0), np.minimum(y, 0), y], 0.0)
    exact = dual_bound(data, c, proper)
    bound = safe_bound((A, b, sense), (data.lower, data.upper), c, y, 50 * 2.0**-53)
    assert exact is not None
    assert Fraction(float(bound)) >= exact
    assert float(bound) - float(exact) <= 1e-10 * max(
        np.abs(proper * b).sum(), np.abs(proper @ np.abs(A)).max(), np.abs(c).max(), 1
    )


def test_points_called_inside_are_inside() -> None:
    """Right sides next to the exact value at the point: a float comparison without error bound errs here."""
    rng = np.random.default_rng(8)
    n, claimed = 4, 0
    for _ in range(500):
        a, x = rng.standard_normal((1, n)), rng.standard_normal(n)
        value = float(sum(Fraction(float(v)) * Fraction(float(w)) for v, w in zip(a[0], x, strict=True)))
        b = np.array([value + rng.integers(-2, 3) * rng.choice([1e-16, 1e-15, 1e-13])])
        data = Constraints(a, b, np.ones(1, np.int8), np.full(n, -9.0), np.full(n, 9.0))
        if inside((a, b, data.sense), (data.lower, data.upper), x, gamma(2 * n + 24)):
            claimed += 1
            assert check_point(data, x, strict=True)
    assert claimed > 50


@settings(max_examples=150, deadline=None)
@given(programs(), st.lists(st.integers(0, 15), unique=True, max_size=4))
def test_exact_simplex_from_any_start(program: tuple[Polyhedron, np.ndarray], start: list[int]) -> None:
    polyhedron, c = program
    data = polyhedron.constraints
    rows, _, _ = data.oriented()
    outcome = exact_simplex(rows, c, [k for k in start if k < len(rows)])
    corners = vertices(data)
    assert outcome.multipliers is not None
    assert all(y >= 0 for y in outcome.multipliers.values())
    total = [
        sum((y * Fraction(float(rows[k, j])) for k, y in outcome.multipliers.items()), Fraction(0))
        for j in range(rows.shape[1])
    ]
    if corners:
        assert outcome.value == total[-1] == max(dot([Fraction(float(v)) for v in c], x) for x in corners)
        assert total[:-1] == [Fraction(float(v)) for v in c]
    else:
        assert outcome.status == "infeasible"
        assert not any(total[:-1])
        assert total[-1] < 0


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_safe_bound_survives_nonsense(value: float) -> None:
    rows = (np.ones((1, 1)), np.ones(1), np.zeros(1, np.int8))
    assert safe_bound(rows, (np.zeros(1), np.ones(1)), np.ones(1), np.array([value]), 1e-15) == np.inf


def test_directed_rounding() -> None:
    low, high = directed(Fraction(1, 3))
    assert Fraction(low) < Fraction(1, 3) < Fraction(high)
    assert high == np.nextafter(low, 1)
    assert directed(Fraction(1, 2)) == (0.5, 0.5)
    assert directed(Fraction(10) ** 400)[1] == np.inf
    assert directed(-(Fraction(10) ** 400))[0] == -np.inf


def test_exact_simplex_from_bad_starts_and_with_a_limit() -> None:
    """Every start gives the same optimum; the Klee-Minty cube has many pivots to offer."""
    n = 4
    rows = np.zeros((2 * n, n + 1))
    for i in range(n):
        rows[i, :i] = 2.0 ** np.arange(i + 1, 1, -1)
        rows[i, i], rows[i, n] = 1.0, 5.0 ** (i + 1)
        rows[n + i, i] = -1.0
    c = 2.0 ** np.arange(n - 1, -1, -1)
    for start in combinations(range(2 * n), n):
        outcome = exact_simplex(rows, c, start)
        assert outcome.status == "optimal"
        assert outcome.value == 5**n
    limited = exact_simplex(rows, c, range(n, 2 * n), max_pivots=1)
    assert limited.status == "undecided"


def test_generic_programs_need_no_exact_arithmetic() -> None:
    rng = np.random.default_rng(1)
    methods = []
    for _ in range(30):
        A = rng.standard_normal((30, 5))
        polyhedron = Polyhedron(A, rng.standard_normal(30) + 0.5, lower=-1.0, upper=1.0)
        methods += [polyhedron.interior().method, polyhedron.maximize(rng.standard_normal(5)).method]
    assert methods.count("exact") <= 1


def test_both_float_solvers_propose_the_same() -> None:
    rng = np.random.default_rng(5)
    for n in (1, 2, 6):
        polyhedron = Polyhedron(rng.standard_normal((20, n)), rng.random(20) + 0.1, lower=-1.0, upper=1.0)
        data = polyhedron.constraints
        small, warm = SmallModel(data, np.ones(20)), DualModel(data, np.ones(20))
        for c in (None, rng.standard_normal(n), np.zeros(n)):
            one, other = small.solve(c), warm.solve(c, data.sense)
            assert one is not None
            assert (one.optimal, other.optimal) == (True, True)
            for proposal in (one, other):
                point = proposal.x if c is None else c @ proposal.x
                expected = other.x if c is None else c @ other.x
                assert point == pytest.approx(expected, abs=1e-7)
            if c is not None and c.any():
                assert set(one.tight()) == set(other.tight())


def test_large_programs_and_equations_go_to_the_general_solver() -> None:
    rng = np.random.default_rng(6)
    A, b = rng.standard_normal((700, 30)), np.abs(rng.standard_normal(700)) + 0.5
    polyhedron = Polyhedron(A, b, lower=-1.0, upper=1.0)
    c = rng.standard_normal(30)
    answer = polyhedron.maximize(c)
    assert (answer.status, answer.method) == ("optimal", "float")
    bound = dual_bound(polyhedron.constraints, c, answer.multipliers)
    assert bound is not None
    assert Fraction(answer.lower) <= bound <= Fraction(answer.upper)
    assert polyhedron._warm is not None
    polyhedron.set_rows([0, 1], [Sense.OFF, Sense.AT_LEAST], [0.0, 0.1])
    assert polyhedron.constraints.sense[:2].tolist() == [Sense.OFF, Sense.AT_LEAST]
    assert polyhedron.interior().answer is True
    assert A[1] @ polyhedron.interior().point > 0.1


def test_unbounded_domains() -> None:
    """Without bounds of the variables nothing absorbs rounding: the verdicts are proven all the same."""
    rng = np.random.default_rng(7)
    A, b = rng.standard_normal((20, 3)), rng.standard_normal(20)
    polyhedron = Polyhedron(A, b)
    answers = []
    for _ in range(20):
        senses = np.where(A @ rng.standard_normal(3) < b, 1, -1)
        senses[rng.integers(20)] *= -1
        polyhedron.set_rows(np.arange(20), senses)
        verdict = polyhedron.interior()
        answers.append(verdict.answer)
        if verdict.answer:
            assert check_point(polyhedron.constraints, verdict.point, strict=True)
        else:
            assert check_infeasible(polyhedron.constraints, verdict.multipliers)
    assert {True, False} == set(answers)


def test_results_become_plain_dictionaries() -> None:
    polyhedron = Polyhedron([[3.0]], [1.0], lower=0.0)
    answer = polyhedron.maximize([1.0], exact=True)
    assert answer.to_dict()["exact"] == "1/3"
    assert "optimal" in repr(answer)
    assert polyhedron.interior().to_dict()["answer"] is True
