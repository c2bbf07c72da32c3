"""Realisation costs of all functions at all neurons, swap costs with their three terms, and the cheapest permutation.

``C[i, j] = |a_j - v_i|^2`` in the metric ``S_i^+`` is the squared cost of neuron ``j``'s function at neuron ``i``
(equation (5) of :cite:`neuronidentifiability`), infinite where neuron ``i`` cannot compute it. A permutation ``p``
gives function ``p(i)`` to neuron ``i`` and costs ``sum_i C[i, p(i)] - C[i, i]``.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist

from fiberscope.errors import InputError
from fiberscope.neurons.gram_forms import Metric, Points
from fiberscope.neurons.projected import ProjectedLayer
from fiberscope.numerics.arrays import frozen
from fiberscope.numerics.floats import FloatArray, IntArray
from fiberscope.results import Result


@dataclass(frozen=True, slots=True, eq=False)
class CostMatrix:
    """Squared costs ``(m, m)`` of function ``j`` at neuron ``i``, and how the ranks of the Gram matrices were
    decided.
    """

    squares: FloatArray = field(repr=False)
    ranks: IntArray = field(repr=False)
    """``(m,)``: ranks of the ``S_i``."""
    gaps: FloatArray = field(repr=False)
    """``(m,)``: last singular value kept over the first dropped; infinite where nothing, or only zeros, were
    dropped.
    """
    smallest: FloatArray = field(repr=False)
    """``(m,)``: lower bounds of the smallest singular value kept of ``U^T Diag(d_i)``."""

    @property
    def own(self) -> FloatArray:
        """``(m,)``: squared costs of the neurons' own functions."""
        return np.diagonal(self.squares)


@dataclass(frozen=True, slots=True, eq=False)
class SwapTerms(Result):
    """The three terms of Lemma C.8, each ``(m, m)``; their sum is the swap cost. NaN where the cost is infinite."""

    center: FloatArray = field(repr=False)
    cross: FloatArray = field(repr=False)
    metric: FloatArray = field(repr=False)

    @property
    def total(self) -> FloatArray:
        """Their sum."""
        return np.asarray(self.center + self.cross + self.metric)


@dataclass(frozen=True, slots=True)
class CheapestPermutation(Result):
    """The permutation other than the identity that costs least, over all ``m!``."""

    cost: float
    cycle: tuple[int, ...] | None
    """``(i, j, ...)``: neuron ``i`` takes the function of ``j``, and so on around; None if several cycles move."""
    permutation: tuple[int, ...] = field(repr=False)


def cost_matrix(layer: ProjectedLayer) -> CostMatrix:
    """All squared costs, a row of the matrix for each neuron."""
    m, grams = len(layer), layer.grams
    points, own = Points.of(layer.coefficients, layer.basis), Points.of(layer.trained, layer.basis)
    centers = Points.of(layer.centers, layer.basis)
    squares = cdist(layer.centers, points.vectors, "sqeuclidean")
    ranks, gaps, smallest = np.empty(m, dtype=np.int64), np.empty(m), np.empty(m)
    for i, metric in enumerate(grams.metrics()):
        ranks[i], gaps[i], smallest[i] = metric.rank, metric.gap, metric.smallest
        center = _one(centers, i)
        squares[i] = _forms(metric, squares[i], metric.transformed(points, center))
        if metric.image is not None:
            inside = metric.realisable(points.vectors - center.vectors, layer.sizes + layer.sizes[i])
            squares[i, ~inside] = np.inf
        if not layer.realised and np.isinf(squares[i, i]):
            continue
        # A neuron's own function: no difference of large numbers, and realisable by its very weights.
        mine = _one(own, i)
        length = np.array([mine.vectors[0] @ mine.vectors[0]])
        squares[i, i] = _forms(metric, length, metric.transformed(mine))[0]
    return CostMatrix(frozen(squares), ranks, gaps, smallest)


def own_costs(layer: ProjectedLayer) -> FloatArray:
    """``(m,)``: squared costs of each neuron's own part of the coefficients, infinite where it is not realisable."""
    own = Points.of(layer.trained, layer.basis)
    result = np.einsum("ij,ij->i", own.vectors, own.vectors)
    for i, metric in enumerate(layer.grams.metrics()):
        mine = _one(own, i)
        result[i] = _forms(metric, result[i : i + 1], metric.transformed(mine))[0]
        if not metric.realisable(mine.vectors, 2 * layer.sizes[i])[0]:
            result[i] = np.inf
    return np.asarray(result)


def _one(points: Points, i: int) -> Points:
    return Points(points.vectors[i : i + 1], points.lifted[:, i : i + 1])


def _forms(metric: Metric, lengths: FloatArray, transformed: FloatArray) -> FloatArray:
    found = np.einsum("ij,ij->i", transformed, transformed)
    return np.asarray(found + lengths if metric.euclidean else found)


