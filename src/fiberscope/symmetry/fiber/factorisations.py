"""Factorisations ``A = V W`` with ``W >= 0``: where to start, and a random walk over all of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.linalg

from fiberscope.errors import InputError
from fiberscope.numerics.cutoffs import CONDITION
from fiberscope.numerics.floats import FloatArray, U
from fiberscope.numerics.lp import Polyhedron
from fiberscope.symmetry.fiber.linear import basis, reduced, solved
from fiberscope.symmetry.fiber.one_layer import rational_rank
from fiberscope.symmetry.rational import fractions, nearest, product

STEPS = 60
"""Steps of a walk for every inner neuron."""

_SNAPPED = 2500
"""Entries of a factor up to which the end of a walk is corrected in rational arithmetic."""

Factors = tuple[FloatArray, FloatArray]
"""``V (m, inner)`` and ``W (inner, d) >= 0``."""


def random_factors(A: Any, size: float, inner: int, start: Factors | None, rng: np.random.Generator) -> Factors | None:
    """Random ``V`` and ``W >= 0`` of ``inner`` rows with ``V W = A``, an exact matrix, up to rounding.

    ``size`` is the largest sum of absolute values that made an entry of ``A``: entries come back up to its rounding.
    ``start`` are factors to walk from, which are returned where no step is possible. None where no factors are found.
    """
    if not np.isfinite(size):
        return start
    if start is None:
        try:
            V, W = first_factors(nearest(A), inner, rational_rank(A))
        except InputError:  # what holds for the exact matrix may fail for the rounded one
            return None
    else:
        V, W = start
    moved = walk(V, W, STEPS * inner, rng)
    if start is not None and moved[1] is W:
        return start
    found = snapped(A, *moved) if max(V.size, W.size) <= _SNAPPED else moved
    return found if found is not None and realises(A, *found, size) else None


def realises(A: Any, V: FloatArray, W: FloatArray, size: float) -> bool:
    """Whether ``V W`` is ``A`` up to the rounding of ``size``, and sums of no much larger terms; false for NaN."""
    off = np.abs(nearest(fractions(product(V, W)) - fractions(A))).max(initial=0.0)
    terms = (np.abs(V) @ np.abs(W)).max(initial=0.0)
    return bool(terms / CONDITION <= size and off / CONDITION <= U * size)


def first_factors(A: FloatArray, inner: int, rank: int | None = None) -> tuple[FloatArray, FloatArray]:
    """Some ``V (m, inner)`` and ``W (inner, d) >= 0`` of full rank with ``V W = A``, up to rounding.

    Through the identity for ``inner >= d``; through ``m + 1`` vectors that span all of space as a cone for
    ``inner > m``; through a simplicial cone around the columns for ``inner = m``, if their cone is pointed. A matrix
    whose ``rank`` is known to be below ``m`` is first written in a basis of its columns. The zero matrix has ``V = 0``.

    >>> V, W = first_factors(np.array([[1.0, -1.0, 2.0]]), 2)
    >>> (V @ W).tolist(), bool((W >= 0).all())
    ([[1.0, -1.0, 2.0]], True)
    """
    m, d = A.shape
    V: FloatArray
    W: FloatArray
    if not A.any():  # its columns have no cone to go around, and any rows will do
        return np.zeros((m, inner)), np.random.default_rng(0).uniform(0.5, 1.0, (inner, d))
    if rank is not None and rank < m:
        basis = np.asarray(np.linalg.svd(A)[0][:, : max(rank, 1)], dtype=np.float64)
        V, W = first_factors(basis.T @ A, inner)
        return basis @ V, W
    if inner >= d:
        V, W = A, np.eye(d)
    elif inner > m:
        scale = float(np.abs(A).max())
        lift = np.maximum(0.0, -A.min(axis=0, initial=0.0))
        # a multiple of ones that varies between the columns keeps W of full rank
        lift = lift + scale * np.linspace(0.5, 1.0, d)
        V, W = np.concatenate([np.eye(m), -np.ones((m, 1))], axis=1), np.concatenate([A + lift, lift[None]])
    elif inner == m:
        V = _simplicial_cone(A)
        W = np.maximum(np.asarray(np.linalg.solve(V, A), dtype=np.float64), 0.0)
    else:
        raise InputError(f"factorisation: expected at least {min(m, d)} inner neurons, got {inner}")
    extra = inner - len(W)
    if extra:
        V = np.concatenate([V, np.zeros((m, extra))], axis=1)
        W = np.concatenate([W, np.random.default_rng(0).uniform(0.5, 1.0, (extra, d))])
    return V, W


def _simplicial_cone(A: FloatArray) -> FloatArray:
    """``m`` vectors whose cone contains the columns of ``A``, which must be a pointed cone."""
    m = len(A)
    columns = A[:, A.any(axis=0)]
    found = Polyhedron(-columns.T, np.zeros(columns.shape[1]), lower=-1.0, upper=1.0).interior()
    if found.point is None:
        raise InputError("factorisation: expected columns in a pointed cone")
    axis = found.point / np.linalg.norm(found.point)
    basis = np.linalg.svd(axis[None])[2][1:].T  # (m, m - 1), orthogonal to the axis
    spread = basis.T @ columns / (axis @ columns)
    radius = 1.25 * float(np.linalg.norm(spread, axis=0).max(initial=0.0)) + 1e-3
    corners = np.eye(m) - 1.0 / m  # a regular simplex in the plane of sum zero
    flat = np.linalg.svd(np.ones((1, m)))[2][1:].T
    corners = corners @ flat  # (m, m - 1)
    if m > 1:
        corners = corners / np.linalg.norm(corners[0]) * radius * (m - 1)
    return np.asarray(axis[:, None] + basis @ corners.T)


def walk(V: FloatArray, W: FloatArray, steps: int, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
    """Hit and run over ``{(V, W): V W = A, W >= 0}``, rows of ``W`` up to positive factors, from one of them.

    A row moves within the row space of ``W`` (another basis of the same space), or, where the columns of ``V`` are
    dependent, all rows move along a null vector of ``V``. Each step is uniform on the segment that is allowed. Where
    none can be taken, the factors come back as they are.

    >>> V, W = walk(np.array([[1.0, 2.0], [0.0, 1.0]]), np.eye(2), 50, np.random.default_rng(0))
    >>> bool((W >= 0).all()), bool(np.abs(V @ W - [[1, 2], [0, 1]]).max() < 1e-12)
    (True, True)
    """
    A, start = V @ W, (V, W)
    inner, taken = len(W), 0
    sizes = W.sum(axis=1)
    if inner == 0 or not (sizes > 0).all():
        return start
    V, W = V * sizes, W / sizes[:, None]
    for _ in range(steps):
        i = int(rng.integers(inner))
        spare = inner > V.shape[0] and rng.random() < 0.5
        moved = _along_null_vector(V, W, rng) if spare else _along_row(W, i, rng)
        if moved is None or not np.linalg.cond(moved) <= CONDITION:
            continue
        W = moved / moved.sum(axis=1, keepdims=True)
        V = np.asarray(np.linalg.lstsq(W.T, A.T, rcond=None)[0].T, dtype=np.float64)
        taken += 1
    return (V, W) if taken else start


def snapped(A: Any, V: FloatArray, W: FloatArray) -> Factors | None:
    """Factors near ``V`` and ``W >= 0`` with ``V W = A`` up to one rounding of each number, for an exact matrix ``A``.

    A walk in floats drifts off by its rounding errors, and does not see what a nearly dependent row of ``A`` adds. So
    the rows of ``W`` are put into a space that holds those of ``A``, and then ``V`` is solved for, over the rationals.
    With an echelon basis ``E`` of that space, ``W = N E`` where ``N`` are the columns of ``W`` at its pivots, and
    ``V N = A`` there. None where a row of that space is not ``>= 0``.

    >>> V, W = snapped(np.array([[3.0, 1.0]]), np.array([[1.0, 1.0]]), np.array([[1.0, 0.5], [2.0, 0.5 + 1e-9]]))
    >>> bool(abs(V @ W - [[3.0, 1.0]]).max() < 1e-15)
    True
    """
    exact = fractions(A)
    order = scipy.linalg.qr(W, mode="r", pivoting=True)[1]  # well-conditioned columns first
    rows, pivots = reduced(_space(exact, W)[:, order])
    N, rest = fractions(W[:, order[pivots]]), exact[:, order[pivots]]
    gram = N.T @ N
    if rational_rank(gram) < len(gram):
        return None
    inside = N @ rows
    if not (inside >= 0).all():
        return None
    back = np.argsort(order)
    return nearest(fractions(V) + (rest - fractions(V) @ N) @ solved(gram, N.T)), nearest(inside[:, back])


def _space(A: Any, W: FloatArray) -> Any:
    """Rows of ``A`` that are independent, and as many of ``W`` as its rank is larger, those farthest from them."""
    rows = basis(A)
    more = min(W.shape) - len(rows)
    if more <= 0:
        return rows
    flat = nearest(rows)
    away = W - W @ np.linalg.pinv(flat) @ flat if len(flat) else W
    far = scipy.linalg.qr(away.T, mode="r", pivoting=True)[1][:more]
    return np.concatenate([rows, fractions(W[far])])


def _segment(W: FloatArray, direction: FloatArray) -> tuple[float, float]:
    """The ``s`` with ``W + s direction >= 0``."""
    with np.errstate(divide="ignore", invalid="ignore"):
        steps = -W / direction
    low = float(np.max(steps[direction > 0], initial=-np.inf))
    high = float(np.min(steps[direction < 0], initial=np.inf))
    return low, high


def _along_row(W: FloatArray, i: int, rng: np.random.Generator) -> FloatArray | None:
    direction = rng.normal(size=len(W)) @ W
    direction = direction - direction.sum() * W[i]  # the sum of the row stays one
    if len(W) == 1:
        return None
    low, high = _segment(W[i], direction)
    if not (np.isfinite(low) and np.isfinite(high) and low < high):
        return None
    moved = W.copy()
    moved[i] = np.maximum(W[i] + rng.uniform(low, high) * direction, 0.0)
    return moved


def _along_null_vector(V: FloatArray, W: FloatArray, rng: np.random.Generator) -> FloatArray | None:
    null = np.linalg.svd(V)[2][len(V) :]
    direction = np.outer(rng.normal(size=len(null)) @ null, rng.normal(size=W.shape[1]))
    low, high = _segment(W, direction)
    low, high = max(low, -4.0), min(high, 4.0)
    return np.maximum(W + rng.uniform(low, high) * direction, 0.0) if low < high else None
