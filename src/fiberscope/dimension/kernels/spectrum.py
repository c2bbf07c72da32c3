"""The leading spectrum and the effective rank of a tangent kernel that is never formed.

Lanczos' method needs products ``K v = J (J^T v)`` only. Every eigenvalue it gives is within the residual of a true one.
What the leading eigenvalues leave of the trace, which is known, bounds the effective rank from both sides, and random
vectors estimate it in between.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.linalg

from fiberscope import modules
from fiberscope.dimension.jacobian import own_network, with_own_parameters
from fiberscope.dimension.kernels.tangent import TangentMap, kernel_diagonal
from fiberscope.errors import InputError, UnsupportedModelError
from fiberscope.network.border import NetworkLike, as_model
from fiberscope.network.network import Network, Seed
from fiberscope.numerics.arrays import batch
from fiberscope.numerics.cutoffs import LANCZOS
from fiberscope.numerics.floats import FloatArray
from fiberscope.results import Result
from fiberscope.run import ENDLESS, Progress, Run

Product = Callable[[FloatArray], FloatArray]


@dataclass(frozen=True, slots=True, eq=False)
class KernelSpectrum(Result):
    """What is known of the spectrum of a kernel of ``size`` rows without forming it.

    ``eigenvalues`` are the leading ones that Lanczos' method found, largest first; each lies within its entry of
    ``errors`` of a true eigenvalue. ``trace`` is the sum of all. The effective rank is ``effective_rank`` give or take
    ``standard_error`` (over the random vectors); it is below ``upper``, and above ``lower`` unless a leading eigenvalue
    was missed (a second copy of a multiple one can be). ``products`` counts products with the kernel.
    """

    eigenvalues: FloatArray = field(repr=False)
    errors: FloatArray = field(repr=False)
    trace: float
    size: int
    effective_rank: float
    standard_error: float
    lower: float
    upper: float
    products: int

    @property
    def singular_values(self) -> FloatArray:
        """Leading singular values of the Jacobian."""
        return np.sqrt(np.maximum(self.eigenvalues, 0.0))


def kernel_spectrum(
    net: NetworkLike,
    X: Any,
    count: int = 10,
    *,
    steps: int | None = None,
    probes: int = 4,
    seed: Seed = 0,
    progress: Progress | None = None,
    time_limit: float | None = None,
) -> KernelSpectrum:
    """Leading eigenvalues and effective rank of ``ntk(net, X)``, with their errors, without forming it.

    Memory is that of a few evaluations of the network on the batch.

    Parameters
    ----------
    net, X
        A network, or any torch module (its parameters taken to float64), and a batch ``(points, in_size)``.
    count
        How many leading eigenvalues are wanted.
    steps
        Steps of Lanczos' method; ``2 count + 12`` by default. More steps, smaller errors.
    probes
        Random vectors for the estimate of the effective rank, at least two.
    seed
        For the random vectors.
    progress, time_limit
        Called as ``progress(done, total, text)``; seconds after which :class:`OutOfTimeError` is raised.

    Examples
    --------
    >>> net = Network.random((3, 8, 8, 2), seed=0)
    >>> X = np.random.default_rng(0).normal(size=(50, 3))
    >>> from fiberscope.dimension.kernels.kernel import ntk
    >>> top = np.linalg.eigvalsh(ntk(net, X))[::-1][:5]
    >>> bool(np.allclose(kernel_spectrum(net, X, count=5).eigenvalues, top))
    True
    """
    if count < 1 or probes < 2:
        raise InputError(f"expected count >= 1 and probes >= 2, got {count} and {probes}")
    rng = np.random.default_rng(seed)
    run = Run.begin(progress, time_limit)
    with np.errstate(over="ignore", invalid="ignore"):
        tangent, trace = _tangent(as_model(net), X, run)
    if not np.isfinite(trace):
        raise InputError("net: the tangent kernel of this network on this batch exceeds the range of floats")
    size = tangent.shape[0]
    steps = min(size, 2 * count + 12 if steps is None else max(steps, count))
    found = lanczos(tangent.gram, rng.normal(size=size), steps, run)
    values, vectors, errors = found.ritz(min(count, len(found.diagonal)))
    low, high = _between(values, trace, size)
    estimate, deviation, used = _estimated(tangent.gram, values, vectors, (trace, size, probes), rng, run)
    return KernelSpectrum(
        values,
        errors,
        trace,
        size,
        float(np.clip(estimate, low, high)),
        deviation,
        low,
        high,
        len(found.diagonal) + used,
    )


def _tangent(net: Any, X: Any, run: Run) -> tuple[Any, float]:
    """The Jacobian as a map, and the trace of the kernel."""
    if not isinstance(net, Network):
        try:
            net = own_network(net, X)
        except UnsupportedModelError:
            found = modules.derivatives.TangentMap(net, X)
            return found, found.trace(run)
    net = with_own_parameters(net)
    X = batch(X, net.in_size)
    return TangentMap(net, X), float(kernel_diagonal(net, X, run).sum())


@dataclass(frozen=True, slots=True, eq=False)
class Krylov:
    """An orthonormal basis ``(steps, size)`` in which a symmetric map is tridiagonal, and the last remainder."""

    basis: FloatArray
    diagonal: FloatArray
    beside: FloatArray
    remainder: float

    def ritz(self, count: int) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Leading eigenvalues, vectors ``(count, size)``, and bounds of the distance to a true eigenvalue."""
        values, local = scipy.linalg.eigh_tridiagonal(self.diagonal, self.beside)
        top = np.argsort(values)[::-1][:count]
        # The residual of a Ritz pair is the remainder times the last entry; rounding adds a few units of the largest.
        errors = self.remainder * np.abs(local[-1, top]) + LANCZOS * np.abs(values).max(initial=0.0)
        return np.asarray(values[top], dtype=np.float64), np.asarray(local[:, top].T @ self.basis), np.asarray(errors)


