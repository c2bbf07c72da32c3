"""What it costs a layer if its inputs come in another order: one permutation, or all transpositions at once.

For a transposition ``(ab)``, neuron ``i`` keeps its function and pays ``|r_i - delta_i|^2`` in the metric of

    ``S_i' = S_i + e (u_b u_b^T - u_a u_a^T)``,   ``e = d_ia^2 - d_ib^2``,   ``delta_i = (f_ia - f_ib)(u_b - u_a)``,

a change of rank two. With ``G = U S_i^-1 U^T`` and ``h = U S_i^-1 r_i`` all pairs of one neuron follow from entries of
``G`` and ``h`` by Woodbury's identity; pairs for which the determinant of the change comes close to zero are computed
from singular values. Reference: Theorem C.13 of :cite:`neuronidentifiability`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fiberscope.errors import InputError, TooLargeError
from fiberscope.neurons.gaps import BLOCK_BYTES
from fiberscope.neurons.gram_forms import Metric, Points
from fiberscope.neurons.projected import ProjectedLayer
from fiberscope.neurons.swaps import CostMatrix, own_costs, permutation_cost
from fiberscope.numerics.arrays import frozen
from fiberscope.numerics.floats import FloatArray
from fiberscope.numerics.images import GRAM_CONDITION, image_of
from fiberscope.results import Result, Tabular
from fiberscope.run import ENDLESS, Run

SLOW_LIMIT = 200_000
"""Most pairs and neurons together that are computed from singular values, one by one."""

PAIR_BLOCK = 1 << 19
"""Pairs that are held at once."""


@dataclass(frozen=True, slots=True, eq=False)
class ReindexingCosts(Tabular):
    """Costs of transpositions of the inputs, exact and by their leading term."""

    pairs: np.ndarray = field(repr=False)
    """``(n, 2)``: the inputs ``a < b`` that change places."""
    costs: FloatArray = field(repr=False)
    """``(n,)``: ``Delta_in(ab)``, summed over neurons; infinite where one of them cannot keep its function."""
    displacements: FloatArray = field(repr=False)
    """``(n,)``: ``|delta_in(ab)|_F = |F_b - F_a| |U_b - U_a|``."""
    mu: float

    told = ("leading",)
    frame = ("pairs", "costs", "displacements", "leading")

    @property
    def leading(self) -> FloatArray:
        """``(n,)``: ``|delta_in|_F^2 / mu``."""
        return np.asarray(self.displacements**2 / self.mu)

    @property
    def smallest(self) -> tuple[float, tuple[int, int]]:
        """The least cost and its pair."""
        at = int(np.argmin(self.costs))
        return float(self.costs[at]), (int(self.pairs[at, 0]), int(self.pairs[at, 1]))

    def matrix(self, size: int) -> FloatArray:
        """``(size, size)``: symmetric, zero on the diagonal, NaN for pairs that were not asked for."""
        result = np.full((size, size), np.nan)
        np.fill_diagonal(result, 0.0)
        a, b = self.pairs.T
        result[a, b] = result[b, a] = self.costs
        return result


@dataclass(frozen=True, slots=True)
class JointCost(Result):
    """The cost of permuting outputs and inputs, split as in equation (9)."""

    total: float
    output: float
    """``Delta_out``: the outputs' permutation, on the reindexed inputs; NaN where these are out of reach already."""
    input: float
    """``Delta_in``: the inputs' permutation alone."""


def reindexing_cost(layer: ProjectedLayer, own: FloatArray, reindexing: np.ndarray) -> float:
    """``Delta_in`` of one permutation of the inputs; ``own`` are the squared costs before it.

    A neuron whose fixed entries and scales stay as they are pays nothing; that is known without rounding.
    """
    same = [rows[:, reindexing] == rows for rows in (layer.fixed, layer.scales**2)]
    moved = ~np.logical_and(*same).all(axis=1)
    if not moved.any():
        return 0.0
    return float((own_costs(layer.reindexed(reindexing)) - own)[moved].sum())


def joint_cost(
    layer: ProjectedLayer, own: FloatArray, order: np.ndarray, reindexing: np.ndarray, costs: CostMatrix
) -> JointCost:
    """Equation (9); ``costs`` is the cost matrix of the reindexed layer."""
    inner = reindexing_cost(layer, own, reindexing)
    outer = permutation_cost(costs, order) if np.isfinite(inner) else np.nan
    # From the definition (8), not as the sum: the split is a law that is tested.
    m = np.arange(len(layer))
    return JointCost(float((costs.squares[m, order] - own).sum()), outer, inner)


