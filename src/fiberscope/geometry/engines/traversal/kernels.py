"""The compiled kernel of the traversal: which rows of a cell are its facets.

A cell is ``h_k(x) >= 0`` for all rows k, with an inner point at hand. Its dictionary writes every row, and every
coordinate, as an affine function of n *free* quantities: at first the coordinates, then, pivot by pivot, rows that are
zero at the present vertex. One dictionary serves all questions about a cell, because its vertex stays feasible: to ask
whether row i is a facet, ``h_i`` is made smaller and smaller without regard to row i itself, until either i is the
first row to be crossed (a facet: a point beyond i and no other row is kept), or nothing makes ``h_i`` smaller; then the
coefficients of ``h_i`` are multipliers ``y >= 0`` with ``h_i = const + sum y_k h_k``.

Floats only propose. A facet is accepted if the point beyond it violates row i and no other row, a non-facet if the
multipliers prove it, with every rounding error and every error of the coefficients accounted for; all else is OPEN.

Arrays of one cell, m rows in n dimensions: ``H``, ``E`` ``(m, n + 1)`` are the rows, oriented so that they are
positive inside, the constant last, and bounds of their errors. ``M (2 n + 4, m + n)`` begins with the dictionary by
columns: ``M[j, k]`` is the coefficient of the free quantity j in row k (k < m) or in coordinate k - m, and ``M[n, k]``
their value at the present vertex; behind it come a row to work with, the norms of the rows, and n + 1 rows for a
proof. ``free (n,)`` are the rows that are free, -1 for a coordinate, and ``place[0, k]`` is the column in which row k
is free, or -1: one is the inverse of the other. ``place[1]`` marks rows that were asked, ``place[2]`` their numbers
among all rows of the cell. ``y (n,)`` are multipliers. Out come ``state (m,)`` and ``beyond (m, 2 n)``: for a facet a
point behind it and the point where it was crossed. Invariant: ``M[n, :m] >= 0`` up to rounding, so the vertex is
feasible; ``centre`` adds up vertices, and their mean is a deeper point.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fiberscope.numerics.compiling.kernels import inner, kernel, once
from fiberscope.numerics.cutoffs import NOISE, PIVOT, STRICT
from fiberscope.numerics.floats import TINY, BoolArray, FloatArray, SignArray, gamma

_gamma = inner(gamma)

OFF, WANTED, SKIP = 0, 1, 2
"""Of a row that comes in: no constraint at all; a constraint to be decided; a constraint whose fate is not asked."""

ABSENT, FACET, OPEN, UNASKED = 0, 1, 2, 3
"""Of a row that comes out: proven not to be a facet, proven to be one, undecided, not asked."""


@inner
def _pivot(M: Any, r: int, e: int, n: int, size: int) -> None:
    """Make quantity r free in place of column e; columns are contiguous, so that this is n + 1 vector operations."""
    inverse, work = 1.0 / M[e, r], n + 1
    for k in range(size):
        M[work, k] = M[e, k] * inverse
        M[e, k] = M[work, k]
    M[e, r] = 1.0
    for j in range(n + 1):
        if j != e:
            p = M[j, r]
            for k in range(size):
                M[j, k] -= p * M[work, k]
            M[j, r] = 0.0


@inner
def _entering(M: Any, free: Any, n: int, i: int) -> int:
    """The column that makes row i smaller fastest; -1 if there is none."""
    top = 0.0
    for j in range(n):
        top = max(top, abs(M[j, i]))
    top *= PIVOT
    best, rate, bound = -1, top, True
    for j in range(n):
        value = -M[j, i]
        if free[j] < 0 and abs(value) > top:
            # a coordinate may go either way, and goes first
            if bound or abs(value) > rate:
                best, rate, bound = j, abs(value), False
        elif bound and value > rate:
            best, rate = j, value
    return best


@inner
def _beyond(M: Any, n: int, m: int, e: int, direction: float, t1: float, t2: float, out: Any, k: int) -> None:
    """A point on the present edge behind the step t1 and before t2."""
    step = t1 if t1 > 1.0 else 1.0
    step = min(step, t2 - t1)
    step = direction * (t1 + 0.5 * step)
    for c in range(n):
        out[k, c] = M[n, m + c] + step * M[e, m + c]


@once
def _settle(
    M: Any, free: Any, place: Any, m: int, i: int, state: Any, beyond: Any, centre: Any, noise: float, stop: Any
) -> bool:
    """Find out about row i: True if its ``h_i`` cannot be made smaller, and the dictionary shows why."""
    n = centre.size - 1
    for _ in range(20 + 4 * (n + m)):
        if stop[0]:
            return False
        e, direction, own = place[0, i], -1.0, 0.0
        if e < 0:
            e = _entering(M, free, n, i)
            if e < 0:
                return True
            if M[e, i] < 0.0:
                direction = 1.0
            if M[n, i] > 0.0:
                own = M[n, i] / (-direction * M[e, i])
        # the first row other than i that is crossed, its step, and the step of the second
        first: Any = np.int64(-1)
        t1, t2 = np.inf, np.inf
        for k in range(m):
            rate = -direction * M[e, k]
            if rate > PIVOT and k != i:
                t = M[n, k] / rate if M[n, k] > 0.0 else 0.0
                if t < t1:
                    t2 = t1
                    first, t1 = k, t
                elif t < t2:
                    t2 = t
        if t1 - own > STRICT * own + noise:
            _beyond(M, n, m, e, direction, own, t1, beyond, i)
            state[i] = FACET
            return False
        if first < 0:
            return False  # own is finite and t1 is not, up to rounding
        t2 = min(t2, own)
        if state[first] == OPEN and t2 - t1 > STRICT * t1 + noise:
            _beyond(M, n, m, e, direction, t1, t2, beyond, first)
            state[first] = FACET
        _pivot(M, first, e, n, m + n)
        if free[e] >= 0:
            place[0, free[e]] = -1
        free[e], place[0, first] = first, e
        for c in range(n):
            centre[c] += M[n, m + c]
        centre[n] += 1.0
    return False


@inner
def by_box(H: Any, E: Any, free: Any, y: Any, i: int, low: Any, high: Any) -> bool:
    """Do the multipliers prove ``h_i > 0`` on the cell, what they leave over being met by bounds of x?"""
    n = low.size
    small = _gamma(2 * n + 8)
    total, slip = 0.0, TINY
    for c in range(n + 1):
        rest, size, error = H[i, c], abs(H[i, c]), E[i, c]
        for j in range(n):
            if free[j] >= 0 and y[j] > 0.0:
                rest -= y[j] * H[free[j], c]
                size += y[j] * abs(H[free[j], c]) + TINY
                error += y[j] * E[free[j], c] + TINY
        spread = error * (1 + small) + small * size + TINY
        if c == n:
            total += rest
            slip += spread + small * abs(rest)
        else:
            reach = abs(low[c])
            reach = max(reach, abs(high[c]))
            total += rest * (low[c] if rest > 0 else high[c])
            slip += spread * reach + small * abs(rest) * reach + TINY
    return bool(total > slip * (1 + 4 * small) + small * abs(total))


@inner
def _by_cone(M: Any, H: Any, E: Any, free: Any, y: Any, m: int, i: int) -> bool:
    """Are there exact multipliers near y, none negative, that prove row i not to be a facet, for unbounded cells too?

    The exact ones solve ``y A = a_i``; with an approximate inverse B of A, read off the coordinates' columns, their
    distance from y is at most ``|rest| |B| / (1 - |I - A B|)``. What remains must have a constant term above zero, or
    of exactly zero with two rows taking part: then ``h_i = 0`` only where both are zero.
    """
    n, slip = y.size, M.shape[0] - 1
    B = n + 3  # the rows of M from here on
    small = _gamma(2 * n + 8)
    defect = 0.0
    for j in range(n):  # columns of I - A B
        if free[j] < 0:
            return False
        column, M[slip, j] = 0.0, 0.0
        for c in range(n):
            M[B + j, c] = M[j, m + c] / M[n + 2, free[j]]
        for k in range(n):
            value, size, error = (1.0 if k == j else 0.0), 1.0, 0.0
            for c in range(n):
                product = H[free[k], c] * M[B + j, c]
                value -= product
                size += abs(product) + TINY
                error += E[free[k], c] * abs(M[B + j, c]) + TINY
            column += abs(value) + small * size + error * (1 + small)
        if not column < 0.5:
            return False
        defect = max(defect, column)
    for c in range(n):
        rest, size, error = H[i, c], abs(H[i, c]), E[i, c]
        for j in range(n):
            rest -= y[j] * H[free[j], c]
            size += abs(y[j] * H[free[j], c]) + TINY
            error += abs(y[j]) * E[free[j], c] + TINY
        rest = abs(rest) + small * size + error * (1 + small)
        for j in range(n):
            M[slip, j] += rest * abs(M[B + j, c]) + TINY
    far = 0.0
    for j in range(n):
        if not M[slip, j] < np.inf:  # overflow or NaN
            return False
        far = max(far, M[slip, j])
    far = far / (1 - defect) * (1 + 4 * small) + TINY
    constant, size, error, exact = H[i, n], abs(H[i, n]), E[i, n], H[i, n] == 0.0 and E[i, n] == 0.0
    for j in range(n):
        if not y[j] > far:
            return False
        k = free[j]
        constant -= y[j] * H[k, n]
        size += y[j] * abs(H[k, n]) + TINY
        error += y[j] * E[k, n] + far * (abs(H[k, n]) + E[k, n]) + TINY
        exact = exact and H[k, n] == 0.0 and E[k, n] == 0.0
    return bool((exact and n > 1) or constant > (error + small * size) * (1 + 4 * small) + TINY)


@once
def _prove_absent(
    M: Any, H: Any, E: Any, free: Any, y: Any, m: int, i: int, low: Any, high: Any, bounded: bool
) -> bool:
    """Whether the dictionary's multipliers, taken back to the scale of the rows, prove that row i is no facet."""
    n = y.size
    for j in range(n):
        y[j] = M[j, i] * M[n + 2, i] / M[n + 2, free[j]] if free[j] >= 0 else 0.0
    return bool((bounded and by_box(H, E, free, y, i, low, high)) or _by_cone(M, H, E, free, y, m, i))


