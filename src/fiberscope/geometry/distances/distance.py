"""Distance of points to the boundary of their regions, with the nearest neuron, the foot point and an error bound.

On the region of ``x`` every neuron is an affine function ``z``, and the region is cut out by the half-spaces of their
signs. The distance of ``x`` to its boundary is therefore exactly ``min |z(x)| / ||grad z(x)||`` over the neurons whose
gradient there is not zero: the ball of that radius touches the nearest hyperplane and meets no other, so that the foot
point lies on a facet (B. Hanin and D. Rolnick, *Complexity of linear regions in deep networks*, ICML 2019, use the
formula; *Effects of data geometry in early deep learning*, 2022, takes it to manifolds).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fiberscope.errors import InputError
from fiberscope.geometry.affine_forms import ExactRegion, jumps, neuron_gradients
from fiberscope.geometry.distances.gradients import (
    MEMORY,
    gradient_norms,
    signs_and_margins,
)
from fiberscope.geometry.distances.quotients import exact_quotient, quotients
from fiberscope.geometry.distances.reduced import reduced
from fiberscope.geometry.distances.ties import ExactFoot, is_affordable
from fiberscope.geometry.facets import bends_across
from fiberscope.network.border import NetworkLike, as_network
from fiberscope.network.network import Network
from fiberscope.numerics.algebra.bounded import Bounded
from fiberscope.numerics.arrays import batch
from fiberscope.numerics.floats import SQUARABLE, TINY, BoolArray, FloatArray, IntArray, SignArray
from fiberscope.results import Pictured, Tabular, hidden
from fiberscope.run import Progress, Run

_LARGEST = float(np.finfo(np.float64).max)

_BATCH = 4096
"""Most points evaluated at a time; fewer if there are so many neurons that their values would not fit."""


@dataclass(frozen=True, slots=True, eq=False)
class BoundaryDistance(Tabular, Pictured):
    """Distances of points to the boundaries of their regions; arrays over the points.

    Parameters
    ----------
    distance
        Euclidean distance, ``(points,)``; 0 on a boundary, infinite if the region is all of the input space.
    lower, upper
        Proven bounds of it: in exact arithmetic it lies between them. Small networks have nine digits, others six, as
        far as numbers of this size have them.
    neuron
        The nearest neuron, as an entry of the sign vector; -1 if there is none. In a pooling window it is the input
        that ties with the winner.
    point
        The foot point on that neuron's facet, ``(points, n)``, in floats; NaN if there is none.
    visible
        Whether the function bends there. An invisible boundary is one of the sign vector only.
    decided
        Where ``visible`` is certain.
    tied
        How many neurons have a distance that rounding cannot tell from the smallest, or the same; 1 as a rule.
    """

    distance: FloatArray
    lower: FloatArray = field(repr=False)
    upper: FloatArray = field(repr=False)
    neuron: IntArray
    point: FloatArray = field(repr=False)
    visible: BoolArray = field(repr=False)
    decided: BoolArray = field(repr=False)
    tied: IntArray = field(repr=False)
    signs: SignArray = field(repr=False, metadata=hidden())
    layers: IntArray = field(repr=False, metadata=hidden())

    told = ("layer",)
    frame = ("distance", "lower", "upper", "neuron", "layer", "point", "visible", "decided", "tied")
    picture = "boundary_distance"

    def __len__(self) -> int:
        return len(self.distance)

    @property
    def layer(self) -> IntArray:
        """The activation layer of the nearest neuron, from 1; 0 if there is none."""
        return np.asarray(np.where(self.neuron >= 0, self.layers[self.neuron] if self.layers.size else 0, 0))

    def __repr__(self) -> str:
        finite = self.distance[np.isfinite(self.distance)]
        middle = f"median {np.median(finite):.4g}" if finite.size else "none finite"
        hidden = int((self.decided & ~self.visible & (self.neuron >= 0)).sum())
        return f"BoundaryDistance({len(self)} points, {middle}; nearest boundary invisible at {hidden})"


def boundary_distance(
    net: NetworkLike,
    X: Any,
    *,
    memory: int = MEMORY,
    progress: Progress | None = None,
    time_limit: float | None = None,
) -> BoundaryDistance:
    """Distance of every point to the boundary of its activation region: ``min |z(x)| / ||grad z(x)||``.

    Signs are certified; the distances come with proven bounds; gradients that vanish identically are told from small
    ones exactly. Differences to the winner take the place of preactivations in max pooling.

    Parameters
    ----------
    net
        Any network: gradients run through its own operators, no matrix of a convolution is formed.
    X
        ``(points, in_size)``.
    memory
        Bytes of the largest array of gradients; points (and for a single point, directions) are taken in parts.
    progress, time_limit
        Called as ``progress(done, total, text)``; seconds after which :class:`OutOfTimeError` is raised.

    Examples
    --------
    Two neurons, ``x`` and ``x + y - 4``, seen from ``(1, 1)``: the first is nearer.

    >>> net = Network([[[1.0, 0.0], [1.0, 1.0]], [[1.0, 1.0]]], [[0.0, -4.0], [0.0]])
    >>> found = boundary_distance(net, [[1.0, 1.0], [3.0, 0.0]])
    >>> found.distance.round(4), found.neuron
    (array([1.    , 0.7071]), array([0, 1]))
    >>> found.point[1]
    array([3.5, 0.5])
    """
    net = as_network(net, points=X)
    if memory < 1:
        raise InputError(f"memory: expected a positive number of bytes, got {memory}")
    run = Run.begin(progress, time_limit)
    points = batch(X, net.in_size)
    sizes = [node.num_signs for node in net.switches]
    layers = np.repeat(np.arange(1, len(sizes) + 1), sizes)
    step = max(1, min(_BATCH, memory // (64 * max(1, net.num_signs)), memory // (8 * net.in_size)))
    joined: list[Any] = []
    feet = np.empty_like(points)  # written in place: of images, every copy takes as long as a product
    for start in range(0, len(points), step):
        run.step(start, len(points), "points")
        part = _part(net, points[start : start + step], feet[start : start + step], memory, run)
        joined = joined or [np.empty((len(points), *x.shape[1:]), dtype=x.dtype) for x in part]
        for whole, own in zip(joined, part, strict=True):
            whole[start : start + step] = own
    return BoundaryDistance(*[*joined[:4], feet, *joined[4:], layers])


def _part(net: Network, X: FloatArray, point: FloatArray, memory: int, run: Run) -> tuple[Any, ...]:
    """What is known of some points, but for their feet: these are written to ``point``."""
    signs, margins = signs_and_margins(net, X)
    if not net.num_signs:
        point[:] = np.nan
        return _no_boundary(X, signs)
    found = quotients(net, X, signs, margins, memory, run)
    rows = np.arange(len(X))
    lower, upper = found.lower.min(axis=1), found.upper.min(axis=1)
    neuron = np.where(np.isfinite(found.middle.min(axis=1)), found.middle.argmin(axis=1), -1)
    tied = (found.lower <= upper[:, None]) & np.isfinite(found.lower)
    feet = _exact_feet(net, X, signs, neuron, tied, run)
    for row, foot in feet.items():
        neuron[row] = foot.entry
    distance = np.clip(found.middle[rows, neuron], lower, upper)
    unit = _feet(net, X, signs, neuron, distance, found.exact, point)
    visible, decided = _visible(net, X, signs, neuron, tied, (unit, point, distance), feet, run)
    return distance, lower, upper, neuron, visible, decided, tied.sum(axis=1), signs


def _exact_feet(
    net: Network, X: FloatArray, signs: SignArray, neuron: IntArray, tied: BoolArray, run: Run
) -> dict[int, ExactFoot]:
    """Which of several neurons is nearest where bounds do not tell, for networks small enough to ask."""
    rows = np.flatnonzero((neuron >= 0) & (tied.sum(axis=1) > 1))
    if not len(rows) or not is_affordable(net):
        return {}
    found = {}
    for row in rows.tolist():
        run.check()
        found[row] = ExactFoot(net, X[row], signs[row], np.flatnonzero(tied[row]).tolist())
    return found


def _no_boundary(X: FloatArray, signs: SignArray) -> tuple[Any, ...]:
    far, none = np.full(len(X), np.inf), np.zeros(len(X), dtype=bool)
    nobody = np.full(len(X), -1)
    return far, far, far, nobody, none, ~none, np.zeros(len(X), dtype=np.int64), signs


def _feet(
    net: Network,
    X: FloatArray,
    signs: SignArray,
    neuron: IntArray,
    distance: FloatArray,
    exact: dict[tuple[int, int], FloatArray],
    foot: FloatArray,
) -> FloatArray:
    """Unit normals towards the nearest boundary; the points on it are written to ``foot``."""
    with np.errstate(over="ignore", invalid="ignore"):
        unit = neuron_gradients(net, signs, neuron)
        # in place: with images for points, passes over these arrays are what takes the time
        length = np.sqrt(np.einsum("ij,ij->i", unit, unit))
    lost = ~((length > SQUARABLE[0]) & (length < SQUARABLE[1]))
    scale = np.where(lost, 0.0, 1 / np.where(lost, 1.0, length))
    rows = np.arange(len(X))
    turn = np.where(signs[rows, neuron] > 0, -1.0, 1.0)
    with np.errstate(invalid="ignore"):  # what overflowed is replaced below
        unit *= (scale * turn)[:, None]
    for row in np.flatnonzero(lost & (neuron >= 0)).tolist():
        unit[row] = turn[row] * _unit_gradient(net, X[row], signs[row], int(neuron[row]))
    unit[lost & (neuron < 0)] = 0.0
    for (row, entry), direction in exact.items():
        if neuron[row] == entry:
            unit[row] = turn[row] * direction
    reach = np.where(np.isfinite(distance), distance, 0.0)
    np.multiply(unit, reach[:, None], out=foot)
    with np.errstate(over="ignore"):
        foot += X
    if not reach.max(initial=0.0) < SQUARABLE[1]:
        np.clip(foot, -_LARGEST, _LARGEST, out=foot)
    foot[neuron < 0] = np.nan
    return unit


def _unit_gradient(net: Network, x: FloatArray, signs: SignArray, entry: int) -> FloatArray:
    """One gradient whose square is no float: scaled first, and exactly if floats have lost it."""
    with np.errstate(over="ignore", invalid="ignore"):
        gradient = neuron_gradients(net, signs[None], np.array([entry]))[0]
    top = float(np.abs(gradient).max(initial=0.0))
    if TINY < top < np.inf:
        gradient = gradient / top
        return np.asarray(gradient / np.linalg.norm(gradient))
    return exact_quotient(ExactRegion(net, signs).margin(entry), x)[1]


def _visible(
    net: Network,
    X: FloatArray,
    signs: SignArray,
    neuron: IntArray,
    tied: BoolArray,
    place: tuple[FloatArray, FloatArray, FloatArray],
    feet: dict[int, ExactFoot],
    run: Run,
) -> tuple[BoolArray, BoolArray]:
    """Whether the function bends at the foot points, and where that is certain.

    A neuron that alone vanishes there changes its sign alone, unless others are zero all over the region: these may
    wake up on the other side. Then the signs are taken from points near by, and where that does not do, or bounds do
    not tell which neuron is nearest, from the exact foot point. What is too large for that stays undecided.
    """
    normal = place[0]
    visible, decided = np.zeros(len(signs), dtype=bool), neuron < 0
    one, two = signs.copy(), signs.copy()
    asleep = (signs == 0).sum(axis=1) - (signs[np.arange(len(signs)), neuron] == 0)
    simple = (tied.sum(axis=1) == 1) & (asleep == 0)
    alone = np.flatnonzero((neuron >= 0) & simple)
    crossed(net, one, two, alone, neuron)
    decided[alone] = True
    hard = np.flatnonzero((neuron >= 0) & ~simple)
    _across(net, hard[tied[hard].sum(axis=1) == 1], neuron, (signs, tied, *place), one, two, decided)
    if is_affordable(net):
        for row in hard[~decided[hard]].tolist():
            run.check()
            foot = feet.get(row) or ExactFoot(net, X[row], signs[row], [int(neuron[row])])
            sides = foot.sides()
            if _open(net, sides, np.broadcast_to(~net.layout.pooled, sides.shape)):
                one[row], two[row] = sides
                decided[row] = True
    known = np.flatnonzero(decided & (neuron >= 0))
    if len(known):
        visible[known] = _bends(net, one[known], two[known], neuron[known], lambda: normal[known])
    return visible, decided


def _bends(
    net: Network, one: SignArray, two: SignArray, neuron: IntArray, normals: Callable[[], FloatArray]
) -> BoolArray:
    """Whether the maps under pairs of signs differ; of a wide first layer with independent rows a square one will do.

    Any direction proves a difference, so that of the square layer's own gradient does as well as the true normal.
    """
    short = reduced(net)
    with np.errstate(over="ignore", invalid="ignore"):
        if short.full:
            net, normal = short.net, neuron_gradients(short.net, one, neuron)
            normal = np.where(np.isfinite(normal), normal, 0.0)
        else:
            normal = normals()
        jump: Bounded = jumps(net, one, two, normal)
    count = np.arange(len(one))
    return bends_across(net, np.concatenate([one, two]), np.column_stack([count, len(one) + count]), jump)[0]


def crossed(net: Network, one: SignArray, two: SignArray, rows: IntArray, neuron: IntArray) -> None:
    """Set the signs on both sides of the facets that ``neuron[rows]`` make alone."""
    window, entry = net.layout.window, neuron[rows]
    if not len(rows):
        return
    pooled, here = net.layout.pooled[entry], one[rows, entry]
    # In a pooling window the others lose, also those that shared the maximum with the old winner.
    losing = pooled[:, None] & (window == window[entry][:, None])
    two[rows] = np.where(losing, -1, two[rows])
    one[rows, entry] = np.where(pooled | (here == 0), -1, here)
    two[rows, entry] = np.where(pooled | (here == 0), 1, -here)


def _open(net: Network, signs: SignArray, neurons: BoolArray) -> bool:
    """Whether those of the neurons that are zero at a point vanish around it, as ``relu(z)`` does for negative z."""
    zero = (signs == 0) & neurons
    if not zero.any():
        return True
    slopes = gradient_norms(net, signs)
    for row, entry in np.argwhere(zero & ((slopes.value != 0) | (slopes.error != 0))):
        form = ExactRegion(net, signs[row]).margin(int(entry))
        if any(not slope.is_zero() for slope in form[:-1]):
            return False
    return True


def _with_windows(net: Network, entries: BoolArray) -> BoolArray:
    """The entries, and all of every pooling window that has one of them: with one input, the winner changes."""
    window = net.layout.window
    if not len(window):
        return entries
    starts = np.flatnonzero(np.diff(window, prepend=-1))
    return np.asarray(np.logical_or.reduceat(entries, starts, axis=1)[:, window])


def _across(
    net: Network,
    rows: IntArray,
    neuron: IntArray,
    at: tuple[SignArray, BoolArray, FloatArray, FloatArray, FloatArray],
    one: SignArray,
    two: SignArray,
    decided: BoolArray,
) -> None:
    """Certified signs a little before and behind the facets of some points, where they can be had.

    The nearest neuron has to change there, or both points lie on one side of it; else only entries that may vanish at
    the foot point, or are zero in the region, may. Inputs of a pool that are switched off together share their zero;
    that is no boundary.
    """
    signs, tied, normal, point, distance = at
    neurons = tied & ~net.layout.pooled
    size = np.maximum(np.maximum(np.abs(point[rows]).max(axis=1, initial=0.0), distance[rows]), 2.0**-200)
    for shift in 0.5 ** np.arange(8, 50, 3):
        if not len(rows):
            return
        step = (shift * size)[:, None] * normal[rows]
        with np.errstate(over="ignore"):
            near_by = np.clip(np.concatenate([point[rows] - step, point[rows] + step]), -_LARGEST, _LARGEST)
        before, behind = np.split(net.signs(near_by).signs, 2)
        own = np.arange(len(rows)), neuron[rows]
        free = _with_windows(net, tied[rows] | (signs[rows] == 0))
        kept = (((before == signs[rows]) & (behind == signs[rows])) | free).all(axis=1) & (before[own] != behind[own])
        for k in np.flatnonzero(kept):
            near = np.stack([before[k], behind[k]])
            if _open(net, near, neurons[rows[k]]):
                one[rows[k]], two[rows[k]] = near
                decided[rows[k]] = True
        left = ~decided[rows]
        rows, size = rows[left], size[left]
