"""Leading terms of the costs of permutations in the centre-dominated regime, with their error bounds, beside exact
costs.

Where the Gram matrices are within ``epsilon`` of ``mu I``, a permutation of outputs or inputs costs ``|delta|_F^2 /
mu`` up to

    ``(2 |delta| |Q R| + epsilon / (mu - epsilon) (|delta|^2 + 2 |delta| |R| + 2 |R|^2)) / mu``

(inequalities (72) and (136) of :cite:`neuronidentifiability`): ``R`` holds the trained parts of the neurons that move,
``Q`` projects onto what the permutation changes (for inputs ``Q = I``). These hold for ``epsilon < mu`` whatever ``rho
= |R| / |delta|``; the theorems ask for ``rho <= 1`` and ``epsilon < mu / 2`` as well, so that the bound is a small
multiple of ``rho + epsilon / mu``.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from scipy.spatial.distance import cdist

from fiberscope.neurons.gaps import gap_in, gap_out
from fiberscope.neurons.projected import ProjectedLayer
from fiberscope.numerics.cutoffs import REACHED
from fiberscope.numerics.floats import TINY, BoolArray, FloatArray
from fiberscope.results import Result


@dataclass(frozen=True, slots=True, eq=False)
class Sensitivity(Result):
    """The exact cost of a permutation, its leading term and the bound of their difference.

    Numbers for one permutation; arrays of one shape for many.
    """

    exact: FloatArray = field(repr=False)
    leading: FloatArray = field(repr=False)
    """``|delta|_F^2 / mu``."""
    rho: FloatArray = field(repr=False)
    """``|R| / |delta|_F``; infinite where the fixed parts do not move."""
    bound: FloatArray = field(repr=False)
    """Of ``|exact - leading|``; infinite where ``epsilon >= mu``."""
    relative: FloatArray = field(repr=False)
    """The weaker bound of ``|exact / leading - 1|`` in terms of ``rho``, inequalities (74) and (137)."""
    epsilon: float
    mu: float

    told = ("holds",)

    @property
    def holds(self) -> BoolArray:
        """Whether the theorem's assumptions are met: ``rho <= 1`` and ``epsilon < mu / 2``."""
        return np.asarray((self.rho <= 1) & (self.epsilon < self.mu / 2))

    def __repr__(self) -> str:
        shape = self.exact.shape
        if shape:
            return f"Sensitivity({self.holds.sum()} of {self.exact.size} in the centre-dominated regime, shape={shape})"
        return (
            f"Sensitivity(exact={float(self.exact):.6g}, leading={float(self.leading):.6g}, "
            f"bound={float(self.bound):.6g}, rho={float(self.rho):.3g}, holds={bool(self.holds)})"
        )


@dataclass(frozen=True, slots=True)
class Smallest(Result):
    """Corollary C.11 or C.14: the smallest cost beside ``gamma^2 / mu (1 +- error)``."""

    exact: float
    leading: float
    """``gamma^2 / mu``."""
    lower: float
    upper: float
    rho: float
    """The largest ``rho`` over transpositions."""
    holds: bool
    """Whether the assumptions are met: ``rho <= 1`` and ``epsilon < mu / 2``; without them the interval says
    nothing.
    """


def sensitivity(
    exact: FloatArray | float,
    delta: FloatArray | float,
    moved: FloatArray | float,
    turned: FloatArray | float,
    epsilon: float,
    mu: float,
) -> Sensitivity:
    """From ``|delta|_F``, ``|R|_F`` of the neurons that move and ``|Q R|_F``: inequality (72) or (136)."""
    delta, moved, turned = (np.asarray(x, dtype=np.float64) for x in (delta, moved, turned))
    ratio = epsilon / (mu - epsilon) if epsilon < (1 - REACHED) * mu else np.inf
    rho = np.divide(moved, delta, out=np.full(delta.shape, np.inf), where=delta > 0)
    rough = delta**2 + 2 * delta * moved + 2 * moved**2 + TINY  # squares may vanish
    # Nothing moves: no error, even where the ratio is infinite.
    still = (delta == 0) & (moved == 0)
    spread = np.multiply(ratio, rough, out=np.zeros(delta.shape), where=~still)
    bound = _over(2 * delta * turned + spread, still, mu)
    relative = relative_bound(rho, epsilon, mu)
    return Sensitivity(np.asarray(exact), _over(delta**2, delta == 0, mu), rho, bound, relative, epsilon, mu)


