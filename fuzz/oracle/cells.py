"""Linear regions of a program on a domain, by splitting convex cells, in integers.

A cell is a cone over a polyhedron: integer rays ``(X, T)`` with ``T >= 0``, standing for the point ``X / T`` or, with
``T = 0``, for a direction; each with the set of inequalities that are tight there, as bits. A hyperplane splits a cell
by the double description method (T. Motzkin and others, 1953): new rays lie between neighbours on both sides, and two
rays are neighbours if no third one is tight wherever both are.

For given signs every neuron is one affine function, so the points with these signs form a convex set: regions are the
sign vectors with an interior, and cells of one sign vector that a pooling window cut too often are one region.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import gcd
from typing import Any

from .program import (
    Program,
    Row,
    Signs,
    Value,
    activate,
    affine,
    at,
    combination,
    dyadic,
    fractions,
    identity,
    joined,
    windows,
)

Ray = tuple[Row, int]


class TooMany(Exception):
    """More cells than the caller wants to wait for."""


@dataclass(frozen=True)
class Cell:
    """A convex cell with an interior; ``sides`` counts the inequalities met so far."""

    rays: tuple[Ray, ...]
    sides: int

    def values(self, form: Row) -> list[int]:
        """The affine function at every ray, up to a positive factor."""
        return [sum(map(int.__mul__, form, ray)) for ray, _ in self.rays]

    def side(self, form: Row) -> int | None:
        """The sign of an affine function on the interior; None if it changes."""
        values = self.values(form)
        above, below = any(v > 0 for v in values), any(v < 0 for v in values)
        return None if above and below else int(above) - int(below)

    def split(self, form: Row) -> tuple[Cell, Cell]:
        """The parts where the function is negative and positive; it must change its sign."""
        values = self.values(form)
        bit = 1 << self.sides
        tight = [mask for _, mask in self.rays]
        new: list[Ray] = []
        plus = [i for i, v in enumerate(values) if v > 0]
        minus = [i for i, v in enumerate(values) if v < 0]
        for i, j in itertools.product(plus, minus):
            common = tight[i] & tight[j]
            if any(k not in (i, j) and mask & common == common for k, mask in enumerate(tight)):
                continue
            p, q = self.rays[i][0], self.rays[j][0]
            new.append((_between(p, values[i], q, -values[j]), common | bit))
        zero = [(ray, mask | bit) for (ray, mask), v in zip(self.rays, values, strict=True) if v == 0]
        parts = []
        for kept in (minus, plus):
            own = [self.rays[i] for i in kept]
            parts.append(Cell((*own, *zero, *new), self.sides + 1))
        return parts[0], parts[1]

    def vertices(self) -> list[tuple[Fraction, ...]]:
        """The finite rays as points."""
        return [tuple(Fraction(x, ray[-1]) for x in ray[:-1]) for ray, _ in self.rays if ray[-1]]

    def inside(self) -> tuple[Fraction, ...]:
        """A point of the interior."""
        sums = [sum(column) for column in zip(*(ray for ray, _ in self.rays), strict=True)]
        return tuple(Fraction(x, sums[-1]) for x in sums[:-1])


def _between(p: Row, above: int, q: Row, below: int) -> Row:
    ray = [below * x + above * y for x, y in zip(p, q, strict=True)]
    common = gcd(*ray)
    return tuple(x // common for x in ray)


# -- domains
# ("box", low, high) | ("orthant", n) | ("space", n) | ("polytope", A, b) | ("plane", origin, u, v, low, high)

Domain = tuple[Any, ...]


def box_cell(low: Sequence[float], high: Sequence[float]) -> Cell:
    """A box with finite sides."""
    rays = []
    for corner in itertools.product((0, 1), repeat=len(low)):
        point = [Fraction(b if c else a) for c, a, b in zip(corner, low, high, strict=True)]
        scale = 1
        for x in point:
            scale = scale * x.denominator // gcd(scale, x.denominator)
        mask = sum(1 << (2 * i + c) for i, c in enumerate(corner))
        rays.append((tuple(int(x * scale) for x in (*point, 1)), mask))
    return Cell(tuple(rays), 2 * len(low))


def orthant_cell(n: int, turn: Sequence[int]) -> Cell:
    """``turn_i x_i >= 0``, with the side at infinity."""
    rays = [(tuple([0] * n + [1]), (1 << n) - 1)]
    for i in range(n):
        ray = [0] * (n + 1)
        ray[i] = turn[i]
        rays.append((tuple(ray), (1 << (n + 1)) - 1 - (1 << i)))
    return Cell(tuple(rays), n + 1)


def start_of(domain: Domain) -> list[Cell]:
    """The domain as cells without common interior points; none if it has no interior."""
    kind = domain[0]
    if kind == "box":
        return [box_cell(domain[1], domain[2])]
    if kind == "plane":
        return [box_cell(domain[4], domain[5])]
    if kind == "orthant":
        return [orthant_cell(domain[1], [1] * domain[1])]
    n = domain[1] if kind == "space" else len(domain[1][0])
    cells = [orthant_cell(n, turn) for turn in itertools.product((1, -1), repeat=n)]
    if kind == "space":
        return cells
    rows, _ = dyadic([[*(-x for x in row), b] for row, b in zip(domain[1], domain[2], strict=True)])
    for row in rows:
        cells = [kept for cell in cells if (kept := _clipped(cell, row)) is not None]
    return cells


def _clipped(cell: Cell, row: Row) -> Cell | None:
    side = cell.side(row)
    if side is None:
        return cell.split(row)[1]
    return cell if side > 0 or not any(row) else None


def inputs_on(domain: Domain, n: int) -> Value:
    """The program's inputs as affine functions on the domain."""
    return combination(domain[1], domain[2], domain[3]) if domain[0] == "plane" else identity(n)


