"""Compiled kernels of the lattice engine: how cells are split by the neurons of a block.

A block splits the whole cells of one complex (the *old* one) and writes those of the next, in the order in which they
become whole; both are as :mod:`fiberscope.geometry.engines.lattice.levels` describes them. ``level (7, n + 2)`` has
their numbers for every dimension: what is :data:`MADE` and :data:`USED`, and how much fits.

``nodes (N,)`` are what has to be known of a cell while cells around it are split. The low half of a node are its masks:
bit b is set if neuron b of the block is positive somewhere on the cell, bit ``b + BLOCK`` if it is negative somewhere.
A cell is *crossed* by a neuron if both bits are set, and is split by the first of them. The high half is, for a cell
that none crosses, its number in the new complex (for a vertex its row); for one that was split the first of three
nodes: the zero part, the positive and the negative one. The first nodes are the old cells, those of dimension d from
``level[CELLS, d]`` on. An old cell that is crossed (a *root*) is split by all neurons before the next one, and lower
dimensions come first. Inside of a root, cells that wait for their neuron have a row of ``records``, ``(node, first
entry, entries, next)``: where ``lists`` has the nodes of their facets, behind them the two rows of an edge's carrier,
and who comes next in the list of the same dimension and neuron, which begins at ``heads``. No list is needed once a
cell is split, because its facets' parts are found by their nodes; and what is inside of roots of dimension d is met
by roots of dimension d + 1 only, so nodes are reused (in general position, see below).

A neuron may vanish on a facet g of a cell f that it does not cross, where it is not in general position. Then g is a
facet of the zero parts of cells around, and f, neuron and g are a row of ``specials``; ``where[f]`` is one more than
the first of them, 0 if there is none. Once there are any, no node is reused: such a g may lie deeper.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fiberscope.geometry.engines.lattice.kernels import new_vertex
from fiberscope.numerics.compiling.kernels import bare, bare_inner, bare_once

BLOCK = 16
"""Neurons that are done together: each has two bits of a node."""

_ALL = (1 << BLOCK) - 1
_MASKS = (1 << 2 * BLOCK) - 1

DONE, OPEN, FULL, PAUSED = 0, 1, 2, 3
"""Why a kernel came back: all is split, signs are open, arrays are full, or it was asked to."""

# Where the work stands: the next root and the end of the roots; the next neuron (-1: the root is not begun) and the
# first row of the vertices made for it (-1: none yet); what is used of nodes, rows, records, lists and specials, and
# how much of each fits; splits so far, and how many are worth a pause; nodes, rows and specials when the root was
# begun; and how long the list of a cell is for whose parts there was no room.
ROOT, LAST, BIT, FIRST, NODES, ROWS, RECORDS, LISTS, SPECIALS = range(9)
ENDS = 5
WORK, TICK, OLD = NODES + 2 * ENDS, NODES + 2 * ENDS + 1, NODES + 2 * ENDS + 2
NEED = OLD + 3
PLACES = NEED + 1

# Of every dimension: cells and entries of the new complex, and what they were when the root was begun; for how many
# there is room; and the first node of the old cells.
MADE, USED, KEPT, _, CELL_END, ENTRY_END, CELLS = range(7)

_PIECE = 1 << 15

_LOWEST = np.zeros(32, dtype=np.int64)
_LOWEST[[((1 << b) * 0x077CB531 & 0xFFFFFFFF) >> 27 for b in range(32)]] = range(32)


@bare_inner
def _row_masks(row: int, signs: Any, columns: Any) -> int:
    """Masks of the vertex in this row."""
    masks = 0
    for b in range(len(columns)):
        sign = signs[row, columns[b]]
        masks |= (sign > 0) << b | (sign < 0) << b + BLOCK
    return masks


@bare_inner
def _note(
    node: int, masks: int, nonzero: int, later: int, lists: Any, begin: int, end: int, nodes: Any, where: Any,
    specials: Any, at: Any,
) -> None:  # fmt: skip
    """Rows of the neurons, those in ``later``, that vanish on a facet of the cell, but not on the cell."""
    found = ~nonzero & (masks | masks >> BLOCK) & later
    if not found:
        return
    for k in range(begin, end):
        facet = lists[k]
        zero = found & ~(nodes[facet] | nodes[facet] >> BLOCK)
        for b in range(BLOCK):
            if zero >> b & 1:
                j = at[SPECIALS]
                specials[j, 0], specials[j, 1], specials[j, 2] = node, b, facet
                at[SPECIALS] = j + 1
                if where[node] == 0:
                    where[node] = j + 1


@bare_inner
def _special(node: int, bit: int, where: Any, specials: Any, count: int) -> int:
    """The facet of this cell on which the neuron vanishes, or -1."""
    j = np.int64(where[node]) - 1
    while 0 <= j < count and specials[j, 0] == node:
        if specials[j, 1] == bit:
            return int(specials[j, 2])
        j += 1
    return -1


@bare
def vertex_nodes(rows: int, columns: Any, nodes: Any, signs: Any) -> None:
    """Nodes of the old vertices, which are those of the new complex."""
    for v in range(rows):
        nodes[v] = _row_masks(v, signs, columns) | v << 32


@bare
def begin(
    d: int, at: Any, level: Any, old_ptr: Any, old_ind: Any, old_carrier: Any, ptr: Any, ind: Any, carrier: Any,
    nodes: Any, where: Any, specials: Any, scratch: Any, roots: Any,
) -> int:  # fmt: skip
    """Nodes of the old cells of dimension d; what no neuron crosses is handed to the new complex.

    ``roots`` become the others by their numbers; returns how many, or -1 if there are too many specials.
    """
    first, below = level[CELLS, d], level[CELLS, d - 1]
    ptr[0] = count = total = last = 0
    for c in range(level[CELLS, d + 1] - first):
        low, high = old_ptr[c], old_ptr[c + 1]
        masks, nonzero = 0, -1
        for k in range(low, high):
            x = nodes[below + old_ind[k]]
            masks |= x
            nonzero &= x | x >> BLOCK
            ind[total + k - low] = x >> 32
        masks &= _MASKS
        if masks & masks >> BLOCK:
            roots[last] = c
            last += 1
            nodes[first + c] = masks
        else:
            nodes[first + c] = masks | count << 32
            if d == 1 and len(carrier):
                for k in range(2):
                    carrier[2 * count + k] = old_carrier[2 * c + k] if len(old_carrier) else old_ind[low + k]
            count += 1
            total += high - low
            ptr[count] = total
        if ~nonzero & (masks | masks >> BLOCK) & _ALL:
            if at[SPECIALS] + BLOCK * (high - low) > at[SPECIALS + ENDS] or high - low > len(scratch):
                return -1
            for k in range(low, high):
                scratch[k - low] = below + old_ind[k]
            _note(first + c, masks, nonzero, _ALL, scratch, 0, high - low, nodes, where, specials, at)
    level[MADE, d], level[USED, d] = count, total
    return last


@bare_inner
def _begin_root(
    d: int, root: int, at: Any, level: Any, heads: Any, old_ptr: Any, old_ind: Any, old_carrier: Any, nodes: Any,
    records: Any, lists: Any,
) -> None:  # fmt: skip
    """Remember where things stand, and put the root on the list of the first neuron that crosses it."""
    at[OLD], at[OLD + 1], at[OLD + 2] = at[NODES], at[ROWS], at[SPECIALS]
    for e in range(d + 1):
        level[KEPT, e], level[KEPT + 1, e] = level[MADE, e], level[USED, e]
    low, size = old_ptr[root], old_ptr[root + 1] - old_ptr[root]
    for k in range(size):
        lists[k] = level[CELLS, d - 1] + old_ind[low + k]
    if d == 1:
        for k in range(2):
            lists[2 + k] = old_carrier[2 * root + k] if len(old_carrier) else old_ind[low + k]
    at[LISTS], at[RECORDS], at[BIT] = size + 2 * (d == 1), 0, 0
    node = level[CELLS, d] + root
    _wait(node, d, 0, size, nodes[node], at, heads, records)


@bare_once
def _wait(node: int, d: int, begin: int, size: int, masks: int, at: Any, heads: Any, records: Any) -> None:
    """Put a crossed cell on the list of the first neuron that crosses it."""
    crossed = masks & masks >> BLOCK & _ALL
    bit = _LOWEST[((crossed & -crossed) * 0x077CB531 & 0xFFFFFFFF) >> 27]
    r = at[RECORDS]
    records[r, 0], records[r, 1], records[r, 2], records[r, 3] = node, begin, size, heads[d, bit]
    heads[d, bit] = r
    at[RECORDS] = r + 1


@bare_once
def _split(
    r: int, d: int, bit: int, row: int, at: Any, level: Any, heads: Any, columns: Any, ptr: Any, ind: Any,
    carrier: Any, nodes: Any, where: Any, specials: Any, records: Any, lists: Any, signs: Any,
) -> None:  # fmt: skip
    """Split the cell of a record into its zero part, its positive and its negative part.

    Facets of the zero part are the zero parts of the crossed facets, and the ridges on which the neuron vanishes: each
    of them lies between a positive and a negative facet, or else the neuron could not cross the cell. The zero part of
    an edge is the vertex in this row, and that of a polygon is an edge and its own carrier.
    """
    node, first, size = np.int64(records[r, 0]), np.int64(records[r, 1]), np.int64(records[r, 2])
    zero = at[NODES]
    at[NODES] = zero + 3
    nodes[node] = nodes[node] & _MASKS | zero << 32
    # The three lists, with their masks, and with which neurons are not zero on any of their facets.
    z0 = at[LISTS]
    p0, q0 = z0 + size + 4, z0 + 2 * (size + 4)
    z, zm, zn, p, pm, pn, q, qm, qn = _sort(first, size, bit, z0, p0, q0, at[SPECIALS], nodes, where, specials, lists)
    if d == 1:
        zm = _row_masks(row, signs, columns)
        nodes[zero] = zm | row << 32
        for k in range(2):
            lists[p + 1 + k] = lists[q + 1 + k] = lists[first + 2 + k]
    elif d == 2:
        for k in range(2):
            lists[z + k] = nodes[lists[z0 + k]] >> 32
    lists[p] = lists[q] = zero
    nonzero = zm | zm >> BLOCK
    for part in range(d == 1, 3):
        if part == 0:
            begin, end, masks, solid = z0, z, zm, zn
        elif part == 1:
            begin, end, masks, solid = p0, p + 1, pm | zm, pn & nonzero
        else:
            begin, end, masks, solid = q0, q + 1, qm | zm, qn & nonzero
        _store(zero + part, d - (part == 0), begin, end, masks & _MASKS, at, level, heads, ptr, ind, carrier, nodes,
               records, lists)  # fmt: skip
        later = _ALL & -2 << bit
        if ~solid & (masks | masks >> BLOCK) & later:
            _note(zero + part, masks, solid, later, lists, begin, end, nodes, where, specials, at)


@bare_once
def _sort(
    first: int, size: int, bit: int, z: int, p: int, q: int, count: int, nodes: Any, where: Any, specials: Any,
    lists: Any,
) -> Any:  # fmt: skip
    """Write the facets of the three parts, but for the zero part itself, behind ``z``, ``p`` and ``q``.

    What is not wanted is written, too, and then overwritten: a branch would be guessed wrong half the time.
    """
    zm, pm, qm = 0, 0, 0
    zn, pn, qn = -1, -1, -1
    for k in range(first, first + size):
        f = np.int64(lists[k])
        x = nodes[f]
        positive, negative = x >> bit & 1, x >> bit + BLOCK & 1
        both = positive & negative
        child = x >> 32
        i = child if both else f
        y = nodes[i]
        lists[z] = i
        z += both
        zm |= y & -both
        zn &= y | y >> BLOCK | both - 1
        i = child + 1 if both else f
        y = nodes[i]
        lists[p] = i
        p += positive
        pm |= y & -positive
        pn &= y | y >> BLOCK | positive - 1
        i = child + 2 if both else f
        y = nodes[i]
        lists[q] = i
        q += negative
        qm |= y & -negative
        qn &= y | y >> BLOCK | negative - 1
        if count and positive > negative:
            g = _special(f, bit, where, specials, count)
            if g >= 0:
                lists[z] = g
                z += 1
                zm |= nodes[g]
                zn &= nodes[g] | nodes[g] >> BLOCK
    return z, zm, zn, p, pm, pn, q, qm, qn


@bare_once
def _store(
    node: int, d: int, begin: int, end: int, masks: int, at: Any, level: Any, heads: Any, ptr: Any, ind: Any,
    carrier: Any, nodes: Any, records: Any, lists: Any,
) -> None:  # fmt: skip
    """A new cell with the facets ``lists[begin:end]``: it waits for a neuron, or belongs to the new complex."""
    if masks & masks >> BLOCK:
        nodes[node] = masks
        _wait(node, d, begin, end - begin, masks, at, heads, records)
        at[LISTS] = end + 2 * (d == 1)
    else:
        number, total = level[MADE, d], level[USED, d]
        nodes[node] = masks | number << 32
        facets, ends = ind[d], ptr[d]
        for k in range(begin, end):
            facets[total + k - begin] = nodes[lists[k]] >> 32
        if d == 1 and len(carrier):
            carrier[2 * number], carrier[2 * number + 1] = lists[end], lists[end + 1]
        level[MADE, d], level[USED, d] = number + 1, total + end - begin
        ends[number + 1] = total + end - begin


@bare_once
def _has_room(size: int, d: int, at: Any, level: Any) -> bool:
    """Whether there is room for the parts of a cell of dimension d with so many facets."""
    fits = at[NODES] + 3 <= at[NODES + ENDS] and at[RECORDS] + 3 <= at[RECORDS + ENDS]
    fits &= at[LISTS] + 3 * (size + 4) <= at[LISTS + ENDS]
    fits &= at[SPECIALS] + 3 * BLOCK * (size + 1) <= at[SPECIALS + ENDS]
    for e in range(d - (d > 1), d + 1):
        fits &= level[MADE, e] + 2 <= level[CELL_END, e] and level[USED, e] + 2 * (size + 1) <= level[ENTRY_END, e]
    return bool(fits)


@bare_inner
def _new_rows(
    r: int, bit: int, at: Any, columns: Any, layer: Any, nodes: Any, records: Any, lists: Any, table: Any, error: Any,
    signs: Any, parents: Any,
) -> int:  # fmt: skip
    """Rows of the vertices on all edges of a list; :data:`DONE`, or why the work cannot go on."""
    is_open = False
    while r >= 0:
        if at[ROWS] == at[ROWS + ENDS]:
            return FULL
        i = np.int64(records[r, 1])
        is_open |= new_vertex(
            nodes[lists[i]] >> 32, nodes[lists[i + 1]] >> 32, np.int64(lists[i + 2]), np.int64(lists[i + 3]),
            at[ROWS], columns[bit], layer, table, error, signs, parents,
        )  # fmt: skip
        at[ROWS] += 1
        r = int(records[r, 3])
    return OPEN if is_open else DONE


@bare
def split_roots(
    d: int, roots: Any, at: Any, level: Any, heads: Any, columns: Any, layer: Any, old_ptr: Any, old_ind: Any,
    old_carrier: Any, ptr: Any, ind: Any, carrier: Any, nodes: Any, where: Any, specials: Any, records: Any, lists: Any,
    table: Any, error: Any, signs: Any, parents: Any,
) -> int:  # fmt: skip
    """Split roots ``at[ROOT], ..., at[LAST] - 1`` of dimension d by all neurons; see :data:`DONE` for what is returned.

    When it is :data:`FULL`, the root in question must be begun again, see :func:`undo`.
    """
    while at[ROOT] < at[LAST]:
        if at[BIT] < 0:
            root = np.int64(roots[at[ROOT]])
            size = old_ptr[root + 1] - old_ptr[root]
            if size + 2 > at[LISTS + ENDS]:
                at[NEED] = size
                return FULL
            _begin_root(d, root, at, level, heads, old_ptr, old_ind, old_carrier, nodes, records, lists)
        while at[BIT] < len(columns):
            bit = at[BIT]
            if at[FIRST] < 0:
                if at[WORK] >= at[TICK]:
                    return PAUSED
                at[FIRST] = at[ROWS]
                result = _new_rows(
                    heads[1, bit], bit, at, columns, layer, nodes, records, lists, table, error, signs, parents
                )
                if result != DONE:
                    return int(result)
            row = at[FIRST]
            at[FIRST] = -1
            for e in range(1, d + 1):
                r = heads[e, bit]
                heads[e, bit] = -1
                while r >= 0:
                    size, following = np.int64(records[r, 2]), np.int64(records[r, 3])
                    if not _has_room(size, e, at, level):
                        at[NEED] = size
                        return FULL
                    _split(r, e, bit, row, at, level, heads, columns, ptr, ind, carrier, nodes, where, specials,
                           records, lists, signs)  # fmt: skip
                    row += e == 1
                    at[WORK] += 1
                    r = following
            at[BIT] += 1
        at[BIT] = -1
        at[ROOT] += 1
        if d == len(heads) - 1 and at[SPECIALS] == 0:
            at[NODES] = at[OLD]  # nobody asks for what is inside of a top cell
    return DONE


def undo(d: int, at: Any, level: Any, heads: Any, where: Any, specials: Any) -> None:
    """Back to where the root was begun: what was made of it lies behind the used part of the arrays."""
    if at[BIT] >= 0:
        where[specials[at[OLD + 2] : at[SPECIALS], 0]] = 0
        at[NODES], at[ROWS], at[SPECIALS] = at[OLD : OLD + 3]
        level[MADE : USED + 1, : d + 1] = level[KEPT : KEPT + 2, : d + 1]
    at[BIT] = at[FIRST] = -1
    heads[:] = -1


def slide(nodes: Any, begin: int, end: int, to: int, roots: Any) -> None:
    """Move nodes ``begin, ..., end - 1`` down; ``roots`` are the nodes of the old cells that they were made of."""
    shift = begin - to
    nodes[roots] -= shift << 32
    for k in range(begin, end, _PIECE):
        x = nodes[k : min(k + _PIECE, end)].copy()
        x[x & x >> BLOCK & _ALL != 0] -= shift << 32
        nodes[k - shift : k - shift + len(x)] = x
