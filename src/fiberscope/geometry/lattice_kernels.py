"""Compiled kernels of the lattice engine: how cells are split by the neurons of a block.

All cells, of every dimension, are nodes of one numbering in the order in which they are made, so that facets come
before the cells they bound. ``start[c]`` to ``start[c + 1]`` cut the list of node c out of ``pool``: its facets; for an
edge two vertices and then the two rows of its carrier; for a vertex its row in the tables. ``masks[c]`` are four words
of 32 bits. The first three have one bit for each neuron of the block: it is positive somewhere on the cell, negative
somewhere, zero at some vertex. A cell is crossed by a neuron if its first two bits are set, and is then split: the
fourth word is the first of three new nodes, the zero part, the positive and the negative part. It is 0 for cells that
are whole, and while a cell waits for its neuron it is the next cell in the same list (``heads`` by dimension and bit).

Nothing that is split is overwritten, so cells that share a facet find its parts whenever they come to it. That makes
it possible to split one old cell (a root) by all neurons of the block before the next one: what it touches is near.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from fiberscope.numerics.floats import TINY, U

UNKNOWN = 2
"""Sign of a neuron at a vertex that the float bound leaves open."""

END = np.uint32(0xFFFFFFFF)
"""Behind the last cell of a list."""

DONE, OPEN, FULL, PAUSED = 0, 1, 2, 3
"""Why a kernel came back: all is split, signs are open, arrays are full, or it was asked to."""

# Where a worker stands: its next root and the end of its roots; the next neuron (-1: the root is not begun) and the
# first row of the vertices made for it (-1: none yet); used nodes, entries and rows and their limits; how many nodes
# are worth a pause; regions made; and nodes, entries, rows and regions when the root was begun.
ROOT, LAST, BIT, FIRST, NODES, ENTRIES, ROWS, NODE_END, ENTRY_END, ROW_END, TICK, TOP, OLD = range(13)
PLACES = OLD + 4

_LOWEST = np.zeros(32, dtype=np.uint8)
_LOWEST[[((1 << b) * 0x077CB531 & 0xFFFFFFFF) >> 27 for b in range(32)]] = range(32)


@numba.njit(cache=True, nogil=True)
def enlist(cell: int, dimension: int, masks: Any, heads: Any) -> None:
    """Put the cell on the list of the first neuron that crosses it, if any."""
    crossed = masks[cell, 0] & masks[cell, 1]
    masks[cell, 3] = 0
    if crossed:
        lowest = np.uint32(crossed & (~crossed + np.uint32(1)))
        bit = _LOWEST[np.uint32(lowest * np.uint32(0x077CB531)) >> np.uint32(27)]
        masks[cell, 3] = heads[dimension, bit]
        heads[dimension, bit] = cell


@numba.njit(cache=True, nogil=True)
def row_masks(row: int, signs: Any, columns: Any, node: int, masks: Any) -> None:
    """Masks of the vertex in this row: bit b is the sign in column ``columns[b]``."""
    masks[node, 0] = masks[node, 1] = masks[node, 2] = masks[node, 3] = 0
    for b in range(len(columns)):
        sign = signs[row, columns[b]]
        masks[node, 0 if sign > 0 else 1 if sign < 0 else 2] |= np.uint32(1) << np.uint32(b)


@numba.njit(cache=True, nogil=True)
def block_masks(count: int, tree: Any, signs: Any, columns: Any, crossed: Any) -> None:
    """Masks of all whole cells for a new block, and which of them are crossed."""
    start, pool, dim, masks = tree
    for c in range(count):
        crossed[c] = False
        if masks[c, 3]:
            continue
        begin = start[c]
        if dim[c] == 0:
            row_masks(np.int64(pool[begin]), signs, columns, c, masks)
            continue
        m0, m1, m2 = np.uint32(0), np.uint32(0), np.uint32(0)
        for k in range(begin, begin + np.uint32(2) if dim[c] == 1 else start[c + 1]):
            f = pool[k]
            m0, m1, m2 = m0 | masks[f, 0], m1 | masks[f, 1], m2 | masks[f, 2]
        masks[c, 0], masks[c, 1], masks[c, 2] = m0, m1, m2
        crossed[c] = m0 & m1 != 0


@numba.njit(cache=True, nogil=True, error_model="numpy")  # 0 / 0 is NaN, and NaN is undecided
def new_vertex(u: int, v: int, cu: int, cv: int, p: int, sign_column: int, layer: Any, vertices: Any) -> bool:
    """Row p: the vertex between rows u and v where the neuron vanishes; returns whether one of its signs is open.

    All values are affine on the carrier of an edge, with ends cu and cv, so they are interpolated between these, with
    a bound of the error. A sign at the new vertex is already known unless u and v have opposite signs; only then a
    number decides. ``layer`` is the first sign column of the layer, the one behind its last, and the table column of
    its first neuron.
    """
    table, error, signs, parents = vertices
    begin, end, offset = layer
    column = offset + sign_column - begin
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
        sign = su if su != 0 else sv
        if j == sign_column:
            sign = 0
        elif su * sv < 0:
            z, z_error = table[p, offset + j - begin], error[p, offset + j - begin]
            sign = 1 if z > z_error else -1 if z < -z_error else UNKNOWN
            is_open |= sign == UNKNOWN
        signs[p, j] = sign
        if sign == 0 and j >= begin:
            table[p, offset + j - begin] = 0.0
            error[p, offset + j - begin] = 0.0
    return is_open


@numba.njit(cache=True, nogil=True)
def _split_edge(c: int, word: Any, node: int, used: int, row: int, tree: Any) -> int:
    """Nodes ``node, ...`` become the vertex in this row and the two parts of edge c, whose vertex has its masks."""
    start, pool, _dim, masks = tree
    k = start[c]
    u, v = pool[k], pool[k + 1]
    if not masks[u, 0] & word:
        u, v = v, u
    pool[used] = row
    for part in range(2):
        at = used + 1 + 4 * part
        start[node + 1 + part] = at
        pool[at], pool[at + 1], pool[at + 2], pool[at + 3] = v if part else u, node, pool[k + 2], pool[k + 3]
        for w in range(3):
            masks[node + 1 + part, w] = masks[pool[at], w] | masks[node, w]
    return used + 9


@numba.njit(cache=True, nogil=True)
def _split_cell(c: int, word: Any, node: int, used: int, end: int, flat: bool, tree: Any, lists: Any) -> int:
    """Nodes ``node, ...`` become the zero part of cell c, its positive and its negative part; -1 if the pool is full.

    Facets of the zero part are the zero parts of the crossed facets of c, and the ridges of c on which the neuron
    vanishes: each of them lies between a positive and a negative facet, or else the neuron could not cross c.
    """
    start, pool, _dim, masks = tree
    z0, z1, z2 = np.uint32(0), np.uint32(0), np.uint32(0)
    p0, p1, p2 = np.uint32(0), np.uint32(0), np.uint32(0)
    n0, n1, n2 = np.uint32(0), np.uint32(0), np.uint32(0)
    plus = minus = 0
    for k in range(start[c], start[c + 1]):
        f = pool[k]
        positive = f
        negative = f
        m0 = masks[f, 0] & word
        m1 = masks[f, 1] & word
        if m0 and m1:
            g = masks[f, 3]
            positive, negative = np.uint32(g + np.uint32(1)), np.uint32(g + np.uint32(2))
            pool[used] = g
            used += 1
            z0, z1, z2 = z0 | masks[g, 0], z1 | masks[g, 1], z2 | masks[g, 2]
        elif m0 and masks[f, 2] & word:
            last = start[f + 1] - (2 if flat else 0)
            if used + (last - start[f]) + 4 * len(lists) > end:
                return -1
            for h in range(start[f], last):
                g = pool[h]
                if not (masks[g, 0] | masks[g, 1]) & word:
                    pool[used] = g
                    used += 1
                    z0, z1, z2 = z0 | masks[g, 0], z1 | masks[g, 1], z2 | masks[g, 2]
        if m0:
            lists[plus, 0] = positive
            plus += 1
            p0, p1, p2 = p0 | masks[positive, 0], p1 | masks[positive, 1], p2 | masks[positive, 2]
        if m1:
            lists[minus, 1] = negative
            minus += 1
            n0, n1, n2 = n0 | masks[negative, 0], n1 | masks[negative, 1], n2 | masks[negative, 2]
    masks[node, 0], masks[node, 1], masks[node, 2] = z0, z1, z2
    masks[node + 1, 0], masks[node + 1, 1], masks[node + 1, 2] = p0, p1, p2
    masks[node + 2, 0], masks[node + 2, 1], masks[node + 2, 2] = n0, n1, n2
    if flat:  # the zero part is an edge, and its own carrier
        pool[used], pool[used + 1] = pool[start[pool[used - 2]]], pool[start[pool[used - 1]]]
        used += 2
    lists[plus, 0] = lists[minus, 1] = node
    start[node + 1] = used
    for k in range(plus + 1):
        pool[used + k] = lists[k, 0]
    used += plus + 1
    start[node + 2] = used
    for k in range(minus + 1):
        pool[used + k] = lists[k, 1]
    return used + minus + 1


@numba.njit(cache=True, nogil=True)
def _cut_all(edge: Any, at: Any, column: int, layer: Any, tree: Any, vertices: Any) -> bool:
    """A new row for every edge of the list, as many as there is room for; returns whether a sign is open."""
    start, pool, _dim, masks = tree
    is_open = False
    while edge != END and at[ROWS] < at[ROW_END]:
        k = start[edge]
        u, v = np.int64(pool[start[pool[k]]]), np.int64(pool[start[pool[k + 1]]])
        cu, cv = np.int64(pool[k + 2]), np.int64(pool[k + 3])
        is_open |= new_vertex(u, v, cu, cv, at[ROWS], column, layer, vertices)
        at[ROWS] += 1
        edge = masks[edge, 3]
    return is_open or edge != END


@numba.njit(cache=True, nogil=True)
def split_roots(
    roots: Any, at: Any, heads: Any, lists: Any, stop: Any, columns: Any, layer: Any, tree: Any, vertices: Any
) -> int:
    """Split roots ``at[ROOT], ..., at[LAST] - 1`` by all neurons of the block; see :data:`DONE` for what is returned.

    When it is :data:`FULL`, the root in question must be begun again, see :func:`undo`.
    """
    start, _pool, dim, masks = tree
    while at[ROOT] < at[LAST]:
        root = roots[at[ROOT]]
        if at[BIT] < 0:
            at[OLD], at[OLD + 1], at[OLD + 2], at[OLD + 3] = at[NODES], at[ENTRIES], at[ROWS], at[TOP]
            enlist(np.int64(root), np.int64(dim[root]), masks, heads)
            at[BIT] = 0
        while at[BIT] < len(columns):
            bit = at[BIT]
            word = np.uint32(1) << np.uint32(bit)
            if at[FIRST] < 0:
                if stop[0] or at[NODES] >= at[TICK]:
                    return PAUSED
                at[FIRST] = at[ROWS]
                if _cut_all(heads[1, bit], at, columns[bit], layer, tree, vertices):
                    return OPEN if at[ROWS] < at[ROW_END] else FULL
            row, node, used = at[FIRST], at[NODES], at[ENTRIES]
            at[FIRST] = -1
            for d in range(1, dim[root] + 1):
                c = heads[d, bit]
                heads[d, bit] = END
                while c != END:
                    size = start[c + 1] - start[c]
                    if node + 4 > at[NODE_END] or used + 3 * size + 9 > at[ENTRY_END] or size >= len(lists):
                        return FULL
                    following = masks[c, 3]
                    start[node] = used
                    if d == 1:
                        row_masks(row, vertices[2], columns, node, masks)
                        used = _split_edge(c, word, node, used, row, tree)
                        row += 1
                    else:
                        used = _split_cell(c, word, node, used, at[ENTRY_END], d == 2, tree, lists)
                        if used < 0:
                            return FULL
                    masks[c, 3] = node
                    dim[node], dim[node + 1], dim[node + 2] = d - 1, d, d
                    for part in range(3):
                        enlist(node + part, d if part else d - 1, masks, heads)
                    node += 3
                    start[node] = used
                    at[TOP] += d == len(heads) - 1
                    c = following
            at[NODES], at[ENTRIES] = node, used
            at[BIT] += 1
        at[BIT] = -1
        at[ROOT] += 1
    return DONE


def undo(at: Any, heads: Any) -> None:
    """Back to where the root was begun: what was made of it lies behind the used part of the arrays."""
    if at[BIT] >= 0:
        at[[NODES, ENTRIES, ROWS, TOP]] = at[OLD : OLD + 4]
    at[BIT] = at[FIRST] = -1
    heads[:] = END


@numba.njit(cache=True, nogil=True)
def close_gap(first: int, last: int, to: int, row: int, rows: int, tree: Any) -> None:
    """Move nodes ``first, ..., last - 1`` down to ``to, ...``; rows from ``row`` on are moved down by ``rows``."""
    start, pool, dim, masks = tree
    shift, entries = first - to, np.int64(start[first]) - np.int64(start[to])
    for c in range(first, last):
        n, begin, end = c - shift, np.int64(start[c]), np.int64(start[c + 1])
        start[n], dim[n] = begin - entries, dim[c]
        for w in range(3):
            masks[n, w] = masks[c, w]
        masks[n, 3] = masks[c, 3] - shift if masks[c, 3] else 0
        for k in range(begin, end):
            x = np.int64(pool[k])
            if dim[c] == 0 or (dim[c] == 1 and k >= begin + 2):
                x -= rows if x >= row else 0
            elif x >= first:
                x -= shift
            pool[k - entries] = x
        start[n + 1] = end - entries


@numba.njit(cache=True, nogil=True)
def cut_back(base: int, count: int, upto: int, tree: Any) -> None:
    """Make whole again what neurons ``upto, ...`` of the last block have split; nodes from ``base`` on are of it."""
    _start, _pool, _dim, masks = tree
    there = np.zeros(count, dtype=np.bool_)
    word = (np.int64(1) << upto) - 1
    for c in range(count):
        child = masks[c, 3]
        if c >= base and not there[c]:
            masks[c, 3] = END  # gone
        elif child >= base:
            if masks[c, 0] & masks[c, 1] & word:
                there[child : child + 3] = True
            else:
                masks[c, 3] = 0


@numba.njit(cache=True, nogil=True)
def number_cells(count: int, tree: Any, sizes: Any) -> None:
    """Number the whole cells of each dimension, in the first word of their masks; ``sizes[d]`` are how many they are
    and how many facets they have."""
    start, _pool, dim, masks = tree
    for c in range(count):
        if masks[c, 3] == 0:
            d = dim[c]
            masks[c, 0] = sizes[d, 0]
            sizes[d, 0] += 1
            sizes[d, 1] += 2 if d == 1 else start[c + 1] - start[c]


@numba.njit(cache=True, nogil=True)
def write_cells(count: int, tree: Any, at: Any, indptr: Any, indices: Any) -> None:
    """Facets of the whole cells, for all dimensions one behind the other; ``at`` is where each has come to."""
    start, pool, dim, masks = tree
    for c in range(count):
        d = dim[c]
        if masks[c, 3] == 0:
            if d == 0:
                indices[at[0, 1]] = pool[start[c]]
                at[0, 1] += 1
                continue
            i, k = at[d, 0], at[d, 1]
            for h in range(start[c], start[c] + 2 if d == 1 else start[c + 1]):
                indices[k] = masks[pool[h], 0]
                k += 1
            indptr[i + 1] = indptr[i] + k - at[d, 1]
            at[d, 0], at[d, 1] = i + 1, k


@numba.njit(cache=True, nogil=True)
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
