"""Compiled cutting of a polygonal chain by one ReLU layer, where floats with error bounds suffice.

The points of the chain are rows in their order. Bounds are those of
:mod:`fiberscope.geometry.engines.planar.tracked`: the error of ``z[v, j]`` is at most ``c[v] r[j]``, the Euclidean norm
of the errors behind the activation at most ``e2[v]``. Activations are kept at old points only: at a new one, between
two old ones, the next layer's values come from theirs by one column for every zero between them, as in
:mod:`fiberscope.geometry.engines.planar.chain_bends`, where here every zero is a point of its own.

Arrays, for ``V`` points so far and ``w`` neurons: ``z (V, w)`` preactivations; ``c``, ``e2``, ``rounding`` ``(V,)``
error factors and ``norm (V,)`` the norms of the activations before; ``r (w,)`` row factors and ``inverse`` their
inverses; ``counts (V - 1,)`` zeros between neighbours. ``t``, ``error``, ``maker`` ``(V,)`` are a point's parameter,
the bound of its error, and the entry of the sign vector that made it (-1 for the ends). ``local``, ``d``, ``label``,
``room`` hold the zeros of one gap. Everything with ``new_``, ``part`` and ``slip``, and ``e2``, ``norm`` of
:func:`follow`, has one row for every old *and* new point; ``part`` is where a new one lies between its neighbours among
the old ones, ``slip`` the bound of its error. ``out (V, w)`` are the activations at old points.

Invariants: rows are in the order of the chain and parameters increase strictly; every sign is certain before anything
is cut; between neighbours each neuron has at most one zero, since it is affine there.
"""

from __future__ import annotations

import math
from typing import Any

from fiberscope.geometry.engines.planar.kernels import _ratio, _sort
from fiberscope.numerics.compiling.kernels import kernel, once, sums
from fiberscope.numerics.floats import FEW_ROUNDINGS, INFLATE, SQUARES_FLOOR, U


@kernel
def scan(z: Any, e2: Any, norm: Any, rounding: Any, r: Any, floor: float, c: Any, counts: Any) -> int:
    """Error factors ``c`` and the number of zeros between neighbours; -1 if some sign is open."""
    total = 0
    for v in range(z.shape[0]):
        c[v] = 0.0
        if norm[v] > 0.0 or e2[v] > 0.0:
            c[v] = (e2[v] + rounding[v]) * INFLATE
        scale, sure = c[v] * FEW_ROUNDINGS, True
        for j in range(z.shape[1]):
            sure &= abs(z[v, j]) > scale * r[j] + floor
        if not sure:
            return -1
    for v in range(z.shape[0] - 1):
        count = 0
        for j in range(z.shape[1]):
            count += (z[v, j] > 0.0) != (z[v + 1, j] > 0.0)
        counts[v] = count
        total += count
    return total


@kernel
def cut(
    z: Any, c: Any, r: Any, floor: float, counts: Any, t: Any, error: Any, maker: Any, first: int, local: Any, d: Any,
    label: Any, room: Any, new_t: Any, new_error: Any, new_maker: Any, part: Any, slip: Any,
) -> bool:  # fmt: skip
    """Old and new points in order; False if the order of new ones is open.

    ``maker`` is the neuron of a point, -1 for the ends; neurons of this layer are numbered from ``first`` on.
    """
    row = 0
    for v in range(z.shape[0]):
        new_t[row], new_error[row], new_maker[row] = t[v], error[v], maker[v]
        row += 1
        n = counts[v] if v < counts.shape[0] else 0
        if n == 0:
            continue
        i = 0
        for j in range(z.shape[1]):
            if (z[v, j] > 0.0) != (z[v + 1, j] > 0.0):
                label[i] = j
                ea, eb = c[v] * r[j] * FEW_ROUNDINGS + floor, c[v + 1] * r[j] * FEW_ROUNDINGS + floor
                local[i], d[i] = _ratio(z[v, j], z[v + 1, j], ea, eb)
                i += 1
        if not _sort(local, d, label, room, 0, n):
            return False
        way = t[v + 1] - t[v]
        for k in range(n):
            new_t[row] = t[v] + local[k] * way
            part[row], slip[row] = local[k], d[k]
            new_error[row] = (max(error[v], error[v + 1]) + d[k] * way + 4 * U * (abs(t[v + 1]) + 1)) * (1 + 8 * U)
            new_maker[row] = first + label[k]
            row += 1
    return True