def swap_costs(costs: CostMatrix) -> FloatArray:
    """``(m, m)``: ``Delta_out(ij) = C[i, j] + C[j, i] - C[i, i] - C[j, j]``; symmetric, zero on the diagonal."""
    own = costs.own
    return np.asarray(costs.squares + costs.squares.T - (own[:, None] + own[None, :]))


def permutation_cost(costs: CostMatrix, order: np.ndarray) -> float:
    """``sum_i C[i, p(i)] - C[i, i]`` over the neurons that move."""
    moved = np.flatnonzero(order != np.arange(len(order)))
    return float((costs.squares[moved, order[moved]] - costs.own[moved]).sum())


def swap_terms(layer: ProjectedLayer, costs: CostMatrix) -> SwapTerms:
    """Lemma C.8 for all pairs: centres apart, centres against trained parts, and two metrics for one trained part."""
    m = len(layer)
    centers, trained = Points.of(layer.centers, layer.basis), Points.of(layer.trained, layer.basis)
    center, cross, metric_form = np.empty((m, m)), np.empty((m, m)), np.empty((m, m))
    for i, metric in enumerate(layer.grams.metrics()):
        apart, parts = metric.transformed(centers, _one(centers, i)), metric.transformed(trained)
        center[i], cross[i], metric_form[i] = (
            _products(*pair) for pair in ((apart, apart), (apart, parts), (parts, parts))
        )
        if metric.euclidean:
            away = layer.centers - layer.centers[i]
            center[i] += _products(away, away)
            cross[i] += _products(away, layer.trained)
            metric_form[i] += _products(layer.trained, layer.trained)
    own = np.diagonal(metric_form)
    mismatch = metric_form + metric_form.T - (own[:, None] + own[None, :])
    undefined = ~np.isfinite(costs.squares) | ~np.isfinite(costs.squares.T)
    parts3 = (center + center.T, 2 * (cross + cross.T), mismatch)
    return SwapTerms(*(frozen(np.where(undefined, np.nan, part)) for part in parts3))


def _products(a: FloatArray, b: FloatArray) -> FloatArray:
    return np.asarray(np.einsum("ij,ij->i", a, b))


def cheapest_permutation(costs: CostMatrix) -> CheapestPermutation:
    """The minimum of Corollary C.11 over all permutations but the identity, exactly.

    If the best assignment is not the identity, it is the answer. Otherwise no cycle has a negative cost, and the
    cheapest permutation is the cheapest single cycle: all shortest paths by Floyd and Warshall, in ``m^3`` steps.
    """
    m = len(costs.squares)
    if m < 2:
        raise InputError("cheapest permutation: expected at least two neurons, got one")
    gains = costs.squares - costs.own[:, None]  # what neuron i pays more for taking function j
    finite = np.isfinite(gains)
    # The assignment solver refuses infinities where it needs one; the identity, which costs 0, needs none.
    large = 2.0 * (m + 1) * (float(np.abs(gains[finite]).max()) + 1.0)
    order = linear_sum_assignment(np.where(finite, gains, large))[1]
    if not np.array_equal(order, np.arange(m)):
        return _described(float(gains[np.arange(m), order].sum()), order)
    cycle = _cheapest_cycle(gains)
    order = np.arange(m)
    if cycle is None:
        return CheapestPermutation(np.inf, None, tuple(range(m)))
    order[list(cycle)] = np.roll(cycle, -1)
    return CheapestPermutation(permutation_cost(costs, order), cycle, tuple(order.tolist()))


def _described(cost: float, order: np.ndarray) -> CheapestPermutation:
    start = int(np.flatnonzero(order != np.arange(len(order)))[0])
    cycle = [start]
    while (following := int(order[cycle[-1]])) != start:
        cycle.append(following)
    single = len(cycle) == int((order != np.arange(len(order))).sum())
    return CheapestPermutation(cost, tuple(cycle) if single else None, tuple(order.tolist()))


def _cheapest_cycle(weights: FloatArray) -> tuple[int, ...] | None:
    """The cycle of least weight in a complete graph without negative cycles; None if every cycle is infinite."""
    m = len(weights)
    best = np.array(weights)
    np.fill_diagonal(best, np.inf)
    after = np.broadcast_to(np.arange(m), (m, m)).copy()
    for k in range(m):
        through = best[:, k, None] + best[None, k]
        better = through < best
        best[better] = through[better]
        after[better] = np.broadcast_to(after[:, k, None], (m, m))[better]
    start = int(np.argmin(np.diagonal(best)))
    if not np.isfinite(best[start, start]):
        return None
    # A closed walk of least weight; where it meets a vertex twice, one of its loops weighs as little.
    walk = [start]
    while (following := int(after[walk[-1], start])) != start:
        if following in walk:
            return tuple(walk[walk.index(following) :])
        walk.append(following)
    return tuple(walk)