@inner
def _start(H: Any, M: Any, m: int, centre: Any) -> bool:
    """The dictionary at the inner point, rows scaled to unit length; False if that is not inside."""
    n = centre.size - 1
    for k in range(m):
        square, value = 0.0, H[k, n]
        for c in range(n):
            square += H[k, c] * H[k, c]
            value += H[k, c] * centre[c]
        norm = math.sqrt(square) if square > 0.0 else 1.0
        M[n + 2, k] = norm
        for c in range(n):
            M[c, k] = H[k, c] / norm
        M[n, k] = value / norm
        if not value > 0.0:
            return False
    for c in range(n):
        for j in range(n):
            M[j, m + c] = 1.0 if j == c else 0.0
        M[n, m + c] = centre[c]
    return True


@inner
def _nearest(M: Any, free: Any, place: Any, m: int, state: Any) -> int:
    """The open row whose least coefficient is largest: it is closest to being settled; -1 if all were asked."""
    n = free.size
    least = n + 1
    for k in range(m):
        M[least, k] = 0.0
    for j in range(n):
        either = free[j] < 0
        for k in range(m):
            value = -abs(M[j, k]) if either else M[j, k]
            M[least, k] = min(M[least, k], value)
    best, value = -1, -np.inf
    for k in range(m):
        if state[k] == OPEN and not place[1, k]:
            if place[0, k] >= 0:
                return k
            if M[least, k] > value:
                best, value = k, M[least, k]
    return best


