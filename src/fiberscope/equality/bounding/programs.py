"""Bounds of the difference of two programs of any nodes on boxes, in products of matrices.

The same forms as in :mod:`fiberscope.equality.bounding.kernels`, for programs whose nodes correspond to each other one
by one: ``rows`` holds the centre and then one row of coefficients for every generator, so that an operator is applied
to all of them at once. Without a correspondence each network has forms of its own, which share the inputs only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import NamedTuple

import numpy as np

from fiberscope.equality.bounding.chains import Bounds
from fiberscope.network.network import Network
from fiberscope.network.nodes import Add, Affine, Concat, MaxPool, Node, PiecewiseLinear
from fiberscope.network.operators import Dense, Gather, Operator, Sparse
from fiberscope.numerics.algebra.bounded import SMALL
from fiberscope.numerics.floats import TINY, BoolArray, FloatArray, U
from fiberscope.run import ENDLESS, Run

EPS = 4.0 * U
"""More than the relative error of three roundings."""

MOST_NUMBERS = 40_000_000
"""Numbers of one form up to which open neurons get generators; beyond, what they may do goes into the radius."""


class Form(NamedTuple):
    """``centre + generators``, ``(1 + generators, size)``, and a radius for what was rounded, ``(size,)``."""

    rows: FloatArray
    radius: FloatArray

    def reach(self) -> FloatArray:
        """Largest distance from the centre, rounded up."""
        return np.asarray((np.abs(self.rows[1:]).sum(axis=0) + self.radius) * (1 + (len(self.rows) + 8) * EPS))

    def size(self) -> FloatArray:
        """Largest absolute value, rounded up."""
        return np.asarray((np.abs(self.rows[0]) + self.reach()) * (1 + EPS))

    def ends(self) -> tuple[FloatArray, FloatArray]:
        """Lower and upper ends, rounded outward."""
        reach = self.reach()
        zero = (reach == 0) & (self.rows[0] == 0)
        slack = np.where(zero, 0.0, EPS * (np.abs(self.rows[0]) + reach) + TINY)
        return self.rows[0] - reach - slack, self.rows[0] + reach + slack


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


def padded(rows: FloatArray, count: int) -> FloatArray:
    """With zeros for generators that were made later."""
    more = count - len(rows)
    return rows if more == 0 else np.concatenate([rows, np.zeros((more, rows.shape[1]))])


def applied(stage: Operator, rows: FloatArray) -> FloatArray:
    """An operator on all rows; the many zeros of the inputs' own rows are skipped."""
    if isinstance(stage, Dense) and rows.shape[1] > 64:
        used = np.flatnonzero((rows != 0).any(axis=0))
        if 4 * len(used) < 3 * rows.shape[1]:
            return np.asarray(rows[:, used] @ stage.matrix[:, used].T)
    return np.asarray(stage.apply(rows))


def through(stage: Operator, form: Form) -> Form:
    """One linear map, with all that its products may have lost."""
    unit, size = (2 * stage.fan_in + 24) * EPS, form.size()
    # one so small that its rounding would underflow counts more: a large weight must not meet a lost term
    rounded = np.where(size == 0, 0.0, unit * np.maximum(size, SMALL))
    lost = stage.apply_abs((form.radius + rounded)[None])[0] * (1 + unit)
    touched = stage.apply_abs((size > 0).astype(np.float64)[None])[0] > 0
    return Form(applied(stage, form.rows), np.where(touched, lost + TINY, 0.0))


def shifted(form: Form, offset: FloatArray | None) -> Form:
    """With an offset, which rounds the centre once."""
    if offset is None or not offset.any():
        return form
    rows = form.rows.copy()
    rows[0] += offset
    exact = (form.rows == 0).all(axis=0) & (form.radius == 0)
    return Form(rows, np.where(exact, 0.0, form.radius + EPS * (np.abs(rows[0]) + np.abs(offset))))


def chords(low: FloatArray, high: FloatArray, slopes: FloatArray) -> FloatArray:
    """Slopes of the lines through the ends of the activation on intervals around 0; 0 where they cannot be had."""
    with np.errstate(all="ignore"):
        found = (high - slopes * low) / (high - low)
    return np.where(np.isfinite(found), found, 0.0)