@kernel
def follow(
    z: Any, c: Any, whole: Any, r: Any, inverse: Any, counts: Any, new_maker: Any, first: int, slip: Any,
    out: Any, e2: Any, norm: Any,
) -> None:  # fmt: skip
    """Activations at old points; at old and new ones bounds of their norms and of the norms of their errors.

    ``whole (V,)`` bounds the norms of the errors of ``z``.
    """
    row = 0
    for v in range(z.shape[0]):
        size, live = _rectified(z, v, r, out)
        e2[row] = min(whole[v], c[v] * math.sqrt(live)) * INFLATE + (SQUARES_FLOOR if live > 0.0 else 0.0)
        norm[row] = math.sqrt(size) * INFLATE
        row += 1 + (counts[v] if v < counts.shape[0] else 0)
    row = 0
    for v in range(counts.shape[0]):
        n = counts[v]
        if n > 0:
            factor = max(c[v], c[v + 1])
            ends = max(norm[row], norm[row + n + 1])
            both = max(whole[v], whole[v + 1])
            _between(z, v, factor, both, ends, n, r, inverse, new_maker, first, slip, e2, norm, row + 1)
        row += n + 1


@once
def _rectified(z: Any, v: int, r: Any, out: Any) -> tuple[float, float]:
    """Positive parts of an old point; the squares of their norm and of the row factors of active neurons."""
    size, live = 0.0, 0.0
    for j in range(z.shape[1]):
        out[v, j] = z[v, j] if z[v, j] > 0.0 else 0.0
        size += out[v, j] * out[v, j]
        live += r[j] * r[j] if z[v, j] > 0.0 else 0.0
    return size, live


@once
def _between(
    z: Any, v: int, factor: float, both: float, ends: float, n: int, r: Any, inverse: Any, maker: Any, first: int,
    slip: Any, e2: Any, norm: Any, row: int,
) -> None:  # fmt: skip
    """Bounds at the ``n`` new points from ``row`` on, between old ones ``v`` and ``v + 1``.

    Let ``x`` and ``y`` be the preactivations of these two.

    There an active neuron counts as ``x + t (y - x)`` without rounding, which :func:`fill` accounts for: no
    further from its true value than ``factor r``, all of them than ``both``, and the error of ``t`` times ``|y - x|``.
    The largest slope in units
    of ``r`` and the norm of all are found once for all points; the norm of positive parts is convex, so it is largest
    at an end.
    """
    steepest, way, live = 0.0, 0.0, 0.0
    for j in range(z.shape[1]):
        step = abs(z[v + 1, j] - z[v, j])
        steepest = max(steepest, step * inverse[j])
        way += step * step
        live += r[j] * r[j] if z[v, j] > 0.0 else 0.0
    way = math.sqrt(way) * INFLATE + SQUARES_FLOOR
    lost = 2 * U * z.shape[1] * live  # by adding and taking away
    for k in range(row, row + n):
        j = maker[k] - first
        square = r[j] * r[j]
        lost += 4 * U * (live + square)
        wakes = z[v, j] < 0.0
        if not wakes:  # at its zero it is asleep
            live -= square
        wide = slip[k] * (1.0 + 16 * U) + 4 * U
        single = (factor + wide * steepest) * math.sqrt(max(live + lost, 0.0))
        e2[k] = min(both + wide * way, single) * INFLATE * INFLATE + SQUARES_FLOOR
        norm[k] = (ends + wide * way) * INFLATE
        if wakes:
            live += square


