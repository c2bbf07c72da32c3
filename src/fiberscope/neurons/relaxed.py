"""Relaxed realisation costs: a neuron may miss a function a little, at a price.

``|h|^2_{i, beta} = inf_w E[(h(x) - h_i(w; x))^2] / beta + |w|^2`` (Definition E.3 of :cite:`neuronidentifiability`),
for the functions ``h_j(x) = eta(u_j . x)`` of the layer's own neurons. For an ``L``-Lipschitz ``eta`` it is at most
(Theorem E.4)

    ``min_w |w|^2 + L^2 / beta |u_j - f_i - d_i * w|_Sigma^2 = y^T (beta / L^2 + A Diag(d_i)^2 A^T)^-1 y``

with ``Sigma = A^T A`` and ``y = A (u_j - f_i)``: the same quadratic form as the hard cost, with a ridge. As ``beta``
falls both grow to the hard cost. The value itself is found by descent from the minimiser of the bound and from the
weights of neuron ``j``, so it is never above the bound; it is a local minimum, an upper bound of the infimum.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.linalg

from fiberscope.errors import InputError, TooLargeError
from fiberscope.neurons.activations import Activation, activation_of
from fiberscope.neurons.classes import NeuronClasses
from fiberscope.neurons.descent import Minima, minimise
from fiberscope.neurons.gram_forms import Points
from fiberscope.neurons.layers import LayerArrays, layer_arrays
from fiberscope.neurons.normalisation import Normalisation, normalised
from fiberscope.neurons.projected import ProjectedLayer
from fiberscope.neurons.subspace import collect
from fiberscope.neurons.swaps import cost_matrix
from fiberscope.numerics.arrays import frozen
from fiberscope.numerics.floats import FloatArray
from fiberscope.numerics.rank import rank_cutoff
from fiberscope.results import Tabular
from fiberscope.run import Progress, Run

TARGET_LIMIT = 1 << 30
"""Bytes of the inputs and of the functions' values on them."""

BLOCK_BYTES = 1 << 26
"""Memory of the preactivations that are held at once."""


@dataclass(frozen=True, slots=True, eq=False)
class RelaxedCosts(Tabular):
    """Relaxed squared costs of functions at neurons."""

    pairs: np.ndarray = field(repr=False)
    """``(n, 2)``: neuron ``i``, and ``j`` whose function it is to compute."""
    quadratic: FloatArray = field(repr=False)
    """``(n,)``: the bound of Theorem E.4; NaN with statistics of the batch, for which there is none."""
    optimised: FloatArray | None = field(repr=False)
    """``(n,)``: the best value that descent found; None if it was not asked for."""
    errors: FloatArray | None = field(repr=False)
    """``(n,)``: ``E[(h - h_i(w))^2]`` there."""
    converged: np.ndarray | None = field(repr=False)
    """``(n,)``: whether the gradient is small there; at a kink of the activation it need not be."""
    beta: float
    activation: str

    frame = ("pairs", "quadratic", "optimised", "errors", "converged")

    def swaps(self) -> tuple[np.ndarray, FloatArray, FloatArray | None]:
        """Pairs ``(p, 2)`` with all four costs known, and their swap costs by the bound and by descent, ``(p,)``
        each.
        """
        place = {(int(i), int(j)): n for n, (i, j) in enumerate(self.pairs)}
        found = [(i, j) for i, j in place if i < j and {(j, i), (i, i), (j, j)} <= place.keys()]
        index = np.array([[place[q] for q in ((i, j), (j, i), (i, i), (j, j))] for i, j in found]).reshape(-1, 4).T

        def swap(costs: FloatArray) -> FloatArray:
            there, back, mine, other = (costs[rows] for rows in index)
            return np.asarray(there + back - mine - other)

        quadratic = swap(self.quadratic)
        return np.array(found).reshape(-1, 2), quadratic, None if self.optimised is None else swap(self.optimised)