def lanczos(product: Product, start: FloatArray, steps: int, run: Run = ENDLESS) -> Krylov:
    """Lanczos' method with full reorthogonalisation (C. Lanczos, J. Res. Nat. Bur. Stand. 45, 1950).

    ``steps`` is at most the dimension.
    """
    length = float(np.linalg.norm(start))
    rng = np.random.default_rng(0)
    basis = np.zeros((steps, len(start)))
    diagonal, beside = [], []
    vector, remainder = start / length if length else start, 0.0
    for k in range(steps):
        run.step(k, steps, "products with the kernel")
        basis[k] = vector
        image = product(vector)
        diagonal.append(float(image @ vector))
        for _ in range(2):  # twice is enough
            image = image - basis[: k + 1].T @ (basis[: k + 1] @ image)
        remainder = float(np.linalg.norm(image))
        if k + 1 == steps:
            break
        if remainder <= LANCZOS * max(np.abs(diagonal)):
            # An invariant subspace: go on beside it, where further copies of multiple eigenvalues are.
            image = rng.normal(size=len(start))
            for _ in range(2):
                image = image - basis[: k + 1].T @ (basis[: k + 1] @ image)
            remainder = 0.0
        beside.append(remainder)
        vector = image / np.linalg.norm(image)
    return Krylov(basis, np.array(diagonal), np.array(beside), remainder)


def _entropy(shares: FloatArray) -> float:
    positive = shares[shares > 0]
    return float(-(positive * np.log(positive)).sum())


def _between(values: FloatArray, trace: float, size: int) -> tuple[float, float]:
    """Bounds of the effective rank: what is left of the trace in as few, or as many, parts as possible."""
    if trace <= 0:
        return 0.0, 0.0
    shares = np.maximum(values, 0.0) / trace
    rest = max(0.0, 1.0 - float(shares.sum()))
    known, places = _entropy(shares), size - len(values)
    if rest == 0 or places == 0:
        return float(np.exp(known)), float(np.exp(known))
    spread = -rest * np.log(rest / places)
    smallest = max(float(shares[-1]), rest / places)
    whole = rest // smallest
    left = rest - whole * smallest
    packed = -whole * smallest * np.log(smallest) - (left * np.log(left) if left > 0 else 0.0)
    return float(np.exp(known + min(packed, spread))), float(np.exp(known + spread))


def _estimated(
    product: Product,
    values: FloatArray,
    vectors: FloatArray,
    sizes: tuple[float, int, int],
    rng: np.random.Generator,
    run: Run,
) -> tuple[float, float, int]:
    """Effective rank by quadrature on random vectors beside the known ones, its standard error, and the products used.

    S. Ubaru, J. Chen, Y. Saad: Fast estimation of tr(f(A)) via stochastic Lanczos quadrature. SIMAX 38, 2017.
    """
    trace, size, probes = sizes
    if trace <= 0:
        return 0.0, 0.0, 0
    known = _entropy(np.maximum(values, 0.0) / trace)
    if size == len(values):
        return float(np.exp(known)), 0.0, 0

    def beside(v: FloatArray) -> FloatArray:
        return v - vectors.T @ (vectors @ v)

    entropies, used = [], 0
    for _ in range(probes):
        start = beside(rng.choice([-1.0, 1.0], size=size))
        weight = float(start @ start)
        found = lanczos(lambda v: beside(product(v)), start, min(8, size - len(values)), run)
        used += len(found.diagonal)
        nodes, local = scipy.linalg.eigh_tridiagonal(found.diagonal, found.beside)
        shares = np.maximum(nodes, 0.0) / trace
        logs = np.where(shares > 0, -shares * np.log(np.where(shares > 0, shares, 1.0)), 0.0)
        entropies.append(weight * float(local[0] ** 2 @ logs))
    entropy = known + float(np.mean(entropies))
    error = float(np.std(entropies, ddof=1) / np.sqrt(probes))
    return float(np.exp(entropy)), float(np.exp(entropy) * error), used
