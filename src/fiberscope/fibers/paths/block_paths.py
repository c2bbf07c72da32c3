"""Paths between two factorisations ``A = V W`` with ``W >= 0``: the linear neurons of a layer on the orthant.

Both kinds that generic minimal parameters have are connected up to the order of the inner neurons:

- ``W`` is a basis of the row space of ``A``. Rows of sum 1 are corners of a simplex in a convex set. Two simplices of
  one orientation are joined by shrinking both towards a point, where there is room to turn the one into the other.
- one row more than outputs, and the columns of ``V`` span all of space as a cone. Scaled to sum zero they are given by
  a regular matrix; regular matrices with determinants of one sign are connected, and over each of them the ``W >= 0``
  are a convex set.

The other orientation is reached by exchanging two inner neurons.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy.linalg

from fiberscope.numerics.cutoffs import SAME_ROWS
from fiberscope.numerics.floats import FloatArray, IntArray
from fiberscope.numerics.rank import exact_rank

_ORDERED = 5
"""Neurons up to which all their orders are tried for a segment without singular matrices."""

Factors = tuple[FloatArray, FloatArray]
"""``V (m, l)`` and ``W (l, d) >= 0``."""


@dataclass(frozen=True, slots=True, eq=False)
class BlockPath:
    """``at(0)`` is the first pair of factors, ``at(1)`` the second one with its inner neurons in the given order."""

    at: Callable[[float], Factors]
    order: IntArray


def join_factors(first: Factors, second: Factors) -> BlockPath | str:
    """A path between two factorisations of one matrix, or why none is known.

    >>> V, W = np.array([[1.0, -1.0]]), np.array([[1.0, 0.0], [0.0, 1.0]])
    >>> path = join_factors((V, W), (-V, W[::-1]))
    >>> path.order.tolist(), all(np.allclose(np.matmul(*path.at(s)), V @ W) for s in (0.0, 0.3, 0.8, 1.0))
    ([1, 0], True)
    """
    (V, W), (U, X) = first, second
    count = len(W)
    if len(X) != count:
        return "other numbers of neurons are linear"
    if not count:
        return BlockPath(lambda s: first, np.zeros(0, dtype=np.int64))
    with np.errstate(over="ignore", invalid="ignore"):
        if not all(np.isfinite(np.abs(x) @ np.abs(y)).all() for x, y in (first, second)):
            return "products of the linear neurons leave the range of floats"
    if exact_rank(W).lower == count == exact_rank(X).lower:
        M = np.asarray(np.linalg.lstsq(W.T, X.T, rcond=None)[0].T, dtype=np.float64)
        if _small(M @ W - X, X):
            return _by_simplices(first, X, M)
    if count == len(V) + 1:
        return _by_cones(first, (U, X))
    return "the linear neurons span different spaces"


def _small(gap: FloatArray, against: FloatArray) -> bool:
    return bool(np.abs(gap).max(initial=0.0) <= SAME_ROWS * np.abs(against).max(initial=0.0))


def _exchanged(count: int) -> IntArray:
    return np.array([1, 0, *range(2, count)], dtype=np.int64)


# -- bases of one row space --------------------------------------------------------------------------------------------


def _by_simplices(first: Factors, X: FloatArray, M: FloatArray) -> BlockPath:
    V, W = first
    sizes, others = W.sum(axis=1), X.sum(axis=1)
    turn = M * sizes[None, :] / others[:, None]  # from rows of sum 1 to rows of sum 1: it fixes the vector of ones
    order, straight = _best_order(turn)
    corners, goal, others = W / sizes[:, None], (X / others[:, None])[order], others[order]
    rows = _segment_of(corners, goal) if straight else _through_the_middle(corners, goal, turn[order])

    def at(s: float) -> Factors:
        scale = sizes ** (1 - s) * others**s
        new = rows(s) * scale[:, None]
        back = np.linalg.lstsq(new.T, (V @ W).T, rcond=None)[0].T
        return np.asarray(back, dtype=np.float64), np.maximum(new, 0.0)

    return BlockPath(at, order)


def _best_order(turn: FloatArray) -> tuple[IntArray, bool]:
    """An order of the rows with positive determinant, and whether the segment from the identity is then regular.

    Among few orders the one whose segment stays farthest from singular matrices.
    """
    count = len(turn)
    plain = np.arange(count) if np.linalg.det(turn) > 0 else _exchanged(count)
    some = itertools.permutations(range(count)) if count <= _ORDERED else [plain]
    best, room = plain, 0.0
    for candidate in map(np.array, some):
        values = np.linalg.eigvals(turn[candidate])
        # (1 - s) + s lambda over 0 <= s <= 1: its least absolute value is that of 1, lambda, or a point between
        foot = np.clip((1 - values.real) / np.maximum(np.abs(1 - values) ** 2, SAME_ROWS), 0.0, 1.0)
        least = float(np.abs(1 + foot * (values - 1)).min())
        if least > max(room, SAME_ROWS) and np.linalg.det(turn[candidate]) > 0:
            best, room = candidate, least
    return np.asarray(best, dtype=np.int64), room > 0


def _segment_of(corners: FloatArray, goal: FloatArray) -> Callable[[float], FloatArray]:
    return lambda s: np.asarray((1 - s) * corners + s * goal)


def _through_the_middle(corners: FloatArray, goal: FloatArray, turn: FloatArray) -> Callable[[float], FloatArray]:
    """Shrink a simplex, turn it, and let it grow into the other one."""
    count = len(corners)
    middle = np.full((count, count), 1.0 / count)
    turned = _turning(turn)
    reach = max(float(np.abs(turned(s)).max()) for s in np.linspace(0.0, 1.0, 65))
    share = 1.0 / (1.0 + 2.0 * count * reach)  # then a combination with the middle has no negative entry

    def rows(s: float) -> FloatArray:
        if s <= 1 / 3:
            now = 1 - 3 * s * (1 - share)
            return np.asarray(now * corners + (1 - now) * (middle @ corners))
        if s <= 2 / 3:
            return np.asarray((share * turned(3 * s - 1) + (1 - share) * middle) @ corners)
        now = share + (3 * s - 2) * (1 - share)
        return np.asarray(now * goal + (1 - now) * (middle @ corners))

    return rows


def _turning(turn: FloatArray) -> Callable[[float], FloatArray]:
    """From the identity to a matrix that fixes the vector of ones, through regular ones that do."""
    count = len(turn)
    basis = np.column_stack([np.full(count, 1.0), np.eye(count)[:, 1:]])
    basis = np.linalg.qr(basis)[0]
    inside = basis.T @ turn @ basis  # first column (1, 0, ..., 0)
    path = regular_path(inside[1:, 1:])

    def at(s: float) -> FloatArray:
        now = np.eye(count)
        now[0, 1:] = s * inside[0, 1:]
        now[1:, 1:] = path(s)
        return np.asarray(basis @ now @ basis.T)

    return at


def regular_path(matrix: FloatArray) -> Callable[[float], FloatArray]:
    """From the identity to a matrix of positive determinant through regular ones: turn by angles, stretch by segments.

    >>> path = regular_path(np.diag([-2.0, -3.0]))
    >>> float(np.linalg.det(path(0.5))) > 0, bool(np.allclose(path(1.0), np.diag([-2.0, -3.0])))
    (True, True)
    """
    n = len(matrix)
    if not n:
        return lambda s: matrix
    rotation, stretch = scipy.linalg.polar(matrix)
    blocks, frame = scipy.linalg.schur(rotation, output="real")
    turns: list[tuple[int, int, float]] = []
    reversed_axes: list[int] = []
    k = 0
    while k < n:
        if k + 1 < n and abs(blocks[k + 1, k]) > SAME_ROWS:
            turns.append((k, k + 1, float(np.arctan2(blocks[k + 1, k], blocks[k, k]))))
            k += 2
        else:
            if blocks[k, k] < 0:
                reversed_axes.append(k)
            k += 1
    turns += [(i, j, np.pi) for i, j in zip(reversed_axes[::2], reversed_axes[1::2], strict=False)]

    def at(s: float) -> FloatArray:
        now = np.eye(n)
        for i, j, angle in turns:
            c, z = np.cos(s * angle), np.sin(s * angle)
            now[i, i], now[i, j], now[j, i], now[j, j] = c, -z, z, c
        return np.asarray(frame @ now @ frame.T @ ((1 - s) * np.eye(n) + s * stretch))

    return at


# -- one row more than outputs -----------------------------------------------------------------------------------------


def _by_cones(first: Factors, second: Factors) -> BlockPath | str:
    (V, W), (U, X) = first, second
    A, m = V @ W, len(V)
    if not _small(A - U @ X, np.abs(V) @ np.abs(W)):
        return "the linear neurons realise different maps"
    n, k = _balance(V), _balance(U)
    if n is None or k is None:
        return "the outgoing weights of the linear neurons do not span all of space as a cone"
    order = np.arange(m + 1)
    if np.linalg.det((V * n)[:, :m]) * np.linalg.det((U * k)[:, :m]) < 0:
        order = _exchanged(m + 1)
        U, X, k = U[:, order], X[order], k[order]
    start, end = (V * n)[:, :m], (U * k)[:, :m]
    turned = regular_path(np.asarray(np.linalg.solve(start, end), dtype=np.float64))

    def need(s: float) -> tuple[FloatArray, FloatArray, FloatArray]:
        now = start @ turned(s)
        part = np.asarray(np.linalg.solve(now, A), dtype=np.float64)
        return now, part, np.maximum(0.0, -part.min(axis=0))

    slack = [np.maximum((x / y[:, None])[m] - need(s)[2], 0.0) for x, y, s in ((W, n, 0.0), (X, k, 1.0))]

    def at(s: float) -> Factors:
        now, part, least = need(s)
        height = least + (1 - s) * slack[0] + s * slack[1]
        scale = n ** (1 - s) * k**s
        rows = np.concatenate([part + height, height[None]])
        outgoing = np.column_stack([now, -now.sum(axis=1)])
        return np.asarray(outgoing / scale), np.asarray(np.maximum(rows, 0.0) * scale[:, None])

    return BlockPath(at, order)


def _balance(V: FloatArray) -> FloatArray | None:
    """The positive vector with ``V n = 0``, of largest entry 1; None where there is none."""
    null = np.linalg.svd(V)[2][-1]
    null = null * np.sign(null[int(np.abs(null).argmax())])
    if not (null > SAME_ROWS).all() or exact_rank(V).lower < len(V):
        return None
    return np.asarray(null / null.max())
