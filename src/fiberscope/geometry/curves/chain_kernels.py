"""Compiled cutting of a polygonal chain by one ReLU layer, where floats with error bounds suffice.

The points of the chain are rows in their order. Bounds are those of
:mod:`fiberscope.geometry.engines.planar.tracked`: the error of ``z[v, j]`` is at most ``c[v] r[j]``, the Euclidean norm
of the errors behind the activation at most ``e2[v]``.

Arrays, for ``V`` points so far and ``w`` neurons: ``z (V, w)`` preactivations; ``c``, ``e2``, ``rounding`` ``(V,)``
error factors and ``norm (V,)`` the norms of the activations before; ``r (w,)`` row factors and ``inverse`` their
inverses; ``counts (V - 1,)`` zeros between neighbours. ``t``, ``error``, ``maker`` ``(V,)`` are a point's parameter,
the bound of its error, and the entry of the sign vector that made it (-1 for the ends). ``local``, ``d``, ``label``,
``room`` hold the zeros of one gap. Everything with ``new_`` and ``out``, ``e2``, ``norm``, ``part`` of :func:`cut` has
one row for every old *and* new point; ``part`` is where a new one lies between its neighbours among the old ones.

Invariants: rows are in the order of the chain and parameters increase strictly; every sign is certain before anything
is cut; between neighbours each neuron has at most one zero, since it is affine there.
"""

from __future__ import annotations

import math
from typing import Any

from fiberscope.geometry.engines.planar.kernels import _ratio, _sort
from fiberscope.numerics.compiling.kernels import inner, kernel
from fiberscope.numerics.floats import FEW_ROUNDINGS, INFLATE, SQUARES_FLOOR, TINY, U


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
    z: Any, c: Any, r: Any, inverse: Any, floor: float, counts: Any, t: Any, error: Any, maker: Any, first: int,
    frobenius: float, local: Any, d: Any, label: Any, room: Any, out: Any, new_t: Any, new_error: Any, new_maker: Any,
    e2: Any, norm: Any, part: Any,
) -> bool:  # fmt: skip
    """Old and new points in order with their activations; False if the order of new ones is open.

    ``maker`` is the neuron of a point, -1 for the ends; neurons of this layer are numbered from ``first`` on. Without
    room for activations (``out`` is empty) only the points are made.
    """
    row = 0
    for v in range(z.shape[0]):
        new_t[row], new_error[row], new_maker[row] = t[v], error[v], maker[v]
        if out.shape[0]:
            _rectified(z[v], c[v], c[v] * frobenius * INFLATE, r, out[row], e2, norm, row)
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
            part[row] = local[k]
            new_error[row] = (max(error[v], error[v + 1]) + d[k] * way + 4 * U * (abs(t[v + 1]) + 1)) * (1 + 8 * U)
            new_maker[row] = first + label[k]
            if out.shape[0]:
                spread, total = _between(z[v], z[v + 1], local[k], d[k], inverse, out[row])
                for m in range(n):
                    j = label[m]
                    if m == k or (m < k) != (z[v + 1, j] > 0.0):
                        out[row, j] = 0.0
                factor = (max(c[v], c[v + 1]) + spread) * INFLATE
                _live(
                    factor, (max(c[v], c[v + 1]) * frobenius + math.sqrt(total)) * INFLATE, r, out[row], e2, norm, row
                )
            row += 1
    return True


@inner
def _between(x: Any, y: Any, t: float, d: float, inverse: Any, out: Any) -> tuple[float, float]:
    """Positive parts at ``x + t (y - x)``, whose parameter errs by ``d``: the largest relative and squared errors."""
    worst, total = 0.0, 0.0
    wide = d * (1.0 + 16 * U) + 4 * U
    for j in range(x.shape[0]):
        step = y[j] - x[j]
        value = x[j] + t * step
        # An active neuron may round to 0 between its ends and has an error all the same: only dead ones are 0.
        out[j] = max(value, TINY) if x[j] > 0.0 or y[j] > 0.0 else 0.0
        spread = wide * abs(step) + 4 * U * (abs(x[j]) + abs(y[j]))
        worst = max(worst, spread * inverse[j])
        total += spread * spread
    return worst, total


@inner
def _rectified(z: Any, c: float, whole: float, r: Any, out: Any, e2: Any, norm: Any, row: int) -> None:
    """Positive parts of an old point."""
    for j in range(z.shape[0]):
        out[j] = z[j] if z[j] > 0.0 else 0.0
    _live(c, whole, r, out, e2, norm, row)


@inner
def _live(c: float, whole: float, r: Any, out: Any, e2: Any, norm: Any, row: int) -> None:
    """Norms of the activations and of their errors: only active neurons have any."""
    size, live = 0.0, 0.0
    for j in range(out.shape[0]):
        size += out[j] * out[j]
        live += r[j] * r[j] if out[j] > 0.0 else 0.0
    e2[row] = min(whole, c * math.sqrt(live)) * INFLATE + (SQUARES_FLOOR if live > 0.0 else 0.0)
    norm[row] = math.sqrt(size) * INFLATE