# -- regions


@dataclass(frozen=True)
class Leaf:
    """A cell on which a program is affine: its signs and its outputs."""

    cell: Cell
    signs: Signs
    outputs: Value


def leaves(program: Program, cell: Cell, start: Value, limit: int = 4000) -> list[Leaf]:
    """The cells of a program inside of one cell."""
    state: list[tuple[Cell, tuple[Value, ...], Signs]] = [(cell, (start,), ())]
    for node, numbers in zip(program.nodes, program.integers, strict=True):
        after: list[tuple[Cell, tuple[Value, ...], Signs]] = []
        for own, values, signs in state:
            if node[0] in ("add", "concat"):
                after.append((own, (*values, joined(node, values)), signs))
                continue
            rows, exponent = values[node[1]]
            if node[0] == "affine":
                after.append((own, (*values, affine(rows, exponent, numbers)), signs))
            elif node[0] == "relu":
                for part, found in _relu_parts(own, rows, node[2]):
                    after.append((part, (*values, activate(rows, exponent, numbers, found)), signs + found))
            else:
                for part, found, chosen in _pool_parts(own, rows, windows(len(rows), node[2], node[3])):
                    after.append((part, (*values, (chosen, exponent)), signs + found))
        state = after
        if len(state) > limit:
            raise TooMany(f"more than {limit} cells")
    return [Leaf(own, signs, values[-1]) for own, values, signs in state]


def _relu_parts(cell: Cell, rows: list[Row], slopes: Sequence[float]) -> Iterator[tuple[Cell, Signs]]:
    parts: list[tuple[Cell, Signs]] = [(cell, ())]
    for row, slope in zip(rows, slopes, strict=True):
        if slope == 1:
            parts = [(own, (*signs, 1)) for own, signs in parts]
            continue
        after = []
        for own, signs in parts:
            side = own.side(row)
            if side is not None:
                after.append((own, (*signs, side)))
            else:
                below, above = own.split(row)
                after += [(below, (*signs, -1)), (above, (*signs, 1))]
        parts = after
    return iter(parts)


def _pool_parts(cell: Cell, rows: list[Row], own_windows: list[Any]) -> Iterator[tuple[Cell, Signs, list[Row]]]:
    parts: list[tuple[Cell, Signs, list[Row]]] = [(cell, (), [])]
    for window in own_windows:
        inside = [rows[k] for k in window]
        parts = [
            (piece, signs + _window_signs(inside, inside[best]), [*chosen, inside[best]])
            for own, signs, chosen in parts
            for piece, best in _winners(own, inside)
        ]
    return iter(parts)


def _winners(cell: Cell, inside: list[Row]) -> list[tuple[Cell, int]]:
    parts = [(cell, 0)]
    for k in range(1, len(inside)):
        after = []
        for own, best in parts:
            difference = tuple(x - y for x, y in zip(inside[k], inside[best], strict=True))
            side = own.side(difference)
            if side is None:
                below, above = own.split(difference)
                after += [(below, best), (above, k)]
            else:
                after.append((own, k if side > 0 else best))
        parts = after
    return parts


def _window_signs(inside: list[Row], best: Row) -> Signs:
    equal = sum(row == best for row in inside)
    return tuple((1 if equal == 1 else 0) if row == best else -1 for row in inside)


