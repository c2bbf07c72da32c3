"""The compiled kernel of the traversal: which rows of a cell are its facets.

A cell is ``h_k(x) >= 0`` for all rows k, with an inner point at hand. Its dictionary writes every row, and every
coordinate, as an affine function of n *free* quantities: at first the coordinates, then, pivot by pivot, rows that are
zero at the present vertex. One dictionary serves all questions about a cell, because its vertex stays feasible: to ask
whether row i is a facet, ``h_i`` is made smaller and smaller without regard to row i itself, until either i is the
first row to be crossed (a facet: a point beyond i and no other row is kept), or nothing makes ``h_i`` smaller; then the
coefficients of ``h_i`` are multipliers ``y >= 0`` with ``h_i = const + sum y_k h_k``.

Floats only propose. A facet is accepted if the point beyond it violates row i and no other row, a non-facet if the
multipliers prove it, with every rounding error and every error of the coefficients accounted for; all else is OPEN.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fiberscope.geometry.compiled import inner, kernel
from fiberscope.numerics.cutoffs import NOISE, PIVOT, STRICT
from fiberscope.numerics.floats import TINY, gamma

_gamma = inner(gamma)

OFF, WANTED, SKIP = 0, 1, 2
"""Of a row that comes in: no constraint at all; a constraint to be decided; a constraint whose fate is not asked."""

ABSENT, FACET, OPEN, UNASKED = 0, 1, 2, 3
"""Of a row that comes out: proven not to be a facet, proven to be one, undecided, not asked."""


@inner
def _pivot(M: Any, r: int, e: int, f: Any) -> None:
    """Make quantity r free in place of column e; columns are contiguous, so that this is n + 1 vector operations."""
    inverse = 1.0 / M[e, r]
    column = M[e]
    for k in range(f.size):
        f[k] = column[k] * inverse
    for j in range(len(M)):
        if j != e:
            p = M[j, r]
            other = M[j]
            for k in range(f.size):
                other[k] -= p * f[k]
            other[r] = 0.0
    for k in range(f.size):
        column[k] = f[k]
    column[r] = 1.0


@inner
def _entering(M: Any, free: Any, i: int) -> Any:
    """The column that makes row i smaller fastest, and its direction; -1 if there is none."""
    n = free.size
    top = 0.0
    for j in range(n):
        top = max(top, abs(M[j, i]))
    best, rate, direction = -1, PIVOT * top, 1.0
    for j in range(n):
        value = M[j, i]
        if free[j] < 0 and abs(value) > PIVOT * top:
            if best < 0 or free[best] >= 0 or abs(value) > rate:
                best, rate, direction = j, abs(value), (-1.0 if value > 0 else 1.0)
        elif -value > rate and (best < 0 or free[best] >= 0):
            best, rate, direction = j, -value, 1.0
    return best, direction


@inner
def _first_two(M: Any, m: int, e: int, direction: float, i: int) -> Any:
    """The first row other than i that is crossed along a column, its step, and the step of the second."""
    column, values = M[e], M[len(M) - 1]
    k1, t1, t2 = -1, np.inf, np.inf
    for k in range(m):
        rate = -direction * column[k]
        if rate > PIVOT and k != i:
            t = max(values[k], 0.0) / rate
            if t < t1:
                t2 = t1
                k1, t1 = k, t
            elif t < t2:
                t2 = t
    return k1, t1, t2


@inner
def _beyond(M: Any, m: int, e: int, direction: float, t1: float, t2: float, out: Any, k: int) -> None:
    """A point on the present edge behind the step t1 and before t2."""
    n = len(M) - 1
    step = t1 + 0.5 * min(t2 - t1, max(t1, 1.0))
    for c in range(n):
        out[k, c] = M[n, m + c] + direction * step * M[e, m + c]


@inner
def _strictly(t1: float, t2: float, noise: float) -> bool:
    return t2 - t1 > STRICT * t1 + noise and t1 < np.inf


@inner
def _settle(
    M: Any, free: Any, place: Any, i: int, state: Any, beyond: Any, centre: Any, work: Any, noise: float
) -> bool:
    """Find out about row i: True if its ``h_i`` cannot be made smaller, and the dictionary shows why."""
    n, m = free.size, place.size
    for _ in range(20 + 4 * (n + m)):
        if place[i] >= 0:
            e, direction, own = place[i], -1.0, 0.0
        else:
            e, direction = _entering(M, free, i)
            if e < 0:
                return True
            own = max(M[n, i], 0.0) / (-direction * M[e, i])
        k, t1, t2 = _first_two(M, m, e, direction, i)
        if _strictly(own, t1, noise):
            _beyond(M, m, e, direction, own, t1, beyond, i)
            state[i] = FACET
            return False
        if k < 0:
            return False  # own is finite and t1 is not, up to rounding
        if state[k] == OPEN and _strictly(t1, min(t2, own), noise):
            _beyond(M, m, e, direction, t1, min(t2, own), beyond, k)
            state[k] = FACET
        _pivot(M, k, e, work)
        if free[e] >= 0:
            place[free[e]] = -1
        free[e], place[k] = k, e
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
            reach = max(abs(low[c]), abs(high[c]))
            total += rest * (low[c] if rest > 0 else high[c])
            slip += spread * reach + small * abs(rest) * reach + TINY
    return bool(total > slip * (1 + 4 * small) + small * abs(total))


@inner
def _by_cone(B: Any, H: Any, E: Any, free: Any, y: Any, i: int) -> bool:
    """Are there exact multipliers near y, none negative, that prove row i not to be a facet, for unbounded cells too?

    The exact ones solve ``y A = a_i``; with an approximate inverse B of A, row j of which is ``B[j]``, their distance
    from y is at most ``|rest| |B| / (1 - |I - A B|)``. What remains must have a constant term above zero, or of exactly
    zero with two rows taking part: then ``h_i = 0`` only where both are zero.
    """
    n = y.size
    small = _gamma(2 * n + 8)
    defect = 0.0
    for j in range(n):  # columns of I - A B
        if free[j] < 0:
            return False
        column = 0.0
        for k in range(n):
            value, size, error = (1.0 if k == j else 0.0), 1.0, 0.0
            for c in range(n):
                product = H[free[k], c] * B[j, c]
                value -= product
                size += abs(product) + TINY
                error += E[free[k], c] * abs(B[j, c]) + TINY
            column += abs(value) + small * size + error * (1 + small)
        defect = max(defect, column)
    if not defect < 0.5:
        return False
    slip = np.zeros(n)
    for c in range(n):
        rest, size, error = H[i, c], abs(H[i, c]), E[i, c]
        for j in range(n):
            rest -= y[j] * H[free[j], c]
            size += abs(y[j] * H[free[j], c]) + TINY
            error += abs(y[j]) * E[free[j], c] + TINY
        rest = abs(rest) + small * size + error * (1 + small)
        for j in range(n):
            slip[j] += rest * abs(B[j, c]) + TINY
    far = 0.0
    for j in range(n):
        far = max(far, slip[j])
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


@inner
def _prove_absent(M: Any, H: Any, E: Any, norms: Any, free: Any, i: int, low: Any, high: Any, bounded: bool) -> bool:
    """Whether the dictionary's multipliers, taken back to the scale of the rows, prove that row i is no facet."""
    n, m = free.size, norms.size
    y = np.zeros(n)
    for j in range(n):
        if free[j] >= 0:
            y[j] = M[j, i] * norms[i] / norms[free[j]]
    if bounded and by_box(H, E, free, y, i, low, high):
        return True
    B = np.empty((n, n))
    for j in range(n):
        for c in range(n):
            B[j, c] = M[j, m + c] / (norms[free[j]] if free[j] >= 0 else 1.0)
    return bool(_by_cone(B, H, E, free, y, i))


