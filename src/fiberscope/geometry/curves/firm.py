"""Polygonal chains through many layers: the places of breakpoints and the values there err separately.

The plain cutter keeps the values *at* a breakpoint, whose place is known up to an error ``d``; a value then errs by
``d`` times its slope as well, which next to a neuron that hardly changes is a large multiple of what it erred before.
Layer upon layer these multiples multiply. Here the values stand at a place that is close to the breakpoint and known
exactly, in units of the piece in which it was found, so that a layer adds its roundings and no more. What is asked, the
sign at the breakpoint itself, is the sign of the value where this exceeds its error and the distance of the two places
times its slope on a piece beside it. Where it does not, exact arithmetic answers, and for the order of new breakpoints
the bound of that point grows to what it would have been.

Why the values may be joined: on a piece the network is affine, and the values at its ends are those of this affine
function at the places, not at the breakpoints, but for the neurons that vanish at the breakpoint. Behind their
activation zero stands for what is left at the place: so much is added to the norm of the errors.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from fiberscope.geometry.curves.breakpoints import Breaks, Full, Meets, Window, in_windows
from fiberscope.geometry.curves.curve import Polyline
from fiberscope.geometry.curves.straight import Cutter, Edges, Loose
from fiberscope.geometry.engines.planar import tracked as track
from fiberscope.geometry.engines.planar.arrange import Functionals, sure_signs
from fiberscope.geometry.engines.planar.tracked import Tracked, TrackedAlgebra
from fiberscope.network.network import Network
from fiberscope.network.nodes import MaxPool
from fiberscope.numerics.compiling.kernels import kernel
from fiberscope.numerics.floats import ENTRY_FLOOR, FEW_ROUNDINGS, SMALL, UP, FloatArray, IntArray, SignArray, U
from fiberscope.numerics.points import Triple
from fiberscope.run import ENDLESS, Run

if TYPE_CHECKING:
    from fiberscope.geometry.engines.planar.mesh import Crossings
    from fiberscope.network.layout import Place

DEEP = 6
"""With so many activations cheap bounds leave too much open as a rule: the tighter ones are taken at once."""

FEW = 2048
"""Points at which products are made almost exactly: most breakpoints come in later layers."""

SAFE = 4.0
"""Factor on the bound of a point whose sign was decided exactly: the value may lie on the wrong side of zero."""


WHOLE: Window = (Fraction(0), Fraction(1))
"""All of a segment, and of any other chain."""


def is_firm(net: Network) -> bool:
    """Whether the cutter can be used: all switches are activations."""
    return not any(isinstance(place.node, MaxPool) for place in net.layout.places)


def straight_breaks(net: Network, chain: Polyline, run: Run = ENDLESS) -> Breaks:
    """All breakpoints of a network along a polygonal chain."""
    with np.errstate(all="ignore"):  # what overflows is left to exact arithmetic
        deep = len(net.layout.places) >= DEEP
        if deep and is_firm(net):
            if len(chain.points) > 2:
                return FirmCutter(net, chain).breaks(run)
            return in_windows(lambda window, most: FirmCutter(net, chain, window, most).breaks(run))
        try:
            return Cutter(net, chain, tight=deep).breaks(run)
        except Loose:
            return Cutter(net, chain, tight=True).breaks(run)


class FirmCutter(Cutter):
    """As the plain one, with the distance of every breakpoint from its place (``away``) beside its values.

    A segment may be cut in a ``window`` of its parameters alone, whose ends are floats, with at ``most`` so many values
    of a layer (0: any number); see :func:`.breakpoints.in_windows`.
    """

    def __init__(self, net: Network, chain: Polyline, window: Window = WHOLE, most: int = 0) -> None:
        super().__init__(net, chain, tight=True)
        self.window, self.most = window, most
        if window != WHOLE:
            self.t = np.array([float(end) for end in window])
        self.algebra = TrackedAlgebra(tight=True, few=FEW)
        self.away = np.zeros(len(chain.points))
        self.rounded = np.zeros(len(chain.points))
        self.ordered: list[int] = []

    def _start(self) -> Tracked:
        whole = super()._start()
        if self.window == WHOLE:
            return whole
        both = np.arange(2)
        joined = whole.extended([(np.zeros(2, dtype=np.int64), np.ones(2, dtype=np.int64), self.t, np.zeros(2))])
        return joined.rows(2 + both)

    def _exact(self, point: int, chart: int, near: bool = False) -> Triple:
        if self.window == WHOLE or point >= 2:
            return super()._exact(point, chart, near)
        at = self.window[point]
        return at.denominator - at.numerator, at.numerator, at.denominator

    def _check_ends(self, signs: SignArray) -> None:
        """Nothing begins or ceases to vanish at ends that are not those of the segment."""
        for k, beside in ((0, self.order[1]), (1, self.order[-2])):
            if self.window[k] != k and ((signs[k] == 0) & (signs[beside] != 0)).any():
                raise Meets

    def _split(self, place: Place, values: dict[int, Tracked]) -> None:
        stage, node = len(self.cuts), place.node
        source = values[node.source]
        mesh: Any = Edges(self.ends)
        value, signs = self._decided(mesh, source, stage, place)
        self._check_ends(signs)
        self.ordered = []
        found = self._cross_edges(mesh, Functionals(value), signs, stage, 0)  # type: ignore[arg-type]  # a stage is a number here
        edge, _, t, _ = found.points
        A, B = self._keep(node, mesh.ends, signs, found)
        if place is self.layout.places[-1]:
            return
        if self.most and len(self.t) * self.layout.places[stage + 1].node.num_signs > self.most:
            raise Full
        if len(edge):
            values.update({key: x.extended([(A, B, t, np.zeros(len(t)))]) for key, x in values.items()})
        after = self.cuts[-1].after = self.cuts[-1].point_signs()
        reuse = self.layout.last_use[node.source] == place.index and len(edge) > 0
        silenced = _silenced(values[node.source], after)
        made = track.behind(node, values[node.source], after, reuse, False)
        values[place.index + 1] = replace(made, e2=np.where(silenced == 0, made.e2, (made.e2 + silenced) * UP))

    def _decided(self, mesh: Any, source: Tracked, stage: int, place: Place) -> tuple[Tracked, SignArray]:
        """Signs at the breakpoints, and the values with larger bounds at points where exact arithmetic was asked."""
        V, n = source.z.shape
        beside, share = self._beside()
        signs = np.ones((V, -(-n // 8) * 8), dtype=np.int8)
        wide = np.zeros(V)
        undecided = firm_signs(source.z, source.c, source.r, ENTRY_FLOOR, beside, share, signs, wide)
        sure_signs(place.node, source, lambda: self._numbers[place.node.source])(signs, undecided)
        self.by_float += V * n
        if undecided:
            asked = (signs == 2).any(axis=1)
            self._decide_exactly(mesh, signs, stage, 0)
            source = replace(source, c=np.where(asked, np.maximum(source.c, SAFE * wide) * UP, source.c))
        return source, signs

    def _edge_ranks(self, mesh: Any, edge: int, label: IntArray, stage: Any, first: int) -> Any:
        """Exact orders, with parameters between breakpoints: between places they err by the distances of the ends."""
        self.ordered.append(edge)
        A, B = mesh.ends[edge].tolist()
        *found, error = super()._edge_ranks(mesh, edge, label, stage, first)
        gap = self.t[B] - self.t[A] - self.rounded[A] - self.rounded[B] - 4 * U * (abs(self.t[B]) + 1)
        away = self.away[A] + self.away[B]
        return *found, error if not away else error + 2 * away / gap if gap > 0 else np.inf

    def _beside(self) -> tuple[IntArray, FloatArray]:
        """For every point its neighbour at the far end of the longer piece, and ``away`` in units of that piece."""
        t, slip = self.t[self.order], self.rounded[self.order]
        gap = np.maximum(np.diff(t) - (slip[1:] + slip[:-1]) - 4 * U * (np.abs(t[1:]) + 1), 0.0)
        left, right = np.concatenate([[-1.0], gap]), np.concatenate([gap, [-1.0]])
        use = np.where(left >= right, -1, 1)
        beside, share = np.empty(len(t), dtype=np.int64), np.empty(len(t))
        beside[self.order] = self.order[np.arange(len(t)) + use]
        longest, away = np.maximum(left, right), self.away[self.order]
        share[self.order] = np.where(away == 0, 0.0, away / longest * (1 + 8 * U))
        return beside, share

    def _insert(self, found: Crossings, A: IntArray, B: IntArray) -> None:
        edge, _, t, d = found.points
        old, new = len(self.t), len(edge)
        way = self.t[B] - self.t[A]
        slip = np.maximum(self.rounded[A], self.rounded[B])
        away = d * (np.abs(way) + 2 * slip) * (1 + 8 * U)  # not above the whole piece and the distances of its ends
        away = np.minimum(away, (np.abs(way) + 2 * slip + self.away[A] + self.away[B]) * (1 + 8 * U))
        slip = (slip + 4 * U * (np.abs(self.t[B]) + 1)) * (1 + 8 * U)
        self.t = np.concatenate([self.t, self.t[A] + t * way])
        self.away, self.rounded = np.concatenate([self.away, away]), np.concatenate([self.rounded, slip])
        self.error = np.concatenate([self.error, (away + slip) * (1 + 8 * U)])
        order = np.empty(old + new, dtype=np.int64)
        order[np.arange(old) + found.point_ptr] = self.order
        order[edge + 1 + np.arange(new)] = old + np.arange(new)
        self.order = order


def _silenced(value: Tracked, signs: SignArray) -> FloatArray:
    """Norms of the values for which an activation puts zero at a breakpoint, though not at its place."""
    row, column = np.nonzero(signs[:, : value.r.size] == 0)
    size = np.abs(value.z[row, column]) + value.c[row] * value.r[column] * UP
    size = np.where(size == 0, 0.0, np.maximum(size, SMALL))
    return np.asarray(np.sqrt(np.bincount(row, size**2, len(signs))) * UP)


@kernel
def firm_signs(z: Any, c: Any, r: Any, floor: float, beside: Any, share: Any, s: Any, wide: Any) -> int:
    """Signs at breakpoints from values ``z`` at places, 2 where they are open; how many are.

    ``share[v]`` is the distance of breakpoint ``v`` from its place in units of the piece to the point ``beside[v]``. In
    ``wide`` the bound of row ``v`` for values at the breakpoint, where some sign is open.
    """
    count = 0
    for v in range(z.shape[0]):
        p, f = beside[v], share[v]
        exact, open_here = c[v] == 0.0 and f == 0.0, 0
        scale = c[v] * FEW_ROUNDINGS
        both = f * (c[v] + c[p]) * FEW_ROUNDINGS
        for j in range(z.shape[1]):
            x = z[v, j]
            bound = 0.0
            if not exact:
                bound = scale * r[j] + floor
                if f != 0.0:
                    bound += (f * abs(x - z[p, j]) + both * r[j]) * FEW_ROUNDINGS
            sign = (bound < x < np.inf) - (-np.inf < x < -bound)
            s[v, j] = sign
            open_here += sign == 0
        if open_here and not exact:
            worst = 0.0
            for j in range(z.shape[1]):
                if r[j] != 0.0:
                    worst = max(worst, abs(z[v, j] - z[p, j]) / r[j])
                if s[v, j] == 0 and (r[j] != 0.0 or z[v, j] != 0.0):
                    s[v, j] = 2
                    count += 1
            wide[v] = (scale + both + f * worst) * FEW_ROUNDINGS
    return count
