"""Inputs at which two networks differ: random ones, improved along gradients, and confirmed in exact arithmetic."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

from fiberscope.geometry.domains import Box, Orthant, Polytope, Space
from fiberscope.network.network import Network
from fiberscope.network.nodes import Add, Affine
from fiberscope.network.run import affine_values, output
from fiberscope.numerics.arithmetic import EXACT, BallArithmetic, BoundedArithmetic
from fiberscope.numerics.floats import FloatArray, SignArray
from fiberscope.numerics.ulps import DOUBLE, FEW, Rounding
from fiberscope.symmetry.equivalence.question import Question
from fiberscope.symmetry.equivalence.rounding import deviation, exact_deviation
from fiberscope.symmetry.equivalence.verdict import Counterexample, Verdict, rounded
from fiberscope.symmetry.sampling import inside, sample

_POINTS = 256
"""Random inputs of a first look."""

_CONFIRM = 4
"""How many of the best are evaluated exactly."""

_COVER = 48
"""Exact evaluations in search of a difference that floats do not show."""

_CHUNK = 1024
"""Points that are evaluated between two looks at the clock."""

_EXACT = 30_000_000
"""Products up to which a network is evaluated exactly, which takes about a second per million."""

_STEPS = (0.5, 0.25, 0.1, 0.05, 0.02, 0.01, 0.003, 0.001)
"""Lengths of the steps along gradients, relative to the domain."""


def exact_outputs(net: Network, x: FloatArray) -> list[Fraction]:
    """The outputs at one point as fractions; the floats are taken as exact numbers."""
    arithmetic = BallArithmetic(EXACT)
    with arithmetic.working():
        values = output(net.nodes, arithmetic.exact_input(x.reshape(1, -1)), arithmetic, net.layout.last_use)[0]
        return [_fraction(v) for v in values]


def _fraction(ball: Any) -> Fraction:
    if not ball.is_exact():  # pragma: no cover - would need numbers of 2^24 bits
        raise ArithmeticError(f"exact evaluation needs more than {EXACT} bits")
    mantissa, exponent = ball.man_exp()
    return Fraction(int(mantissa)) * Fraction(2) ** int(exponent)


def rounding_error(net: Network, x: FloatArray) -> FloatArray:
    """A bound of the rounding error of evaluating the network at a point in float64."""
    arithmetic = BoundedArithmetic()
    with np.errstate(over="ignore", invalid="ignore"):
        value = output(net.nodes, arithmetic.exact_input(x.reshape(1, -1)), arithmetic, net.layout.last_use)
    return np.asarray(value.error[0])


def confirmed(
    a: Network, b: Network, x: FloatArray, tolerance: float | None, rounding: Rounding = DOUBLE
) -> Counterexample | None:
    """The counterexample at ``x``, if the exact difference there is more than the kind of equality allows.

    Up to rounding, that is what moving every parameter of both by twice a few units of rounding can explain, and what
    evaluating both in float64 may have lost.
    """
    if not np.isfinite(x).all():
        return None
    allowed = _allowance(a, b, x, rounding) if tolerance is None else [Fraction(tolerance)] * a.out_size
    left, right = exact_outputs(a, x), exact_outputs(b, x)
    gaps = [abs(p - q) for p, q in zip(left, right, strict=True)]
    over = [gap - e for gap, e in zip(gaps, allowed, strict=True)]
    worst = max(range(len(gaps)), key=lambda k: over[k])
    if not over[worst] > 0:
        return None
    gap, most = rounded([gaps[worst], allowed[worst]])
    return Counterexample(x.copy(), rounded(left), rounded(right), float(gap), float(most))


def _allowance(a: Network, b: Network, x: FloatArray, rounding: Rounding) -> list[Fraction]:
    """What rounding can explain at a point, for every output; exact numbers where floats do not reach."""
    errors = 2 * FEW * (rounding_error(a, x) + rounding_error(b, x))
    errors = errors + deviation(a, x, rounding, 2) + deviation(b, x, rounding, 2)
    if np.isfinite(errors).all():
        return [Fraction(float(e)) for e in errors]
    with BallArithmetic(EXACT).working():
        # a sum of n products in float64 loses at most n units of rounding of its parts
        parts = [
            exact_deviation(net, x, kind, times)
            for net in (a, b)
            for kind, times in ((rounding, 2), (DOUBLE, 2 * longest_sum(net)))
        ]
        return [_fraction(sum(column[1:], start=column[0])) for column in zip(*parts, strict=True)]


def _products(net: Network) -> int:
    """Products of one evaluation, but for zeros that are not stored."""
    stages = [stage for node in net.nodes if isinstance(node, Affine) for stage in node.operator.stages()]
    return sum(stage.out_size * stage.fan_in for stage in stages)


def longest_sum(net: Network) -> int:
    """The most terms of a sum in the program."""
    terms = [len(node.sources) for node in net.nodes if isinstance(node, Add)]
    stages = [stage for node in net.nodes if isinstance(node, Affine) for stage in node.operator.stages()]
    return max([*terms, *(stage.fan_in for stage in stages)], default=1)


def by_samples(question: Question) -> Verdict | None:
    """The rung: random inputs, the most promising confirmed exactly."""
    points = sample(question.place, _POINTS, question.rng)
    return _refuted(question, points, "random inputs")


def by_coverage(question: Question) -> Verdict | None:
    """The rung for ``tolerance=0``: exact evaluation at inputs that together switch on every neuron that can be.

    A last bit of a weight does not show in floats, but shows exactly wherever its neuron is read.
    """
    if question.tolerance != 0:
        return None
    points = sample(question.place, 4 * _POINTS, question.rng)
    order = covering(question, points)
    rest = [i for i in range(len(points) - 1, -1, -1) if i not in set(order)]
    for i in (order + rest)[:_COVER]:
        if question.seconds_left < 0:
            return None
        example = confirmed(question.a, question.b, points[i], 0.0)
        if example is not None and inside(question.place, points[i : i + 1])[0]:
            return Verdict(
                False, "refutation (covering inputs)", question.domain, 0.0, counterexample=example,
                reason="the outputs at x differ in exact arithmetic",
            )  # fmt: skip
    return None


def covering(question: Question, points: FloatArray) -> list[int]:
    """A few of the points that together switch on every neuron of both networks that any of them does."""
    active = np.concatenate([z > 0 for net in (question.a, question.b) for z in net.preactivations(points)], axis=1)
    order: list[int] = []
    missing = active.any(axis=0)
    while missing.any() and len(order) < _COVER:
        best = int((active & missing).sum(axis=1).argmax())
        order.append(best)
        missing &= ~active[best]
    return order


def by_gradients(question: Question) -> Verdict | None:
    """The rung: from the best random inputs along the gradient of the difference, which is linear around each."""
    points = sample(question.place, 4 * _POINTS, question.rng)
    gaps = difference(question, points)
    best = points[_promising(gaps, _CONFIRM)[:_CONFIRM]]
    improved = [climb(question, x) for x in best if question.seconds_left > 0]
    return _refuted(question, np.array(improved), "inputs improved along gradients") if improved else None


def difference(question: Question, points: FloatArray) -> FloatArray:
    """Largest difference of an output, in floats; infinite where floats do not tell it."""
    if not len(points):
        return np.zeros(0)
    found = []
    with np.errstate(over="ignore", invalid="ignore"):
        for part in np.array_split(points, -(-len(points) // _CHUNK)):
            found.append(np.abs(question.a(part) - question.b(part)).max(axis=1))
            question.run.check()
    gaps = np.concatenate(found)
    return np.where(np.isfinite(gaps), gaps, np.inf)


def _refuted(question: Question, points: FloatArray, method: str) -> Verdict | None:
    points = points[inside(question.place, points)]
    if not len(points):
        return None
    gaps = difference(question, points)
    if max(_products(question.a), _products(question.b)) > _EXACT:
        question.notes.append("too large to be evaluated in exact arithmetic")
        return None
    order = _promising(gaps, _CONFIRM)
    for i in order:
        hopeless = question.tolerance is not None and question.tolerance > 0 and gaps[i] < 0.99 * question.tolerance
        if hopeless or question.seconds_left < 0:
            break
        example = confirmed(question.a, question.b, points[i], question.tolerance, question.rounding)
        if example is not None:
            return Verdict(
                False, f"refutation ({method})", question.domain, question.tolerance, counterexample=example,
                reason="the outputs at x differ in exact arithmetic",
            )  # fmt: skip
    return None


def _promising(gaps: FloatArray, count: int) -> list[int]:
    """The largest finite differences first, then those that floats do not tell, as many of each."""
    known = np.isfinite(gaps)
    best = np.flatnonzero(known)[np.argsort(-gaps[known], kind="stable")][:count]
    return [*best.tolist(), *np.flatnonzero(~known)[:count].tolist()]


def climb(question: Question, x: FloatArray) -> FloatArray:
    """Steps along the gradient of the output that differs most, as long as the difference grows."""
    best, value = x, difference(question, x[None])[0]
    for step in _STEPS:
        if question.run.is_over:
            break
        with np.errstate(over="ignore", invalid="ignore"):
            gap = (question.a(best[None]) - question.b(best[None]))[0]
            k = int(np.abs(gap).argmax())
            slopes = _gradient(question.a, best, k) - _gradient(question.b, best, k)
        tried = _moved(question.place, best, slopes * (1.0 if gap[k] >= 0 else -1.0), step)
        values = difference(question, tried)
        if values.max() > value:
            best, value = tried[values.argmax()], float(values.max())
        if not np.isfinite(value):
            break
    return best


def _gradient(net: Network, x: FloatArray, k: int) -> FloatArray:
    parts = net.preactivations(x[None])
    signs: SignArray = np.sign(np.concatenate(parts, axis=1)[0]).astype(np.int8) if parts else np.zeros(0, np.int8)
    return affine_values(net.nodes, net.in_size, signs)[-1][:-1, k]


def _moved(place: Box | Orthant | Space | Polytope, x: FloatArray, gradient: FloatArray, step: float) -> FloatArray:
    """Points of the domain along a gradient; ``x`` itself where there is none, as with slopes beyond the floats."""
    size = float(np.abs(gradient).max())
    if size == 0:
        return x[None]
    with np.errstate(over="ignore", invalid="ignore"):
        if isinstance(place, Box):
            width = place.high - place.low
            tries = [x + step * width * np.sign(gradient), x + step * width * gradient / size]
            found = np.clip(np.array(tries), place.low, place.high)
        else:
            reach = max(1.0, float(np.abs(x).max()))
            found = np.array([x + step * reach * gradient / size, x + 4 * step * reach * gradient / size])
            found = np.maximum(found, 0.0) if isinstance(place, Orthant) else found
    kept = found[inside(place, found)]
    return kept if len(kept) else x[None]