def transpositions(
    layer: ProjectedLayer, own: FloatArray, mu: float, pairs: Any = None, run: Run = ENDLESS
) -> ReindexingCosts:
    """``Delta_in(ab)`` for the given pairs, or for all of them; pairs that change nothing at a neuron cost nothing
    there.
    """
    chosen = _pairs(pairs, len(layer.basis))
    costs = np.zeros(len(chosen))
    rows = Points.of(layer.basis, layer.basis)
    parts = Points.of(layer.trained, layer.basis)
    slow = 0
    for i, metric in enumerate(layer.grams.metrics()):
        run.step(i, len(layer), "neurons")
        entries = _Entries.of(metric, rows, Points(parts.vectors[i : i + 1], parts.lifted[:, i : i + 1]))
        for start in range(0, len(chosen), PAIR_BLOCK):
            block = slice(start, start + PAIR_BLOCK)
            moved, changes, unsafe = _changes(layer, i, entries, chosen[block])
            slow += len(unsafe)
            if slow > SLOW_LIMIT:
                raise TooLargeError(
                    f"reindexing: more than {SLOW_LIMIT} costs near a rank deficiency; give fewer pairs"
                )
            for at in unsafe:
                changes[at] = _slow(layer, i, chosen[block][moved[at]]) - own[i]
            costs[start + moved] += changes
    return ReindexingCosts(chosen, frozen(costs), frozen(_displacements(layer, chosen)), mu)


@dataclass(frozen=True, slots=True, eq=False)
class _Entries:
    """``G = U S^-1 U^T``, its diagonal and ``h = U S^-1 r``; None where ``S`` is not safely invertible."""

    products: FloatArray
    diagonal: FloatArray
    own: FloatArray

    @classmethod
    def of(cls, metric: Metric, rows: Points, part: Points) -> _Entries | None:
        if metric.image is not None:
            return None
        lifted, vector = metric.transformed(rows), metric.transformed(part)[0]
        products, own = lifted @ lifted.T, lifted @ vector
        if metric.euclidean:
            products += rows.lifted
            own = own + part.lifted[:, 0]
        return cls(products, np.diagonal(products), own)


def _changes(
    layer: ProjectedLayer, i: int, entries: _Entries | None, pairs: np.ndarray
) -> tuple[np.ndarray, FloatArray, np.ndarray]:
    """Which pairs matter to neuron ``i``, what they cost it more, and which of these must be done the slow way."""
    squares, fixed = layer.scales[i] ** 2, layer.fixed[i]
    a, b = pairs.T
    e, phi = squares[a] - squares[b], fixed[a] - fixed[b]
    moved = np.flatnonzero((e != 0) | (phi != 0))
    if entries is None:
        return moved, np.zeros(len(moved)), np.arange(len(moved))
    a, b, e, phi = a[moved], b[moved], e[moved], phi[moved]
    g_a, g_b, g_ab = entries.diagonal[a], entries.diagonal[b], entries.products[a, b]
    h_a, h_b = entries.own[a], entries.own[b]
    change = -2 * phi * (h_b - h_a) + phi**2 * (g_a + g_b - 2 * g_ab)
    # x = r - delta seen from u_b and u_a, then Woodbury for the change of rank two.
    p_b, p_a = h_b - phi * (g_b - g_ab), h_a - phi * (g_ab - g_a)
    ratio = (1 + e * g_b) * (1 - e * g_a) + (e * g_ab) ** 2  # det S' / det S
    safe = ratio > np.sqrt(GRAM_CONDITION) * (1 + np.abs(e) * np.maximum(g_a, g_b))
    form = p_b**2 * (1 - e * g_a) + 2 * p_b * p_a * e * g_ab - p_a**2 * (1 + e * g_b)
    change -= np.divide(e * form, ratio, out=np.zeros_like(form), where=safe)
    return moved, change, np.flatnonzero(~safe)


def _slow(layer: ProjectedLayer, i: int, pair: np.ndarray) -> float:
    """The squared cost of neuron ``i`` after one transposition, from singular values."""
    a, b = int(pair[0]), int(pair[1])
    scales = layer.scales[i].copy()
    scales[[a, b]] = scales[[b, a]]
    image = image_of(layer.basis.T * scales)
    shift = (layer.fixed[i, a] - layer.fixed[i, b]) * (layer.basis[b] - layer.basis[a])
    vector = (layer.trained[i] - shift)[None]
    if not image.contains(vector, 2 * layer.sizes[i])[0]:
        return float(np.inf)
    return float(image.forms(vector)[0])


def _displacements(layer: ProjectedLayer, pairs: np.ndarray) -> FloatArray:
    """``|F_b - F_a| |U_b - U_a|`` (equation (143))."""
    a, b = pairs.T
    result = np.empty(len(pairs))
    step = max(1, BLOCK_BYTES // (8 * max(layer.fixed.shape[0], layer.rank)))
    for start in range(0, len(pairs), step):
        s = slice(start, start + step)
        columns = np.linalg.norm(layer.fixed[:, a[s]] - layer.fixed[:, b[s]], axis=0)
        result[s] = columns * np.linalg.norm(layer.basis[a[s]] - layer.basis[b[s]], axis=1)
    return result


def _pairs(pairs: Any, size: int) -> np.ndarray:
    if pairs is None:
        return np.stack(np.triu_indices(size, 1), axis=1)
    array = np.asarray(pairs)
    if array.ndim != 2 or array.shape[1] != 2 or array.dtype.kind not in "iu":
        raise InputError(f"pairs: expected integers of shape (n, 2), got {array.shape} of {array.dtype}")
    if array.size and (array.min() < 0 or array.max() >= size):
        raise InputError(f"pairs: expected inputs 0..{size - 1}, got {array.min()}..{array.max()}")
    return np.sort(array.astype(np.intp), axis=1)
