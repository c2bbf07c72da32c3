"""A compiled bound of one neuron of a dense chain on a box, by lines from there back to the inputs.

It is incomparable with the forms of :mod:`fiberscope.equality.bounding.kernels`, whose arrays it reads: ``wa``,
``ba``, ``slopes`` flat over the layers, cut by ``starts`` and ``places``; ``low``, ``high`` the box of the inputs.
``v`` are the coefficients of what the present layer gives, ``before`` those of what it reads; ``constant`` adds up what
does not depend on the inputs any more, ``moved`` the absolute terms of that, ``lost`` what rounding and underflow take
from the coefficients. Invariant: behind every layer on the way back, ``sign * z`` is at least ``v h + constant - lost``
up to the roundings of ``constant``, which the last line subtracts.
"""
# mypy: disable-error-code="no-untyped-def, type-arg"

from __future__ import annotations

import numpy as np

from fiberscope.equality.bounding.form_kernels import chord, enclosed
from fiberscope.numerics.algebra.bounded import SMALL
from fiberscope.numerics.compiling.kernels import adding
from fiberscope.numerics.floats import EPS, LOST, TINY


@adding
def whole_input(layer, low, high, slopes, places, sizes, n):
    """The sum of the sizes of all that a layer reads."""
    total = 0.0
    for m in range(n):
        if layer > 0:
            at = places[layer - 1] + m
            total += sizes[at] * max(1.0, abs(slopes[at]))
        else:
            total += max(abs(low[m]), abs(high[m]))
    return total


@adding
def back_bound(row, layer, sign, low, high, wa, ba, slopes, rows, cols, starts, places, bends, lows, highs, sizes):
    """A lower bound of ``sign * z`` for one preactivation, by linear bounds of every activation on the way back.

    ``lows``, ``highs`` are bounds of the preactivations before it, ``sizes`` of ``|W| |h| + |b|`` there.
    """
    n = cols[layer]
    start = starts[layer] + row * n
    v = np.empty(n)
    for j in range(n):
        v[j] = sign * wa[start + j]
    constant = sign * ba[places[layer] + row]
    lost, moved = 0.0, abs(constant)
    for k in range(layer - 1, -1, -1):
        n, place = cols[k], places[k]
        before = np.zeros(n)
        unit = (2 * max(n, rows[k]) + 24) * EPS  # sums over the rows, and over the columns
        for j in range(rows[k]):
            c = v[j]
            if c == 0.0:
                continue
            if bends[k]:
                l, u, s = lows[place + j], highs[place + j], slopes[place + j]
                if l >= 0.0 or s == 1.0:
                    pass
                elif u <= 0.0:
                    c = c * s
                elif c >= 0.0 and s < 1.0:  # any line through 0 between the two pieces is below them
                    if not u > -l:
                        c = c * s
                else:
                    factor = chord(l, u, s)
                    down, up = enclosed(l, u, s, factor)
                    shift = c * up if c < 0.0 else c * down
                    constant += shift
                    moved += abs(shift)
                    c = c * factor
            lost += unit * max(abs(c), SMALL) * sizes[place + j]
            at = starts[k] + j * n
            for m in range(n):
                before[m] += c * wa[at + m]
            constant += c * ba[place + j]
            moved += abs(c * ba[place + j])
        lost += rows[k] * LOST * whole_input(k, low, high, slopes, places, sizes, n)
        v = before
    total = 0.0
    for t in range(v.size):
        part = v[t] * low[t] if v[t] >= 0.0 else v[t] * high[t]
        total += part
        moved += abs(part)
    count = 8.0
    for k in range(layer + 1):
        count += rows[k] + cols[k]
    return constant + total - (lost + count * EPS * moved) * (1.0 + count * EPS) - TINY
