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

import numpy as np

from fiberscope.numerics.compiling.kernels import inner, kernel
from fiberscope.numerics.floats import TINY, U

BLOCK = 32
"""Neurons that are done together: each is one bit of the masks."""

UNKNOWN = 2
"""Sign of a neuron at a vertex that the float bound leaves open."""

END = np.uint32(0xFFFFFFFF)
"""Behind the last cell of a list."""

DONE, OPEN, FULL, PAUSED = 0, 1, 2, 3
"""Why a kernel came back: all is split, signs are open, arrays are full, or it was asked to."""

# Where the work stands: the next root and the end of the roots; the next neuron (-1: the root is not begun) and the
# first row of the vertices made for it (-1: none yet); used nodes, entries and rows, and regions made; limits of nodes,
# entries and rows; how many nodes are worth a pause; and nodes, entries, rows and regions when the root was begun.
ROOT, LAST, BIT, FIRST, NODES, ENTRIES, ROWS, TOP, NODE_END, ENTRY_END, ROW_END, TICK, OLD = range(13)
PLACES = OLD + 4

_LOWEST = np.zeros(32, dtype=np.uint8)
_LOWEST[[((1 << b) * 0x077CB531 & 0xFFFFFFFF) >> 27 for b in range(32)]] = range(32)


@inner
def enlist(cell: int, dimension: int, masks: Any, heads: Any) -> None:
    """Put the cell on the list of the first neuron that crosses it, if any."""
    crossed = masks[cell, 0] & masks[cell, 1]
    masks[cell, 3] = 0
    if crossed:
        lowest = np.uint32(crossed & (~crossed + np.uint32(1)))
        bit = _LOWEST[np.uint32(lowest * np.uint32(0x077CB531)) >> np.uint32(27)]
        masks[cell, 3] = heads[dimension, bit]
        heads[dimension, bit] = cell


@inner
def row_masks(row: int, signs: Any, columns: Any, node: int, masks: Any) -> None:
    """Masks of the vertex in this row: bit b is the sign in column ``columns[b]``."""
    masks[node, 0] = masks[node, 1] = masks[node, 2] = masks[node, 3] = 0
    for b in range(len(columns)):
        sign = signs[row, columns[b]]
        masks[node, 0 if sign > 0 else 1 if sign < 0 else 2] |= np.uint32(1) << np.uint32(b)


@inner
def join_masks(cell: int, end: int, start: Any, pool: Any, masks: Any) -> None:
    """Masks of a cell from those of its facets, which stand before ``end``."""
    m0, m1, m2 = np.uint32(0), np.uint32(0), np.uint32(0)
    for k in range(start[cell], end):
        f = pool[k]
        m0 |= masks[f, 0]
        m1 |= masks[f, 1]
        m2 |= masks[f, 2]
    masks[cell, 0] = m0
    masks[cell, 1] = m1
    masks[cell, 2] = m2


@kernel
def block_masks(
    count: int, start: Any, pool: Any, dim: Any, masks: Any, signs: Any, columns: Any, crossed: Any
) -> None:
    """Masks of all whole cells for a new block, and which of them are crossed."""
    for c in range(count):
        crossed[c] = False
        if masks[c, 3] == 0:
            if dim[c] == 0:
                row_masks(np.int64(pool[start[c]]), signs, columns, c, masks)
            else:
                join_masks(c, np.int64(start[c + 1]) - 2 * (dim[c] == 1), start, pool, masks)
                crossed[c] = masks[c, 0] & masks[c, 1] != 0


@inner  # 0 / 0 is NaN, and NaN is undecided
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


@inner
def _split(
    c: int, d: int, word: Any, node: int, used: int, row: int, end: int, start: Any, pool: Any, masks: Any
) -> int:
    """Nodes ``node, ...`` become the zero part of cell c, its positive and its negative part; -1 if the pool is full.

    Facets of the zero part are the zero parts of the crossed facets of c, and the ridges of c on which the neuron
    vanishes: each of them lies between a positive and a negative facet, or else the neuron could not cross c. The zero
    part of an edge is the vertex in this row, and that of a polygon is an edge and its own carrier.
    """
    behind = np.int64(start[c + 1])
    size = behind - np.int64(start[c])
    for part in range(3):
        start[node + part] = used
        for k in range(start[c], behind - 2 * (d == 1)):
            f = pool[k]
            if masks[f, 0] & masks[f, 1] & word:
                pool[used] = masks[f, 3] + np.uint32(part)
                used += 1
            elif part:
                if masks[f, part - 1] & word:
                    pool[used] = f
                    used += 1
            elif masks[f, 0] & masks[f, 2] & word:
                last = np.int64(start[f + 1]) - 2 * (d == 2)
                if used + last - np.int64(start[f]) + 3 * size + 9 > end:
                    return -1
                for h in range(start[f], last):
                    g = pool[h]
                    if not (masks[g, 0] | masks[g, 1]) & word:
                        pool[used] = g
                        used += 1
        if part or d == 1:
            pool[used] = node if part else row
            used += 1
        if d == 1 + (part == 0) and d <= 2:
            for k in range(2):
                pool[used + k] = pool[behind - 2 + k] if part else pool[start[pool[used - 2 + k]]]
            used += 2
    return used


