"""Negative controls: equality with zero is unsatisfiability, and no verdict contradicts brute force."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fiberscope as fs
from fiberscope.equality.ladder import equivalent
from fiberscope.equality.rungs.bottleneck import is_bottleneck
from fiberscope.errors import InputError
from fiberscope.fibers.hardness import random_clauses, satisfiability_network
from fiberscope.fibers.identifiability import identifiability
from fiberscope.testing import fraction_values


@given(st.integers(0, 10**6), st.integers(1, 4))
@settings(max_examples=40, deadline=None)
def test_the_gap_of_the_construction(seed, variables):
    rng = np.random.default_rng(seed)
    found = satisfiability_network(random_clauses(variables, int(rng.integers(0, 9)), rng), variables)
    solutions = set(found.solutions())
    for x in itertools.product((0.0, 1.0), repeat=variables):
        value = fraction_values(found.network, np.array(x))[-1][0]
        assert value == (0.5 if tuple(v == 1 for v in x) in solutions else 0)
    if not solutions:
        X = np.concatenate([rng.uniform(-1, 2, (2000, variables)), rng.integers(-2, 5, (500, variables)) / 2])
        assert (found.network(X) == 0).all()
        # the gap: the neuron behind is at most -1/2, so small changes of the weights change nothing
        assert found.network.preactivations(X)[1].max() <= -0.5


UNSOLVABLE = {
    1: [(1,), (-1,)],
    2: [(1, 2), (-1, 2), (1, -2), (-1, -2)],
    3: [tuple(s * k for s, k in zip(signs, (1, 2, 3), strict=True)) for signs in itertools.product((1, -1), repeat=3)],
}


@pytest.mark.parametrize("variables", [1, 2])
def test_small_instances_are_decided(variables):
    hard = satisfiability_network(UNSOLVABLE[variables], variables)
    assert hard.solutions() == []
    assert equivalent(hard.network, hard.zero, tolerance=0).exact
    easier = satisfiability_network(UNSOLVABLE[variables][1:], variables)
    found = equivalent(easier.network, easier.zero, tolerance=0)
    assert found.equal is False
    assert 0 < found.counterexample.difference <= 0.5


@pytest.mark.parametrize("tolerance", [None, 0.0])
@pytest.mark.parametrize("seed", range(6))
def test_no_verdict_contradicts_brute_force(seed, tolerance):
    rng = np.random.default_rng(seed)
    variables = int(rng.integers(2, 6))
    found = satisfiability_network(random_clauses(variables, round(4.3 * variables), rng), variables)
    verdict = equivalent(found.network, found.zero, tolerance=tolerance, time_limit=1)
    assert verdict.equal in (None, not found.solutions()), verdict
    if verdict.equal is None:
        assert verdict.reason


def test_eight_clauses_of_three_variables_in_one_box():
    hard = satisfiability_network(UNSOLVABLE[3], 3)
    verdict = equivalent(hard.network, hard.zero, fs.Box.cube(3, -1, 2), tolerance=0, time_limit=3)
    assert hard.solutions() == [] and verdict.equal is not False


def test_inside_the_widths_of_a_bottleneck_nothing_generic_is_claimed():
    hard = satisfiability_network(UNSOLVABLE[2], 2, inputs=12)
    net = hard.network
    assert net.widths == (12, 12, 1, 1) and not is_bottleneck(net)
    found = identifiability(net)
    assert found.identifiable is None and "full rank" in found.reasons[0]
    verdict = equivalent(net, hard.zero, tolerance=0, time_limit=2)
    assert verdict.equal is not False
    soluble = satisfiability_network(UNSOLVABLE[2][1:], 2, inputs=11)
    assert equivalent(soluble.network, soluble.zero, tolerance=0, time_limit=2).equal is not True


def test_bad_formulas_are_named():
    for clauses, variables in (([[0]], 1), ([[2]], 1), ([[]], 1), ([[1]], 0), ([[1, -1]], 1)):
        with pytest.raises(InputError, match="clauses"):
            satisfiability_network(clauses, variables)
    with pytest.raises(InputError, match="inputs"):
        satisfiability_network([[1, 2]], 2, inputs=1)
