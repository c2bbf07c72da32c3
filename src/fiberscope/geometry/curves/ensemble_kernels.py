"""Compiled counting of regions on circle and tractrix for one chain of dense layers after the other.

A curve is cut into pieces, layer by layer. On piece ``q`` the value ``i`` of a layer is ``A x(t) + B y(t) + C``:
``form[q, :, i]`` are A, B, C and ``error[q, :, i]`` bounds of their errors. ``points[:, q]`` is where piece q begins:
a place and an enclosure (low, high); one more column holds the end of the curve. ``out``, ``slip`` ``(3, width)`` are
form and error of the next preactivations on one piece, ``zeros (3, most)`` places and enclosures of their zeros there,
``new_form``, ``new_error``, ``new_points`` the next layer's arrays, copied over when it is done. ``W`` holds weights
(by rows) and then biases, layer by layer; ``widths`` are all widths, input and output included; ``rows (3, n)`` are
the two directions and the origin of the curve.

Invariants: pieces are in the order of the parameter, enclosures do not overlap, and every sign exceeds its bound.
Whatever cannot keep them, for want of precision or of room, gives OPEN, and another engine counts.
"""

from __future__ import annotations

from typing import Any

from fiberscope.geometry.curves.root_kernels import OPEN, TRACTRIX, x_of, y_of, zeros_inside
from fiberscope.numerics.compiling.kernels import inner, kernel
from fiberscope.numerics.floats import INFLATE, MULTIPLES, TINY, U


@inner
def _layer(
    piece: int, rows: int, columns: int, W: Any, start: int, bias: int, form: Any, error: Any, out: Any, slip: Any
) -> None:
    """Rows ``A, B, C`` of the next preactivations on one piece, and bounds of their errors."""
    unit = (columns + 3) * U * MULTIPLES
    for j in range(rows):
        for k in range(3):
            total, size, touched = 0.0, 0.0, False
            for i in range(columns):
                w = W[start + j * columns + i]
                touched |= w != 0.0 and (form[piece, k, i] != 0.0 or error[piece, k, i] != 0.0)
                total += w * form[piece, k, i]
                size += abs(w) * (error[piece, k, i] + unit * abs(form[piece, k, i]))
            if k == 2:
                total += W[bias + j]
                size += unit * abs(total)
            out[k, j] = total
            # a bias alone is exact; what underflow lost is covered by the last term
            slip[k, j] = size * INFLATE + (columns + 2) * TINY if touched else 0.0


@inner
def _sort(t: Any, lo: Any, hi: Any, count: int) -> bool:
    """By insertion; False if enclosures overlap."""
    for a in range(1, count):
        x, y, z = t[a], lo[a], hi[a]
        k = a
        while k > 0 and t[k - 1] > x:
            t[k], lo[k], hi[k] = t[k - 1], lo[k - 1], hi[k - 1]
            k -= 1
        t[k], lo[k], hi[k] = x, y, z
    apart = True
    for a in range(1, count):
        apart &= hi[a - 1] < lo[a]
    return apart


@kernel
def count_chain(
    model: int, W: Any, widths: Any, rows: Any, ends: Any, slope: float, form: Any, error: Any, out: Any, slip: Any,
    new_form: Any, new_error: Any, points: Any, new_points: Any, zeros: Any, room: Any, breakpoints: Any,
) -> int:  # fmt: skip
    """Regions of one chain, or :data:`OPEN` where floats do not tell or there is no room.

    ``W`` holds weights and biases layer by layer, ``rows`` the directions and origin of the curve; ``points[:, q]`` is
    position and enclosure of point ``q``. The breakpoints are left in ``breakpoints``.
    """
    most = form.shape[0]
    for k in range(3):
        for i in range(widths[0]):
            form[0, k, i], error[0, k, i] = rows[k, i], 0.0
    for k in range(3):
        points[k, 0], points[k, 1] = ends[0, k], ends[1, k]
    pieces, start = 1, 0
    for layer in range(widths.shape[0] - 2):
        columns, width = widths[layer], widths[layer + 1]
        bias, last = start + width * columns, layer == widths.shape[0] - 3
        made = 0
        for q in range(pieces):
            _layer(q, width, columns, W, start, bias, form, error, out, slip)
            a, b = 0.5 * (points[1, q] + points[2, q]), 0.5 * (points[1, q + 1] + points[2, q + 1])
            found = 0
            for j in range(width):
                n = zeros_inside(
                    model, out[0, j], out[1, j], out[2, j], slip[0, j], slip[1, j], slip[2, j],
                    points[1, q], points[2, q], points[1, q + 1], points[2, q + 1],
                    x_of(model, a), y_of(model, a), x_of(model, b), y_of(model, b),
                    zeros[0], zeros[1], zeros[2], found, room,
                )  # fmt: skip
                if n == OPEN or found + n + 4 >= zeros.shape[1]:
                    return OPEN
                found += n
            if not _sort(zeros[0], zeros[1], zeros[2], found) or made + found + 2 >= most:
                return OPEN
            for z in range(found + 1):
                for k in range(3):
                    new_points[k, made + z] = points[k, q] if z == 0 else zeros[k, z - 1]
                if not last:
                    low = points[2, q] if z == 0 else zeros[2, z - 1]
                    high = points[1, q + 1] if z == found else zeros[1, z]
                    middle = 0.5 * (low + high)
                    x, y = x_of(model, middle), y_of(model, middle)
                    wide = abs(x) + (abs(middle) if model == TRACTRIX else 0.0)
                    for j in range(width):
                        value = out[0, j] * x + out[1, j] * y + out[2, j]
                        size = abs(out[0, j]) * wide + abs(out[1, j]) + abs(out[2, j])
                        bound = slip[0, j] * wide + slip[1, j] + slip[2, j] + 24 * U * size
                        if not (bound == 0.0 or abs(value) > bound * INFLATE + 8 * TINY):
                            return OPEN
                        scale = 1.0 if value > 0.0 else slope
                        spare = 2 * U if 0.0 < scale < 1.0 or scale > 1.0 else 0.0
                        for k in range(3):
                            new_form[made + z, k, j] = scale * out[k, j]
                            new_error[made + z, k, j] = scale * slip[k, j] + spare * abs(out[k, j])
            made += found + 1
        for k in range(3):
            for q in range(made):
                points[k, q] = new_points[k, q]
            points[k, made] = ends[1, k]
        pieces = made
        if not last:
            for q in range(made):
                for k in range(3):
                    for j in range(width):
                        form[q, k, j], error[q, k, j] = new_form[q, k, j], new_error[q, k, j]
        start = bias + width
    for q in range(1, pieces):
        breakpoints[q - 1] = points[0, q]
    return pieces
