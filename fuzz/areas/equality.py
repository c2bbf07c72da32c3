"""Equality of two networks: pairs that are often one function, and verdicts about them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from random import Random
from typing import Any

import fiberscope as fs
from fuzz import bridge, draw
from fuzz.case import Area, Disagreement, Undecided, expect, float_of
from fuzz.oracle.cells import Domain, largest_difference
from fuzz.oracle.program import Program, at

from .points import sizes

SECONDS = 5.0
"""Time limit of one question."""


# -- pairs


def layers(program: Program) -> tuple[list[Any], list[Any]]:
    """Weights and biases of a chain, to be changed."""
    own = [node for node in program.nodes if node[0] == "affine"]
    return [[list(row) for row in node[2]] for node in own], [list(node[3]) for node in own]


def chain_of(weights: list[Any], biases: list[Any]) -> Program:
    """A ReLU chain."""
    nodes: list[Any] = []
    for k, (w, b) in enumerate(zip(weights, biases, strict=True)):
        if k:
            nodes.append(("relu", 2 * k - 1, (0.0,) * len(biases[k - 1])))
        nodes.append(("affine", 2 * k, tuple(map(tuple, w)), tuple(b)))
    return Program(len(weights[0][0]), tuple(nodes))


def acted(rng: Random, program: Program, reach: int) -> Program:
    """A permuted copy with rows rescaled by powers of two up to ``2 ** reach``; floats may over- or underflow."""
    weights, biases = layers(program)
    for k in range(len(weights) - 1):
        order = list(range(len(biases[k])))
        rng.shuffle(order)
        scales = [math.ldexp(1.0, rng.randint(-reach, reach)) for _ in order]
        weights[k] = [[s * x for x in weights[k][i]] for i, s in zip(order, scales, strict=True)]
        biases[k] = [s * biases[k][i] for i, s in zip(order, scales, strict=True)]
        weights[k + 1] = [[row[i] / s for i, s in zip(order, scales, strict=True)] for row in weights[k + 1]]
    return chain_of(weights, biases)


def changed(rng: Random, program: Program) -> Program:
    """A copy with one number changed, by one ulp or by more."""
    weights, biases = layers(program)
    k = rng.randrange(len(weights))
    row = rng.choice([*weights[k], biases[k]])
    i = rng.randrange(len(row))
    kind = rng.randrange(4)
    if kind == 0:
        row[i] = math.nextafter(row[i], rng.choice((-math.inf, math.inf)))
    elif kind == 1:
        row[i] += rng.choice((1e-9, -1e-6, 1e-3, 0.5))
    elif kind == 2:
        row[i] = -row[i]
    else:
        row[i] *= rng.choice((2.0, 1.0 + 2.0**-40, 0.0))
    return chain_of(weights, biases)


def grown(rng: Random, program: Program) -> Program:
    """A copy with one more hidden neuron: a dead, an idle, or one of a pair that shares its work."""
    weights, biases = layers(program)
    k = rng.randrange(len(weights) - 1)
    kind = rng.randrange(3)
    width = len(weights[k][0])
    if kind == 0 and k > 0:
        weights[k].append([-abs(float(rng.randint(0, 3))) for _ in range(width)])
        biases[k].append(-float(rng.randint(0, 2)))
        out = [float(rng.randint(-2, 2)) for _ in weights[k + 1]]
    elif kind == 1:
        weights[k].append([float(rng.randint(-2, 2)) for _ in range(width)])
        biases[k].append(float(rng.randint(-2, 2)))
        out = [0.0] * len(weights[k + 1])
    else:
        i = rng.randrange(len(biases[k]))
        weights[k].append([2 * x for x in weights[k][i]])
        biases[k].append(2 * biases[k][i])
        out = [row[i] / 4 for row in weights[k + 1]]
        for row in weights[k + 1]:
            row[i] /= 2
    for row, x in zip(weights[k + 1], out, strict=True):
        row.append(x)
    return chain_of(weights, biases)


def enlarged(rng: Random, program: Program) -> Program:
    """A copy whose products leave the range of floats, above or below."""
    weights, biases = layers(program)
    scale = rng.choice((1e160, 1e200, 1e-170, 1e-200))
    weights = [[[scale * x for x in row] for row in matrix] for matrix in weights]
    return chain_of(weights, biases if rng.random() < 0.5 else [[0.0] * len(b) for b in biases])


def numbers(program: Program) -> list[float]:
    """All numbers of the affine maps."""
    return [x for node in program.nodes if node[0] == "affine" for row in (*node[2], node[3]) for x in row]


def finite(program: Program) -> bool:
    """Whether all numbers are."""
    return all(map(math.isfinite, numbers(program)))


def pair(rng: Random, n: int) -> tuple[Program, Program]:
    """Two programs with the same numbers of inputs and outputs, often the same function."""
    extreme = rng.choice((0.0, 0.1, 0.1, 0.9))
    if rng.random() < 0.2:
        a = draw.program(rng, n, kinds="prt", width=3, extreme=extreme, outputs=1)
        b = draw.program(rng, n, kinds="cprt", width=3, extreme=extreme, outputs=1) if rng.random() < 0.5 else a
        return (a, b) if a.outputs == b.outputs else (a, a)
    widths = draw.widths(rng, n)
    a = draw.chain(rng, widths, extreme=extreme)
    if rng.random() < 0.06:
        a = enlarged(rng, a)
    b = a
    for _ in range(rng.choice((1, 1, 2))):
        kind = rng.randrange(5)
        if kind <= 1:
            b = acted(rng, b, rng.choice((1, 3, 3, 40, 600, 1000)))
        elif kind == 2:
            b = changed(rng, b)
        elif kind == 3:
            b = grown(rng, b)
        else:
            b = draw.chain(rng, widths, extreme=extreme) if rng.random() < 0.3 else b
    if rng.random() < 0.5:
        a, b = b, a
    return (a, b) if finite(a) and finite(b) else (b, b) if finite(b) else (a, a) if finite(a) else pair(rng, n)


# -- verdicts


def make_equality(rng: Random) -> tuple[Any, ...]:
    n = rng.choice((1, 1, 2, 2, 3))
    a, b = pair(rng, n)
    kind = rng.random()
    if kind < 0.5 or n == 3:
        domain = draw.box(rng, n)
    elif kind < 0.8:
        domain = ("space", n)
    elif kind < 0.9 or n == 1:
        domain = ("orthant", n)
    else:
        domain = draw.plane(rng, n)
    tolerance = rng.choice((None, 0.0, 0.0, 1e-3, 0.5, 1e-12, 2.0))
    return a, b, domain, tolerance


def verdict_on(a: Any, b: Any, domain: Domain, tolerance: float | None, seconds: float = SECONDS) -> Any:
    """The verdict on two networks; every such question has an answer, if only that there is none."""
    try:
        verdict = fs.equivalent(a, b, bridge.domain(domain), tolerance=tolerance, time_limit=seconds)
    except fs.FiberscopeError as error:
        raise Disagreement(f"equivalent refuses the question: {type(error).__name__}: {error}") from error
    if verdict.equal is None:
        raise Undecided(verdict.method)
    return verdict


def check_equality(a: Program, b: Program, domain: Domain, tolerance: float | None) -> None:
    verdict = verdict_on(bridge.network(a), bridge.network(b), domain, tolerance)
    precision = getattr(verdict, "precision", None)
    judge(a, b, domain, tolerance, verdict.equal, f"equivalent says {verdict.equal} by {verdict.method}", precision)
    truth = largest_difference(a, b, domain)
    bound = verdict.bound
    if bound is not None and bound < math.inf:
        expect(
            truth is not None and truth <= Fraction(bound),
            f"bound {bound} by {verdict.method}, the largest difference is {truth if truth is None else float(truth)}",
        )
    if verdict.counterexample is not None:
        _check_example(a, b, domain, tolerance, verdict.counterexample)


ROUNDING = {"float64": Fraction(1, 2**36), "float32": Fraction(1, 2**11)}
"""What *up to rounding* may mean at most, as a part of all terms; for shorter numbers a quarter."""


def judge(
    a: Program,
    b: Program,
    domain: Domain,
    tolerance: float | None,
    equal: bool,
    who: str,
    precision: str | None = None,
) -> None:
    """Whether a claim of equality or difference is true."""
    truth = largest_difference(a, b, domain)
    text = (
        f"{who} (tolerance {tolerance}), the largest difference is {'infinite' if truth is None else float_of(truth)}"
    )
    if not equal:
        expect(truth is None or truth > Fraction(tolerance or 0), text)
    elif tolerance is not None:
        expect(truth is not None and truth <= Fraction(tolerance), text)
    elif not any(0 < abs(x) < 1e-290 for p in (a, b) for x in numbers(p)):  # whose ulps are no small part of them
        low = {"space": -1.0, "orthant": 0.0}.get(domain[0])
        place = domain if low is None else ("box", (low,) * a.inputs, (1.0,) * a.inputs)
        near = largest_difference(a, b, place)
        corner = _farthest(place, a.inputs)
        part = ROUNDING.get(precision or "float64", Fraction(1, 4))
        allowed = part * (sizes(a, corner) + sizes(b, corner)) + Fraction(1, 2**1000)
        expect(near is not None and near <= allowed, f"{text}, more than a rounding of {float_of(allowed)}")


def _farthest(domain: Domain, n: int) -> list[float]:
    if domain[0] == "plane":
        _, o, u, v, low, high = domain
        s, t = (max(abs(low[k]), abs(high[k])) for k in (0, 1))
        return [abs(o[i]) + abs(u[i]) * s + abs(v[i]) * t for i in range(n)]
    return [max(abs(x), abs(y)) for x, y in zip(domain[1], domain[2], strict=True)]


def _check_example(a: Program, b: Program, domain: Domain, tolerance: float | None, example: Any) -> None:
    x: Sequence[Any] = example.x.tolist()
    if domain[0] == "plane":
        s, t = Fraction(x[0]), Fraction(x[1])
        _, o, u, v, low, high = domain
        inside = low[0] <= x[0] <= high[0] and low[1] <= x[1] <= high[1]
        x = [Fraction(p) + s * Fraction(q) + t * Fraction(r) for p, q, r in zip(o, u, v, strict=True)]
    elif domain[0] == "box":
        inside = all(p <= v <= q for p, v, q in zip(domain[1], x, domain[2], strict=True))
    else:
        inside = domain[0] == "space" or all(v >= 0 for v in x)
    expect(inside, f"the counterexample {x} lies outside of the domain")
    gap = max(abs(p - q) for p, q in zip(at(a, x).outputs, at(b, x).outputs, strict=True))
    expect(gap > Fraction(tolerance or 0), f"the counterexample {x} differs by {float_of(gap)} only")


AREAS = (Area("equality", make_equality, check_equality),)