def relaxed_cost(
    layer: Any,
    inputs: Any,
    pairs: Any = None,
    *,
    beta: float = 0.01,
    activation: Any = "relu",
    normalisation: Any = None,
    optimise: bool = True,
    steps: int = 300,
    bias: bool = False,
    name: str | None = None,
    parameter: str = "weight",
    progress: Progress | None = None,
    time_limit: float | None = None,
) -> RelaxedCosts:
    """Relaxed costs of the functions of some neurons at others: the quadratic bound, and the value by descent.

    Parameters
    ----------
    layer
        As for :func:`fiberscope.neurons.classes.neuron_classes`.
    inputs
        ``(points, d)``, or batches; all of them are held in memory.
    pairs
        ``(n, 2)``: neuron ``i`` is to compute the function of neuron ``j``. None: all ``m^2``.
    beta
        The price of missing the function; the smaller, the closer to the hard cost.
    activation
        ``"relu"``, ``"gelu"``, ``"tanh"``, ...
    normalisation
        What stands between the weights and the activation and belongs to the neuron: a torch ``BatchNorm`` or a
        :class:`fiberscope.neurons.normalisation.Normalisation` (section G.7); its parameters stay fixed.
    optimise
        Also minimise the true objective, for all pairs side by side.
    steps
        Most steps of the descent.
    bias
        Count the bias as a trained weight; otherwise it is left out.
    progress, time_limit
        Called as ``progress(done, total, text)`` after every step; after so many seconds an ``OutOfTimeError``.

    >>> rng = np.random.default_rng(0)
    >>> F, W, X = rng.normal(size=(3, 4)), rng.normal(size=(3, 4)), rng.normal(size=(50, 4))
    >>> found = relaxed_cost((F, np.ones((3, 4)), W), X, [[0, 1], [1, 1]], beta=0.1)
    >>> bool((found.optimised <= found.quadratic).all()), found.activation
    (True, 'relu')
    """
    if not (np.isfinite(beta) and beta > 0):
        raise InputError(f"beta: expected a positive number, got {beta}")
    arrays, eta = layer_arrays(layer, name, parameter), activation_of(activation)
    X = collect(inputs, arrays.width, name=arrays.name, rows=arrays.rows, limit=TARGET_LIMIT)
    if bias:
        arrays, X = arrays.with_bias(), np.hstack([X, np.ones((len(X), 1))])
    norm = Normalisation.of(normalisation, len(arrays.F), arrays.name)
    if norm is not None and norm.frozen:
        arrays, X = normalised(arrays, norm), np.hstack([X, np.ones((len(X), 1))])
        norm = None
    chosen = _pairs(pairs, len(arrays.F))
    if norm is None:
        bound = _ridge_layer(arrays, X, beta / eta.lipschitz**2)
        quadratic = cost_matrix(bound).squares[chosen[:, 0], chosen[:, 1]]
    else:
        bound, quadratic = None, np.full(len(chosen), np.nan)
    if not optimise:
        return RelaxedCosts(chosen, frozen(quadratic), None, None, None, beta, eta.name)
    problem = _Problem.of(arrays, X, chosen, eta, beta, norm)
    best = _descend(problem, bound, steps, Run.begin(progress, time_limit))
    errors = (best.values - (best.points**2).sum(axis=1)) * beta
    return RelaxedCosts(
        chosen, frozen(quadratic), frozen(best.values), frozen(np.maximum(errors, 0.0)), best.converged, beta, eta.name
    )


def _pairs(pairs: Any, m: int) -> np.ndarray:
    if pairs is None:
        return np.stack(np.meshgrid(np.arange(m), np.arange(m), indexing="ij"), axis=-1).reshape(-1, 2)
    array = np.asarray(pairs)
    if array.ndim != 2 or array.shape[1] != 2 or array.dtype.kind not in "iu":
        raise InputError(f"pairs: expected integers of shape (n, 2), got {array.shape} of {array.dtype}")
    if array.size and (array.min() < 0 or array.max() >= m):
        raise InputError(f"pairs: expected neurons 0..{m - 1}, got {array.min()}..{array.max()}")
    return array.astype(np.intp)


def _ridge_layer(arrays: LayerArrays, X: FloatArray, ridge: float) -> ProjectedLayer:
    """The layer in the coordinates of ``(Lambda + ridge)^(-1/2) A``, where a mask is a change of the identity again."""
    values, vectors = scipy.linalg.eigh(X.T @ X / len(X))
    keep = values > rank_cutoff((len(values), len(values)), float(max(values[-1], 0.0)), np.dtype(np.float64))
    if not keep.any():
        raise InputError(f"{arrays.name}: expected inputs that are not all zero, got second moments of rank zero")
    total = values[keep] + ridge
    basis = vectors[:, keep] * np.sqrt(values[keep] / total)
    moving = arrays.D * arrays.W
    sizes = np.linalg.norm(arrays.F, axis=1) + np.linalg.norm(moving, axis=1)
    return ProjectedLayer(
        arrays.F, arrays.D, basis, arrays.F @ basis, moving @ basis, sizes, True, np.asarray(ridge / total)
    )


def _minimisers(bound: ProjectedLayer, pairs: np.ndarray) -> FloatArray:
    """``(n, d)``: the weights (252) at which the quadratic bound is attained."""
    result = np.empty((len(pairs), len(bound.basis)))
    for i in np.unique(pairs[:, 0]):
        rows = np.flatnonzero(pairs[:, 0] == i)
        vectors = bound.coefficients[pairs[rows, 1]] - bound.centers[i]
        metric = bound.grams.metric(int(i))
        transformed = metric.transformed(Points.of(vectors, bound.basis))
        result[rows] = bound.scales[i] * (metric.solved(transformed, vectors, bound.basis) @ bound.basis.T)
    return result


