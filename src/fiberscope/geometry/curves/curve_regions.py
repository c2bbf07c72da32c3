"""The regions along a curve: breakpoints in order, what makes them, and the network on every piece."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from fiberscope.errors import InputError
from fiberscope.geometry.affine_forms import crossing_gradients, jumps, output_forms
from fiberscope.geometry.curves.breakpoints import Breaks
from fiberscope.geometry.curves.curve import Path
from fiberscope.geometry.facets import bends_across, unit
from fiberscope.network.network import AffineMap, Network
from fiberscope.network.walk import affine_output
from fiberscope.numerics.algebra.bounded import Bounded
from fiberscope.numerics.floats import TINY, BoolArray, FloatArray, IntArray, SignArray
from fiberscope.results import Pictured, Tabular, hidden


@dataclass(frozen=True, eq=False)
class CurveRegions(Tabular, Pictured):
    """The regions of a network along a curve, ``B`` breakpoints and ``R`` regions in the order of the parameter.

    A region is a maximal open interval on which the sign of every neuron is constant, zero allowed. So a neuron that
    only touches zero makes a breakpoint too; it is marked in ``tangential`` and is never visible.

    There are ``R = B + 1`` regions of the parameter's interval. A closed curve is also a loop, whose breakpoints,
    distances and visible kinks do not depend on where it starts: if a neuron vanishes at the closing point, that is the
    last breakpoint, at the end of the interval, and ``R = B``. The loop has ``num_regions_closed`` regions.
    What costs more than the count (signs, weights, affine maps) is computed when it is asked for.
    """

    net: Network = field(repr=False, metadata=hidden())
    curve: Path
    found: Breaks = field(repr=False, metadata=hidden())

    told = (
        "num_regions",
        "num_pieces",
        "closed=curve.closed",
        "num_regions_closed",
        "num_pieces_closed",
        "breakpoints",
        "enclosures",
        "neurons",
        "lengths",
        "tangential",
        "visible",
        "weights",
        "certified",
        "undecided",
        "residual",
        "exact_decisions",
    )
    frame = ("breakpoints", "neurons", "tangential", "visible")
    picture = "curve_bars"

    @property
    def num_regions(self) -> int:
        """Regions of the interval of the parameter; see ``num_regions_closed`` for those of a loop."""
        return len(self.found.t) + 1 - self.found.closes

    @property
    def breakpoints(self) -> FloatArray:
        """Parameters of the breakpoints, ``(B,)``, rounded to floats."""
        return self.found.t

    @property
    def enclosures(self) -> FloatArray:
        """An interval around the exact position of each breakpoint, ``(B, 2)``.

        The order of breakpoints is decided even where two of these intervals overlap.
        """
        return np.stack([self.found.lower, self.found.upper], axis=1)

    @cached_property
    def neurons(self) -> tuple[tuple[int, ...], ...]:
        """For every breakpoint the entries of the sign vector that vanish there, and not on both sides of it."""
        return tuple(tuple(self.found.neurons[i].tolist()) for i in range(len(self.found.t)))

    @property
    def neuron(self) -> IntArray:
        """The first neuron of every breakpoint, ``(B,)``."""
        return np.asarray(self.found.neurons.indices[self.found.neurons.indptr[:-1]])

    @cached_property
    def signs(self) -> SignArray:
        """Sign vectors of the regions, ``(R, num_signs)``."""
        return self.found.signs()

    @property
    def _beside(self) -> IntArray:
        """The regions before and behind every breakpoint, ``(B, 2)``."""
        before = np.arange(len(self.found.t))
        return np.stack([before, (before + 1) % self.num_regions if self.found.closes else before + 1], axis=1)

    @cached_property
    def tangential(self) -> BoolArray:
        """Breakpoints at which neurons vanish and no sign changes, ``(B,)``."""
        one, two = self.signs[self._beside.T]
        return np.asarray((one == two).all(axis=1))

    @property
    def intervals(self) -> FloatArray:
        """Parameters at both ends of every region, ``(R, 2)``."""
        lo, hi = self.curve.interval
        t = np.concatenate([[lo], self.breakpoints[: self.num_regions - 1], [hi]])
        return np.stack([t[:-1], t[1:]], axis=1)

    @cached_property
    def lengths(self) -> FloatArray:
        """Arc length of the curve inside every region, ``(R,)``; they add up to the length of the curve."""
        ends = self.intervals
        return np.asarray(np.diff(self.curve.arc_length(np.append(ends[:, 0], ends[-1, 1]))))

    @property
    def loop_lengths(self) -> FloatArray:
        """As ``lengths``, of the regions of a closed curve as a loop: the first has what the last had before it."""
        if self.num_regions_closed == self.num_regions:
            return self.lengths
        return np.append(self.lengths[0] + self.lengths[-1], self.lengths[1:-1])

    @cached_property
    def arc_lengths(self) -> FloatArray:
        """Arc length from the start of the curve to every breakpoint, ``(B,)``."""
        return self.curve.arc_length(self.breakpoints) if len(self.breakpoints) else np.zeros(0)

    @cached_property
    def points(self) -> FloatArray:
        """The breakpoints in the input space, ``(B, ambient)``."""
        return self.curve(self.breakpoints) if len(self.breakpoints) else np.zeros((0, self.curve.ambient))

    # -- how sure it is --------------------------------------------------------------------------------------------

    @property
    def certified(self) -> bool:
        """Whether every decision is proven and the curve itself, not a substitute, was followed."""
        return self.found.undecided == 0 and self.found.residual == 0.0

    @property
    def undecided(self) -> int:
        """Decisions that were left to floats: whether two roots coincide, or a neuron touches zero."""
        return self.found.undecided

    @property
    def residual(self) -> float:
        """Largest distance seen between the curve and the interpolant that was followed; 0 for the curve itself."""
        return self.found.residual

    @property
    def exact_decisions(self) -> int:
        """How many decisions floats with error bounds left open."""
        return self.found.by_exact

    def exact_breakpoint(self, index: int) -> Fraction:
        """The rational parameter of a breakpoint on a segment or polyline."""
        if self.found.exact is None:
            raise InputError(f"expected a segment or polyline, whose breakpoints are rational, got {self.curve}")
        exact = self.found.exact(index)
        assert isinstance(exact, Fraction)
        return exact

    # -- the function ----------------------------------------------------------------------------------------------

    @cached_property
    def _jump(self) -> tuple[Bounded, BoolArray]:
        beside = self._beside
        one, two = self.signs[beside.T]
        entry = self.neuron
        rows = np.arange(len(entry))
        with np.errstate(over="ignore", invalid="ignore"):  # a weight beyond the floats says so itself
            gradient = crossing_gradients(self.net, one, two, entry)
            turn = np.where(two[rows, entry].astype(np.int64) < one[rows, entry], -1.0, 1.0)
            pools = self.net.layout.pooled[entry] if len(entry) else np.zeros(0, dtype=bool)
            normal = unit(gradient) * np.where(pools, 1.0, turn)[:, None]
            jump = jumps(self.net, one, two, normal)
        # Where neurons with other normals vanish too, a jump of zero along the first one's says nothing of theirs;
        # nor does one along a normal that floats lost.
        open_jump = (np.diff(self.found.neurons.indptr) > 1) | ~(np.isfinite(normal).all(axis=1) & normal.any(axis=1))
        jump.error[open_jump] = np.maximum(jump.error[open_jump], TINY)
        visible, _, _ = bends_across(self.net, self.signs, beside, jump)
        jump.value[~visible] = 0.0
        return jump, visible

    @property
    def visible(self) -> BoolArray:
        """Whether the affine maps on the two sides of a breakpoint differ, decided exactly, ``(B,)``."""
        return self._jump[1]

    @property
    def weights(self) -> FloatArray:
        """Jump of the gradient at every breakpoint along the unit normal of its first neuron, ``(B, out)``.

        The normal points onward; where one facet is crossed this is the facet's weight.
        """
        return self._jump[0].value

    @property
    def num_pieces(self) -> int:
        """Intervals of the parameter on which the network is one affine map of the input: visible breakpoints inside,
        plus one."""
        return int(self.visible[: self.num_regions - 1].sum()) + 1

    @property
    def num_regions_closed(self) -> int:
        """Regions of a closed curve as a loop: as many as breakpoints, or one. The first and the last interval are one
        region, unless the closing point is a breakpoint. For a curve that is not closed, ``num_regions``."""
        return max(1, len(self.found.t)) if self.curve.closed else self.num_regions

    @property
    def num_pieces_closed(self) -> int:
        """As ``num_pieces``, of a closed curve as a loop."""
        return max(1, int(self.visible.sum())) if self.curve.closed else self.num_pieces

    def affine_map(self, region: int) -> AffineMap:
        """The network on one region."""
        if not 0 <= region < self.num_regions:
            raise InputError(f"region: expected 0 to {self.num_regions - 1}, got {region}")
        rows = affine_output(self.net.layout, self.net.in_size, self.signs[region])
        return AffineMap(rows[:-1].T.copy(), rows[-1].copy())

    @cached_property
    def affine_maps(self) -> tuple[FloatArray, FloatArray]:
        """Matrices ``(R, out, n)`` and offsets ``(R, out)`` of the network on every region, infinite beyond floats."""
        forms = output_forms(self.net, self.signs).value
        return forms[:, :, :-1], forms[:, :, -1]

    def region_at(self, t: Any) -> IntArray:
        """The region of every parameter; a breakpoint belongs to the region behind it."""
        found = np.searchsorted(self.breakpoints, self.curve.parameters(t), side="right")
        return np.asarray(found % self.num_regions if self.found.closes else found)

    def distance(self, t: Any) -> FloatArray:
        """Arc length from every parameter to the nearest breakpoint along the curve; infinite if there is none."""
        return distance_to(self.curve, self.breakpoints, t)

    # -- for people and machines -----------------------------------------------------------------------------------

    def __len__(self) -> int:
        return self.num_regions

    def __repr__(self) -> str:
        word = "region" if self.num_regions == 1 else "regions"
        if self.curve.closed and self.num_regions_closed != self.num_regions:
            word = f"{word} of the parameter, {self.num_regions_closed} of the loop,"
        if self.certified:
            how = "certified"
        elif self.residual:
            how = f"for the interpolant, residual {self.residual:.1g}, {self.undecided} undecided"
        else:
            how = f"{self.undecided} undecided"
        return f"CurveRegions({self.num_regions} {word} along {self.curve}, {how})"


def distance_to(curve: Path, breakpoints: FloatArray, t: Any) -> FloatArray:
    """Arc length from every parameter to the nearest of some others; infinite if there are none."""
    values = np.atleast_1d(np.asarray(t, dtype=np.float64))
    if not len(breakpoints):
        return np.full(len(values), np.inf)
    here, marks = curve.arc_length(values), curve.arc_length(breakpoints)
    if curve.closed:
        marks = np.concatenate([marks - curve.length, marks, marks + curve.length])
    after = np.searchsorted(marks, here)
    left = np.where(after > 0, here - marks[np.maximum(after - 1, 0)], np.inf)
    right = np.where(after < len(marks), marks[np.minimum(after, len(marks) - 1)] - here, np.inf)
    return np.asarray(np.minimum(left, right))