def _over(values: FloatArray, still: BoolArray, mu: float) -> FloatArray:
    """``values / mu``, where all scales may be zero: then whatever is not ``still`` is out of reach."""
    return np.asarray(values / mu if mu > 0 else np.where(still, 0.0, np.inf))


def relative_bound(rho: FloatArray, epsilon: float, mu: float) -> FloatArray:
    """``2 rho + epsilon / (mu - epsilon) (1 + 2 rho + 2 rho^2)``."""
    result = np.full(np.shape(rho), np.inf)
    if epsilon < (1 - REACHED) * mu:
        finite = np.isfinite(rho)
        known = np.where(finite, rho, 0.0)
        result = np.where(finite, 2 * known + epsilon / (mu - epsilon) * (1 + 2 * known + 2 * known**2), np.inf)
    return result


def output_sensitivity(
    layer: ProjectedLayer, order: np.ndarray, exact: float, epsilon: float, mu: float
) -> Sensitivity:
    """Theorem C.10 for one permutation."""
    moved = np.flatnonzero(order != np.arange(len(order)))
    delta = float(np.linalg.norm(layer.centers[order[moved]] - layer.centers[moved]))
    trained = layer.trained
    turned = sum(float(((trained[c] - trained[c].mean(axis=0)) ** 2).sum()) for c in _cycles(order))
    return sensitivity(exact, delta, float(np.linalg.norm(trained[moved])), float(np.sqrt(turned)), epsilon, mu)


def _cycles(order: np.ndarray) -> list[list[int]]:
    seen = np.zeros(len(order), dtype=bool)
    found = []
    for start in range(len(order)):
        cycle = []
        i = start
        while not seen[i]:
            seen[i] = True
            cycle.append(i)
            i = int(order[i])
        if len(cycle) > 1:
            found.append(cycle)
    return found


def swap_sensitivities(layer: ProjectedLayer, exact: FloatArray, epsilon: float, mu: float) -> Sensitivity:
    """Theorem C.10 for all transpositions, arrays ``(m, m)``."""
    delta = np.sqrt(2.0) * cdist(layer.centers, layer.centers)
    lengths = (layer.trained**2).sum(axis=1)
    moved = np.sqrt(lengths[:, None] + lengths[None, :])
    np.fill_diagonal(moved, 0.0)
    turned = cdist(layer.trained, layer.trained) / np.sqrt(2.0)
    return sensitivity(exact, delta, moved, turned, epsilon, mu)


def smallest_output(layer: ProjectedLayer, exact: float, epsilon: float, mu: float) -> Smallest:
    """Corollary C.11: over all permutations of the neurons but the identity."""
    swaps = swap_sensitivities(layer, np.zeros((len(layer), len(layer))), epsilon, mu)
    off = ~np.eye(len(layer), dtype=bool)
    return _smallest(exact, gap_out(layer).value, float(swaps.rho[off].max(initial=0.0)), epsilon, mu)


def smallest_input(layer: ProjectedLayer, exact: float, epsilon: float, mu: float) -> Smallest:
    """Corollary C.14: over all transpositions of inputs.

    The corollary asks for Assumption C.9 after every transposition too. Exchanging ``a`` and ``b`` changes ``S_i`` by
    ``(d_a^2 - d_b^2)(u_b u_b^T - u_a u_a^T)``, hence by no more than the spread of the squared scales times the
    coherence.
    """
    squares = layer.scales**2
    spread = float((squares.max(axis=1) - squares.min(axis=1)).max())
    epsilon = epsilon + spread * float((layer.basis**2).sum(axis=1).max())
    gap = gap_in(layer).value
    total = float(np.linalg.norm(layer.trained))
    rho = total / gap if gap > 0 else np.inf
    return _smallest(exact, gap, rho, epsilon, mu)


def _smallest(exact: float, gap: float, rho: float, epsilon: float, mu: float) -> Smallest:
    leading = float(_over(np.asarray(gap**2), np.asarray(gap == 0), mu))
    error = float(relative_bound(np.asarray(rho), epsilon, mu))
    holds = bool(rho <= 1 and epsilon < mu / 2)
    # Above 1 the error may be larger for a permutation that moves the centres further: then there is no lower end.
    lower = (1 - error) * leading if error <= 1 else -np.inf
    upper = (1 + error) * leading if np.isfinite(error) else np.inf
    return Smallest(exact, leading, lower, upper, rho, holds)