def enclosed(low: FloatArray, high: FloatArray, slopes: FloatArray, factor: FloatArray) -> Sequence[FloatArray]:
    """Middle and half width of ``f(z) - factor z`` on intervals around 0, rounded outward."""
    left, right = (slopes - factor) * low, (1.0 - factor) * high
    slack = EPS * (np.abs(slopes) + np.abs(factor) + 1.0) * np.maximum(np.abs(low), np.abs(high)) + TINY
    down = np.minimum(0.0, np.minimum(left, right)) - slack
    up = np.maximum(0.0, np.maximum(left, right)) + slack
    return 0.5 * down + 0.5 * up, (0.5 * up - 0.5 * down) * (1 + EPS) + TINY


def widened(rows: FloatArray, radius: FloatArray, half: FloatArray, open_: BoolArray) -> Form:
    """With a new generator for every open entry; in the radius, and one generator of zeros, where there is no room."""
    where = np.flatnonzero(open_)
    if (len(rows) + len(where)) * rows.shape[1] > MOST_NUMBERS:
        return Form(padded(rows, len(rows) + 1), radius + np.where(open_, half, 0.0))
    new = np.zeros((len(where), rows.shape[1]))
    new[np.arange(len(where)), where] = half[where]
    return Form(np.concatenate([rows, new]), radius)


@dataclass(frozen=True, slots=True, eq=False)
class ProgramPair:
    """Two programs whose nodes correspond, or not (``paired``); with a ``margin`` the question is about classes."""

    a: Network
    b: Network
    margin: float | None
    paired: bool = True
    run: Run = ENDLESS
    """Looked at between nodes: one of a wide network may take a second."""

    @classmethod
    def of(
        cls, a: Network, b: Network, margin: float | None, paired: bool = True, run: Run = ENDLESS
    ) -> ProgramPair | None:
        """The pair, None where nodes do not correspond and should."""
        return cls(a, b, margin, paired, run) if not paired or corresponding(a, b) else None

    def bounds(self, low: FloatArray, high: FloatArray) -> Bounds:
        """Bounds on boxes, ``(count, inputs)`` each."""
        with np.errstate(all="ignore"):
            found = [self._one(*box) for box in zip(low, high, strict=True)]
        bound, dimension, opened, points = zip(*found, strict=True)
        return Bounds(np.array(bound), np.array(dimension), np.array(opened), np.array(points))

    def _one(self, low: FloatArray, high: FloatArray) -> tuple[float, int, int, FloatArray]:
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
        values = [Twin(start, Form(start.rows * 0.0, start.radius * 0.0), np.zeros((0, start.rows.shape[1])))]
        layout = self.a.layout
        for index, (one, two) in enumerate(zip(self.a.nodes, self.b.nodes, strict=True)):
            self.run.check()
            sources = [values[s] for s in one.sources]
            values.append(_both(one, two, sources))
            for s in layout.released[index]:
                values[s] = values[-1]  # nobody reads it any more
        return values[-1]


def started(low: FloatArray, high: FloatArray) -> Form:
    """The input: a generator for every coordinate that is not fixed."""
    centre = 0.5 * low + 0.5 * high
    radius = np.maximum(high - centre, centre - low)
    radius = np.where(radius > 0, radius * (1 + EPS) + TINY, 0.0)
    wide = np.flatnonzero(low < high)
    rows = np.zeros((1 + len(wide), low.size))
    rows[0] = centre
    rows[1 + np.arange(len(wide)), wide] = radius[wide]
    return Form(rows, np.where(low < high, 0.0, radius))


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


# -- one program alone -------------------------------------------------------------------------------------------------


def alone(net: Network, start: Form, run: Run = ENDLESS) -> Form:
    """The output of one network."""
    values = [start]
    for node in net.nodes:
        run.check()
        values.append(_single(node, [values[s] for s in node.sources]))
    return values[-1]


def _single(node: Node, sources: list[Form]) -> Form:
    form = sources[0]
    if isinstance(node, Affine):
        for stage in node.operator.stages():
            form = through(stage, form)
        return shifted(form, node.offset)
    if isinstance(node, PiecewiseLinear):
        return bent(form, node.slopes)[0]
    if isinstance(node, MaxPool):
        return pooled(form, node)
    count = max(len(s.rows) for s in sources)
    parts = [padded(s.rows, count) for s in sources]
    radii = [s.radius for s in sources]
    if isinstance(node, Add):
        total = np.sum(parts, axis=0)
        lost = len(parts) * EPS * np.sum([np.abs(p) for p in parts], axis=(0, 1))
        return Form(total, np.sum(radii, axis=0) * (1 + EPS) + lost)
    rows, radius = np.concatenate(parts, axis=1), np.concatenate(radii)
    return Form(rows, radius) if node.order is None else Form(rows[:, node.order], radius[node.order])


