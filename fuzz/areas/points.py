"""Single points and straight lines: signs, maps, distances, segments, polylines."""

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
from fuzz.case import Area, Undecided, expect, float_of
from fuzz.oracle.cells import Line, along
from fuzz.oracle.parameters import root_bounds
from fuzz.oracle.program import Program, at, forms

LARGEST = Fraction(np.finfo(np.float64).max.item())

NEAR = Fraction(1, 10**9)
"""Floats without a stated bound must come this near, relative to the sizes of all terms."""


def absolute(program: Program) -> Program:
    """The program with the absolute values of all its numbers, and no activations."""
    nodes = []
    for node in program.nodes:
        if node[0] == "affine":
            rows = tuple(tuple(map(abs, row)) for row in node[2])
            nodes.append(("affine", node[1], rows, tuple(map(abs, node[3]))))
        elif node[0] == "relu":
            nodes.append(("relu", node[1], (1.0,) * len(node[2])))
        else:
            nodes.append(node)
    return Program(program.inputs, tuple(nodes))


def sizes(program: Program, x: Sequence[float]) -> Fraction:
    """Sum of the absolute values of all terms that make the outputs, at ``|x|``."""
    return max(at(absolute(program), [abs(v) for v in x]).outputs, default=Fraction(0))


# -- signs


def make_signs(rng: Random) -> tuple[Any, ...]:
    n = rng.randint(1, 4)
    program = draw.program(rng, n, kinds="cpprt", extreme=0.2)
    points = [draw.point(rng, n) for _ in range(3)]
    return program, (*points, on_a_kink(program, points[0]))


def on_a_kink(program: Program, x: tuple[float, ...]) -> tuple[float, ...]:
    """The point moved onto the first neuron's hyperplane, up to rounding and often exactly."""
    first = next(node for node in program.nodes if node[0] == "affine")
    row, b = first[2][0], first[3][0]
    k = max(range(len(x)), key=lambda i: abs(row[i]))
    if not row[k]:
        return x
    moved = -(b + sum(row[i] * x[i] for i in range(len(x)) if i != k)) / row[k]
    return (*x[:k], moved, *x[k + 1 :]) if math.isfinite(moved) else x


def check_signs(program: Program, points: Sequence[Sequence[float]]) -> None:
    net = bridge.network(program)
    X = np.array(points)
    found = net.signs(X).signs
    with np.errstate(all="ignore"):
        outputs = net(X)
    for x, signs, y in zip(points, found.tolist(), outputs.tolist(), strict=True):
        exact = at(program, x)
        expect(tuple(signs) == exact.signs, f"signs at {x}: {signs}, exactly {list(exact.signs)}")
        expect(net.pattern([x]).tolist()[0] == [s > 0 for s in exact.signs], f"pattern at {x}")
        scale = sizes(program, x)
        ordinary = 1e-100 < scale < 1e100 and all(abs(v) < 1e100 for v in x)
        if ordinary and all(map(math.isfinite, y)):
            worst = max(abs(Fraction(v) - w) for v, w in zip(y, exact.outputs, strict=True))
            expect(worst <= NEAR * scale, f"output at {x}: {y}, exactly {list(map(float, exact.outputs))}")
        local = net.affine_at(x)
        zeros = tuple(k for k, s in enumerate(exact.signs) if s == 0)
        expect(local.boundary == zeros, f"affine_at({x}).boundary {local.boundary}, exactly {zeros}")
        _check_map(program, exact.signs, local, x)


def _check_map(program: Program, signs: Sequence[int], local: Any, x: Sequence[float]) -> None:
    rows = forms(program, signs).outputs
    scale = sizes(program, [1.0] * program.inputs)
    ordinary = 1e-100 < scale < 1e100
    got = np.column_stack([local.matrix, local.offset]).tolist()
    for row, exact in zip(got, rows, strict=True):
        for value, wanted in zip(row, exact, strict=True):
            text = f"affine_at({x}): {value}, exactly {float_of(wanted)}"
            if math.isfinite(value):
                expect(not ordinary or abs(Fraction(value) - wanted) <= NEAR * scale, text)
            else:
                expect(abs(wanted) > LARGEST and (value > 0) == (wanted > 0), text)


# -- distances


def make_distances(rng: Random) -> tuple[Any, ...]:
    n = rng.randint(1, 3)
    return draw.program(rng, n, kinds="ccpprt", extreme=0.15), tuple(draw.point(rng, n) for _ in range(3))