@inner
def _only_beyond(H: Any, E: Any, i: int, points: Any) -> bool:
    """Does the point of row i certainly violate row i, and certainly satisfy all others strictly?"""
    n = H.shape[1] - 1
    x = points[i]
    small = _gamma(n + 4)
    for k in range(len(H)):
        value, size = H[k, n], abs(H[k, n]) * small + E[k, n]
        for c in range(n):
            value += H[k, c] * x[c]
            size += (abs(H[k, c]) * small + E[k, c]) * abs(x[c]) + TINY
        if k == i:
            value = -value
        if not value > size * (1 + 4 * small) + TINY:
            return False
    return True


@inner
def _start(H: Any, x: Any, M: Any, norms: Any) -> bool:
    """The dictionary at the inner point x, rows scaled to unit length; False if x is not inside."""
    m, n = norms.size, x.size
    for k in range(m):
        square, value = 0.0, H[k, n]
        for c in range(n):
            square += H[k, c] * H[k, c]
            value += H[k, c] * x[c]
        norms[k] = np.sqrt(square) if square > 0.0 else 1.0
        for c in range(n):
            M[c, k] = H[k, c] / norms[k]
        M[n, k] = value / norms[k]
        if not value > 0.0:
            return False
    for c in range(n):
        for j in range(n + 1):
            M[j, m + c] = 1.0 if j == c else 0.0
        M[n, m + c] = x[c]
    return True


