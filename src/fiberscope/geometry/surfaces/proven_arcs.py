"""Arcs on spheres and cylinders in balls: their planes and ends, and the angles by which they turn, within bounds.

Planes and corners of a complex are floats with bounds of their errors. Where these leave open how far an arc turns (a
hair, or once around but for a hair), or its ends vague, the corners are made anew in fractions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import combinations
from math import inf
from typing import TYPE_CHECKING

import flint
import numpy as np

from fiberscope.numerics.cutoffs import VAGUE_END
from fiberscope.numerics.floats import FloatArray, IntArray

if TYPE_CHECKING:
    from fiberscope.geometry.complex import Complex
    from fiberscope.geometry.surfaces.ball_cut import Point

Arb = flint.arb
Vector = list[flint.arb]

BITS = 128
"""Precision of the balls."""

Edge = tuple[Vector, Vector, bool]
"""Both ends of an edge of the complex, and whether the way from the first to the second leaves the ball."""


@dataclass(frozen=True, slots=True, eq=False)
class ProvenArc:
    """An arc in the plane ``normal x = height``, with its first and last point, or a whole ellipse without ``ends``.

    On a sphere it turns about the normal, on a cylinder about the axis, by ``turn``, from the unit vector ``begin`` on,
    which is orthogonal to what it turns about. ``back``: from the last point to the first, since the normal points
    down. ``straight``: a line along a cylinder. ``steep``: next to such a line; its turn is bounded as it stands.
    """

    normal: Vector
    height: flint.arb
    ends: tuple[Vector, Vector] | None
    begin: Vector
    turn: flint.arb
    back: bool = False
    straight: bool = False
    steep: bool = False

    @property
    def known(self) -> bool:
        """Whether the turn lies between nothing and once around, and neither the ends nor a circle's size are vague."""
        if self.ends is None:
            square = 1 - self.height * self.height
            return float(square.rad()) < VAGUE_END * abs(float(square.mid()))
        sharp = all(float(x.rad()) < VAGUE_END for end in self.ends for x in end)
        return sharp and (self.straight or (not self.steep and bool(self.turn > 0 and self.turn < 2 * Arb.pi())))

    def settled(self) -> ProvenArc:
        """The same, with any turn at all where nothing is known of it."""
        full = 2 * Arb.pi()
        if self.ends is None or self.straight or self.steep or (self.turn > 0 and self.turn < full):
            return self
        return replace(self, turn=Arb(0).union(full))


Maker = Callable[[Vector, flint.arb, tuple[Edge, Edge] | None], ProvenArc]


def sphere_arc(normal: Vector, height: flint.arb, edges: tuple[Edge, Edge] | None) -> ProvenArc:
    """An arc of the unit sphere, counter-clockwise seen from the tip of the normal; this and the height for a unit."""
    n = unit_of(normal)
    if edges is None:
        least = int(np.argmin([abs(float(x.mid())) for x in n]))
        aside = cross_of(n, [Arb(int(i == least)) for i in range(3)])
        return ProvenArc(n, height, None, unit_of(aside), 2 * Arb.pi())
    first, last = (meeting(p, q, leaves, 3) for p, q, leaves in edges)
    one = unit_of(off_of(first, n))
    flat = off_of(last, n)
    return ProvenArc(n, height, (first, last), one, angle_of(dot_of(flat, one), dot_of(flat, cross_of(n, one))))


def cylinder_arc(normal: Vector, height: flint.arb, edges: tuple[Edge, Edge] | None) -> ProvenArc:
    """An arc of the unit cylinder about the third axis, or a straight line."""
    back = bool(normal[2] < 0)  # the angle falls along arcs whose normal points down: they are run through backwards
    if edges is None:
        return ProvenArc(normal, height, None, [Arb(1), Arb(0), Arb(0)], 2 * Arb.pi(), back)
    ends = [meeting(p, q, leaves, 2) for p, q, leaves in edges]
    first, last = ends[::-1] if back else ends
    begin = [*unit_of(first[:2]), Arb(0)]
    turn = angle_of(dot_of(begin[:2], last[:2]), begin[0] * last[1] - begin[1] * last[0])
    found = ProvenArc(normal, height, (ends[0], ends[1]), begin, turn, back, normal[2] == 0)
    if found.straight or (turn > 0 and turn < 2 * Arb.pi() and not normal[2].contains(Arb(0))):
        return found
    # between the ends of the cylinder the angle to the normal has its cosine in a small ball, away from one and -1
    cosine = (height - normal[2] * Arb(0).union(Arb(1))) / root_of(dot_of(normal[:2], normal[:2]))
    if not (cosine > -1 and cosine < 1):
        return found
    return replace(found, turn=Arb(0).union(2 * Arb(cosine.acos().rad())), steep=True)


Ends = list[tuple[int, int, bool]]
"""For both ends of an arc: the vertices of the edge that makes it, and whether the way along this leaves the ball."""