@once
def _prove_rows(
    H: Any,
    E: Any,
    m: int,
    low: Any,
    high: Any,
    bounded: bool,
    noise: float,
    beyond: Any,
    state: Any,
    centre: Any,
    M: Any,
    free: Any,
    y: Any,
    place: Any,
    stop: Any,
) -> None:
    """Decide the open ones of the first m rows, all of them constraints, beginning at the point in ``centre``.

    Then come four of room: the dictionary in ``M[:n + 1]``, behind it one row to work with, the norms of the rows, and
    n + 1 rows for a proof; what is free; multipliers; where a row is free and whether it was asked. Where ``stop``
    becomes true, what is open stays open.
    """
    n = free.size
    for k in range(m):
        place[0, k], place[1, k] = -1, 0
    for c in range(n):
        free[c] = -1
    centre[n] = 1.0
    if not _start(H, M, m, centre):
        return
    while True:
        i = _nearest(M, free, place, m, state)
        if i < 0 or stop[0]:
            break
        place[1, i] = 1
        settled = _settle(M, free, place, m, i, state, beyond, centre, noise, stop)
        if settled and _prove_absent(M, H, E, free, y, m, i, low, high, bounded):
            state[i] = ABSENT
    for c in range(n):
        centre[c] /= centre[n]
    for i in range(m):
        if state[i] == FACET and not _pull(H, E, m, i, centre, beyond):
            state[i] = OPEN


