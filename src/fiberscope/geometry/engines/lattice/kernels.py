"""Compiled kernels that the lattice and the skeleton share: a new vertex on an edge, and polygons in cyclic order."""

from __future__ import annotations

from typing import Any

import numpy as np

from fiberscope.numerics.compiling.kernels import bare_inner, kernel
from fiberscope.numerics.floats import TINY, U

UNKNOWN = 2
"""Sign of a neuron at a vertex that the float bound leaves open."""


@bare_inner  # 0 / 0 is NaN, and NaN is undecided
def new_vertex(
    u: int, v: int, cu: int, cv: int, p: int, sign_column: int, layer: Any, table: Any, error: Any, signs: Any,
    parents: Any,
) -> bool:  # fmt: skip
    """Row p: the vertex between rows u and v where the neuron vanishes; returns whether one of its signs is open.

    All values are affine on the carrier of an edge, with ends cu and cv, so they are interpolated between these, with
    a bound of the error. A sign at the new vertex is already known unless u and v have opposite signs; only then a
    number decides. ``layer`` is the first sign column of the layer, the one behind its last, and the table column of
    its first neuron.
    """
    offset = layer[2] - layer[0]
    column = offset + sign_column
    parents[p, 0] = cu
    parents[p, 1] = cv
    parents[p, 2] = sign_column
    a, b = abs(table[cu, column]), abs(table[cv, column])
    a_error, b_error = error[cu, column], error[cv, column]
    if a + a_error + b + b_error < np.inf:
        part = a / (a + b)
        low = (a - a_error) / (a - a_error + b + b_error) * (1.0 - 8 * U) if a > a_error else 0.0
        high = (a + a_error) / (a + a_error + (b - b_error if b > b_error else 0.0)) * (1.0 + 8 * U)
        high = high if high < 1.0 else 1.0
    else:  # a sum that overflowed would make every quotient zero; so somewhere on the edge
        part, low, high = 0.5, 0.0, 1.0
    spread = (high - part if high - part > part - low else part - low) + 8 * U
    for c in range(table.shape[1]):
        zu, zv = table[cu, c], table[cv, c]
        step = zv - zu
        table[p, c] = zu + part * step
        bound = (1.0 - low) * error[cu, c] + high * error[cv, c] + spread * abs(step)
        error[p, c] = (bound + 4 * U * (abs(zu) + abs(zv))) * (1.0 + 32 * U) + TINY
    is_open = False
    for j in range(layer[1]):
        su, sv = signs[u, j], signs[v, j]
        sign = su if su != 0 else sv
        if j == sign_column:
            sign = 0
        elif su * sv < 0:
            z, z_error = table[p, offset + j], error[p, offset + j]
            sign = 1 if z > z_error else -1 if z < -z_error else UNKNOWN
            is_open |= sign == UNKNOWN
        signs[p, j] = sign
        if sign == 0 and j >= layer[0]:
            table[p, offset + j] = 0.0
            error[p, offset + j] = 0.0
    return is_open


@kernel
def around_polygons(indptr: Any, indices: Any, ends: Any) -> None:
    """Order the edges of every polygon cyclically, in place."""
    for c in range(len(indptr) - 1):
        first, last = indptr[c], indptr[c + 1]
        tip = ends[2 * indices[first] + 1]
        for k in range(first + 1, last):
            for h in range(k, last):
                e = indices[h]
                if ends[2 * e] == tip or ends[2 * e + 1] == tip:
                    tip = ends[2 * e + 1] if ends[2 * e] == tip else ends[2 * e]
                    indices[h], indices[k] = indices[k], e
                    break
