"""Bounds of the difference of two programs of any nodes on boxes, in products of matrices.

The same forms as in :mod:`fiberscope.equality.bounding.kernels`, for programs that correspond to each other as
:mod:`fiberscope.equality.bounding.correspondence` says. If they do not, each has forms of its own, which share the
inputs only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from fiberscope.equality.bounding.chains import Bounds, Layer, layers_of
from fiberscope.equality.bounding.correspondence import AffineRuns, corresponding
from fiberscope.equality.bounding.lines import settled
from fiberscope.equality.bounding.zonotopes import (
    Form,
    alone,
    bent,
    chords,
    enclosed,
    padded,
    pooled,
    rivals,
    shifted,
    side_by_side,
    started,
    summed,
    through,
    widened,
)
from fiberscope.network.commute import pools_first
from fiberscope.network.network import Network
from fiberscope.network.nodes import Affine
from fiberscope.network.operators import Operator
from fiberscope.network.walk import walk
from fiberscope.numerics.algebra.base import LinearMap
from fiberscope.numerics.floats import EPS, TINY, BoolArray, FloatArray, IntArray, U
from fiberscope.run import ENDLESS, Run


class Twin(NamedTuple):
    """A value of ``a``, and its difference from that of ``b`` in common and in own generators."""

    a: Form
    d: Form
    own: FloatArray

    def ends(self) -> tuple[FloatArray, FloatArray]:
        """Of the difference."""
        return Form(np.concatenate([self.d.rows, self.own]), self.d.radius).ends()

    def other(self) -> tuple[FloatArray, FloatArray]:
        """Ends of the value of ``b``."""
        rows = self.a.rows - self.d.rows
        lost = EPS * (np.abs(self.a.rows) + np.abs(self.d.rows)).sum(axis=0)
        return Form(np.concatenate([rows, self.own]), self.a.radius + self.d.radius + lost).ends()


@dataclass(frozen=True, slots=True, eq=False)
class ProgramPair:
    """Two programs whose nodes correspond, or not (``paired``); with a ``margin`` the question is about classes."""

    a: Network
    b: Network
    margin: float | None
    paired: bool = True
    run: Run = ENDLESS
    """Looked at between nodes: one of a wide network may take a second."""
    chains: tuple[list[Layer], list[Layer]] | None = None
    """Both as dense layers, where classes are asked about and they are chains."""
    runs: Mapping[int, AffineRuns] = field(default_factory=dict)
    """The affine maps of both by the last node of ``a``, where the two correspond."""

    @classmethod
    def of(
        cls, a: Network, b: Network, margin: float | None, paired: bool = True, run: Run = ENDLESS
    ) -> ProgramPair | None:
        """The pair, None where nodes do not correspond and should."""
        runs = corresponding(a, b) if paired else {}
        if runs is None:  # exporters may put a pool before the activation that it reads
            a, b = pools_first(a), pools_first(b)
            runs = corresponding(a, b)
        if runs is None:
            return None
        left, right = (None, None) if margin is None else (layers_of(a), layers_of(b))
        chains = None
        if left is not None and right is not None and left[-1].slopes is None is right[-1].slopes:
            chains = (left, right)
        return cls(a, b, margin, paired, run, chains, runs)

    def bounds(self, low: FloatArray, high: FloatArray) -> Bounds:
        """Bounds on boxes, ``(count, inputs)`` each."""
        with np.errstate(all="ignore"):
            found = [self._one(*box) for box in zip(low, high, strict=True)]
        bound, dimension, opened, points = zip(*found, strict=True)
        return Bounds(np.array(bound), np.array(dimension), np.array(opened), np.array(points))

    def settled(self, low: FloatArray, high: FloatArray) -> float:
        """What both chains say on a box, each on its own: not positive only if they have one class there."""
        if self.chains is None:
            return np.inf
        middle = np.clip(0.5 * low + 0.5 * high, low, high)
        return settled(self.chains, low, high, int(self.a(middle[None])[0].argmax()), self.run)

    def _one(self, low: FloatArray, high: FloatArray) -> tuple[float, int, int, FloatArray]:
        bound = self.settled(low, high)
        if bound <= 0:  # no need to look further, nor to split
            return bound, -1, 1, np.clip(0.5 * low + 0.5 * high, low, high)
        start = started(low, high)
        twin = self._twin(start) if self.paired else self._apart(start)
        if self.margin is None:
            down, up = twin.ends()
            size = np.maximum(np.abs(down), np.abs(up))
            k = int(np.where(np.isnan(size), np.inf, size).argmax())
            bound, form = float(size[k]), twin.d.rows[:, k]
        else:
            bound, form = worst_pair(twin, self.margin)
        wide = np.flatnonzero(low < high)
        inputs = np.zeros(low.size)
        inputs[wide] = form[1 : 1 + len(wide)]
        sign = 1.0 if form[0] >= 0 or self.margin is not None else -1.0
        point = np.where(sign * inputs >= 0, high, low)
        middle = 0.5 * low + 0.5 * high
        able = (low < middle) & (middle < high)
        weight = np.where(able, np.abs(inputs) + (high - low) * U, -1.0)
        d = int(weight.argmax()) if able.any() else -1
        opened = len(twin.d.rows) + len(twin.own) - 1 - len(wide)
        return (bound if bound < np.inf else np.inf), d, opened, point

    def _apart(self, start: Form) -> Twin:
        """Both on their own: they have the inputs in common."""
        one, two = (alone(net, start, self.run) for net in (self.a, self.b))
        n = len(start.rows)
        rows = np.concatenate([one.rows[:n] - two.rows[:n], one.rows[n:]])
        lost = EPS * (np.abs(one.rows[:n]) + np.abs(two.rows[:n])).sum(axis=0)
        return Twin(one, Form(rows, one.radius + two.radius + lost), -two.rows[n:])

    def _twin(self, start: Form) -> Twin:
        values = {0: Twin(start, Form(start.rows * 0.0, start.radius * 0.0), np.zeros((0, start.rows.shape[1])))}
        for index in walk(self.a.layout, values, Twins(len(start.rows))):
            self.run.check()
            node = self.a.nodes[index]
            if isinstance(node, Affine):  # the only node that the two do not share; a run is taken at its end
                runs, twin = self.runs.get(index), values[node.source]
                values[index + 1] = twin if runs is None else affine_pair(runs, twin)
        return values[len(self.a.nodes)]


def worst_pair(twin: Twin, margin: float) -> tuple[float, FloatArray]:
    """For the two classes that are hardest to keep apart: the bound, and the form that it is the bound of."""
    a, d, own = twin.a, twin.d, twin.own
    count = a.rows.shape[1]
    first, second = (x.ravel() for x in np.divmod(np.arange(count * count), count))
    first, second = first[first != second], second[first != second]

    def tops(rows: FloatArray, more: FloatArray, radius: FloatArray) -> FloatArray:
        gap = np.concatenate([rows[:, first] - rows[:, second], more[:, first] - more[:, second]])
        size = np.concatenate([np.abs(rows), np.abs(more)]).sum(axis=0)
        lost = radius[first] + radius[second] + EPS * (size[first] + size[second])
        return Form(gap, lost).ends()[1]

    lead = tops(a.rows, own[:0], a.radius) - margin
    gain = tops(d.rows, own, d.radius) - margin
    lost = EPS * (np.abs(a.rows) + np.abs(d.rows)).sum(axis=0)
    beaten = tops(d.rows - a.rows, own, a.radius + d.radius + lost)
    # a class needs to be ahead of all others
    lead = np.where(np.isnan(lead), np.inf, lead).reshape(count, count - 1)
    lead = np.repeat(lead.min(axis=1), count - 1)
    choice = np.stack([lead + EPS * (np.abs(lead) + margin) + TINY, gain + EPS * (np.abs(gain) + margin), beaten])
    choice = np.where(np.isnan(choice), np.inf, choice)
    k = int(choice.min(axis=0).argmax())
    rows = (a.rows, d.rows, d.rows - a.rows)[int(choice[:, k].argmin())]
    return float(choice[:, k].min()), rows[:, first[k]] - rows[:, second[k]]


# -- two programs side by side -----------------------------------------------------------------------------------------


class Twins:
    """How a walk makes one step in twins, where both programs do the same; of affine maps see :func:`affine_pair`.

    ``common`` and ``own`` are the rows of all twins so far.
    """

    def __init__(self, common: int) -> None:
        self.common, self.own = common, 0

    def affine(self, operator: LinearMap, bias: FloatArray | None, value: Twin) -> Twin:
        raise NotImplementedError("the two maps stand in two nodes")

    def add(self, values: Sequence[Twin]) -> Twin:
        return _split(summed([t.a for t in values]), summed(_whole(values)))

    def concat(self, values: Sequence[Twin], order: IntArray | None) -> Twin:
        return _split(side_by_side([t.a for t in values], order), side_by_side(_whole(values), order))

    def piecewise(self, value: Twin, slopes: FloatArray) -> Twin:
        return self._made(_bent_pair(value, slopes, self.common, self.own))

    def window_max(self, value: Twin, windows: IntArray) -> Twin:
        return self._made(_pooled_pair(value, windows, self.common, self.own))

    def _made(self, twin: Twin) -> Twin:
        self.common, self.own = len(twin.a.rows), len(twin.own)
        return twin


def _whole(values: Sequence[Twin]) -> list[Form]:
    """Differences with their own generators behind the common ones, which are as many in all of them."""
    count = max(len(t.a.rows) for t in values)
    return [Form(np.concatenate([padded(t.d.rows, count), t.own]), t.d.radius) for t in values]


def _split(a: Form, whole: Form) -> Twin:
    count = len(a.rows)
    return Twin(a, Form(whole.rows[:count], whole.radius), whole.rows[count:])


def affine_pair(runs: AffineRuns, twin: Twin) -> Twin:
    """Behind the affine maps of both: ``B d + (A - B) a``."""
    if not runs.alike:
        return _unlike(runs, twin)
    for one, two in zip(runs.one, runs.two, strict=True):
        for left, right in zip(one.operator.stages(), two.operator.stages(), strict=True):
            twin = _stage(left, right, twin)
        twin = Twin(shifted(twin.a, one.offset), shifted(twin.d, _offset_gap(one, two)), twin.own)
    return twin


def _unlike(runs: AffineRuns, twin: Twin) -> Twin:
    """The same where the stages are others: both are applied to ``a``, and rounding is all that this costs."""
    one, two = (_behind(run, twin.a) for run in runs)
    whole = _behind(runs.two, Form(np.concatenate([twin.d.rows, twin.own]), twin.d.radius), shifts=False)
    count = len(twin.d.rows)
    gap = one.rows - two.rows
    rows = whole.rows[:count] + gap
    lost = EPS * (np.abs(one.rows) + np.abs(two.rows) + np.abs(gap) + np.abs(rows)).sum(axis=0)
    radius = (whole.radius + one.radius + two.radius) * (1 + 4 * EPS) + lost * (1 + count * EPS) + TINY
    return Twin(one, Form(rows, radius), whole.rows[count:])


def _behind(run: Sequence[Affine], form: Form, shifts: bool = True) -> Form:
    for node in run:
        for stage in node.operator.stages():
            form = through(stage, form)
        form = shifted(form, node.offset if shifts else None)
    return form


def _offset_gap(one: Affine, two: Affine) -> FloatArray | None:
    if one.offset is None and two.offset is None:
        return None
    left, right = (0.0 if node.offset is None else node.offset for node in (one, two))
    return np.asarray(left - right)


def _stage(left: Operator, right: Operator, twin: Twin) -> Twin:
    """``B d + (A - B) a``."""
    a = through(left, twin.a)
    whole = through(right, Form(np.concatenate([twin.d.rows, twin.own]), twin.d.radius))
    count = len(twin.d.rows)
    rows, radius = whole.rows[:count], whole.radius
    if not np.array_equal(left.coefficients, right.coefficients):
        gap = left.coefficients - right.coefficients
        if not np.isfinite(gap).all():  # numbers of opposite signs near the end of the floats
            return Twin(a, Form(rows, np.full_like(radius, np.inf)), whole.rows[count:])
        more = through(left.with_coefficients(gap), twin.a)
        radius = (radius + more.radius) * (1 + EPS) + EPS * (np.abs(rows) + np.abs(more.rows)).sum(axis=0)
        rows = rows + more.rows
    return Twin(a, Form(rows, radius), whole.rows[count:])


def _bent_pair(twin: Twin, slopes: FloatArray, common: int, made: int) -> Twin:
    """Behind an activation; the difference is ``p z_a + q d + e h_a``, and an interval where that is not exact."""
    low, high = twin.a.ends()
    dl, du = twin.ends()
    other = twin.other()
    slack = EPS * (np.abs(low) + np.abs(high) + np.abs(dl) + np.abs(du)) + TINY
    lb, ub = np.maximum(other[0], low - du - slack), np.minimum(other[1], high - dl + slack)
    same = (dl == 0) & (du == 0)
    nothing = ~twin.d.rows.any(axis=0) & ~twin.own.any(axis=0) & (twin.d.radius == 0) | same
    new = bent(twin.a, slopes, common, low, high)
    on, off = (lb >= 0) | (slopes == 1), ub <= 0
    on, off = on & ~(off & ~new.on), off & ~(on & new.on)
    open_b = ~(on | off) & ~nothing
    bound = chords(lb, ub, slopes)
    middle, half = enclosed(lb, ub, slopes, bound)
    share = np.clip(np.nan_to_num(high / (high - low), nan=0.5), 0.0, 1.0)
    part, mid, width = _mixed(dl, du, share)
    rest = 1.0 - slopes
    width = np.abs(rest) * width * (1 + EPS) + EPS * (np.abs(slopes) + np.abs(rest)) * np.maximum(
        np.abs(dl), np.abs(du)
    )
    own_half = np.zeros_like(low)
    own_half[new.open] = np.asarray(enclosed(low, high, slopes, chords(low, high, slopes))[1])[new.open]
    mixes = new.open & open_b & (width <= half + own_half)
    p = np.select(
        [nothing, mixes, new.on & open_b, new.off & open_b, new.open & open_b, new.on & off, new.off & on,
         new.open & on, new.open & off],
        [0 * low, 0 * low, 1 - bound, slopes - bound, -bound, 1 - slopes, slopes - 1, 0 * low - 1, -slopes], 0.0,
    )  # fmt: skip
    q = np.select([mixes, open_b, off], [slopes + rest * part, bound, slopes], 1.0)
    e = np.where(new.open & ~mixes & ~nothing, 1.0, 0.0)
    shift = np.where(mixes, rest * mid, np.where(open_b, -middle, 0.0))
    spread = np.where(mixes, width + TINY, np.where(open_b, half, 0.0))
    ha = new.form
    count = len(ha.rows)
    rows = padded(_times(p, twin.a.rows) + _times(q, twin.d.rows), count) + _times(e, ha.rows)
    rows[0] += shift
    gone = nothing | (new.off & off & (slopes == 0))
    whole = np.abs(twin.d.rows).sum(axis=0) + np.abs(twin.own).sum(axis=0) + twin.d.radius
    size = np.abs(p) * twin.a.size() + np.abs(e) * ha.size() + np.abs(q) * whole
    radius = np.abs(p) * twin.a.radius + np.abs(q) * twin.d.radius + np.abs(e) * ha.radius
    radius = radius * (1 + EPS) + 4 * EPS * (size + np.abs(shift) + spread) + TINY
    rows, radius = np.where(gone, 0.0, rows), np.where(gone, 0.0, radius)
    own = np.where(gone, 0.0, _times(q, twin.own))
    return _split(ha, widened(np.concatenate([rows, own]), radius, spread, open_b & ~gone, count + made))


def _times(factor: FloatArray, rows: FloatArray) -> FloatArray:
    """Chosen and not multiplied where the factor is zero: nothing is left of what overflowed."""
    return np.where(factor == 0, 0.0, factor * rows)


def _mixed(low: FloatArray, high: FloatArray, share: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """A factor ``q`` and the middle and half width of ``R - q d`` where ``R`` is between 0 and ``d``."""
    small, large = np.minimum(np.abs(low), np.abs(high)), np.maximum(np.abs(low), np.abs(high))
    both = (low < 0) & (high > 0)
    least = np.where(both, small / (small + large), 0.0)
    q = np.nan_to_num(np.clip(share, least, 1.0 - least), nan=0.5)
    top, bottom = np.maximum(high, 0.0), np.minimum(low, 0.0)
    slack = EPS * np.maximum(top, -bottom) + TINY
    down, up = np.minimum((1 - q) * bottom, -q * top) - slack, np.maximum((1 - q) * top, -q * bottom) + slack
    return q, 0.5 * down + 0.5 * up, (0.5 * up - 0.5 * down) * (1 + EPS) + TINY


def _beaten(low: FloatArray, high: FloatArray, windows: IntArray) -> BoolArray:
    """Entries of windows that are never the largest: absent, or below another one wherever they may be."""
    floor = np.where(windows < 0, -np.inf, low[windows]).max(axis=1, keepdims=True)
    return np.asarray((windows < 0) | (high[windows] < floor))


def _pooled_pair(twin: Twin, windows: IntArray, common: int, made: int) -> Twin:
    """Where one entry wins in both, its difference; else any between two ends.

    At most it is the largest difference of an entry that may win in ``a``, since the winner of ``b`` is not below that
    entry of ``b``; at least the smallest one of an entry that may win in ``b``.
    """
    low, high = twin.a.ends()
    lb, ub = twin.other()
    a = pooled(twin.a, windows, common)
    index, _, rival = rivals(low, high, windows)
    absent = windows < 0
    top = np.where(absent | (windows == index[:, None]), -np.inf, ub[windows]).max(axis=1)
    sure = (rival <= low[index]) & (top <= lb[index])
    dl, du = twin.ends()
    least = np.where(_beaten(lb, ub, windows), np.inf, dl[windows]).min(axis=1)
    most = np.where(_beaten(low, high, windows), -np.inf, du[windows]).max(axis=1)
    middle, half = 0.5 * least + 0.5 * most, (0.5 * most - 0.5 * least) * (1 + 2 * EPS) + TINY
    half = np.where((least == 0) & (most == 0), 0.0, half + EPS * np.abs(middle))
    rows, own = np.where(sure, twin.d.rows[:, index], 0.0), np.where(sure, twin.own[:, index], 0.0)
    rows = padded(rows, len(a.rows))
    rows[0] += np.where(sure, 0.0, middle)
    radius = np.where(sure, twin.d.radius[index], 0.0)
    whole = np.concatenate([rows, own])
    return _split(a, widened(whole, radius, np.where(sure, 0.0, half), ~sure & (half > 0), len(a.rows) + made))