@kernel
def split_roots(
    roots: Any, at: Any, heads: Any, columns: Any, layer: Any, start: Any, pool: Any, dim: Any,
    masks: Any, table: Any, error: Any, signs: Any, parents: Any,
) -> int:  # fmt: skip
    """Split roots ``at[ROOT], ..., at[LAST] - 1`` by all neurons of the block; see :data:`DONE` for what is returned.

    When it is :data:`FULL`, the root in question must be begun again, see :func:`undo`.
    """
    while at[ROOT] < at[LAST]:
        root = np.int64(roots[at[ROOT]])
        if at[BIT] < 0:
            for k in range(4):
                at[OLD + k] = at[NODES + k]
            enlist(root, np.int64(dim[root]), masks, heads)
            at[BIT] = 0
        while at[BIT] < len(columns):
            bit = at[BIT]
            word = np.uint32(1) << np.uint32(bit)
            if at[FIRST] < 0:
                if at[NODES] >= at[TICK]:
                    return PAUSED
                at[FIRST] = at[ROWS]
                c = heads[1, bit]
                is_open = False
                while c != END:
                    if at[ROWS] == at[ROW_END]:
                        return FULL
                    i = np.int64(start[c])
                    is_open |= new_vertex(
                        np.int64(pool[start[pool[i]]]), np.int64(pool[start[pool[i + 1]]]), np.int64(pool[i + 2]),
                        np.int64(pool[i + 3]), at[ROWS], columns[bit], layer, table, error, signs, parents,
                    )  # fmt: skip
                    at[ROWS] += 1
                    c = masks[c, 3]
                if is_open:
                    return OPEN
            row, node, used = at[FIRST], at[NODES], at[ENTRIES]
            at[FIRST] = -1
            for d in range(1, dim[root] + 1):
                c = heads[d, bit]
                heads[d, bit] = END
                while c != END:
                    size = start[c + 1] - start[c]
                    if node + 4 > at[NODE_END] or used + 3 * size + 9 > at[ENTRY_END]:
                        return FULL
                    following = masks[c, 3]
                    used = _split(np.int64(c), d, word, node, used, row, at[ENTRY_END], start, pool, masks)
                    if used < 0:
                        return FULL
                    if d == 1:
                        row_masks(row, signs, columns, node, masks)
                        row += 1
                    masks[c, 3] = node
                    node += 3
                    start[node] = used
                    for k in range(node - 3, node):
                        e = d - 1 if k == node - 3 else d
                        dim[k] = e
                        if e:
                            join_masks(k, np.int64(start[k + 1]) - 2 * (e == 1), start, pool, masks)
                        enlist(k, e, masks, heads)
                    at[TOP] += d == len(heads) - 1
                    c = following
            at[NODES] = node
            at[ENTRIES] = used
            at[BIT] += 1
        at[BIT] = -1
        at[ROOT] += 1
    return DONE


def undo(at: Any, heads: Any) -> None:
    """Back to where the root was begun: what was made of it lies behind the used part of the arrays."""
    if at[BIT] >= 0:
        at[NODES : TOP + 1] = at[OLD : OLD + 4]
    at[BIT] = at[FIRST] = -1
    heads[:] = END


@kernel
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
                for k in range(child, np.int64(child) + 3):
                    there[k] = True
            else:
                masks[c, 3] = 0


@kernel
def write_cells(count: int, start: Any, pool: Any, dim: Any, masks: Any, at: Any, indptr: Any, indices: Any) -> None:
    """Facets of the whole cells, for all dimensions one behind the other; ``at`` is where each has come to.

    The first word of a whole cell's masks is its number.
    """
    for c in range(count):
        if masks[c, 3] == 0:
            d, k = dim[c], at[dim[c], 1]
            first = k
            for h in range(start[c], np.int64(start[c + 1]) - 2 * (d == 1)):
                indices[k] = masks[pool[h], 0] if d else pool[h]
                k += 1
            at[d, 1] = k
            if d:
                i = at[d, 0]
                indptr[i + 1] = indptr[i] + k - first
                at[d, 0] = i + 1


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
