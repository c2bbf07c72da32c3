"""Subsets of exact vectors that add up to zero, against all subsets."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fiberscope.fibers.one_layer import cancelling
from fiberscope.fibers.one_layer.cancelling import cancelling_subset
from fiberscope.numerics.exact_arrays import fractions


def by_hand(vectors):
    """Whether any of all subsets adds up to zero."""
    n = len(vectors)
    subsets = itertools.chain.from_iterable(itertools.combinations(range(n), k) for k in range(1, n + 1))
    return any(not any(sum(vectors[list(T)])) for T in subsets)


def table(rows):
    return np.array([[Fraction(v) for v in row] for row in rows], dtype=object)


numbers = st.one_of(
    st.integers(-4, 4),
    st.sampled_from(
        [Fraction(1, 3), Fraction(-1, 3), Fraction(0.1), -Fraction(0.1), Fraction(0.1) + Fraction(2) ** -60]
    ),
    st.sampled_from([2**61 - 1, 1 - 2**61, 2**31 - 1, 2**70, -(2**70), Fraction(5e-324), Fraction(1.7e308)]),
)


@st.composite
def tables(draw):
    k = draw(st.integers(1, 3))
    return table(draw(st.lists(st.lists(numbers, min_size=k, max_size=k), min_size=1, max_size=8)))


@given(tables())
@example(table([[1], [2], [-3]]))
@example(table([[2**61 - 1], [1]]))  # a multiple of the prime of the elimination
@settings(max_examples=200, deadline=None)
def test_agrees_with_all_subsets(vectors):
    found = cancelling_subset(vectors)
    if found.subset is not None:
        assert found.decided and found.subset and not any(sum(vectors[list(found.subset)]))
    if found.decided:
        assert (found.subset is not None) == by_hand(vectors)


@pytest.mark.parametrize("method", ["_marked", "_halves", "_in_lattice"])
@given(tables())
@example(table([[0, 2**61 - 1], [1, 0]]))  # the prime takes all coordinates of a vector away
@settings(max_examples=60, deadline=None)
def test_every_method_alone(method, vectors):
    if not all(any(row) for row in vectors):
        return
    whole = [cancelling._whole(column)[0] for column in vectors.T]
    coordinates, relations = cancelling._eliminated(whole)
    columns = [whole[k] for k in coordinates]
    if not len(relations) or not columns:
        return
    digits = cancelling._digits(columns)
    if method == "_in_lattice":
        found = cancelling._in_lattice(columns)
    elif method == "_halves":
        found = cancelling._halves(digits, list(range(len(digits))))
    else:
        least = min(sum(v for v in digits if v > 0), -sum(v for v in digits if v < 0))
        if least > cancelling.BITS:
            return
        found = cancelling._marked(digits, least)
    chosen = fractions(np.array(columns, dtype=object).T)  # what the method was given
    if found.subset is not None:
        assert not any(sum(chosen[list(found.subset)]))
    if found.decided:
        assert (found.subset is not None) == by_hand(chosen)


def test_quantised_weights_are_decided():
    for seed in range(20):
        rng = np.random.default_rng(seed)
        values = fractions((rng.integers(1, 128, (64, 1)) * rng.integers(-127, 128, (64, 1))).astype(float))
        found = cancelling_subset(values)
        assert found.subset is not None and not any(sum(values[list(found.subset)]))
    heavy = table([[3**k] for k in range(12)] + [[-(3**k) - 1] for k in range(12, 13)])
    assert cancelling_subset(heavy).decided


def test_random_floats_up_to_forty_are_decided_and_more_in_several_coordinates():
    rng = np.random.default_rng(0)
    for shape in ((30, 1), (50, 4)):
        values = fractions(rng.normal(size=shape))
        assert cancelling_subset(values) == cancelling.NONE
        planted = values.copy()
        planted[-1] = -sum(values[3:9])
        found = cancelling_subset(planted)
        assert found.subset == (3, 4, 5, 6, 7, 8, len(values) - 1)
    assert not cancelling_subset(fractions(rng.normal(size=(64, 1)))).decided