def bent(form: Form, slopes: FloatArray, low: FloatArray | None = None, high: FloatArray | None = None) -> Bent:
    """Behind an activation, and what every neuron was found to do."""
    if low is None or high is None:
        low, high = form.ends()
    on, off = (low >= 0) | (slopes == 1), high <= 0
    open_ = ~(on | off)
    factor = np.where(on, 1.0, np.where(off, slopes, chords(low, high, slopes)))
    middle, half = enclosed(low, high, slopes, factor)
    middle, half = np.where(open_, middle, 0.0), np.where(open_, half, 0.0)
    flat = factor == 0  # chosen and not multiplied: flat is flat whatever overflowed before
    rows = np.where(flat, 0.0, form.rows * factor)
    rows[0] += middle
    plain = on | (off & flat)
    size = np.maximum(np.abs(low), np.abs(high)) + form.size()
    radius = np.where(flat & ~open_, 0.0, np.abs(factor) * form.radius * (1 + EPS))
    radius = radius + np.where(plain, 0.0, EPS * (np.abs(factor) * size + np.abs(middle)) + TINY)
    return Bent(widened(rows, radius, half, open_), on, off, open_)


class Bent(NamedTuple):
    """A form behind an activation, with masks of the neurons that are on, off, open."""

    form: Form
    on: BoolArray
    off: BoolArray
    open: BoolArray


def pooled(form: Form, node: MaxPool) -> Form:
    """The largest of every window: the entry with the largest centre, and how far another one may be above it."""
    low, high = form.ends()
    index, above = winners(low, high, form.rows[0], node)
    rows, radius = form.rows[:, index].copy(), form.radius[index]
    open_ = above > 0
    half = np.where(open_, 0.5 * above * (1 + EPS) + TINY, 0.0)
    rows[0] += half
    return widened(rows, radius + np.where(open_, EPS * (np.abs(rows[0]) + half), 0.0), half, open_)


def winners(low: FloatArray, high: FloatArray, centre: FloatArray, node: MaxPool) -> tuple[np.ndarray, FloatArray]:
    """For every window an entry, and a bound of how far the maximum is above it; 0 where none can be."""
    windows, absent = node.windows, node.windows < 0
    at = np.where(absent, -np.inf, centre[windows])
    own = np.arange(len(windows)), at.argmax(axis=1)
    index = windows[own]
    top = np.where(absent, -np.inf, high[windows])
    top[own] = -np.inf
    rival = top.max(axis=1, initial=-np.inf)
    above = (rival - low[index]) * (1 + EPS) + EPS * (
        np.abs(low[index]) + np.where(rival > -np.inf, np.abs(rival), 0.0)
    )
    return index, np.where(rival <= low[index], 0.0, np.where(above > 0, above, np.where(above <= 0, 0.0, np.inf)))


# -- two programs side by side -----------------------------------------------------------------------------------------


def corresponding(a: Network, b: Network) -> bool:
    """Whether the nodes of two programs are of the same kinds, shapes and wiring, and their activations the same."""
    if len(a.nodes) != len(b.nodes):
        return False
    return all(_same_kind(one, two) for one, two in zip(a.nodes, b.nodes, strict=True))


def _same_kind(one: Node, two: Node) -> bool:
    if type(one) is not type(two) or one.sources != two.sources or prod(one.shape) != prod(two.shape):
        return False
    if isinstance(one, Affine) and isinstance(two, Affine):
        stages = one.operator.stages(), two.operator.stages()
        return len(stages[0]) == len(stages[1]) and all(map(_same_stage, *stages))
    if isinstance(one, PiecewiseLinear) and isinstance(two, PiecewiseLinear):
        return np.array_equal(one.slopes, two.slopes)
    if isinstance(one, MaxPool) and isinstance(two, MaxPool):
        return np.array_equal(one.windows, two.windows)
    if isinstance(one, Concat) and isinstance(two, Concat):
        return one.shapes == two.shapes and one.axis == two.axis
    return True


