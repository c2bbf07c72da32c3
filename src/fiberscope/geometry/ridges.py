"""Ridges, the cells of codimension two: where facets meet, whether they bend there, whether their weights balance."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from fiberscope.errors import UnsupportedModelError
from fiberscope.geometry.affine_forms import ExactRegion, batches, influence, neuron_forms
from fiberscope.geometry.cells import Cells, Incidence
from fiberscope.geometry.facets import Facets, passes, switched, to_scale, unit
from fiberscope.geometry.measures import Metrics
from fiberscope.network.network import Network
from fiberscope.numerics.algebra.ball import are_dependent
from fiberscope.numerics.arrays import pointers
from fiberscope.numerics.floats import BoolArray, FloatArray, IntArray, SignArray, gamma
from fiberscope.results import Result
from fiberscope.run import ENDLESS, Run


@dataclass(frozen=True, slots=True, eq=False)
class Ridges:
    """Inner ridges of a complex (those on the border of the domain are left out), one row each.

    ``cell`` says which ``(d-2)``-cell it is, ``facets`` which rows of :class:`Facets` meet there, ``directions`` the
    unit vectors from the ridge into those facets, in the order of ``facets.indices``, with bounds of their errors.
    """

    cell: IntArray
    facets: Incidence
    directions: FloatArray = field(repr=False)
    direction_error: FloatArray = field(repr=False)

    def __len__(self) -> int:
        return len(self.cell)

    def __repr__(self) -> str:
        return f"Ridges({len(self)} inner ones)"


@dataclass(frozen=True, slots=True)
class Balance(Result):
    """The balancing condition: around every inner ridge the sum of ``w(s) n_s^T`` over its facets vanishes.

    ``residual`` is the largest entry of such a sum, ``excess`` the largest ratio of an entry to what rounding can
    explain at its ridge: the condition is met where it is at most 1. ``unchecked`` ridges have no such bound, because
    the directions of their facets come from positions alone, or because their weights are beyond the floats.
    """

    ridges: int
    residual: float
    excess: float
    unchecked: int = 0

    told = ("ok",)

    @property
    def ok(self) -> bool:
        return self.excess <= 1


def find_ridges(net: Network, cells: Cells, facets: Facets, deep: Metrics, flat: Metrics, run: Run = ENDLESS) -> Ridges:
    """Inner ridges; ``deep`` and ``flat`` are the metrics of ridges and facets."""
    d = cells.dimension
    if d < 2:
        none = np.zeros(0, np.int64)
        return Ridges(none, Incidence(np.zeros(1, np.int64), none), np.zeros((0, d)), np.zeros(0))
    around, cell = _around(cells, facets)
    ridge = np.repeat(cell, np.diff(around.indptr))
    with np.errstate(invalid="ignore", over="ignore"):  # vertices may lie beyond the floats
        into = flat.points[facets.cell[around.indices]] - deep.points[ridge]
        bases = deep.bases[ridge]
        for _ in range(2):
            into = into - np.einsum("fk,fkn->fn", np.einsum("fkn,fn->fk", bases, into), bases)
        directions, error = unit(into), np.full(len(into), np.inf)
    _from_neurons(net, cells, facets, around.indices, ridge, directions, error, run)
    return Ridges(cell, around, directions, error)


def _from_neurons(
    net: Network,
    cells: Cells,
    facets: Facets,
    index: IntArray,
    ridge: IntArray,
    out: FloatArray,
    error: FloatArray,
    run: Run,
) -> None:
    """Directions from gradients, accurate however thin the cells are.

    A neuron that vanishes on the ridge but not on the facet grows, or falls, from the one into the other: what is left
    of its gradient beside the facet's normal is the direction, and its sign on the facet tells which way.
    """
    low, high = cells.signs(cells.dimension - 2), cells.signs(cells.dimension - 1)
    pool = net.layout.pooled
    for some in batches(net, len(index), run=run):
        f = index[some]
        signs = high[facets.cell[f]]
        fits = (low[ridge[some]] == 0) & np.where(pool, signs < 0, signs != 0)
        entry = fits.argmax(axis=1)
        normal, turn = facets.normal[f], facets.normal_error[f]
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            forms = neuron_forms(net, cells.top_signs[facets.regions[f, 0]], entry)
            gradient, error_of = to_scale(forms.value[:, :-1], forms.error[:, :-1])
            length, slip = np.linalg.norm(gradient, axis=1), np.linalg.norm(error_of, axis=1)
            across = gradient - np.einsum("fn,fn->f", gradient, normal)[:, None] * normal
            rest = np.linalg.norm(across, axis=1)
            reach = 2 * (slip + length * (2 * turn + gamma(4 * normal.shape[1] + 16))) / rest
        use = np.flatnonzero(fits.any(axis=1) & (rest > 0) & np.isfinite(reach))
        at = use + some.start
        out[at] = unit(across[use]) * signs[use, entry[use], None]
        error[at] = np.minimum(reach[use], 2.0)


def _around(cells: Cells, facets: Facets) -> tuple[Incidence, IntArray]:
    """Facets around every ridge that lies inside of the domain."""
    d = cells.dimension
    below = cells.boundary[d - 2]
    row = np.full(cells.count(d - 1), -1, dtype=np.int64)
    row[facets.cell] = np.arange(len(facets))
    owner = row[np.repeat(np.arange(len(below)), np.diff(below.indptr))]
    outside = np.ones(cells.count(d - 1), dtype=bool)
    outside[facets.cell[~facets.boundary]] = False
    outer = np.zeros(cells.count(d - 2), dtype=bool)
    outer[below.indices[outside[np.repeat(np.arange(len(below)), np.diff(below.indptr))]]] = True
    keep = ~outer[below.indices]
    ridge, owner = below.indices[keep].astype(np.int64), owner[keep]
    order = np.argsort(ridge, kind="stable")
    cell, counts = np.unique(ridge, return_counts=True)
    return Incidence(pointers(counts), owner[order]), cell


def straight_facets(net: Network, cells: Cells, facets: Facets, ridges: Ridges) -> tuple[BoolArray, int]:
    """For every facet at every ridge (``ridges.facets.indices``): does it go straight on behind the ridge?

    Decided exactly; also returns how many comparisons needed exact arithmetic.
    """
    if net.layout.pooled.any():
        raise UnsupportedModelError("bending ridges: expected activations only, got max pooling; take net.as_mlp()")
    straight = np.zeros(len(ridges.facets.indices), dtype=bool)
    a, b = _pairs(ridges.facets)
    if not len(a):
        return straight, 0
    parallel, hard = _parallel(net, cells, facets, ridges.facets.indices[a], ridges.facets.indices[b])
    straight[a[parallel]] = True
    straight[b[parallel]] = True
    return straight, hard


def _pairs(around: Incidence) -> tuple[IntArray, IntArray]:
    """All pairs of places in ``around.indices`` that belong to one ridge."""
    sizes = np.diff(around.indptr)
    first, second = [], []
    for size in np.unique(sizes):
        starts = around.indptr[:-1][sizes == size]
        i, j = np.triu_indices(int(size), 1)
        first.append((starts[:, None] + i).reshape(-1))
        second.append((starts[:, None] + j).reshape(-1))
    if not first:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    return np.concatenate(first), np.concatenate(second)


def _parallel(net: Network, cells: Cells, facets: Facets, fa: IntArray, fb: IntArray) -> tuple[BoolArray, int]:
    """Whether the hyperplanes of two facets coincide, decided by bounds, by active paths, or exactly."""
    top, entry = cells.top_signs, facets.neuron
    use = np.where(top[facets.regions[:, 0], entry] != 0, facets.regions[:, 0], facets.regions[:, 1])
    n = cells.dimension
    value, error = np.empty((len(facets), n)), np.empty((len(facets), n))
    inner = np.flatnonzero(entry >= 0)
    for some in batches(net, len(inner)):
        with np.errstate(over="ignore", invalid="ignore"):
            forms = neuron_forms(net, top[use[inner[some]]], entry[inner[some]])
        value[inner[some]], error[inner[some]] = to_scale(forms.value[:, :-1], forms.error[:, :-1])
    parallel = np.ones(len(fa), dtype=bool)
    for i in range(n):
        for j in range(i + 1, n):
            x, y = value[fa, i] * value[fb, j], value[fa, j] * value[fb, i]
            reach_a, reach_b = np.abs(value[fa]) + error[fa], np.abs(value[fb]) + error[fb]
            bound = error[fa, i] * reach_b[:, j] + reach_a[:, i] * error[fb, j]
            bound = bound + error[fa, j] * reach_b[:, i] + reach_a[:, j] * error[fb, i]
            bound = bound + gamma(8) * (reach_a[:, i] * reach_b[:, j] + reach_a[:, j] * reach_b[:, i])
            parallel &= ~(np.abs(x - y) > bound * (1 + gamma(16)))
    pairs = np.flatnonzero(parallel)
    hard = _unproven(net, top, use, entry, fa, fb, pairs)
    for k in hard:
        g, h = (ExactRegion(net, top[use[f]]).margin(int(entry[f]))[:-1] for f in (fa[k], fb[k]))
        parallel[k] = are_dependent(g, h)
    return parallel, len(hard)


def _unproven(
    net: Network, top: SignArray, use: IntArray, entry: IntArray, fa: IntArray, fb: IntArray, pairs: IntArray
) -> IntArray:
    """Pairs that may be parallel but are not of one neuron with one and the same preactivation on both facets."""
    left = []
    for some in batches(net, len(pairs)):
        k = pairs[some]
        a, b = top[use[fa[k]]], top[use[fb[k]]]
        reached, _ = influence(net, switched(net, a, b), passes(net, a) | passes(net, b))
        same = (entry[fa[k]] == entry[fb[k]]) & ~reached[np.arange(len(k)), entry[fa[k]]]
        left.append(k[~same])
    return np.concatenate(left) if left else np.zeros(0, dtype=np.int64)


def balance(facets: Facets, ridges: Ridges) -> Balance:
    """How well the weights balance around the inner ridges."""
    if not len(ridges):
        return Balance(0, 0.0, 0.0)
    index, starts = ridges.facets.indices, ridges.facets.indptr[:-1]
    weight, error = facets.weight[index], facets.weight_error[index]
    size = np.abs(weight).max(axis=1)
    with np.errstate(invalid="ignore", over="ignore"):
        total = np.add.reduceat(weight[:, :, None] * ridges.directions[:, None, :], starts, axis=0)
        residual = np.abs(total).max(axis=(1, 2))
        slip = np.where(size > 0, size * ridges.direction_error, 0.0) + error + gamma(len(index)) * size
        allowed = np.add.reduceat(slip, starts)
    bounded = np.isfinite(allowed) & np.isfinite(residual)
    excess = np.divide(residual, allowed, out=np.zeros_like(residual), where=bounded & (residual > 0))
    return Balance(len(ridges), float(residual.max()), float(excess.max()), int((~bounded).sum()))
