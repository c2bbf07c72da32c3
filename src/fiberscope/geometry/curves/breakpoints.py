"""What an engine finds along a curve: breakpoints in order, the neurons that make them, signs of the regions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import count
from typing import NamedTuple

import numpy as np

from fiberscope.geometry.cells import Incidence
from fiberscope.numerics.arrays import pointers
from fiberscope.numerics.floats import BoolArray, FloatArray, IntArray, SignArray


@dataclass(frozen=True, slots=True, eq=False)
class Breaks:
    """Breakpoints ``t`` with enclosures ``lower <= t* <= upper``, and how they were decided.

    ``neurons`` are the entries of the sign vector that vanish at each breakpoint and not on both sides of it.
    ``signs`` gives the sign vectors of the regions when it is called. On a closed curve whose closing point is a
    breakpoint, ``closes`` is set and that point is the last one, at the end of the interval. ``undecided`` counts the
    decisions that no arithmetic could make; ``residual`` bounds the distance of the curve from what stood for it.
    """

    t: FloatArray
    lower: FloatArray
    upper: FloatArray
    neurons: Incidence
    signs: Callable[[], SignArray]
    by_float: int
    by_exact: int
    undecided: int = 0
    residual: float = 0.0
    exact: Callable[[int], object] | None = None
    closes: bool = False


def grouped(point: IntArray, entry: IntArray, count: int) -> Incidence:
    """The entries of every one of ``count`` points, in order, each once."""
    if len(point):
        both = np.unique(np.stack([point, entry], axis=1), axis=0)
        point, entry = both[:, 0], both[:, 1]
    starts = pointers(np.bincount(point, minlength=count))
    return Incidence(starts.astype(np.int64), entry)


def chosen(makers: Incidence, keep: IntArray) -> Incidence:
    """The rows ``keep`` of an incidence, in that order."""
    sizes = np.diff(makers.indptr)[keep]
    starts = pointers(sizes)
    index = np.arange(starts[-1]) + np.repeat(makers.indptr[keep] - starts[:-1], sizes)
    return Incidence(starts.astype(np.int64), makers.indices[index])


class Marks(NamedTuple):
    """Which points of a curve are breakpoints: their numbers in order, the entries that make them, regions between.

    ``pieces`` is the first piece of every region; with ``closes`` the last breakpoint closes the curve.
    """

    points: IntArray
    neurons: Incidence
    pieces: IntArray
    closes: bool


def marked(point: IntArray, entry: IntArray, order: IntArray, closed: bool) -> Marks:
    """The breakpoints among the points ``order`` along a curve, from pairs of a point and an entry that vanishes there.

    The first and the last point of a closed curve are one: what vanishes there, and on one side of it at most.
    """
    makers = grouped(point, entry, len(order))
    place = 1 + np.flatnonzero(np.diff(makers.indptr)[order[1:-1]] > 0)
    points, neurons, pieces = order[place], chosen(makers, order[place]), np.concatenate([[0], place])
    last = np.unique(np.concatenate([makers[int(order[k])] for k in (0, -1)]))
    if not (closed and len(last)):
        return Marks(points, neurons, pieces, False)
    joined = np.append(neurons.indptr, neurons.indptr[-1] + len(last)), np.append(neurons.indices, last)
    return Marks(np.append(points, order[-1]), Incidence(*joined), pieces, True)


def changing(parts: tuple[SignArray, SignArray], at: SignArray) -> BoolArray:
    """Which entries vanish at a point and not on both sides of it."""
    left, right = parts
    return np.asarray((at == 0) & ((left != 0) | (right != 0)))


# -- a segment in parts that fit into memory --------------------------------------------------------------------------
#
# The cutters keep the values of a layer at all breakpoints so far: of a decoder of images with 64 channels these are
# gigabytes for a few thousand breakpoints. Where they would be too many, the parameters are parted in two, and each one
# is cut on its own: breakpoints in the inside of a part do not depend on the other one. Parts meet in dyadic numbers at
# which no neuron begins or ceases to vanish; where one does, all is parted elsewhere.

MOST = 1 << 27
"""Values of one layer at all points of a part, eight bytes each; a cutter holds some such arrays at once."""

NARROW = Fraction(1, 1 << 36)
"""Parts of this width are not parted again; their ends are floats as they stand."""

Window = tuple[Fraction, Fraction]


class Full(Exception):
    """The next layer has more values at the points of a part than may be held."""


class Meets(Exception):
    """Some neuron begins or ceases to vanish where two parts meet."""


def in_windows(ask: Callable[[Window, int], Breaks]) -> Breaks:
    """All breakpoints of one segment, from ``ask(window, most)``, which raises :class:`Full` or :class:`Meets`."""
    for attempt in count():
        share = Fraction(1, 2) + Fraction(1, 8 << attempt)
        try:
            return _joined(list(_parts(ask, (Fraction(0), Fraction(1)), share)))
        except Meets:  # finitely many places are taken
            continue
    raise AssertionError  # pragma: no cover


def _parts(ask: Callable[[Window, int], Breaks], window: Window, share: Fraction) -> Iterator[Breaks]:
    low, high = window
    if high - low < NARROW:
        yield ask(window, 0)
        return
    try:
        found = ask(window, MOST)
    except Full:
        middle = low + share * (high - low)
        if int(middle.denominator).bit_length() > 50:  # no float any more
            yield ask(window, 0)
            return
        yield from _parts(ask, (low, middle), share)
        yield from _parts(ask, (middle, high), share)
    else:
        yield found


def _joined(parts: list[Breaks]) -> Breaks:
    """One after the other; the last region of a part is the first one of the next."""
    if len(parts) == 1:
        return parts[0]
    t, lower, upper = (np.concatenate([getattr(part, name) for part in parts]) for name in ("t", "lower", "upper"))
    sizes = np.concatenate([np.diff(part.neurons.indptr) for part in parts])
    starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    first = np.concatenate([[0], np.cumsum([len(part.t) for part in parts])])

    def signs() -> SignArray:
        return np.concatenate([part.signs()[k > 0 :] for k, part in enumerate(parts)])

    def exact(i: int) -> object:
        k = int(np.searchsorted(first, i, side="right")) - 1
        known = parts[k].exact
        assert known is not None
        return known(i - int(first[k]))

    neurons = Incidence(starts, np.concatenate([part.neurons.indices for part in parts]))
    counts = (sum(part.by_float for part in parts), sum(part.by_exact for part in parts))
    return Breaks(t, lower, upper, neurons, signs, *counts, exact=exact)