@dataclass(frozen=True, slots=True, eq=False)
class _Problem:
    """``E[(h_j(x) - h_i(w; x))^2] / beta + |w|^2`` for many pairs ``(i, j)``, with its gradient in ``w``."""

    arrays: LayerArrays
    X: FloatArray
    pairs: np.ndarray
    targets: FloatArray
    """``(points, functions)``: values of the functions that occur."""
    column: np.ndarray
    """``(n,)``: where the function of each pair stands."""
    eta: Activation
    beta: float
    norm: Normalisation | None

    @classmethod
    def of(
        cls,
        arrays: LayerArrays,
        X: FloatArray,
        pairs: np.ndarray,
        eta: Activation,
        beta: float,
        norm: Normalisation | None,
    ) -> _Problem:
        functions, column = np.unique(pairs[:, 1], return_inverse=True)
        need = 8 * len(X) * len(functions)
        if need > TARGET_LIMIT:
            raise TooLargeError(
                f"{arrays.name}: {len(functions)} functions on {len(X)} inputs need {need / 2**30:.1f} GiB, "
                f"the limit is {TARGET_LIMIT / 2**30:.1f} GiB; take fewer inputs or pairs"
            )
        z = X @ arrays.effective[functions].T
        if norm is not None:
            z = norm.apply(z, functions)[0]
        return cls(arrays, X, pairs, eta.value(z), np.ravel(column), eta, beta, norm)

    def __call__(self, weights: FloatArray, rows: np.ndarray) -> tuple[FloatArray, FloatArray]:
        values, gradients = np.empty(len(rows)), np.empty_like(weights)
        step = max(1, BLOCK_BYTES // (8 * len(self.X)))
        for start in range(0, len(rows), step):
            part = slice(start, start + step)
            values[part], gradients[part] = self._block(weights[part], rows[part])
        return values, gradients

    def _block(self, weights: FloatArray, rows: np.ndarray) -> tuple[FloatArray, FloatArray]:
        neurons = self.pairs[rows, 0]
        scales = self.arrays.D[neurons]
        z = self.X @ (self.arrays.F[neurons] + scales * weights).T
        back = None
        if self.norm is not None:
            z, back = self.norm.apply(z, neurons)
        miss = self.eta.value(z) - self.targets[:, self.column[rows]]
        values = np.einsum("ij,ij->j", miss, miss) / (len(self.X) * self.beta) + (weights**2).sum(axis=1)
        miss *= self.eta.derivative(z)
        if back is not None:
            miss = back(miss)
        slopes = miss.T @ self.X * (2 / (len(self.X) * self.beta))
        return values, scales * slopes + 2 * weights


def _descend(problem: _Problem, bound: ProjectedLayer | None, steps: int, run: Run) -> Minima:
    """The better of two descents: from the bound's minimiser, and from the weights that give the function elsewhere."""
    best = minimise(problem, problem.arrays.W[problem.pairs[:, 1]], steps, run)
    if bound is None:
        return best
    other = minimise(problem, _minimisers(bound, problem.pairs), steps, run)
    first = best.values <= other.values
    return Minima(
        np.where(first[:, None], best.points, other.points),
        np.where(first, best.values, other.values),
        np.where(first, best.gradients, other.gradients),
        np.where(first, best.converged, other.converged),
        max(best.steps, other.steps),
    )


def projected_bounds(classes: NeuronClasses, beta: float, activation: Any = "relu") -> FloatArray:
    """``(m, m)``: Corollary E.6, a bound of the relaxed cost of function ``j`` at neuron ``i`` on all inputs.

    ``C[i, j] + 2 (L_h^2 + L_i^2) tau_k / beta`` with the hard cost on the subspace, the tail energy, and the Lipschitz
    constants ``L |u_j|`` and ``L |f_i + d_i * w*|`` of the function and of what neuron ``i`` makes of it; infinite
    where the hard cost is.

    >>> flat = NeuronClasses.from_arrays([[1.0], [2.0]], [[1.0], [1.0]], [[0.0], [0.0]], [[1.0]])
    >>> projected_bounds(flat, 0.1).tolist()  # nothing is left out: the hard costs
    [[0.0, 1.0], [1.0, 0.0]]
    """
    if not (np.isfinite(beta) and beta > 0):
        raise InputError(f"beta: expected a positive number, got {beta}")
    layer, size = classes.projected, activation_of(activation).lipschitz
    functions = (classes.layer.effective**2).sum(axis=1)
    result = np.array(classes.costs.squares)
    for i, metric in enumerate(layer.grams.metrics()):
        vectors = layer.coefficients - layer.centers[i]
        solved = metric.solved(metric.transformed(Points.of(vectors, layer.basis)), vectors, layer.basis)
        realised = layer.fixed[i] + layer.scales[i] ** 2 * (solved @ layer.basis.T)
        constants = size**2 * (functions + (realised**2).sum(axis=1))
        result[i] += 2 * constants * classes.tail_energy / beta
    return result