@inner
def _nearest(M: Any, free: Any, place: Any, state: Any, asked: Any, least: Any) -> int:
    """The open row whose least coefficient is largest: it is closest to being settled; -1 if all were asked."""
    m = asked.size
    for k in range(m):
        least[k] = 0.0
    for j in range(free.size):
        column = M[j]
        if free[j] < 0:
            for k in range(m):
                least[k] = min(least[k], -abs(column[k]))
        else:
            for k in range(m):
                least[k] = min(least[k], column[k])
    best, value = -1, -np.inf
    for k in range(m):
        if state[k] == OPEN and not asked[k]:
            if place[k] >= 0:
                return k
            if least[k] > value:
                best, value = k, least[k]
    return best


@inner
def decide(
    H: Any, E: Any, x: Any, low: Any, high: Any, bounded: bool, noise: float, beyond: Any, state: Any, centre: Any
) -> None:
    """Decide the open rows of one cell, all rows being constraints; ``beyond[i]`` becomes a point behind i alone."""
    m, n = len(H), x.size
    M, norms, work = np.empty((n + 1, m + n)), np.empty(m), np.empty(m + n)
    free, place, asked = np.empty(n, np.int64), np.empty(m, np.int64), np.zeros(m, np.bool_)
    for k in range(m):
        place[k] = -1
    for c in range(n):
        free[c], centre[c] = -1, x[c]
    centre[n] = 1.0
    if not _start(H, x, M, norms):
        return
    while True:
        i = _nearest(M, free, place, state, asked, work)
        if i < 0:
            break
        asked[i] = True
        settled = _settle(M, free, place, i, state, beyond, centre, work, noise)
        if settled and _prove_absent(M, H, E, norms, free, i, low, high, bounded):
            state[i] = ABSENT
    for c in range(n):
        centre[c] /= centre[n]
    for i in range(m):
        if state[i] == FACET:
            _pull(H, E, i, centre, beyond, state)


@inner
def _pull(H: Any, E: Any, i: int, centre: Any, beyond: Any, state: Any) -> None:
    """Keep where the segment from the centre crosses facet i, and a point behind; check the facet on the way."""
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
    if not _only_beyond(H, E, i, beyond):
        state[i] = OPEN


@kernel
def cells(H: Any, E: Any, kinds: Any, X: Any, low: Any, high: Any, bounded: bool, state: Any, beyond: Any) -> int:
    """Facets of many cells.

    ``H`` and ``E`` are rows and error bounds of their entries, ``(cells, m, n + 1)``; ``kinds`` is ``(cells, m)``;
    ``X`` holds inner points, ``(cells, n)``; ``low`` and ``high`` bound the domain if it is ``bounded``. ``state``
    ``(cells, m)`` receives what was found, and ``beyond`` ``(cells, m, 2 n)`` for a facet a point behind it and the
    point where it was crossed. Returns the number of pivots.
    """
    count, m, width = H.shape
    n = width - 1
    centre, none, zero = np.empty(width), np.empty(n, np.int64), np.zeros(n)
    h, e, some, behind = np.empty((m, width)), np.empty((m, width)), np.empty(m, np.int8), np.empty((m, 2 * n))
    use = np.empty(m, np.int64)
    reach = 0.0
    for c in range(n):
        none[c] = -1
        reach = max(reach, abs(low[c]), abs(high[c]))
    pivots = 0
    for r in range(count):
        if not bounded:
            reach = 0.0
            for c in range(n):
                reach = max(reach, abs(X[r, c]))
        rows = 0
        for k in range(m):
            state[r, k] = OPEN if kinds[r, k] == WANTED else UNASKED
            if kinds[r, k] == OFF:
                continue
            if bounded and by_box(H[r], E[r], none, zero, k, low, high):
                # positive on the whole box: neither a facet nor needed as a constraint
                state[r, k] = ABSENT if state[r, k] == OPEN else state[r, k]
                continue
            use[rows], some[rows] = k, state[r, k]
            for c in range(width):
                h[rows, c], e[rows, c] = H[r, k, c], E[r, k, c]
            rows += 1
        decide(h[:rows], e[:rows], X[r], low, high, bounded, NOISE * reach, behind, some, centre)
        for k in range(rows):
            state[r, use[k]] = some[k]
            if some[k] == FACET:
                for c in range(2 * n):
                    beyond[r, use[k], c] = behind[k, c]
        pivots += int(centre[n])
    return pivots
