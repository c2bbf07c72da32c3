"""The rung of output ranges: a bound that holds at every input, for any two programs."""

from __future__ import annotations

import time
from fractions import Fraction

import numpy as np
import pytest
from evidence_laws import check_evidence
from hypothesis import given, settings
from hypothesis import strategies as st

import fiberscope as fs
from fiberscope.equality.question import Question
from fiberscope.equality.rungs.output_ranges import OutputRanges, by_output_ranges
from fiberscope.network.network import Network
from fiberscope.testing import case, fraction_values
from fiberscope.testing.hostile import hostile_chains


def test_a_generous_tolerance_is_decided_for_any_two_programs(tmp_path):
    """Another architecture in 64 dimensions, where no other method can say anything."""
    a, b = Network.random((64, 30, 30, 2), 0), Network.random((64, 25, 2), 1)
    box = fs.Box.cube(64)
    start = time.monotonic()
    found = fs.equivalent(a, b, box, tolerance=1e4)
    assert found.equal is True and found.method == "output ranges" and found.bound <= 1e4
    assert time.monotonic() - start < 5
    check_evidence(found.evidence, Question.of(a, b, box, 1e4))
    found.save(tmp_path / "proof.json")
    assert fs.verify(tmp_path / "proof.json", a, b).ok


@pytest.mark.parametrize("name", ["convolutional", "residual"])
def test_convolutions_and_residuals_too(name):
    a = case(name)
    other = Network.random((a.in_size, 4, a.out_size), 0)
    assert by_output_ranges(Question.of(a, other, fs.Box.cube(a.in_size), 1e6)).equal is True


@pytest.mark.parametrize(("domain", "tolerance"), [(None, 1.0), (fs.Box.cube(2), None), (fs.Box.cube(2), 0.0)])
def test_other_kinds_of_equality_are_not_proven(domain, tolerance):
    net = Network([[[0.0, 0.0]]], [[0.0]])
    assert by_output_ranges(Question.of(net, net, domain, tolerance)) is None
    assert not OutputRanges().check(Question.of(net, net, domain, tolerance)).ok


def test_the_bound_is_met_and_not_passed():
    one, minus = Network([[[1.0]]], [[0.0]]), Network([[[-1.0]]], [[0.0]])
    box = fs.Box([0.0], [1.0])
    assert by_output_ranges(Question.of(one, minus, box, 1.9)) is None
    assert by_output_ranges(Question.of(one, minus, box, 2.1)).bound == pytest.approx(2.0)


@settings(max_examples=60, deadline=None)
@given(hostile_chains(), hostile_chains(), st.integers(0, 10**6), st.integers(-20, 200))
def test_no_input_differs_by_more(a, b, seed, exponent):
    if (a.in_size, a.out_size) != (b.in_size, b.out_size):
        b = Network([w * 0.5 for w in a.weights], a.biases)
    box, tolerance = fs.Box.cube(a.in_size), 2.0**exponent
    found = by_output_ranges(Question.of(a, b, box, tolerance))
    if found is None:
        return
    assert found.bound <= tolerance
    for x in np.random.default_rng(seed).uniform(-1, 1, (3, a.in_size)):
        gaps = zip(fraction_values(a, x)[-1], fraction_values(b, x)[-1], strict=True)
        assert all(abs(p - q) <= Fraction(found.bound) for p, q in gaps)
