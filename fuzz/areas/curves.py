"""Curves that are not straight, distances beyond the first boundary, and ways on folded strips."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from fractions import Fraction
from random import Random
from typing import Any

import numpy as np

import fiberscope as fs
from fuzz import bridge, draw
from fuzz.areas.points import LARGEST
from fuzz.case import Area, Skipped, Undecided, expect
from fuzz.oracle.cells import along
from fuzz.oracle.program import Program, at, forms, windows

Interval = tuple[Fraction, Fraction]

# -- circles


def make_circles(rng: Random) -> tuple[Any, ...]:
    n = rng.randint(2, 3)
    center = tuple(rng.choice((0.0, 0.0, rng.randint(-9, 9) / 10, rng.gauss(0, 1))) for _ in range(n))
    radius = rng.choice((1.0, 2.0, 0.5, 1.3, abs(rng.gauss(0, 1)) + 0.1))
    return draw.program(rng, n, kinds="ccprt", width=3, extreme=0.0), center, radius


def check_circles(program: Program, center: Sequence[float], radius: float) -> None:
    """Between the enclosures the signs are those that were found, and the loop is closed.

    Circles are transcendental in ``t``; cosines are enclosed between rationals, which proves every sign but zero.
    """
    net = bridge.network(program)
    found = fs.regions_along(net, fs.Circle(list(center), radius))
    if not found.certified:
        raise Undecided("not certified")
    edges = [-math.pi, *found.breakpoints.tolist(), math.pi]
    boxes = [[-math.pi] * 2, *found.enclosures.tolist(), [math.pi] * 2]
    for k, (a, b) in enumerate(itertools.pairwise(boxes)):
        low, high = math.nextafter(a[1], 9), math.nextafter(b[0], -9)
        for t in (low, (2 * low + high) / 3, (low + 2 * high) / 3, high):
            if not low <= t <= high or not a[1] < t < b[0]:
                continue
            for j, (s, wanted) in enumerate(zip(_signs_at(program, center, radius, t), found.signs[k], strict=True)):
                expect(s is None or s == wanted, f"sign of entry {j} at t = {t!r}: {wanted}, exactly {s}")
    expect(all(a[0] <= t <= a[1] for a, t in zip(boxes, edges, strict=True)), "a breakpoint outside of its enclosure")
    _check_circle_loop(program, center, radius, found)


def _check_circle_loop(program: Program, center: Sequence[float], radius: float, found: Any) -> None:
    """The closing point ``t = pi``, exactly ``center - radius u``, is a breakpoint of the loop if neurons vanish."""
    point = [Fraction(center[0]) - Fraction(radius), *map(Fraction, center[1:])]
    here = at(program, point).signs
    before, after = found.signs[-1].tolist(), found.signs[0].tolist()
    closing = any(s == 0 and (p or q) for p, s, q in zip(before, here, after, strict=True))
    inner = found.breakpoints.tolist()[
        : found.num_regions - 1
    ]  # one of them may round to pi, and is not the closing point
    expect(len(found.breakpoints) - len(inner) == closing, f"closing point a breakpoint: exactly {closing}")
    marks = [*inner, math.pi] if closing else inner
    if not marks:
        return
    loop = max(1, len(marks))
    expect(found.num_regions_closed == loop, f"{found.num_regions_closed} regions of the loop, exactly {loop}")
    for t in (3.1, -3.1, *((a + b) / 2 for a, b in itertools.pairwise(inner))):
        near = min(min(abs(t - m), 2 * math.pi - abs(t - m)) for m in marks) * radius
        got = float(found.distance([t])[0])
        expect(abs(got - near) <= 1e-9 * radius, f"distance({t!r}) is {got}, exactly {near}")


DIGITS = 200


def _cos_sin(t: float) -> tuple[Interval, Interval]:
    """Enclosures of the cosine and the sine of a float, by Taylor series."""
    one = 1 << DIGITS
    x = int(Fraction(t) * one)
    parts = [0, 0]
    term, k = one, 0
    while term not in (0, -1) or k < 8:
        parts[k % 2] += term if k % 4 < 2 else -term
        k += 1
        term = term * x // (one * k)
    # every term is rounded by less than what the one before was, times |t| <= 4, plus one; 2^40 is far more
    slack = Fraction(1 << 40, one)
    cos, sin = (Fraction(p, one) for p in parts)
    return (cos - slack, cos + slack), (sin - slack, sin + slack)


def _signs_at(program: Program, center: Sequence[float], radius: float, t: float) -> list[int | None]:
    """Signs on the circle at a float, None where the enclosure holds zero."""
    r = Fraction(radius)
    start = [(Fraction(c), Fraction(c)) for c in center]
    for k, (low, high) in enumerate(_cos_sin(t)):
        start[k] = (start[k][0] + r * low, start[k][1] + r * high)
    return interval_signs(program, start)


def interval_signs(program: Program, start: list[Interval]) -> list[int | None]:
    """Signs of a program on a box of inputs, None where they are not proven."""
    values: list[list[Interval]] = [start]
    signs: list[int | None] = []
    for node in program.nodes:
        if node[0] == "affine":
            values.append([_dot(row, values[node[1]], b) for row, b in zip(node[2], node[3], strict=True)])
        elif node[0] == "relu":
            values.append([])
            for (low, high), s in zip(values[node[1]], node[2], strict=True):
                signs.append(1 if s == 1 or low > 0 else -1 if high < 0 else None)
                ends = [v if v > 0 else Fraction(s) * v for v in (low, high)]
                ends += [Fraction(0)] if low < 0 < high else []  # a slope below zero turns back there
                values[-1].append((min(ends), max(ends)))
        elif node[0] == "add":
            parts = zip(*(values[s] for s in node[1]), strict=True)
            values.append([(sum(p[0] for p in q), sum(p[1] for p in q)) for q in parts])
        elif node[0] == "concat":
            values.append([v for s in node[1] for v in values[s]])
        else:
            source = values[node[1]]
            values.append([])
            for window in windows(len(source), node[2], node[3]):
                inside = [source[k] for k in window]
                values[-1].append((max(v[0] for v in inside), max(v[1] for v in inside)))
                signs += [_winner(inside, k) for k in range(len(inside))]
    return signs


def _winner(inside: list[Interval], k: int) -> int | None:
    rest = [*inside[:k], *inside[k + 1 :]]
    low, high = inside[k]
    return 1 if low > max(v[1] for v in rest) else -1 if high < max(v[0] for v in rest) else None


def _dot(row: Sequence[float], inputs: Sequence[Interval], bias: float) -> Interval:
    low = high = Fraction(bias)
    for w, (a, b) in zip(row, inputs, strict=True):
        f = Fraction(w)
        low += f * (a if f >= 0 else b)
        high += f * (b if f >= 0 else a)
    return low, high


# -- polynomials


def make_polynomials(rng: Random) -> tuple[Any, ...]:
    degree = rng.randint(1, 4)
    power = (*(float(rng.randint(-2, 2)) for _ in range(degree)), 1.0)
    if rng.random() < 0.3:
        power = (*((0.0,) * degree), 1.0)
    rows = [[float(rng.randint(-2, 2)), float(rng.randint(-2, 2))] for _ in range(rng.randint(1, 3))]
    if rng.random() < 0.3:
        rows[0] = [0.0, 1.0]
    bias = [float(rng.choice((0, 0, 1, -1, 2))) / rng.choice((1, 2, 4)) for _ in rows]
    hidden = ("affine", 0, tuple(map(tuple, rows)), tuple(bias))
    last = ("affine", 2, ((1.0,) * len(rows),), (0.0,))
    return Program(2, (hidden, ("relu", 1, (0.0,) * len(rows)), last)), power


def check_polynomials(program: Program, power: Sequence[float]) -> None:
    """Every enclosure along ``(t, p(t))`` holds a root of the neuron that is said to vanish there."""

    def function(t: Any) -> Any:
        value = np.zeros_like(t)
        for c in reversed(power):
            value = value * t + c
        return np.stack([t, value], axis=1)

    found = fs.regions_along(bridge.network(program), fs.Curve(function, (-1.0, 1.0)))
    _, _, rows, bias = program.nodes[0]
    for k, ((low, high), neurons) in enumerate(zip(found.enclosures.tolist(), found.neurons, strict=True)):
        expect(low <= found.breakpoints[k] <= high, f"breakpoint {k} outside of its enclosure")
        for j in neurons:
            if found.signs[k][j] == found.signs[k + 1][j]:
                continue  # it only touches zero
            a, b = (_polynomial(rows[j], bias[j], power, Fraction(t)) for t in (low, high))
            expect(a * b <= 0, f"neuron {j} has no change of sign in the enclosure [{low!r}, {high!r}]")


def _polynomial(row: Sequence[float], bias: float, power: Sequence[float], t: Fraction) -> Fraction:
    value = sum((Fraction(c) * t**k for k, c in enumerate(power)), Fraction(0))
    return Fraction(row[0]) * t + Fraction(row[1]) * value + Fraction(bias)


# -- the nearest visible boundary


def make_visible(rng: Random) -> tuple[Any, ...]:
    n = rng.choice((1, 1, 2))
    return draw.program(rng, n, kinds="ccprt", width=3, extreme=0.03), draw.point(rng, n), rng.randrange(1 << 20)


def check_visible(program: Program, x: Sequence[float], seed: int) -> None:
    """Exact in one dimension; above, nothing visible on any straight way is nearer than the lower bound."""
    found = fs.visible_boundary_distance(bridge.network(program), [list(x)])
    low, distance, complete = float(found.lower[0]), float(found.distance[0]), bool(found.complete[0])
    rng = Random(seed)
    if len(x) == 1:
        ways: list[list[float]] = [[1.0], [-1.0]]
    else:
        ways = [[float(rng.randint(-9, 9)) for _ in x] for _ in range(6)]
    best = min((_kink(program, x, way) for way in ways if any(way)), default=math.inf)
    slack = 1 + 1e-9
    size = 1e-12 * (1 + max(map(abs, x)))
    expect(low <= best * slack + size, f"lower {low}, but the function bends at distance {best}")
    if not complete:
        raise Undecided("not complete")
    expect(distance <= best * slack + size, f"distance {distance}, but the function bends at {best}")
    expect(low <= distance <= float(found.upper[0]), f"distance {distance} outside of its bounds")
    if len(x) == 1:
        expect(best <= distance * slack + size, f"distance {distance}, but the function does not bend before {best}")


def _kink(program: Program, x: Sequence[float], way: Sequence[float]) -> float:
    """Distance to the first visible breakpoint on a ray; one at its start counts."""
    end = [Fraction(v) + Fraction(w) for v, w in zip(x, way, strict=True)]
    found = along(program, [Fraction(v) for v in x], end, far=True)
    maps = [forms(program, s).outputs for s in found.signs]
    back = [2 * Fraction(v) - e for v, e in zip(x, end, strict=True)]
    other = along(program, [Fraction(v) for v in x], back, far=True)
    if forms(program, other.signs[0]).outputs != maps[0]:
        return 0.0
    for t, (a, b) in zip(found.breakpoints, itertools.pairwise(maps), strict=True):
        if a != b:
            return float(t) * math.hypot(*way) if t <= LARGEST else math.inf
    return math.inf


# -- ways on a strip


def make_strips(rng: Random) -> tuple[Any, ...]:
    """A strip of rectangles, each turned against the one before: unrolled, it is flat and convex."""
    count = rng.randint(2, 6)
    lengths = [rng.choice((0.5, 1.0, rng.uniform(0.1, 1.5))) for _ in range(count)]
    turns = [rng.choice((math.pi / 2, -math.pi / 2, rng.uniform(-3, 3), math.pi * 0.99)) for _ in range(count - 1)]
    places = [(rng.randrange(count), rng.random(), rng.random()) for _ in range(2)]
    return lengths, turns, rng.choice((0.2, 1.0, 0.01)), places, rng.randint(1, 3)


def check_strips(
    lengths: list[float], turns: list[float], width: float, places: list[tuple[int, float, float]], fine: int
) -> None:
    """The way within the strip is the straight one on the unrolled strip."""
    corners, direction = [(0.0, 0.0)], 0.0
    for length, turn in zip(lengths, [*turns, 0.0], strict=True):
        x, z = corners[-1]
        corners.append((x + length * math.cos(direction), z + length * math.sin(direction)))
        direction += turn
    rows = []
    for (x0, z0), (x1, z1) in itertools.pairwise(corners):
        rows += [(x0 + (x1 - x0) * k / fine, z0 + (z1 - z0) * k / fine) for k in range(fine)]
    rows.append(corners[-1])
    vertices = [[x, y, z] for x, z in rows for y in (0.0, width)]
    triangles = []
    for k in range(len(rows) - 1):
        a = 2 * k
        triangles += [[a, a + 1, a + 2], [a + 1, a + 3, a + 2]]
    points, flat = [], []
    for k, s, t in places:
        (x0, z0), (x1, z1) = corners[k], corners[k + 1]
        points.append([x0 + s * (x1 - x0), t * width, z0 + s * (z1 - z0)])
        flat.append((sum(lengths[:k]) + s * lengths[k], t * width))
        others = [j for j in range(len(lengths)) if j != k]
        if any(_gap((points[-1][0], points[-1][2]), corners[j], corners[j + 1]) < 1e-6 for j in others):
            raise Skipped("the strip touches itself there")
    truth = math.dist(*flat)
    found = fs.geodesic_distance(fs.Mesh(vertices, triangles), [points[0]], [points[1]])
    got = float(found.distance[0])
    expect(got >= truth - 1e-9, f"{found.kind} {got}, the way on the strip is {truth}")
    if found.kind == "exact":
        expect(got <= truth + 1e-9, f"{found.kind} {got}, the way on the strip is {truth}")


def _gap(p: Sequence[float], a: Sequence[float], b: Sequence[float]) -> float:
    """Distance of a point to a segment of the plane."""
    along_it = [v - u for u, v in zip(a, b, strict=True)]
    square = sum(v * v for v in along_it)
    s = sum((q - u) * v for q, u, v in zip(p, a, along_it, strict=True)) / square
    s = min(1.0, max(0.0, s))
    return math.dist(p, [u + s * v for u, v in zip(a, along_it, strict=True)])


AREAS = (
    Area("circles", make_circles, check_circles),
    Area("polynomials", make_polynomials, check_polynomials),
    Area("visible", make_visible, check_visible),
    Area("strips", make_strips, check_strips),
)
