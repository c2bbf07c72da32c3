"""Each output within a tolerance of its own, and the sum of all differences."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fiberscope as fs
from fiberscope.equality.counterexample import exact_outputs
from fiberscope.equality.measures import equivalent_by, measure_of

BOX = fs.Box.cube(2)


def pair(seed, outputs=3, size=1e-2):
    net = fs.Network.random((2, 6, outputs), seed=seed)
    rng = np.random.default_rng(seed)
    return net, fs.Network([w + size * rng.normal(size=w.shape) for w in net.weights], net.biases)


def corners(a, b):
    """Exact differences of the outputs at all vertices of both together: the largest of a convex measure is there."""
    joined = fs.Network(
        [np.vstack([a.weights[0], b.weights[0]]), np.eye(1, 12)], [np.hstack([a.biases[0], b.biases[0]]), [0.0]]
    )
    points = fs.regions(joined, BOX).vertices
    return np.array([np.abs(a(x[None])[0] - b(x[None])[0]) for x in points])


@pytest.mark.parametrize("seed", range(6))
def test_verdicts_are_those_of_all_corners(seed):
    """A norm of an affine function is convex, so on every cell it is largest at a corner."""
    a, b = pair(seed)
    gaps = corners(a, b)
    each, total = gaps.max(axis=0), gaps.sum(axis=1).max()
    for factor, answer in ((1.001, True), (0.999, False)):
        found = fs.equivalent(a, b, BOX, [factor * each[0], 2 * each[1], 2 * each[2]])
        assert found.equal is answer
        summed = fs.equivalent(a, b, BOX, factor * total, norm="sum")
        assert summed.equal is answer
        assert summed.interval.low <= total * (1 + 1e-12) and total <= summed.interval.high * (1 + 1e-12)
        inside = (each / found.tolerances).max()
        assert found.interval.low <= inside * (1 + 1e-12) and inside <= found.interval.high * (1 + 1e-12)
        assert found.bound is None or found.bound <= 1
        for verdict in (found, summed):
            if not answer:
                example = verdict.counterexample
                differences = [
                    abs(p - q) for p, q in zip(exact_outputs(a, example.x), exact_outputs(b, example.x), strict=True)
                ]
                measured = differences[0] if verdict is found else sum(differences)
                allowed = Fraction(factor * each[0] if verdict is found else factor * total)
                assert measured > allowed and example.a.shape == (3,)
                assert example.difference == pytest.approx(float(measured), rel=1e-15)


def test_an_output_may_be_anything():
    a = fs.Network([[[1.0, 0.0], [0.0, 1.0]]], [[0.0, 0.0]])
    b = fs.Network([[[1.0, 0.0], [5.0, 1.0]]], [[0.0, 0.0]])
    assert fs.equivalent(a, b, BOX, [1e-9, np.inf]).equal is True
    assert fs.equivalent(a, b, BOX, [np.inf, 1.0]).equal is False
    assert fs.equivalent(a, b, BOX, [np.inf, 5.0 + 2**-40]).equal is True


@settings(max_examples=40)
@given(st.floats(min_value=1e-300, max_value=1e300))
def test_units_are_rounded_up(tolerance):
    measure = measure_of([tolerance], "max", 1)
    unit = Fraction(float(measure.rows[0, 0]))
    assert unit * Fraction(tolerance) >= 1
    assert unit * Fraction(tolerance) < 1 + Fraction(1, 2**50) or unit < Fraction(1, 2**1020)


def test_what_one_rounding_of_a_unit_explains_is_not_different():
    """1/3 times what is allowed is a float above a third: a difference of exactly what is allowed is no difference."""
    for e in (0.1, 0.3, 3.0, 0.7):
        a, b = fs.Network([[[0.0]]], [[0.0]]), fs.Network([[[0.0]]], [[e]])
        assert fs.equivalent(a, b, fs.Box.cube(1), [e]).equal is not False
        assert fs.equivalent(a, b, fs.Box.cube(1), [np.nextafter(e, 0.0)]).equal is not True


def test_different_without_a_point_is_not_told_of_rounded_units():
    a, b = pair(2)
    measure = measure_of([0.1, 0.2, 0.3], "max", 3)

    def ask(*_, **__):
        return fs.Verdict(False, "a method without a point", BOX, 1.0)

    assert equivalent_by(measure, a, b, BOX, ask).equal is None


def test_certificates_are_about_what_was_compared(tmp_path):
    a, b = pair(3)
    for verdict in (
        fs.equivalent(a, b, BOX, [1.0, 1.0, 1.0]),
        fs.equivalent(a, b, BOX, [1e-4, 1.0, 1.0]),
        fs.equivalent(a, b, BOX, 2.0, norm="sum"),
    ):
        path = tmp_path / "proof.json"
        verdict.save(path)
        replay = fs.verify(path)
        assert replay.ok and replay.equal is verdict.equal and replay.models[0].file is None
        assert not fs.verify(path, a, b).models[0].compared


@pytest.mark.parametrize(
    ("tolerance", "options", "words"),
    [
        ([0.1, 0.2], {}, "tolerance: expected one number, or 3 numbers above 0"),
        ([0.1, 0.0, 0.2], {}, "3 numbers above 0"),
        ([0.1, np.nan, 0.2], {}, "3 numbers above 0"),
        ([np.inf] * 3, {}, "3 numbers above 0"),
        (["a", "b", "c"], {}, "3 numbers above 0"),
        ([5e-324, 1.0, 1.0], {}, "a finite 1 / e"),
        (None, {"norm": "sum"}, "one number above 0 with norm='sum'"),
        (0.0, {"norm": "sum"}, "one number above 0 with norm='sum'"),
        ([0.1, 0.1, 0.1], {"norm": "sum"}, "one number above 0 with norm='sum'"),
        (0.1, {"norm": "l2"}, "norm: expected one of max, sum, got 'l2'"),
        (None, {"norm": "sum", "criterion": "argmax"}, "norm: expected 'max'"),
    ],
)
def test_what_cannot_be_asked(tolerance, options, words):
    a, b = pair(0)
    with pytest.raises(fs.InputError, match=words.replace("(", r"\(")):
        fs.equivalent(a, b, BOX, tolerance, **options)


def test_many_outputs_have_too_many_signs():
    a, b = pair(0, outputs=11)
    with pytest.raises(fs.InputError, match="at most 10 outputs, got 11"):
        fs.equivalent(a, b, BOX, 1.0, norm="sum")


def test_an_audit_and_balls_ask_the_same():
    a, b = pair(1)
    found = fs.audit(a, b, BOX, [1.0, 1.0, 1.0], data=np.eye(2))
    assert found.equal is True and found.verdict.kind == "within 1, 1, 1 output by output"
    assert found.verdict.reason.startswith("in units of the tolerances, ")
    around = fs.equivalent_around(a, b, np.zeros((2, 2)), 0.1, 1.0, norm="sum")
    assert around.equal is True
