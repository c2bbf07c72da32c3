"""Eigenfunctions of a tangent kernel on data: what a network learns first, as functions."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.linalg

from fiberscope.dimension.kernels.kernel import ntk
from fiberscope.errors import InputError
from fiberscope.network.border import NetworkLike, as_model
from fiberscope.numerics.arrays import real_array
from fiberscope.numerics.floats import FloatArray
from fiberscope.results import Pictured, hidden
from fiberscope.run import Progress

MEMORY = 1 << 31
"""Bytes that the kernel may take."""


@dataclass(frozen=True, slots=True, eq=False)
class KernelEigenfunctions(Pictured):
    r"""The leading eigenfunctions of :math:`f \mapsto \frac1m \sum_j k(\cdot, x_j) f(x_j)`, and how far they reach.

    ``eigenvalues`` are those of the operator, the kernel's over the number of points, largest first; each lies within
    its entry of ``errors`` of a true one. ``values``, ``(count, points, outputs)``, have mean square one over the
    points. An eigenfunction is determined up to its sign, and only as far as its eigenvalue stands apart: ``gaps`` are
    the distances to the nearest other eigenvalue. ``trace`` is the sum of all eigenvalues.
    """

    eigenvalues: FloatArray
    errors: FloatArray = field(repr=False)
    gaps: FloatArray = field(repr=False)
    values: FloatArray = field(repr=False, metadata=hidden())
    trace: float
    num_points: int
    X: Any = field(repr=False, metadata=hidden())
    net: Any = field(repr=False, metadata=hidden())

    picture = "eigenfunctions"

    def __repr__(self) -> str:
        share = float(self.eigenvalues.sum()) / self.trace if self.trace else 0.0
        return f"KernelEigenfunctions({len(self.eigenvalues)} with {share:.1%} of the trace, {self.num_points} points)"

    def at(self, points: Any) -> FloatArray:
        r"""The eigenfunctions at other points, ``(count, points, outputs)``.

        By :math:`\frac1{m \mu} \sum_j k(x, x_j) f(x_j)` with the eigenvalue :math:`\mu`. On the points that they were
        found on these are ``values`` again.
        """
        if not (self.eigenvalues > self.errors).all():
            raise InputError("at: expected eigenvalues above their errors; ask for fewer eigenfunctions")
        count, m, outputs = self.values.shape
        kernel = np.asarray(ntk(self.net, points, self.X), dtype=np.float64)
        found = kernel @ self.values.reshape(count, -1).T / (m * self.eigenvalues)
        return np.ascontiguousarray(found.T).reshape(count, -1, outputs)

    def coefficients(self, targets: Any) -> FloatArray:
        """Targets ``(points, outputs)`` in these functions, ``(count,)``.

        Squares add up to the part of the mean square that the functions hold. To first order gradient descent on the
        squared error learns a part the faster, the larger its eigenvalue is.
        """
        count, m, outputs = self.values.shape
        y = real_array(targets, "targets").reshape(-1)
        if y.size != m * outputs:
            raise InputError(f"targets: expected {m * outputs} numbers, {outputs} for each of {m} points, got {y.size}")
        return np.asarray(self.values.reshape(count, -1) @ y / m)


def kernel_eigenfunctions(
    net: NetworkLike,
    X: Any,
    count: int = 6,
    *,
    memory: int = MEMORY,
    progress: Progress | None = None,
    time_limit: float | None = None,
) -> KernelEigenfunctions:
    """The leading eigenfunctions of ``ntk(net, X)`` as functions on the data, which :meth:`~KernelEigenfunctions.at`
    continues to all inputs.

    Parameters
    ----------
    net, X
        A network, or any torch module, and a batch ``(points, in_size)``. The kernel is formed.
    count
        How many.
    memory
        Bytes that the kernel may take.
    progress, time_limit
        Called as ``progress(done, total, text)``; seconds after which :class:`OutOfTimeError` is raised.

    Examples
    --------
    Of ``v relu(w x + b) + c`` where the neuron is on, outputs are affine in the input, and so are eigenfunctions:

    >>> from fiberscope import Network
    >>> net = Network([[[2.0]], [[3.0]]], [[9.0], [0.0]])
    >>> found = kernel_eigenfunctions(net, [[-1.0], [0.0], [1.0]], count=2)
    >>> values = found.at([[-2.0], [0.0], [2.0]])[:, :, 0]
    >>> bool(np.allclose(values[:, 0] + values[:, 2], 2 * values[:, 1]))
    True
    """
    model = as_model(net)
    kernel = np.asarray(ntk(model, X, memory=memory, progress=progress, time_limit=time_limit), dtype=np.float64)
    points = len(X)
    if count < 1 or count > len(kernel):
        raise InputError(f"count: expected 1 to {len(kernel)}, the rows of the kernel, got {count}")
    if not np.isfinite(kernel).all():
        raise InputError("net: the tangent kernel of this network on this batch exceeds the range of floats")
    operator = kernel / points
    size = len(operator)
    first = max(0, size - count - 1)  # one more: the gap of the last one
    found, vectors = scipy.linalg.eigh(operator, subset_by_index=(first, size - 1))
    found, vectors = found[::-1], vectors[:, ::-1]
    residuals = np.linalg.norm(operator @ vectors - vectors * found, axis=0)
    apart = np.abs(np.diff(found)) if size > 1 else np.zeros(0)
    gaps = np.minimum(np.append(np.inf, apart), np.append(apart, np.inf))
    values = vectors.T[:count] * np.sqrt(points)
    return KernelEigenfunctions(
        eigenvalues=np.asarray(found[:count]),
        errors=np.asarray(residuals[:count]),
        gaps=gaps[:count],
        values=values.reshape(count, points, -1),
        trace=float(np.trace(operator)),
        num_points=points,
        X=X,
        net=model,
    )