@kernel
def fill(
    z: Any, counts: Any, maker: Any, first: int, part: Any, own: Any, columns: Any, size: Any, new_z: Any,
    rounding: Any, room: Any,
) -> None:  # fmt: skip
    """The next layer's preactivations at all points from ``own``, those at old ones, and factors of their roundings.

    ``columns`` are those of the next matrix for the neurons of new points, in their order; ``size`` the norms of
    ``(a, 1)`` for the inputs ``a``; ``rounding`` has the factors of old points and gets those of new ones.
    """
    row, k = 0, 0
    for v in range(z.shape[0]):
        n = counts[v] if v < counts.shape[0] else 0
        for h in range(own.shape[1]):
            new_z[row, h] = own[v, h]
        if n > 0:
            _bend(z, v, maker, first, part, own, columns, k, n, size, new_z, rounding, room, row + 1)
        row, k = row + n + 1, k + n


@once
def _bend(
    z: Any, g: int, maker: Any, first: int, part: Any, own: Any, columns: Any, k: int, n: int, size: Any,
    new_z: Any, rounding: Any, room: Any, row: int,
) -> None:  # fmt: skip
    """New points of the gap behind old point ``g``; ``room (2, width)`` are the sums over later and earlier zeros.

    Roundings as :meth:`.chain_bends.Bends.roundings` says.
    """
    for h in range(own.shape[1]):
        room[0, h] = room[1, h] = 0.0
    one, two = 0.0, 0.0
    for m in range(n):
        j = maker[row + m] - first
        one += z[g, j] * z[g, j]
        two += z[g + 1, j] * z[g + 1, j]
        u = -z[g + 1, j] if z[g, j] < 0.0 else z[g + 1, j]
        for h in range(own.shape[1]):
            room[0, h] += u * columns[k + m, h]
    bent = (math.sqrt(one) + math.sqrt(two)) * INFLATE + SQUARES_FLOOR
    ends = max(rounding[row - 1], rounding[row + n])
    fixed = ends + 13 * U * (size[row - 1] + size[row + n]) + 2 * (2 * n + 17) * U * bent
    for m in range(n):
        j, t = maker[row + m] - first, part[row + m]
        rounding[row + m] = (fixed + 13 * U * size[row + m]) * INFLATE
        wakes = z[g, j] < 0.0
        u, v = (-z[g + 1, j], z[g, j]) if wakes else (z[g + 1, j], -z[g, j])
        before, behind = (0.0, 1.0) if wakes else (1.0, 0.0)  # at its zero a neuron is asleep, or not yet awake
        rest = 1.0 - t
        for h in range(own.shape[1]):
            column = columns[k + m, h]
            near, far = room[0, h] - before * u * column, room[1, h] + before * v * column
            new_z[row + m, h] = own[g, h] + t * (own[g + 1, h] - own[g, h]) + (t * near + rest * far)
            room[0, h], room[1, h] = near - behind * u * column, far + behind * v * column


@kernel
def scatter(begin: Any, rows: Any, numbers: Any, label: Any, columns: Any) -> None:
    """Columns of a sparse matrix as rows."""
    for m in range(label.shape[0]):
        for h in range(columns.shape[1]):
            columns[m, h] = 0.0
        for k in range(begin[label[m]], begin[label[m] + 1]):
            columns[m, rows[k]] += numbers[k]


@sums
def thin(X: Any, matrix: Any, out: Any) -> None:
    """``X @ matrix.T`` for a few rows of ``X``, two at a time: the matrix is read, and nothing is packed."""
    for v in range(0, X.shape[0], 2):
        w = min(v + 1, X.shape[0] - 1)
        for j in range(matrix.shape[0]):
            one, two = 0.0, 0.0
            for i in range(matrix.shape[1]):
                one += matrix[j, i] * X[v, i]
                two += matrix[j, i] * X[w, i]
            out[v, j], out[w, j] = one, two
