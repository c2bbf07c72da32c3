"""Compiled kernels of the lattice engine: how cells are split by one neuron.

A level holds the cells of one dimension: ``start`` and ``length`` cut their facets out of ``pool``. ``masks[c]`` are
four words of 32 bits. The first three have one bit for each neuron at work: it is positive somewhere on the cell,
negative somewhere, zero at some vertex. A cell is crossed by a neuron if its first two bits are set. Crossed cells
wait in linked lists (``head`` by neuron, ``link`` by cell), so that a neuron costs only the cells it splits. While a
neuron is at work, the fourth word is 1 + the place of the cell among those it splits, and 0 for all others.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from fiberscope.numerics.floats import TINY, U

UNKNOWN = 2
"""Sign of a neuron at a vertex that the float bound leaves open."""


@numba.njit(cache=True, inline="always")
def _lowest(word: Any) -> int:
    """Index of the lowest bit of a non-zero word."""
    position = 0
    while not word & 0xFF:
        word >>= 8
        position += 8
    while not word & 1:
        word >>= 1
        position += 1
    return position


@numba.njit(cache=True, inline="always")
def enlist(cell: int, masks: Any, head: Any, link: Any) -> None:
    """Put the cell on the list of the first neuron that crosses it, if any."""
    crossed = masks[cell, 0] & masks[cell, 1]
    if crossed:
        bit = _lowest(crossed)
        link[cell] = head[bit]
        head[bit] = cell


@numba.njit(cache=True)
def vertex_masks(signs: Any, columns: Any, first: int, count: int, masks: Any) -> None:
    """Masks of vertices ``first, ..., count - 1``: bit b is the sign in column ``columns[b]``."""
    for v in range(first, count):
        positive, negative, zero = np.uint32(0), np.uint32(0), np.uint32(0)
        for b in range(len(columns)):
            bit = np.uint32(1) << np.uint32(b)
            sign = signs[v, columns[b]]
            if sign > 0:
                positive |= bit
            elif sign < 0:
                negative |= bit
            else:
                zero |= bit
        masks[v, 0], masks[v, 1], masks[v, 2], masks[v, 3] = positive, negative, zero, 0


@numba.njit(cache=True)
def cell_masks(start: Any, length: Any, pool: Any, facet_masks: Any, count: int, masks: Any) -> None:
    """Masks of all cells of a level from those of their facets."""
    for c in range(count):
        positive, negative, zero = np.uint32(0), np.uint32(0), np.uint32(0)
        for k in range(start[c], start[c] + length[c]):
            f = pool[k]
            positive |= facet_masks[f, 0]
            negative |= facet_masks[f, 1]
            zero |= facet_masks[f, 2]
        masks[c, 0], masks[c, 1], masks[c, 2], masks[c, 3] = positive, negative, zero, 0


@numba.njit(cache=True)
def enlist_all(count: int, masks: Any, head: Any, link: Any) -> None:
    """Put every crossed cell of a level on its list."""
    for c in range(count):
        enlist(c, masks, head, link)


@numba.njit(cache=True)
def drain(first: int, link: Any, masks: Any, out: Any) -> int:
    """Write the list that begins at ``first`` to ``out`` and number its cells; returns how many, or -1 if more."""
    count = 0
    cell = first
    while cell >= 0:
        if count == len(out):
            return -1
        out[count] = cell
        count += 1
        masks[cell, 3] = count
        cell = link[cell]
    return count


@numba.njit(cache=True)
def forget(cells: Any, masks: Any) -> None:
    """End of the round: no cell is being split."""
    for c in cells:
        masks[c, 3] = 0


@numba.njit(cache=True, error_model="numpy")  # 0 / 0 is NaN, and NaN is undecided
def cut_edges(
    edges: Any, ends: Any, carrier: Any, sign_column: int, layer: Any, table: Any, error: Any, signs: Any,
    parents: Any, first: int, open_points: Any,
) -> int:  # fmt: skip
    """New vertices ``first, first + 1, ...``, one on each of the edges, where the neuron vanishes.

    All values are affine on the carrier of an edge, so they are interpolated between its ends, with a bound of the
    error. A sign at the new vertex is already known unless the ends have opposite signs; only then a number decides.
    Vertices with a sign left open are written to ``open_points``; returns their count. ``layer`` is the first sign
    column of the layer, the one behind its last, and the table column of its first neuron.
    """
    begin, end, offset = layer
    column = offset + sign_column - begin
    unsure = 0
    for q in range(len(edges)):
        e = edges[q]
        u, v = ends[2 * e], ends[2 * e + 1]
        cu, cv = carrier[e, 0], carrier[e, 1]
        p = first + q
        parents[p, 0], parents[p, 1], parents[p, 2] = cu, cv, sign_column
        a, b = abs(table[cu, column]), abs(table[cv, column])
        a_error, b_error = error[cu, column], error[cv, column]
        part = a / (a + b)
        a_low, b_low = max(0.0, a - a_error), max(0.0, b - b_error)
        low = a_low / (a_low + b + b_error) * (1.0 - 8 * U) if a_low > 0.0 else 0.0
        high = (a + a_error) / (a + a_error + b_low) * (1.0 + 8 * U)
        high = min(high, 1.0)
        spread = max(high - part, part - low) + 8 * U
        for c in range(table.shape[1]):
            zu, zv = table[cu, c], table[cv, c]
            step = zv - zu
            table[p, c] = zu + part * step
            bound = (1.0 - low) * error[cu, c] + high * error[cv, c] + spread * abs(step)
            error[p, c] = (bound + 4 * U * (abs(zu) + abs(zv))) * (1.0 + 32 * U) + TINY
        is_open = False
        for j in range(end):
            su, sv = signs[u, j], signs[v, j]
            if j == sign_column:
                sign = 0
            elif su * sv < 0:
                z, z_error = table[p, offset + j - begin], error[p, offset + j - begin]
                if z > z_error:
                    sign = 1
                elif z < -z_error:
                    sign = -1
                else:
                    sign = UNKNOWN
                    is_open = True
            else:
                sign = su if su != 0 else sv
            signs[p, j] = sign
            if sign == 0 and j >= begin:
                table[p, offset + j - begin] = 0.0
                error[p, offset + j - begin] = 0.0
        if is_open:
            open_points[unsure] = p
            unsure += 1
    return unsure


@numba.njit(cache=True)
def split_edges(
    edges: Any, bit: int, level: Any, carrier: Any, head: Any, vertex_mask: Any, vertex: int, minus: int
) -> None:
    """Cut the edges at the new vertices ``vertex, ...``; an edge keeps its positive part, ``minus, ...`` the other."""
    start, length, ends, masks, link = level
    word = np.uint32(1) << np.uint32(bit)
    for q in range(len(edges)):
        e, m, p = edges[q], minus + q, vertex + q
        u, v = ends[2 * e], ends[2 * e + 1]
        if not vertex_mask[u, 0] & word:
            u, v = v, u
        ends[2 * e], ends[2 * e + 1] = u, p
        ends[2 * m], ends[2 * m + 1] = p, v
        start[m], length[m] = 2 * m, 2
        carrier[m, 0], carrier[m, 1] = carrier[e, 0], carrier[e, 1]
        for k in range(3):
            masks[e, k] = vertex_mask[u, k] | vertex_mask[p, k]
            masks[m, k] = vertex_mask[p, k] | vertex_mask[v, k]
        masks[m, 3] = 0
        enlist(e, masks, head, link)
        enlist(m, masks, head, link)


@numba.njit(cache=True)
def split_cells(  # noqa: PLR0915  # one pass over the facets; a call per part would be slower
    cells: Any, done: int, bit: int, level: Any, head: Any, facet_level: Any, facet_head: Any,
    ridge_masks: Any, bases: Any, used: int, facet_used: int,
) -> Any:  # fmt: skip
    """Split cells ``done, ...`` of the list: c becomes c+ (in its place), c- and c0, the last one a level below.

    Facets of c0 are the zero parts of the crossed facets of c, and the ridges of c on which the neuron vanishes: each
    of them lies between a positive and a negative facet, or else the neuron could not cross c. ``bases`` are the first
    indices of the parts c- and c0, and of the facets' parts f- and f0. Returns how many cells are done and the used
    lengths of both pools; fewer than all cells are done when a pool is full.
    """
    start, length, pool, masks, link = level
    facet_start, facet_length, facet_pool, facet_masks, facet_link = facet_level
    minus_base, zero_base, facet_minus, facet_zero = bases
    word = np.uint32(1) << np.uint32(bit)
    keep = np.empty(64, dtype=pool.dtype)
    for q in range(done, len(cells)):
        c = cells[q]
        begin, size = start[c], length[c]
        need = size
        for k in range(begin, begin + size):
            f = pool[k]
            if facet_masks[f, 2] & word:
                need += facet_length[f]
        if used + 2 * size + 2 > len(pool) or facet_used + need > len(facet_pool):
            return q, used, facet_used
        if size + 1 > len(keep):
            keep = np.empty(2 * size, dtype=pool.dtype)
        zero, minus = zero_base + q, minus_base + q
        facet_start[zero] = facet_used
        start[minus] = used
        plus_size = 0
        p0, p1, p2 = np.uint32(0), np.uint32(0), np.uint32(0)
        n0, n1, n2 = np.uint32(0), np.uint32(0), np.uint32(0)
        for k in range(begin, begin + size):
            f = pool[k]
            r = np.int64(facet_masks[f, 3]) - 1
            if r >= 0:
                facet_pool[facet_used] = facet_zero + r
                facet_used += 1
            positive = facet_masks[f, 0] & word
            if r >= 0 or positive:
                keep[plus_size] = f
                plus_size += 1
                p0 |= facet_masks[f, 0]
                p1 |= facet_masks[f, 1]
                p2 |= facet_masks[f, 2]
            if r < 0 and positive and facet_masks[f, 2] & word:
                for h in range(facet_start[f], facet_start[f] + facet_length[f]):
                    g = facet_pool[h]
                    if not (ridge_masks[g, 0] | ridge_masks[g, 1]) & word:
                        facet_pool[facet_used] = g
                        facet_used += 1
            if r >= 0 or not positive:
                f = facet_minus + r if r >= 0 else f
                pool[used] = f
                used += 1
                n0 |= facet_masks[f, 0]
                n1 |= facet_masks[f, 1]
                n2 |= facet_masks[f, 2]
        facet_length[zero] = facet_used - facet_start[zero]
        z0, z1, z2 = np.uint32(0), np.uint32(0), np.uint32(0)
        for k in range(facet_start[zero], facet_used):
            g = facet_pool[k]
            z0 |= ridge_masks[g, 0]
            z1 |= ridge_masks[g, 1]
            z2 |= ridge_masks[g, 2]
        facet_masks[zero, 0], facet_masks[zero, 1], facet_masks[zero, 2], facet_masks[zero, 3] = z0, z1, z2, 0
        enlist(zero, facet_masks, facet_head, facet_link)
        pool[used] = zero
        used += 1
        length[minus] = used - start[minus]
        masks[minus, 0], masks[minus, 1], masks[minus, 2], masks[minus, 3] = n0 | z0, n1 | z1, n2 | z2, 0
        enlist(minus, masks, head, link)
        keep[plus_size] = zero
        plus_size += 1
        if plus_size > size:
            start[c] = begin = used
            used += plus_size
        length[c] = plus_size
        for k in range(plus_size):
            pool[begin + k] = keep[k]
        masks[c, 0], masks[c, 1], masks[c, 2] = p0 | z0, p1 | z1, p2 | z2
        enlist(c, masks, head, link)
    return len(cells), used, facet_used


@numba.njit(cache=True)
def compact(start: Any, length: Any, pool: Any, indptr: Any, indices: Any) -> None:
    """Copy the lists of a level into compressed rows."""
    for c in range(len(indptr) - 1):
        at = indptr[c]
        for k in range(length[c]):
            indices[at + k] = pool[start[c] + k]


@numba.njit(cache=True)
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