def proven_arcs(
    make: Maker, space: Complex, exactly: Callable[[int], Point], faces: IntArray, ends: list[Ends]
) -> Iterator[ProvenArc]:
    """Arcs in faces of a complex, the first ones with ``ends``, then whole ellipses; ``exactly`` makes vertices."""
    facets, points, errors = space.facets, space.structure.points, space.structure.point_errors
    slips = np.full(len(points), inf) if errors is None else errors
    row = np.full(space.structure.count(2), -1)
    row[facets.cell] = np.arange(len(facets))
    for k, face in enumerate(faces.tolist()):
        at = int(row[face])
        normal, height = facets.normal[at], Arb(float(facets.offset[at]), float(facets.offset_error[at]))
        with flint.ctx.workprec(BITS):
            plane = balls(normal, float(facets.normal_error[at]))
            both = ends[k] if k < len(ends) else None
            edges = None
            if both is not None:
                one, two = ((balls(points[p], slips[p]), balls(points[q], slips[q]), out) for p, q, out in both)
                edges = (one, two)
            arc = make(plane, height, edges)
            if not arc.known:
                corners = space.structure.vertices_of(2)[face].tolist()
                arc = _exact_arc(make, [exactly(v) for v in corners], normal, both, exactly).settled()
        yield arc


def _exact_arc(
    make: Maker, corners: list[Point], along: FloatArray, ends: Ends | None, exactly: Callable[[int], Point]
) -> ProvenArc:
    """An arc from the corners of its face; of both normals, the one that leads ``along``."""
    normal = max((_plane(*three) for three in combinations(corners, 3)), key=lambda n: max(abs(x) for x in n))
    size = max(abs(x) for x in normal)
    sign = 1 if sum(float(a / size) * b for a, b in zip(normal, along.tolist(), strict=True)) > 0 else -1
    level = sum((a * b for a, b in zip(normal, corners[0], strict=True)), Fraction(0))
    n = [sign * x for x in _fractions(normal)]
    length = dot_of(n, n).sqrt()
    height = sign * _fractions((level,))[0] / length
    edges = None
    if ends is not None:
        one, two = ((_fractions(exactly(p)), _fractions(exactly(q)), out) for p, q, out in ends)
        edges = (one, two)
    return make([x / length for x in n], height, edges)


def _fractions(values: tuple[Fraction, ...]) -> Vector:
    return [Arb(flint.fmpq(x.numerator, x.denominator)) for x in values]


def _plane(a: Point, b: Point, c: Point) -> Point:
    """A normal of the plane of three points, nothing if they lie on a line."""
    d, e = ([y - x for x, y in zip(a, other, strict=True)] for other in (b, c))
    return d[1] * e[2] - d[2] * e[1], d[2] * e[0] - d[0] * e[2], d[0] * e[1] - d[1] * e[0]


# --- vectors of balls ------------------------------------------------------------------------------------------------


def balls(point: FloatArray, error: float) -> Vector:
    return [Arb(float(v), error) for v in point]


def ends_of(ball: flint.arb) -> tuple[float, float]:
    """Floats around a ball; nothing is known of one that is not finite."""
    if not ball.is_finite():
        return -inf, inf
    return float(np.nextafter(float(ball.lower()), -np.inf)), float(np.nextafter(float(ball.upper()), np.inf))


def angle_of(x: flint.arb, y: flint.arb) -> flint.arb:
    """The angle of a point of the plane, between 0 and a full turn by its middle: small beside a float guess of it."""
    guess = Arb(float(np.arctan2(float(y.mid()), float(x.mid())) % (2 * np.pi)))
    return guess + Arb.atan2(y * guess.cos() - x * guess.sin(), x * guess.cos() + y * guess.sin())


def meeting(p: Vector, q: Vector, leaves: bool, round_in: int) -> Vector:
    """Where the line from p to q leaves the unit sphere, or cylinder, of the first coordinates, or enters it."""
    d = [b - a for a, b in zip(p, q, strict=True)]
    flat, start = d[:round_in], p[:round_in]
    a, b, c = dot_of(flat, flat), dot_of(start, flat), dot_of(start, start) - 1
    root = root_of(b * b - a * c)
    t = (root - b) / a if leaves else (-b - root) / a
    return [x + t * v for x, v in zip(p, d, strict=True)]


def root_of(x: flint.arb) -> flint.arb:
    """The square root of what is known not to be negative, though its ball may reach below zero."""
    return x.sqrt() if x > 0 else Arb(0).union(x.upper().max(Arb(0)).sqrt())


def dot_of(a: Vector, b: Vector) -> flint.arb:
    return sum((x * y for x, y in zip(a, b, strict=True)), Arb(0))


def off_of(a: Vector, n: Vector) -> Vector:
    part = dot_of(a, n)
    return [x - part * v for x, v in zip(a, n, strict=True)]


def unit_of(a: Vector) -> Vector:
    size = dot_of(a, a).sqrt()
    return [x / size for x in a]


def cross_of(a: Vector, b: Vector) -> Vector:
    return [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]]