def nearest(program: Program, x: Sequence[float]) -> tuple[Fraction | None, list[Fraction]]:
    """Square of the distance to the boundary of the region of ``x``, and a foot point.

    None for a region that is everything; entry by entry ``z^2 / |grad z|^2`` of the affine functions there.
    """
    here = at(program, x)
    margins = forms(program, here.signs).margins
    linear = _no_kink(program)
    best: Fraction | None = None
    foot: list[Fraction] = []
    for k, row in enumerate(margins):
        square = sum((g * g for g in row[:-1]), Fraction(0))
        if linear[k] or not square:
            continue
        z = sum((g * Fraction(v) for g, v in zip(row[:-1], x, strict=True)), row[-1])
        distance = z * z / square
        if best is None or distance < best:
            best = distance
            foot = [Fraction(v) - z * g / square for g, v in zip(row[:-1], x, strict=True)]
        if z == 0:
            return Fraction(0), foot  # on a kink; what lies behind it depends on the side
    return best, foot


def _no_kink(program: Program) -> list[bool]:
    found = []
    for node in program.nodes:
        if node[0] == "relu":
            found += [s == 1 for s in node[2]]
        elif node[0] == "pool":
            size = program.sizes[node[1]]
            found += [False] * (node[2] * ((size - node[2]) // node[3] + 1))
    return found


def check_distances(program: Program, points: Sequence[Sequence[float]]) -> None:
    net = bridge.network(program)
    found = fs.boundary_distance(net, np.array(points))
    open_question = False
    for i, x in enumerate(points):
        square, foot = nearest(program, x)
        low, mid, high = (float(v[i]) for v in (found.lower, found.distance, found.upper))
        text = f"distance at {x}: {low} <= {mid} <= {high}, the exact square is {square and float_of(square)}"
        expect(low <= mid <= high, text)
        if square is None:
            expect(mid == math.inf and low == math.inf, text)
            expect(not (found.decided[i] and found.visible[i]), f"{text}: visible where there is no boundary")
            continue
        expect(math.isfinite(low) and Fraction(low) ** 2 <= square, text)
        expect(high == math.inf or Fraction(high) ** 2 >= square, text)
        if square == 0 or not found.decided[i]:
            open_question |= not found.decided[i] and square != 0
            continue
        if _one_foot(program, x, square, foot):
            bends = _bends(program, x, foot)
            expect(bool(found.visible[i]) == bends, f"at {x} visible is {found.visible[i]}, exactly {bends}")
    if open_question:
        raise Undecided("visible")


def _one_foot(program: Program, x: Sequence[float], square: Fraction, foot: list[Fraction]) -> bool:
    """Whether the nearest boundary is met in one point only."""
    margins = forms(program, at(program, x).signs).margins
    for row, linear in zip(margins, _no_kink(program), strict=True):
        size = sum((g * g for g in row[:-1]), Fraction(0))
        if linear or not size:
            continue
        z = sum((g * Fraction(v) for g, v in zip(row[:-1], x, strict=True)), row[-1])
        if z * z / size == square:
            own = [Fraction(v) - z * g / size for g, v in zip(row[:-1], x, strict=True)]
            if own != foot:
                return False
    return True


def _bends(program: Program, x: Sequence[float], foot: list[Fraction]) -> bool:
    start = [Fraction(v) for v in x]
    found = along(program, start, foot, far=True)
    k = found.breakpoints.index(Fraction(1))
    before, after = (forms(program, found.signs[j]).outputs for j in (k, k + 1))
    return before != after


# -- segments


def make_segments(rng: Random) -> tuple[Any, ...]:
    n = rng.randint(1, 4)
    program = draw.program(rng, n, kinds="cpppprt", extreme=0.15)
    count = 2 if rng.random() < 0.6 else rng.randint(3, 4)
    points = [draw.point(rng, n) for _ in range(count)]
    if count > 2 and rng.random() < 0.5:
        if rng.random() < 0.3:
            points[0] = on_a_kink(program, points[0])
        points.append(points[0])
    if any(p == q for p, q in itertools.pairwise(points)):
        return make_segments(rng)
    return program, tuple(points)


def joined(program: Program, points: Sequence[Sequence[float]]) -> Line:
    """Breakpoints of a polyline, corners included where signs vanish there."""
    breaks: list[Fraction] = []
    neurons: list[tuple[int, ...]] = []
    signs: list[Any] = []
    for i, (a, b) in enumerate(itertools.pairwise(points)):
        part = along(program, a, b)
        if not signs:
            signs.append(part.signs[0])
        else:
            here = at(program, a).signs
            zero = corner(signs[-1], here, part.signs[0])
            if zero:
                breaks.append(Fraction(i))
                neurons.append(zero)
                signs.append(part.signs[0])
        breaks += [i + t for t in part.breakpoints]
        neurons += part.neurons
        signs += part.signs[1:]
    return Line(tuple(breaks), tuple(neurons), tuple(signs))


def corner(before: Any, here: Any, after: Any) -> tuple[int, ...]:
    """Entries that vanish at a point and not on both sides of it."""
    return tuple(k for k, (x, y, z) in enumerate(zip(before, here, after, strict=True)) if y == 0 and (x or z))


def check_segments(program: Program, points: Sequence[Sequence[float]]) -> None:
    net = bridge.network(program)
    curve = fs.Segment(*points) if len(points) == 2 else fs.Polyline(points)
    found = fs.regions_along(net, curve)
    wanted = joined(program, points)
    if not found.certified:
        raise Undecided("not certified")
    expect(
        found.num_regions == len(wanted.signs),
        f"{found.num_regions} certified regions, exactly {len(wanted.signs)}",
    )
    expect(found.signs.tolist() == [list(s) for s in wanted.signs], "signs of the regions differ")
    closed = len(points) > 2 and points[0] == points[-1]
    closing = corner(wanted.signs[-1], at(program, points[0]).signs, wanted.signs[0]) if closed else ()
    neurons = (*wanted.neurons, closing) if closing else wanted.neurons  # the closing point comes last
    expect(found.neurons == neurons, f"neurons {found.neurons}, exactly {neurons}")
    for k, t in enumerate(wanted.breakpoints):
        low, high = found.enclosures[k].tolist()
        expect(Fraction(low) <= t <= Fraction(high), f"enclosure [{low}, {high}] of {float(t)!r}")
        expect(found.exact_breakpoint(k) == t, f"exact_breakpoint({k})")
        before, after = (forms(program, wanted.signs[j]).outputs for j in (k, k + 1))
        expect(bool(found.visible[k]) == (before != after), f"visible[{k}] is {found.visible[k]}")
    expect(abs(float(found.lengths.sum()) - curve.length) <= 1e-9 * curve.length, "lengths do not add up")
    if closed:
        _check_loop(points, found, wanted, bool(closing))
        if closing:
            ends = (forms(program, wanted.signs[j]).outputs for j in (-1, 0))
            expect(bool(found.visible[-1]) == (next(ends) != next(ends)), f"closing: visible is {found.visible[-1]}")


def _check_loop(points: Sequence[Sequence[float]], found: Any, wanted: Line, closing: bool) -> None:
    breaks = list(wanted.breakpoints) + ([Fraction(0)] if closing else [])
    loop = max(1, len(breaks))
    expect(found.num_regions_closed == loop, f"{found.num_regions_closed} regions of the loop, exactly {loop}")
    if not breaks:
        return
    marks = [_arc(points, t) for t in breaks]
    total = _arc(points, Fraction(len(points) - 1))
    wide = Fraction(float((found.enclosures[:, 1] - found.enclosures[:, 0]).max(initial=0.0)))
    slack = total * (wide + Fraction(1, 10**9))
    for k in range(len(points) - 1):
        t = Fraction(2 * k + 1, 2)
        here = _arc(points, t)
        near = min(min(abs(here - m), total - abs(here - m)) for m in marks)
        got = float(found.distance([float(t)])[0])
        expect(abs(Fraction(got) - near) <= slack, f"distance({float(t)}) is {got}, exactly {float(near)}")


def _arc(points: Sequence[Sequence[float]], t: Fraction) -> Fraction:
    total = Fraction(0)
    for i, (a, b) in enumerate(itertools.pairwise(points)):
        part = min(max(t - i, Fraction(0)), Fraction(1))
        total += part * root_bounds(sum((Fraction(p) - Fraction(q)) ** 2 for p, q in zip(a, b, strict=True)))[0]
    return total


AREAS = (
    Area("signs", make_signs, check_signs),
    Area("distances", make_distances, check_distances),
    Area("segments", make_segments, check_segments),
)
