"""Proportional rows against pairwise rational arithmetic."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fiberscope.numerics.exact_arrays import fractions, scaled, settled, signs, total
from fiberscope.numerics.rows import multiples as exact_multiples
from fiberscope.numerics.rows import proportional_rows


def multiples(a, b) -> bool:
    a, b = [Fraction(float(x)) for x in a], [Fraction(float(x)) for x in b]
    return any(a) and any(b) and all(p * s == q * r for (p, r), (q, s) in combinations(list(zip(a, b, strict=True)), 2))


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 6), st.integers(2, 4))
def test_groups_equal_pairwise_comparison(seed, rows, columns):
    rng = np.random.default_rng(seed)
    base = rng.integers(-1, 2, (rows, columns)) * rng.choice([1.0, 0.1, 1 / 3, 1e-310, 1e200], (rows, 1))
    matrix = np.concatenate([base, base[rng.integers(0, rows, 2)] * rng.choice([2.0, -0.5, 3.0], (2, 1))])
    found = proportional_rows(matrix)
    pairs = {(a, b) for group in found for a, b in combinations(group, 2)}
    expected = {(a, b) for a, b in combinations(range(len(matrix)), 2) if multiples(matrix[a], matrix[b])}
    assert pairs == expected


def test_one_ulp_apart_is_not_proportional():
    row = np.array([[0.1, 0.7, 0.3]])
    matrix = np.concatenate([row, row, np.nextafter(row, 1)])
    assert proportional_rows(matrix) == [[0, 1]]


def test_nothing_to_compare():
    assert proportional_rows(np.zeros((3, 2))) == []
    assert proportional_rows(np.zeros((0, 2))) == []


HOSTILE = [1.0, -1.0, 0.0, 0.1, 1 / 3, 2.0**52 + 1, 2.0**53 - 1, 5e-324, 3e-323, 1e-310, 1.7e308, 2.0**-1022, 6.1, 7.0]


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_factors_are_exact(data):
    """Products of 106 bits, twins one unit apart, subnormal and huge numbers: groups and factors as in fractions."""
    number = st.sampled_from(HOSTILE) | st.floats(allow_nan=False, allow_infinity=False)
    base = data.draw(st.lists(st.lists(number, min_size=3, max_size=3), min_size=1, max_size=4))
    rows = [np.array(row) for row in base]
    for _ in range(3):
        row = data.draw(st.sampled_from(rows))
        with np.errstate(all="ignore"):
            twin = row * data.draw(st.sampled_from([1.0, -1.0, 2.0, 3.0, 1 / 3, 2.0**-30, 2.0**40, 0.1]))
        if data.draw(st.booleans()):
            twin[data.draw(st.integers(0, 2))] = np.nextafter(twin[0], 1)
        if np.isfinite(twin).all():
            rows.append(twin)
    matrix = np.array(rows)
    expected = []
    left = [i for i, row in enumerate(matrix) if row.any()]
    while left:
        same = [i for i in left if multiples(matrix[left[0]], matrix[i])]
        place = int(np.flatnonzero(matrix[left[0]])[0])
        unit = Fraction(float(matrix[left[0], place]))
        group = [(i, Fraction(float(matrix[i, place])) / unit) for i in same]
        expected += [group] if len(group) > 1 else []
        left = [i for i in left if i not in same]
    assert exact_multiples(matrix) == sorted(expected)
    assert exact_multiples(fractions(matrix)) == sorted(expected)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_short_cuts_of_exact_arrays(data):
    """A sum or multiple stays in floats only where it is one; its numbers are those of fractions."""
    number = st.sampled_from(HOSTILE) | st.floats(allow_nan=False, allow_infinity=False)
    a, b = (np.array(data.draw(st.lists(number, min_size=3, max_size=3))) for _ in range(2))
    factor = data.draw(
        st.sampled_from([Fraction(1, 3), Fraction(-2), Fraction(3, 8), Fraction(2) ** 1500]) | st.fractions()
    )
    for found, wanted in [(total(a, b), fractions(a) + fractions(b)), (scaled(a, factor), fractions(a) * factor)]:
        assert fractions(found).tolist() == wanted.tolist()
        assert found.dtype == settled(wanted).dtype
        assert signs(found).tolist() == [(v > 0) - (v < 0) for v in wanted]


@settings(max_examples=60)
@given(st.integers(0, 10**6), st.sampled_from([4, 1 << 20]))
def test_many_groups_at_once_are_those_of_fractions(seed: int, at_once: int) -> None:
    """Multiples by anything, twins that are one rounding off, zeros and subnormals, in groups of all sizes."""
    rng = np.random.default_rng(seed)
    bases = rng.integers(-3, 4, (4, 3)) * np.array([1.0, 0.1, 2.0**-1070])[rng.integers(0, 3, (4, 3))]
    table = np.array([bases[rng.integers(4)] * rng.choice([1.0, -2.0, 3.0, 0.1, 2.0**-3]) for _ in range(12)])
    spoilt = rng.integers(12, size=3)
    table[spoilt, 0] = np.nextafter(table[spoilt, 0], np.inf)
    exact = [[Fraction(x) for x in row] for row in table.tolist()]
    wanted, left = [], [i for i, row in enumerate(exact) if any(row)]
    while left:
        first, *others = left
        k = next(k for k, x in enumerate(exact[first]) if x)
        group = [(first, Fraction(1))]
        for i in others:
            factor = exact[i][k] / exact[first][k]
            if factor and all(y == factor * x for x, y in zip(exact[first], exact[i], strict=True)):
                group.append((i, factor))
        left = [i for i in others if i not in dict(group)]
        wanted += [group] if len(group) > 1 else []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fiberscope.numerics.rows._AT_ONCE", at_once)
        assert exact_multiples(table) == sorted(wanted)
