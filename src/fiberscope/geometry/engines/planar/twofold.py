"""The sharper filter of the planar engine: functionals on a polygon to twice the precision of floats, with bounds.

The values at vertices carry bounds that grow with every layer, by the norm of its weights: on a trained network of six
layers they leave some hundreds of decisions open that are not close at all. Here a polygon's rows are composed from the
weights in about 106 bits; points and orders follow in balls (``flint.arb``). What is still open, a coincidence as a
rule, goes on to the exact oracle.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, assert_never

import flint
import numpy as np

from fiberscope.geometry.engines.planar.exact import FixedProgram, Oracle, Stage
from fiberscope.network.nodes import Add, Affine, Concat, MaxPool, Node, PiecewiseLinear
from fiberscope.numerics.algebra.twofold import TwofoldAlgebra
from fiberscope.numerics.compensated import Twofold
from fiberscope.numerics.floats import FloatArray, U
from fiberscope.numerics.points import Triple, cross, dot, sign

_BITS = 128

_DENSE = 1 << 20
"""Entries of a matrix up to which an operator is taken as a matrix."""


class Unclear(Exception):
    """A ball contains zero, or two overlap."""


def _is_plain(node: Node) -> bool:
    """Whether a node is a moderate affine map or made of ReLUs (or linear entries) alone."""
    match node:
        case Affine():
            return all(stage.in_size * stage.out_size <= _DENSE for stage in node.operator.stages())
        case PiecewiseLinear():
            return bool(np.isin(node.slopes, (0.0, 1.0)).all())
        case MaxPool() | Add() | Concat():
            return False
        case _:
            assert_never(node)


class TwofoldOracle(Oracle):
    """Answers about the vertices of a complex in balls; raises :class:`Unclear` where they do not tell."""

    def __init__(self, exact: Oracle) -> None:
        plane = Twofold.exact(np.eye(3, 2))
        self.twofold = FixedProgram(exact.program.layout, TwofoldAlgebra(), lambda chart: plane)
        self.offsets = exact.offsets
        with flint.ctx.workprec(_BITS):
            self.sides = [(flint.arb(a), flint.arb(b), flint.arb(c)) for a, b, c in exact.sides]

    @classmethod
    def of(cls, exact: Oracle) -> TwofoldOracle | None:
        """The filter in front of an exact oracle, where there is one: in the plane, not in charts."""
        return (
            cls(exact)
            if type(exact) is Oracle and all(_is_plain(node) for node in exact.program.layout.nodes)
            else None
        )

    def line(self, stage: Stage, polygon: int, number: int) -> Triple:
        if number < 0:
            return self.sides[-1 - number]
        if polygon not in stage.twofold_rows:
            stage.twofold_rows[polygon] = self.twofold.functionals(stage.prefix(polygon))
        switch = int(np.searchsorted(self.offsets, number, side="right")) - 1
        rows, j = stage.twofold_rows[polygon][switch], number - int(self.offsets[switch])
        a, b, c = (_ball(rows, i, j) for i in range(3))
        return a, b, c

    def point(self, stage: Stage, polygon: int, first: int, second: int) -> Triple:
        key = (polygon, first, second)
        if key not in stage.twofold_points:
            with flint.ctx.workprec(_BITS):
                found = cross(self.line(stage, polygon, first), self.line(stage, polygon, second))
            if not found[2] > 0:
                raise Unclear
            stage.twofold_points[key] = found
        return stage.twofold_points[key]

    def sign_at(self, line: Triple, point: Triple) -> int:
        """The sign of a line's functional at a point, never 0."""
        with flint.ctx.workprec(_BITS):
            found = sign(dot(line, point))
        if found == 0:
            raise Unclear
        return found

    def ranks(self, lines: Sequence[Triple], a: Triple, b: Triple) -> tuple[list[int], list[float]]:
        """As :func:`.exact.ranks_between`, for lines that meet the segment in different points."""
        with flint.ctx.workprec(_BITS):
            where = [_share(line, a, b) for line in lines]
            order = sorted(range(len(where)), key=lambda k: float(where[k].mid()))
            if any(not where[i] < where[k] for i, k in pairwise(order)):
                raise Unclear
            found = [float(t.mid()) for t in where]
        ranks = np.empty(len(order), dtype=np.int64)
        ranks[order] = np.arange(len(order))
        return ranks.tolist(), found


def _share(line: Triple, a: Triple, b: Triple) -> Any:
    """Where a line divides a segment, to more than the precision of floats."""
    here, there = abs(dot(line, a)) * b[2], abs(dot(line, b)) * a[2]
    found = here / (here + there)
    if not (found.is_finite() and found.rad() < U / 2):
        raise Unclear
    return found


def _ball(rows: Twofold, i: int, j: int) -> Any:
    """One number with its error; the two parts fit into the working precision."""
    parts: tuple[FloatArray, ...] = (rows.high, rows.low, rows.error)
    high, low, error = (float(part[i, j]) for part in parts)
    if not error < np.inf:
        raise Unclear
    with flint.ctx.workprec(_BITS):
        return flint.arb(high, error) + flint.arb(low)