def _same_stage(one: Operator, two: Operator) -> bool:
    if type(one) is not type(two) or one.in_shape != two.in_shape or one.out_shape != two.out_shape:
        return False
    if isinstance(one, Gather) and isinstance(two, Gather):
        return np.array_equal(one.index, two.index)
    if isinstance(one, Sparse) and isinstance(two, Sparse):
        ours, theirs = one.matrix, two.matrix
        return np.array_equal(ours.indptr, theirs.indptr) and np.array_equal(ours.indices, theirs.indices)
    return one.coefficients.shape == two.coefficients.shape and repr(one) == repr(two)


def _both(one: Node, two: Node, sources: list[Twin]) -> Twin:
    twin = sources[0]
    if isinstance(one, Affine) and isinstance(two, Affine):
        for left, right in zip(one.operator.stages(), two.operator.stages(), strict=True):
            twin = _stage(left, right, twin)
        gap = _offset_gap(one, two)
        return Twin(shifted(twin.a, one.offset), shifted(twin.d, gap), twin.own)
    if isinstance(one, PiecewiseLinear):
        return _bent_pair(twin, one.slopes)
    if isinstance(one, MaxPool):
        return _pooled_pair(twin, one)
    ca, co = max(len(s.a.rows) for s in sources), max(len(s.own) for s in sources)
    parts_a = [Form(padded(s.a.rows, ca), s.a.radius) for s in sources]
    full = [np.concatenate([padded(s.d.rows, ca), padded(s.own, co)]) for s in sources]
    parts_d = [Form(rows, s.d.radius) for rows, s in zip(full, sources, strict=True)]
    a, d = _single(one, parts_a), _single(one, parts_d)
    return Twin(a, Form(d.rows[:ca], d.radius), d.rows[ca:])


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


def _bent_pair(twin: Twin, slopes: FloatArray) -> Twin:
    """Behind an activation; the difference is ``p z_a + q d + e h_a``, and an interval where that is not exact."""
    low, high = twin.a.ends()
    dl, du = twin.ends()
    other = twin.other()
    slack = EPS * (np.abs(low) + np.abs(high) + np.abs(dl) + np.abs(du)) + TINY
    lb, ub = np.maximum(other[0], low - du - slack), np.minimum(other[1], high - dl + slack)
    same = (dl == 0) & (du == 0)
    nothing = ~twin.d.rows.any(axis=0) & ~twin.own.any(axis=0) & (twin.d.radius == 0) | same
    new = bent(twin.a, slopes, low, high)
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
    grown = widened(np.concatenate([rows, own]), radius, spread, open_b & ~gone)
    return Twin(ha, Form(grown.rows[:count], grown.radius), grown.rows[count:])


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


def _pooled_pair(twin: Twin, node: MaxPool) -> Twin:
    """Where one entry wins in both, its difference; else any between the smallest and the largest of the window."""
    low, high = twin.a.ends()
    lb, ub = twin.other()
    a = pooled(twin.a, node)
    index, above = winners(low, high, twin.a.rows[0], node)
    windows, absent = node.windows, node.windows < 0
    top = np.where(absent | (windows == index[:, None]), -np.inf, ub[windows]).max(axis=1)
    sure = (above == 0) & (top <= lb[index])
    dl, du = twin.ends()
    least = np.where(absent, np.inf, dl[windows]).min(axis=1)
    most = np.where(absent, -np.inf, du[windows]).max(axis=1)
    middle, half = 0.5 * least + 0.5 * most, (0.5 * most - 0.5 * least) * (1 + 2 * EPS) + TINY
    half = np.where((least == 0) & (most == 0), 0.0, half + EPS * np.abs(middle))
    rows, own = np.where(sure, twin.d.rows[:, index], 0.0), np.where(sure, twin.own[:, index], 0.0)
    rows = padded(rows, len(a.rows))
    rows[0] += np.where(sure, 0.0, middle)
    radius = np.where(sure, twin.d.radius[index], 0.0)
    grown = widened(np.concatenate([rows, own]), radius, np.where(sure, 0.0, half), ~sure & (half > 0))
    return Twin(a, Form(grown.rows[: len(a.rows)], grown.radius), grown.rows[len(a.rows) :])