@inner
def _pull(H: Any, E: Any, m: int, i: int, centre: Any, beyond: Any) -> bool:
    """Keep where the segment from the centre crosses facet i, and a point behind.

    Whether that point certainly violates row i, and certainly satisfies all others strictly.
    """
    n = centre.size - 1
    inside, outside = H[i, n], H[i, n]
    for c in range(n):
        inside += H[i, c] * centre[c]
        outside += H[i, c] * beyond[i, c]
    share = inside / (inside - outside) if inside > 0.0 > outside else 1.0
    for c in range(n):
        far = beyond[i, c]
        beyond[i, n + c] = centre[c] + share * (far - centre[c])
        beyond[i, c] = 0.5 * (far + beyond[i, n + c])
    small = _gamma(n + 4)
    for k in range(m):
        value, size = H[k, n], abs(H[k, n]) * small + E[k, n]
        for c in range(n):
            x = beyond[i, c]
            value += H[k, c] * x
            size += (abs(H[k, c]) * small + E[k, c]) * abs(x) + TINY
        if k == i:
            value = -value
        if not value > size * (1 + 4 * small) + TINY:
            return False
    return True


@inner
def prove_rows(
    H: Any, E: Any, x: Any, low: Any, high: Any, bounded: bool, noise: float, beyond: Any, state: Any, centre: Any,
    stop: Any,
) -> None:  # fmt: skip
    """Decide the open rows of one cell, all rows being constraints; ``beyond[i]`` becomes a point behind i alone."""
    m, n = len(H), x.size
    for c in range(n):
        centre[c] = x[c]
    M, free, y, place = np.empty((2 * n + 4, m + n)), np.empty(n, np.int64), np.empty(n), np.empty((2, m), np.int64)
    _prove_rows(H, E, m, low, high, bounded, noise, beyond, state, centre, M, free, y, place, stop)


@kernel
def _prove_cells(
    H: Any,
    E: Any,
    kinds: Any,
    X: Any,
    low: Any,
    high: Any,
    bounded: bool,
    reach: float,
    state: Any,
    beyond: Any,
    h: Any,
    e: Any,
    behind: Any,
    some: Any,
    centre: Any,
    M: Any,
    free: Any,
    y: Any,
    place: Any,
    stop: Any,
) -> int:
    """The loop of :func:`prove_cells`; what follows ``beyond`` is room, and a flag."""
    n, pivots = free.size, 0
    for r in range(H.shape[0]):
        rows = np.int64(0)  # a literal would be a type of its own, and compile all that follows twice
        for c in range(n):
            centre[c], free[c] = X[r, c], -1
            if not bounded and (c == 0 or abs(X[r, c]) > reach):
                reach = abs(X[r, c])
        for k in range(H.shape[1]):
            kind = kinds[r, k]
            state[r, k] = OPEN if kind == WANTED else UNASKED
            if kind == OFF:
                continue
            for c in range(n + 1):
                h[rows, c], e[rows, c] = H[r, k, c], E[r, k, c]
            if bounded and by_box(h, e, free, y, rows, low, high):
                # positive on the whole box: neither a facet nor needed as a constraint
                if kind == WANTED:
                    state[r, k] = ABSENT
                continue
            place[2, rows], some[rows] = k, state[r, k]
            rows += 1
        _prove_rows(h, e, rows, low, high, bounded, NOISE * reach, behind, some, centre, M, free, y, place, stop)
        for i in range(rows):
            k = place[2, i]
            state[r, k] = some[i]
            if some[i] == FACET:
                for c in range(2 * n):
                    beyond[r, k, c] = behind[i, c]
        pivots += int(centre[n])
    return pivots


def prove_cells(
    H: FloatArray,
    E: FloatArray,
    kinds: SignArray,
    X: FloatArray,
    low: FloatArray,
    high: FloatArray,
    bounded: bool,
    state: SignArray,
    beyond: FloatArray,
    stop: BoolArray,
) -> int:
    """Facets of many cells.

    ``H`` and ``E`` are rows and error bounds of their entries, ``(cells, m, n + 1)``; ``kinds`` is ``(cells, m)``;
    ``X`` holds inner points, ``(cells, n)``; ``low`` and ``high`` bound the domain if it is ``bounded``. ``state``
    ``(cells, m)`` receives what was found, and ``beyond`` ``(cells, m, 2 n)`` for a facet a point behind it and the
    point where it was crossed. ``stop`` is one flag; when somebody sets it, all that is open stays open. Returns the
    number of pivots.
    """
    m, n = H.shape[1], H.shape[2] - 1
    reach = float(max(np.abs(low).max(), np.abs(high).max())) if n else 0.0
    rows = (np.empty((m, n + 1)), np.empty((m, n + 1)), np.empty((m, 2 * n)), np.empty(m, np.int8), np.empty(n + 1))
    room = (np.empty((2 * n + 4, m + n)), np.empty(n, np.int64), np.zeros(n), np.empty((3, m), np.int64))
    return int(_prove_cells(H, E, kinds, X, low, high, bounded, reach, state, beyond, *rows, *room, stop))
