"""The expected volume of boundaries inside a manifold, Theorem 1 of the paper on data geometry, by Monte Carlo.

For a random network and an m-dimensional manifold M in input space,

``E vol_{m-k}(B_k in M) = sum over k-subsets z of neurons  int_M E[ J(x) rho(b*(x)) 1(good) ] dx``.

Here ``b*`` are the biases for which the chosen neurons vanish at x, ``rho`` their density, ``J`` the volume of the
chosen gradients projected onto the tangent space, and *good* means that an active path leads from every chosen neuron
to the output. Everything downstream is evaluated with the biases *replaced* by ``b*``, which the statement of the
theorem leaves open: with the sampled biases the value is wrong as soon as the weights are not symmetric.

Chosen neurons stand at zero, neither active nor not. A path may pass through them: where ``z_1`` acts through ``z_2``
alone, its fold is seen on the side where ``z_2`` is active, and the two meet in a corner of the boundary.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import combinations
from math import comb, pi, sqrt
from typing import Any

import numpy as np

from fiberscope.errors import InputError
from fiberscope.geometry.affine_forms import neuron_gradients
from fiberscope.geometry.curves.curve import Path
from fiberscope.geometry.expectation.ensemble import Ensemble
from fiberscope.geometry.expectation.manifolds import (
    Manifold,
    TangentSample,
    ambient_of,
    dimension_of,
    tangent_sample,
    volume_of,
)
from fiberscope.network.border import NetworkLike, as_network
from fiberscope.network.network import Network, Seed
from fiberscope.numerics.arrays import batch, real_array
from fiberscope.numerics.floats import FloatArray, IntArray
from fiberscope.results import Result
from fiberscope.run import Progress, Run

_CHUNK = 1 << 22
"""Numbers in the largest array of one batch."""

_SUBSETS = 400
"""Up to so many subsets of neurons all are taken; above, as many are drawn for every sample."""


@dataclass(frozen=True, slots=True, eq=False)
class ExpectedVolume(Result):
    """An estimate of Theorem 1 with its standard error.

    ``by_neuron`` (for k = 1, all neurons taken) are the parts of the sum, ``volume`` is that of the manifold; with
    ``m = k`` the value is a number of points.
    """

    value: float
    standard_error: float
    k: int
    dimension: int
    volume: float
    samples: int
    by_neuron: FloatArray | None = field(default=None, repr=False)

    @property
    def density(self) -> float:
        """Per volume of the manifold."""
        return self.value / self.volume

    def __repr__(self) -> str:
        return f"ExpectedVolume({self.value:.4g} +- {self.standard_error:.2g}, k = {self.k}, m = {self.dimension})"


def expected_boundary_volume(
    ensemble: Ensemble,
    manifold: Manifold,
    k: int = 1,
    *,
    samples: int = 4000,
    seed: Seed = 0,
    progress: Progress | None = None,
    time_limit: float | None = None,
) -> ExpectedVolume:
    """Theorem 1: the expected ``(m - k)``-volume of the codimension-k boundary of a random network inside a manifold.

    Parameters
    ----------
    ensemble
        The random network; its hidden biases must have a density.
    manifold
        A :class:`Box`, a curve, or a surface, of dimension m.
    k
        From 1 to m.
    samples
        Independent pairs of a network and a point.
    progress, time_limit
        Called as ``progress(done, total, text)`` now and then; after so many seconds an ``OutOfTimeError``.

    Examples
    --------
    One neuron ``x + b`` with a uniform bias has its kink in [-1/2, 1/2] with probability 1/2:

    >>> from fiberscope.geometry.domains import Box
    >>> from fiberscope.geometry.expectation.ensemble import Law
    >>> one = Ensemble((1, 1, 1), (Law.constant(1.0),) * 2, (Law.uniform(1.0),) * 2)
    >>> expected_boundary_volume(one, Box([-0.5], [0.5]), samples=10)
    ExpectedVolume(0.5 +- 0, k = 1, m = 1)
    """
    return expected_volume(ensemble, manifold, k, samples, seed, Run.begin(progress, time_limit))


def expected_volume(
    ensemble: Ensemble, manifold: Manifold, k: int, samples: int, seed: Seed, run: Run
) -> ExpectedVolume:
    """:func:`expected_boundary_volume` as a part of a longer run."""
    m = _check(ensemble, manifold, k, samples)
    rng = np.random.default_rng(seed)
    neurons = ensemble.num_hidden
    total = comb(neurons, k)
    everything = total <= _SUBSETS
    subsets = np.array(list(combinations(range(neurons), k)), dtype=np.int64).reshape(-1, k) if everything else None
    count = total if everything else _SUBSETS
    size = max(1, _CHUNK // max(1, count * (m + k + 1) * max(neurons, ensemble.widths[0])))
    values, parts = [], np.zeros(count)
    for start in range(0, samples, size):
        run.step(start, samples, "samples")
        own = min(size, samples - start)
        chosen = subsets[None] if subsets is not None else _random_subsets(rng, own, count, neurons, k)
        found = tangent_sample(manifold, rng, own)
        terms = boundary_terms(ensemble, ensemble.batch(rng, own), found, chosen) * found.weights[:, None]
        values.append(terms.sum(axis=1) * (total / count))
        parts += terms.sum(axis=0)
    joined = np.concatenate(values) if total else np.zeros(samples)
    error = float(joined.std(ddof=1)) / sqrt(samples)
    single = parts / samples if k == 1 and everything else None
    return ExpectedVolume(float(joined.mean()), error, k, m, volume_of(manifold), samples, single)


def _check(ensemble: Ensemble, manifold: Manifold, k: int, samples: int) -> int:
    m = check_question(ensemble, manifold, k, samples)
    if not ensemble.has_density:
        raise InputError(f"ensemble: expected hidden biases with a density, got {ensemble}; give bias_std")
    return m


def check_question(ensemble: Any, manifold: Manifold, k: int, samples: int) -> int:
    """Raise unless the parts of a question fit together; gives the dimension of the manifold."""
    if isinstance(ensemble, Network):
        raise InputError(
            "ensemble: expected an Ensemble of random networks, got one Network, whose boundaries are fixed: count "
            "them by fs.regions_along, fs.regions_on or fs.regions, or ask about fs.Ensemble.of(net.widths)"
        )
    if not isinstance(ensemble, Ensemble):
        raise InputError(f"ensemble: expected an Ensemble, as by fs.Ensemble.of(widths), got {type(ensemble).__name__}")
    m = dimension_of(manifold)
    if not isinstance(k, int | np.integer) or k not in range(1, m + 1):
        raise InputError(f"k: expected 1 to {m}, the dimension of the manifold, got {k}")
    if ambient_of(manifold) != ensemble.widths[0]:
        raise InputError(f"manifold: expected one in R^{ensemble.widths[0]}, got R^{ambient_of(manifold)}")
    if samples < 2:
        raise InputError(f"samples: expected at least 2, got {samples}")
    return m


def _random_subsets(rng: np.random.Generator, samples: int, count: int, neurons: int, k: int) -> IntArray:
    """Uniform k-subsets, sorted, ``(samples, count, k)``."""
    if k == 1:
        return rng.integers(0, neurons, (samples, count, 1))
    order = rng.random((samples, count, neurons)).argpartition(k - 1, axis=2)[:, :, :k]
    return np.sort(order, axis=2)


def boundary_terms(
    ensemble: Ensemble, layers: list[tuple[FloatArray, FloatArray]], at: TangentSample, chosen: IntArray
) -> FloatArray:
    """``J rho 1(good)`` for every sample and subset, ``(samples, subsets)``; ``chosen`` is ``(samples or 1, T, k)``."""
    S, T, k = len(at.points), chosen.shape[1], chosen.shape[2]
    m = at.frames.shape[1]
    a = np.broadcast_to(at.points[:, None, :], (S, T, at.points.shape[1]))
    G = np.broadcast_to(at.frames[:, None], (S, T, *at.frames.shape[1:]))
    reach = np.zeros((S, T, k, a.shape[2]))
    density, gradients, start = np.ones((S, T)), [], 0
    for (W, b), law in zip(layers[:-1], ensemble.biases[:-1], strict=True):
        n = W.shape[1]
        back = W.transpose(0, 2, 1)
        v = a @ back
        slopes = (G.reshape(S, T * m, -1) @ back).reshape(S, T, m, n)
        gradients.append(slopes)
        own = chosen[..., None] - start == np.arange(n)  # (S or 1, T, k, n)
        any_own = own.any(axis=2)
        at_zero = law.density(-v) if law.density is not None else np.zeros_like(v)
        density = density * np.where(any_own, at_zero, 1.0).prod(axis=2)
        z = np.where(any_own, 0.0, v + b[:, None, :])
        passes = (z > 0) | any_own
        linked = (reach.reshape(S, T * k, -1) @ (back != 0).astype(np.float64)).reshape(S, T, k, n) > 0
        reach = (linked & passes[:, :, None, :] | own).astype(np.float64)
        a = np.maximum(z, 0.0)
        G = slopes * (z > 0)[:, :, None, :]
        start += n
    last = (layers[-1][0].transpose(0, 2, 1) != 0).astype(np.float64)
    good = (reach.reshape(S, T * k, -1) @ last).reshape(S, T, k, -1).any(axis=3).all(axis=2)
    picked = np.take_along_axis(
        np.concatenate(gradients, axis=3), np.broadcast_to(chosen[:, :, None, :], (S, T, m, k)), axis=3
    )
    return np.asarray(volume_of_columns(picked) * density * good)


def volume_of_columns(vectors: FloatArray) -> FloatArray:
    """``sqrt(det(V^T V))`` of the columns of ``(..., m, k)``.

    >>> volume_of_columns(np.array([[1.0, 0.0], [1.0, 2.0]]))
    array(2.)
    """
    m, k = vectors.shape[-2:]
    if k == 1:
        return np.asarray(np.linalg.norm(vectors[..., 0], axis=-1))
    if k == m:
        return np.asarray(np.abs(np.linalg.det(vectors)))
    gram = np.swapaxes(vectors, -1, -2) @ vectors
    return np.asarray(np.sqrt(np.maximum(np.linalg.det(gram), 0.0)))


def manifold_jacobian(net: NetworkLike, X: Any, neurons: Any, tangents: Any) -> FloatArray:
    """``J(x) = sqrt(det Gram(E grad z_1, ..., E grad z_k))`` at points of a manifold, ``(points,)``.

    ``E`` projects onto the tangent space: the volume by which the map ``(z_1, ..., z_k)`` stretches the manifold.

    Parameters
    ----------
    X
        ``(points, n)``.
    neurons
        k entries of the sign vector.
    tangents
        Tangent vectors ``(points, m, n)``, independent but not necessarily orthonormal; ``(m, n)`` for all points.

    Examples
    --------
    The neuron ``3 x + 4 y`` grows by 4 per unit along the second axis:

    >>> net = Network([[[3.0, 4.0]], [[1.0]]], [[0.0], [0.0]])
    >>> manifold_jacobian(net, [[1.0, 1.0]], [0], [[0.0, 2.0]])
    array([4.])
    """
    net = as_network(net, points=X)
    points = batch(X, net.in_size)
    entries = np.atleast_1d(np.asarray(neurons, dtype=np.int64))
    if entries.ndim != 1 or not len(entries) or not ((entries >= 0) & (entries < net.num_signs)).all():
        raise InputError(f"neurons: expected entries 0 to {net.num_signs - 1} of the sign vector, got {neurons}")
    frames = real_array(tangents, "tangents")
    frames = np.broadcast_to(frames, (len(points), *frames.shape[-2:]))
    if frames.shape[2] != net.in_size or len(entries) > frames.shape[1]:
        raise InputError(f"tangents: expected (points, m >= {len(entries)}, {net.in_size}), got {frames.shape}")
    signs = net.signs(points).signs
    Q = np.linalg.qr(frames.transpose(0, 2, 1))[0]  # (points, n, m)
    columns = [neuron_gradients(net, signs, np.full(len(points), entry)) for entry in entries]
    return volume_of_columns(np.einsum("pnm,kpn->pmk", Q, np.stack(columns)))


def first_layer_kinks(curve: Path, bias_scale: float = 1.0, *, places: int = 20_000) -> float:
    """Expected zeros of one first-layer neuron along a curve; ``bias_scale`` is the bias's deviation over the weights'.

    A neuron ``w x + b`` vanishes where the vector ``(x, 1)`` meets a plane with the normal ``(w, b)``. If that normal
    is isotropic, as for normal weights and biases of one standard deviation, the expected number of zeros along a curve
    is by Crofton's formula the length of the curve's central projection onto the unit sphere, divided by pi. Only
    positions and tangent directions enter, not curvature: per unit length it is
    ``sqrt(1 + r^2 sin^2 a) / (pi (1 + r^2))`` at distance r from the origin, with the angle a between the tangent and
    the ray from the origin. The integral over the parameter is taken by the midpoint rule in so many places.

    >>> from fiberscope.geometry.curves.curve import Circle
    >>> round(first_layer_kinks(Circle()), 6)  # the square root of 2
    1.414214
    """
    if not isinstance(curve, Path):
        raise InputError(f"curve: expected a curve, got {type(curve).__name__}")
    if not bias_scale > 0 or places < 1:
        raise InputError(f"expected a positive bias_scale and places, got {bias_scale} and {places}")
    low, high = curve.interval
    t = low + (high - low) * (np.arange(places) + 0.5) / places
    x, v = curve(t) / bias_scale, curve.derivative(t) / bias_scale
    level = 1 + np.einsum("ij,ij->i", x, x)
    area = np.einsum("ij,ij->i", v, v) * level - np.einsum("ij,ij->i", x, v) ** 2
    return float(np.mean(np.sqrt(np.maximum(area, 0.0)) / level) * (high - low) / pi)
