"""Distances within a curve: arc length from a place on it to the breakpoints before and behind."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fiberscope.errors import InputError
from fiberscope.geometry.curves.curve_regions import CurveRegions
from fiberscope.numerics.floats import FloatArray, IntArray
from fiberscope.results import Tabular


@dataclass(frozen=True, slots=True, eq=False)
class CurveDistance(Tabular):
    """Arc lengths to the next breakpoints in both directions; arrays over the parameters asked for.

    ``before`` and ``after`` are infinite where there is none; ``breakpoint`` is the index of the nearer one among the
    breakpoints of the curve (-1 if there is none) and ``neuron`` the first neuron that makes it.
    """

    before: FloatArray
    after: FloatArray
    breakpoint: IntArray
    neuron: IntArray
    visible_only: bool = field(default=False)

    told = ("nearest",)
    frame = ("before", "after", "nearest", "breakpoint", "neuron")

    @property
    def nearest(self) -> FloatArray:
        """The smaller of the two."""
        return np.asarray(np.minimum(self.before, self.after))

    def __len__(self) -> int:
        return len(self.before)

    def __repr__(self) -> str:
        kind = "visible breakpoint" if self.visible_only else "breakpoint"
        finite = self.nearest[np.isfinite(self.nearest)]
        mean = f"mean {finite.mean():.4g}" if finite.size else "there is none"
        return f"CurveDistance({len(self)} places, to the nearest {kind}: {mean})"


def distance_along(found: CurveRegions, t: Any, *, visible: bool = False) -> CurveDistance:
    """Arc length from every parameter to the breakpoint before and the one after it; a closed curve goes round.

    Parameters
    ----------
    found
        From :func:`fiberscope.regions_along`.
    t
        Parameters inside of the curve's interval.
    visible
        Take only the breakpoints at which the function bends.

    Examples
    --------
    ``|x|`` along the segment from -1 to 3, at its middle ``x = 1``:

    >>> from fiberscope.geometry.curves.along import regions_along
    >>> from fiberscope.geometry.curves.curve import Segment
    >>> from fiberscope.network.network import Network
    >>> net = Network([[[1.0], [-1.0]], [[1.0, 1.0]]], [[0.0, 0.0], [0.0]])
    >>> near = distance_along(regions_along(net, Segment([-1.0], [3.0])), [0.5])
    >>> near.before, near.after, near.neuron
    (array([1.]), array([inf]), array([0]))
    """
    if not isinstance(found, CurveRegions):
        raise InputError(f"found: expected the result of regions_along, got {type(found).__name__}")
    curve = found.curve
    here = curve.arc_length(t)
    which = np.flatnonzero(found.visible) if visible else np.arange(len(found.breakpoints))
    none = np.full(len(here), -1)
    if not len(which):
        far = np.full(len(here), np.inf)
        return CurveDistance(far, far, none, none, visible)
    marks, index = found.arc_lengths[which], which
    if curve.closed:
        marks = np.concatenate([marks - curve.length, marks, marks + curve.length])
        index = np.tile(which, 3)
    last = np.searchsorted(marks, here, side="right") - 1
    after = np.searchsorted(marks, here, side="left")
    back = np.where(last >= 0, here - marks[np.maximum(last, 0)], np.inf)
    ahead = np.where(after < len(marks), marks[np.minimum(after, len(marks) - 1)] - here, np.inf)
    nearer = np.where(back <= ahead, np.maximum(last, 0), np.minimum(after, len(marks) - 1))
    chosen = index[nearer]
    return CurveDistance(back, ahead, chosen, found.neuron[chosen], visible)