def leaves_on(program: Program, domain: Domain, limit: int = 4000) -> list[Leaf]:
    """The cells of a program on a domain."""
    start = inputs_on(domain, program.inputs)
    return [leaf for cell in start_of(domain) for leaf in leaves(program, cell, start, limit)]


def regions(program: Program, domain: Domain, limit: int = 4000) -> dict[Signs, tuple[tuple[Fraction, ...], ...]]:
    """The sign vectors of the regions, each with the affine outputs there."""
    return {leaf.signs: fractions(*leaf.outputs) for leaf in leaves_on(program, domain, limit)}


# -- two programs


def differences(a: Program, b: Program, domain: Domain, limit: int = 4000) -> Iterator[tuple[Cell, list[Row], int]]:
    """Cells on which both are affine, with the differences of their outputs."""
    start = inputs_on(domain, a.inputs)
    for cell in start_of(domain):
        for one in leaves(a, cell, start, limit):
            for two in leaves(b, one.cell, start, limit):
                exponent = max(one.outputs[1], two.outputs[1])
                rows = [
                    tuple(
                        (x << (exponent - one.outputs[1])) - (y << (exponent - two.outputs[1]))
                        for x, y in zip(p, q, strict=True)
                    )
                    for p, q in zip(one.outputs[0], two.outputs[0], strict=True)
                ]
                yield two.cell, rows, exponent


def same_function(a: Program, b: Program, domain: Domain) -> bool:
    """Whether two programs are the same real function on a domain."""
    return all(not any(map(any, rows)) for _, rows, _ in differences(a, b, domain))


def largest_difference(a: Program, b: Program, domain: Domain) -> Fraction | None:
    """The supremum of ``max |a - b|`` on a domain; None for infinity."""
    most = Fraction(0)
    for cell, rows, exponent in differences(a, b, domain):
        for row in rows:
            for value, (ray, _) in zip(cell.values(row), cell.rays, strict=True):
                if ray[-1]:
                    most = max(most, Fraction(abs(value), ray[-1] << exponent))
                elif value:
                    return None
    return most


# -- lines


@dataclass(frozen=True)
class Line:
    """Breakpoints in order, the entries that vanish at each, and the signs of the intervals."""

    breakpoints: tuple[Fraction, ...]
    neurons: tuple[tuple[int, ...], ...]
    signs: tuple[Signs, ...]


def along(program: Program, a: Sequence[float], b: Sequence[float], far: bool = False) -> Line:
    """The regions on ``(1 - t) a + t b``, for ``t`` from 0 to 1, or to infinity if ``far``."""
    fa, fb = [Fraction(x) for x in a], [Fraction(x) for x in b]
    scale = 1
    for x in (*fa, *fb):
        scale = scale * x.denominator // gcd(scale, x.denominator)
    # An exponent of 0 and a common denominator: the homogeneous constant 1 is `scale` itself.
    rows = [(int((q - p) * scale), int(p * scale)) for p, q in zip(fa, fb, strict=True)]
    scaled = _scaled(program, scale)
    cell = orthant_cell(1, [1]) if far else box_cell([0.0], [1.0])
    found = leaves(scaled, cell, (rows, 0))
    ends = sorted((_ends(leaf.cell), leaf.signs) for leaf in found)
    return _joined_line(program, fa, fb, ends)


def _scaled(program: Program, factor: int) -> Program:
    """The program on inputs times ``factor`` with outputs times ``factor``: all biases times it, as exact numbers."""
    if factor == 1:
        return program
    nodes = []
    for node in program.nodes:
        if node[0] == "affine":
            nodes.append(("affine", node[1], node[2], tuple(Fraction(b) * factor for b in node[3])))
        else:
            nodes.append(node)
    return Program(program.inputs, tuple(nodes))


def _ends(cell: Cell) -> tuple[Fraction, Fraction | None]:
    points = sorted(v[0] for v in cell.vertices())
    return (points[0], points[-1]) if len(points) > 1 else (points[0], Fraction(10) ** 4000)


def _joined_line(program: Program, a: list[Fraction], b: list[Fraction], ends: list[Any]) -> Line:
    breaks, neurons, signs = [], [], [ends[0][1]]
    for ((_, t), before), (_, after) in itertools.pairwise(ends):
        here = at(program, [p + t * (q - p) for p, q in zip(a, b, strict=True)]).signs
        zero = tuple(
            k for k, (x, y, z) in enumerate(zip(before, here, after, strict=True)) if y == 0 and (x != 0 or z != 0)
        )
        if zero:
            breaks.append(t)
            neurons.append(zero)
            signs.append(after)
    return Line(tuple(breaks), tuple(neurons), tuple(signs))
