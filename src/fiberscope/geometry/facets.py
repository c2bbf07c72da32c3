"""Facets of a complex with their meaning: which neurons make them, the gradient jump across them, visible or not.

The weight of a facet between regions with affine maps ``A_1 x + c_1`` and ``A_2 x + c_2`` is ``w = (A_2 - A_1) n`` with
the unit normal n from region 1 to region 2. A facet is visible if its weight is not zero: there the function has a
kink.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import flint
import numpy as np

from fiberscope.geometry.affine_forms import ExactRegion, batches, exact_output, influence, jumps, neuron_forms
from fiberscope.geometry.cells import Cells, Incidence
from fiberscope.geometry.measures import Metrics
from fiberscope.network.network import Network
from fiberscope.numerics.algebra.ball import EXACT
from fiberscope.numerics.algebra.bounded import Bounded
from fiberscope.numerics.arrays import pointers
from fiberscope.numerics.floats import INFLATE, BoolArray, FloatArray, IntArray, SignArray, gamma, round_up
from fiberscope.results import Tabular, hidden, named
from fiberscope.run import ENDLESS, Run

if TYPE_CHECKING:
    from fiberscope.geometry.domains import Solid

_DIGITS = 256
"""Bits of quotients and roots of exact gradients: no cancellation is left there, so that far more than 53 is enough."""


@dataclass(frozen=True, slots=True, eq=False)
class Facets(Tabular):
    """All facets of a complex that do not lie at infinity, one row each.

    Parameters
    ----------
    cell
        Which of the ``(d-1)``-cells it is.
    regions
        The regions on its two sides, ``(count, 2)``; -1 outside of the domain.
    neurons
        Entries of the sign vector that change there, for every facet; none on the border of the domain.
    normal
        Unit normal from the first region to the second, ``(count, d)``, however small or large the gradients are.
    normal_error
        Bound of the normals' errors (Euclidean); infinite where a normal comes from positions and not from a gradient.
    offset
        The facet lies in ``normal x = offset``.
    weight
        Jump of the gradient along the normal, ``(count, out)``; zero on the border of the domain. Where it leaves the
        range of float64 it is zero, infinite or NaN.
    weight_error
        Bound of the rounding error of the weights, in the maximum norm.
    visible
        Whether the weight is not zero, decided exactly, even where the float weight is zero by underflow or rounding.
    path
        Whether an active path leads from one of its neurons to the output.
    exact_decisions
        How many weights the float bound left open, so that paths or exact numbers had to decide.
    offset_error
        Bound of the offsets' errors; infinite where the offset comes from positions.
    """

    cell: IntArray = field(metadata=hidden())
    regions: IntArray
    neurons: Incidence = field(metadata=named(told=list))
    normal: FloatArray = field(repr=False)
    normal_error: FloatArray = field(repr=False, metadata=hidden())
    offset: FloatArray = field(repr=False)
    weight: FloatArray = field(repr=False)
    weight_error: FloatArray = field(repr=False, metadata=hidden())
    visible: BoolArray = field(repr=False)
    path: BoolArray = field(repr=False, metadata=hidden())
    exact_decisions: int = field(metadata=hidden())
    offset_error: FloatArray = field(repr=False, metadata=hidden())

    frame = ("regions", "neurons", "normal", "offset", "visible")

    def __len__(self) -> int:
        return len(self.cell)

    @property
    def boundary(self) -> BoolArray:
        """Which facets lie on the border of the domain."""
        return np.asarray(self.regions[:, 1] < 0)

    @property
    def neuron(self) -> IntArray:
        """The first neuron that makes each facet, as an entry of the sign vector; -1 on the border of the domain."""
        return first_of(self.neurons)

    def __repr__(self) -> str:
        inner = len(self) - int(self.boundary.sum())
        return f"Facets({len(self)}: {inner} between regions, {int(self.visible.sum())} of them visible)"


def sides_of(incidence: Incidence, count: int) -> IntArray:
    """The cells on both sides of each of ``count`` facets, ``(count, 2)``, the smaller first; -1 if there is none."""
    owner = np.repeat(np.arange(len(incidence)), np.diff(incidence.indptr))
    order = np.argsort(incidence.indices, kind="stable")
    number = np.bincount(incidence.indices, minlength=count)
    start = np.cumsum(number) - number
    sides = np.full((count, 2), -1, dtype=np.int64)
    one, two = number >= 1, number >= 2
    sides[one, 0] = owner[order[start[one]]]
    sides[two, 1] = owner[order[start[two] + 1]]
    return sides


def find_facets(
    net: Network, domain: Solid, cells: Cells, solid: Metrics, flat: Metrics, far: BoolArray, run: Run = ENDLESS
) -> Facets:
    """The facets of a complex.

    ``net`` is the network in the coordinates of the complex, ``solid`` and ``flat`` are the metrics of regions and
    facets, ``far`` is the mask of the facets at infinity.
    """
    d = cells.dimension
    cell = np.flatnonzero(~far)
    regions = sides_of(cells.boundary[d - 1], cells.count(d - 1))[cell]
    inner = np.flatnonzero(regions[:, 1] >= 0)
    neurons = makers(cells, cell, regions)
    normal = _geometric_normals(solid.points[regions[:, 0]], flat, cell)
    planes = _Planes(normal, np.einsum("fn,fn->f", normal, flat.points[cell]), *np.full((2, len(cell)), np.inf))
    _from_gradients(net, cells.top_signs, regions, neurons, planes, run)
    _from_sides(domain, cells, cell, np.flatnonzero(regions[:, 1] < 0), planes)
    top = cells.top_signs
    one, two = regions[inner].T
    with np.errstate(over="ignore", invalid="ignore"):  # a weight beyond the floats says so itself
        jump = jumps(net, top[one], top[two], normal[inner], run)
    weight, error = np.zeros((len(cell), net.out_size)), np.zeros(len(cell))
    weight[inner] = jump.value
    error[inner] = _weight_error(jump, planes.error[inner])
    visible, path, open_count = bends_across(net, top, regions[inner], jump, run)
    seen, on_path = np.zeros(len(cell), dtype=bool), np.zeros(len(cell), dtype=bool)
    seen[inner], on_path[inner] = visible, path
    weight[~seen] = 0.0
    return Facets(
        cell,
        regions,
        neurons,
        normal,
        planes.error,
        planes.offset,
        weight,
        error,
        seen,
        on_path,
        open_count,
        planes.slip,
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Planes:
    """Unit normals, offsets and the errors of both, set one after the other to the best that is known."""

    normal: FloatArray
    offset: FloatArray
    error: FloatArray
    slip: FloatArray


def makers(cells: Cells, cell: IntArray, regions: IntArray) -> Incidence:
    """Neurons that vanish on a facet, but not on both sides of it."""
    signs, top = cells.signs(cells.dimension - 1), cells.top_signs
    counts = np.zeros(len(cell), dtype=np.int64)
    found = []
    step = max(1, (1 << 24) // max(1, top.shape[1]))
    for start in range(0, len(cell), step):
        rows = slice(start, min(start + step, len(cell)))
        one, two = regions[rows].T
        zero = (signs[cell[rows]] == 0) & ((top[one] != 0) | (top[two] != 0)) & (two >= 0)[:, None]
        which, entry = np.nonzero(zero)
        counts[rows] = np.bincount(which, minlength=len(one))
        found.append(entry)
    indices = np.concatenate(found) if found else np.zeros(0, dtype=np.int64)
    return Incidence(pointers(counts), indices)


def first_of(neurons: Incidence) -> IntArray:
    """The first entry of every row, -1 of an empty one."""
    first = np.full(len(neurons), -1, dtype=np.int64)
    filled = np.diff(neurons.indptr) > 0
    first[filled] = neurons.indices[neurons.indptr[:-1][filled]]
    return first


def _geometric_normals(inside: FloatArray, flat: Metrics, cell: IntArray) -> FloatArray:
    """Normals away from an inner point of the first region."""
    with np.errstate(invalid="ignore", over="ignore"):  # vertices may lie beyond the floats
        away = flat.points[cell] - inside
        bases = flat.bases[cell]
        for _ in range(2):
            away = away - np.einsum("fk,fkn->fn", np.einsum("fkn,fn->fk", bases, away), bases)
        return unit(away)


def unit(vectors: FloatArray) -> FloatArray:
    """The vectors divided by their lengths; zero stays zero."""
    (scaled,) = to_scale(vectors)
    length = np.sqrt(np.einsum("fn,fn->f", scaled, scaled))[:, None]
    return np.asarray(np.divide(scaled, length, out=np.zeros_like(scaled), where=length > 0))


def to_scale(vectors: FloatArray, *others: FloatArray) -> tuple[FloatArray, ...]:
    """Rows divided by the power of two that brings the largest entry of the vector to [1/2, 1); others alike.

    Then squares neither overflow nor underflow. Rows that are zero or not finite stay as they are.
    """
    largest = np.abs(vectors).max(axis=1, initial=0.0)
    exponent = np.where(np.isfinite(largest), np.frexp(largest)[1], 0)[:, None]
    with np.errstate(over="ignore", under="ignore"):
        return tuple(np.asarray(np.ldexp(x, -exponent)) for x in (vectors, *others))


def _telling(net: Network, top: SignArray, regions: IntArray, neurons: Incidence) -> tuple[IntArray, BoolArray]:
    """For every facet an entry whose form vanishes on it (-1 for none), and whether to take the form of the first
    region: a neuron that is not zero there, or an input that loses its window there.
    """
    owner, entry = np.repeat(np.arange(len(neurons)), np.diff(neurons.indptr)), neurons.indices
    pool = net.layout.pooled[entry]
    here, there = (np.where(pool, top[side, entry] < 0, top[side, entry] != 0) for side in regions[owner].T)
    fit = np.flatnonzero(here | there)
    facet, at = np.unique(owner[fit], return_index=True)
    found, first = np.full(len(neurons), -1, dtype=np.int64), np.zeros(len(neurons), dtype=bool)
    found[facet], first[facet] = entry[fit[at]], here[fit[at]]
    return found, first


def _from_gradients(
    net: Network, top: SignArray, regions: IntArray, neurons: Incidence, planes: _Planes, run: Run
) -> None:
    """The normal is the gradient of a neuron that vanishes on the facet: more accurate than positions."""
    entry, in_first = _telling(net, top, regions, neurons)
    rows = np.flatnonzero(entry >= 0)
    for some in batches(net, len(rows), run=run):
        facet = rows[some]
        own, first = entry[facet], in_first[facet]
        one, two = regions[facet].T
        signs = top[np.where(first, one, two)]
        with np.errstate(over="ignore", invalid="ignore"):
            forms = neuron_forms(net, signs, own)
        scaled = to_scale(forms.value[:, :-1], forms.error[:, :-1], forms.value[:, -1:], forms.error[:, -1:])
        gradient, slip, shift, shift_error = scaled
        # From the first region to the second the neuron falls if it is positive in the first, and so on.
        direction = np.where(first, -1, 1) * signs[np.arange(len(own)), own]
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            length = np.linalg.norm(gradient, axis=1)
            # |g'/|g'| - g/|g|| <= 2 |g' - g| / |g|, and the rounding of the division and the root
            error = 2 * np.linalg.norm(slip, axis=1) / length + gamma(2 * gradient.shape[1] + 8)
            offset = -direction * shift[:, 0] / length
            # |s'/|g'| - s/|g|| <= |s' - s| / |g'| + |s / g| |g' - g| / |g'|, where |g'| >= |g| / 2 for the good ones
            moved = 2 * shift_error[:, 0] / length + error * np.abs(offset) + gamma(8) * np.abs(offset)
        good = (error < 1) & np.isfinite(offset)
        planes.normal[facet[good]] = unit(gradient[good] * direction[good, None])
        planes.offset[facet[good]], planes.error[facet[good]] = offset[good], error[good]
        planes.slip[facet[good]] = moved[good] * INFLATE
        for i in np.flatnonzero(~good):  # beyond the floats, or lost in rounding
            run.check()
            _exact_plane(net, signs[i], int(own[i]), int(direction[i]), int(facet[i]), planes)


def _exact_plane(net: Network, signs: SignArray, entry: int, direction: int, facet: int, planes: _Planes) -> None:
    """Normal and offset from an exact gradient; the geometric ones stay where not even that is finite and not zero."""
    form = ExactRegion(net, signs).margin(entry)
    with flint.ctx.workprec(_DIGITS):
        largest = max(abs(g) for g in form[:-1])
        if not largest.is_finite() or largest.is_zero():
            return
        ratios = [direction * g / largest for g in form]
        length = sum((r * r for r in ratios[:-1]), flint.arb(0)).sqrt()
        plane = np.array([float((r / length).mid()) for r in ratios])
    if np.isfinite(plane).all() and plane[:-1].any():
        planes.normal[facet], planes.offset[facet] = plane[:-1], -plane[-1]
        planes.error[facet], planes.slip[facet] = gamma(2 * len(plane) + 8), gamma(8) * abs(plane[-1])


def _from_sides(domain: Solid, cells: Cells, cell: IntArray, border: IntArray, planes: _Planes) -> None:
    """On the border of the domain the normal is that of the side on which all vertices of the facet lie."""
    A, b = domain.halfspaces()
    if cells.domain_signs is None or not len(A):
        return
    inside = cells.vertices_of(cells.dimension - 1)
    for row in border:
        on = (cells.domain_signs[inside[int(cell[row])]] == 0).all(axis=0)
        sides = np.flatnonzero(on & A.any(axis=1))
        if len(sides):
            side, shift = to_scale(A[sides[:1]], b[sides[:1], None])
            length = np.linalg.norm(side)
            planes.normal[row], planes.offset[row] = side[0] / length, shift[0, 0] / length
            planes.error[row] = gamma(2 * A.shape[1] + 8)
            planes.slip[row] = gamma(2 * A.shape[1] + 8) * abs(planes.offset[row])


def _weight_error(jump: Bounded, turned: FloatArray) -> FloatArray:
    """Rounding of the jumps, and what an error of the normal makes of them: the true jump is ``w (n* n)``."""
    size = np.abs(jump.value)
    with np.errstate(invalid="ignore"):
        slip = np.where(size > 0, size * turned[:, None], 0.0)
    return np.asarray(round_up(jump.error + slip, 4).max(axis=1, initial=0.0))


def bends_across(
    net: Network, top: SignArray, regions: IntArray, jump: Bounded, run: Run = ENDLESS
) -> tuple[BoolArray, BoolArray, int]:
    """Whether the maps on both sides differ, whether a path could make them differ, and how many were hard to tell.

    A jump that is not zero proves that they differ, whatever its direction. One that is zero proves nothing: the
    direction may be wrong, or itself zero beside a sliver.
    """
    visible: BoolArray = np.asarray((np.abs(jump.value) > jump.error).any(axis=1))
    path = visible.copy()
    still_open = np.flatnonzero(~visible)
    for rows in batches(net, len(still_open), run=run):
        which = still_open[rows]
        one, two = top[regions[which, 0]], top[regions[which, 1]]
        path[which] = influence(net, switched(net, one, two), passes(net, one) | passes(net, two))[1].any(axis=1)
    hard = still_open[path[still_open]]
    flat = ((jump.value[hard] == 0) & (jump.error[hard] == 0)).all(axis=1)
    flat[flat] = _equal_maps(net, *(top[side] for side in regions[hard[flat]].T))
    for i in hard[~flat]:
        run.check()
        a, b = (exact_output(net, top[r])[:-1] for r in regions[i])
        with flint.ctx.workprec(EXACT):
            visible[i] = any(not (x - y).is_zero() for x, y in zip(a.reshape(-1), b.reshape(-1), strict=True))
    return visible, path, len(still_open)


def _equal_maps(net: Network, one: SignArray, two: SignArray) -> BoolArray:
    """Where floats prove that the gradients on pairs of cells are equal: their difference comes out as an exact zero
    along every axis, as where only flat pieces and losing inputs are met.
    """
    equal = np.ones(len(one), dtype=bool)
    for axis in range(net.in_size):
        left = np.flatnonzero(equal)
        if not len(left):
            break
        way = np.zeros((len(left), net.in_size))
        way[:, axis] = 1.0
        with np.errstate(over="ignore", invalid="ignore"):
            jump = jumps(net, one[left], two[left], way)
        equal[left] = ((jump.value == 0) & (jump.error == 0)).all(axis=1)
    return equal


def switched(net: Network, one: SignArray, two: SignArray) -> BoolArray:
    """Which neurons use another slope under the second signs than under the first, or pooling windows other inputs."""
    return np.asarray(np.where(net.layout.pooled, one != two, (one > 0) != (two > 0)))


def passes(net: Network, signs: SignArray) -> BoolArray:
    """Which neurons let a change through, ``(cells, num_signs)``: all that are not on a flat piece; of pooling windows
    the inputs that win, alone or together."""
    return np.asarray(np.where(net.layout.pooled, signs >= 0, (signs > 0) | (net.layout.slopes != 0)))
