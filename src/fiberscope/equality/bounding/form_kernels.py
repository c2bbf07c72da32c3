"""Compiled pieces of bounds by forms: products with matrices, ends, and what an activation does to an interval.

A *form* is a row ``centre, coefficients`` of generators in [-1, 1]; see :mod:`fiberscope.equality.bounding.kernels`.

Arrays: ``form``, ``forms``, ``rest (rows, 1 + common)`` in common generators, column 0 the centre, columns 1 to n those
of the n inputs; ``own (rows, more)`` coefficients of further generators, which have no centre; ``radius (rows,)`` what
rounding lost, ``size (rows,)`` sums of absolute coefficients; ``flat`` matrices row by row, ``index`` the columns that
are not zero. Invariants: all ends are rounded outward, by EPS for a few roundings and TINY for underflow; what is not a
number becomes an infinite end or stays as it is, so that it proves nothing.
"""
# mypy: disable-error-code="no-untyped-def, type-arg"

from __future__ import annotations

import numpy as np

from fiberscope.numerics.algebra.bounded import SMALL
from fiberscope.numerics.compiling.kernels import adding, inner
from fiberscope.numerics.floats import EPS, TINY


@inner
def enclosed(low, high, slope, factor):
    """``low, high`` of ``f(z) - factor z`` for ``z`` in an interval around 0, ``f`` the activation; rounded outward."""
    left, right = (slope - factor) * low, (1.0 - factor) * high
    down, up = min(0.0, left, right), max(0.0, left, right)
    if np.isnan(left) or np.isnan(right):
        down, up = -np.inf, np.inf
    slack = EPS * (abs(slope) + abs(factor) + 1.0) * max(abs(low), abs(high)) + TINY
    return down - slack, up + slack


@inner
def chord(low, high, slope):
    """The slope from ``(low, slope low)`` to ``(high, high)``."""
    found = (high - slope * low) / (high - low)
    return found if abs(found) < np.inf else 0.0


@inner
def mixed(low, high, share):
    """A factor ``q`` for ``R = q d + [low', high']`` where ``R`` is between 0 and ``d``; and that interval.

    Its width is the larger one of ``|low|`` and ``|high|`` for many factors; the one nearest to ``share`` is taken.
    """
    q = 0.5
    if low < 0.0 < high:
        small, large = min(-low, high), max(-low, high)
        q = min(max(share, small / (small + large)), large / (small + large))
    elif low >= 0.0 or high <= 0.0:
        q = min(max(share, 0.0), 1.0)
    if not (0.0 <= q <= 1.0):
        q = 0.5
    top, bottom = max(high, 0.0), min(low, 0.0)
    slack = EPS * max(top, -bottom) + TINY
    return q, min((1.0 - q) * bottom, -q * top) - slack, max((1.0 - q) * top, -q * bottom) + slack


@adding
def reach_of(form, own, i, radius):
    """Largest distance of form ``i`` from its centre; ``own`` holds coefficients of more generators."""
    total = 0.0
    for g in range(1, form.shape[1]):
        total += abs(form[i, g])
    for g in range(own.shape[1]):
        total += abs(own[i, g])
    return (total + radius) * (1.0 + (form.shape[1] + own.shape[1] + 8) * EPS)


@adding
def reach_of_other(form, rest, own, i, radius):
    """The same for ``form - rest``, the form of ``b``."""
    total, size = 0.0, 0.0
    for g in range(1, form.shape[1]):
        total += abs(form[i, g] - rest[i, g])
        size += abs(form[i, g]) + abs(rest[i, g])
    for g in range(own.shape[1]):
        total += abs(own[i, g])
    return (total + radius) * (1.0 + (form.shape[1] + own.shape[1] + 8) * EPS) + EPS * size


@inner
def ends(centre, reach):
    slack = EPS * (abs(centre) + reach) + TINY
    return centre - reach - slack, centre + reach + slack


@adding
def times_abs(matrix, row, vector):
    total = 0.0
    for j in range(vector.size):
        total += abs(matrix[row, j]) * vector[j]
    return total


@inner
def untouched(matrix, row):
    """Whether a row holds zeros only, so that nothing is added up and nothing rounded."""
    for j in range(matrix.shape[1]):  # noqa: SIM110 -- kernels have no generators
        if matrix[row, j] != 0.0:
            return False
    return True


@inner
def columns(flat, start, rows, cols, index):
    """The columns of a stored matrix that are needed."""
    found = np.empty((rows, index.size))
    for i in range(rows):
        for j in range(index.size):
            found[i, j] = flat[start + i * cols + index[j]]
    return found


@adding
def add_product(matrix, forms, found):
    """Add ``matrix @ forms``, four rows of ``forms`` at a time; ``np.dot`` takes seconds to compile."""
    n = matrix.shape[1]
    fours = n - n % 4
    for i in range(matrix.shape[0]):
        for j in range(0, fours, 4):
            p, q, r, s = matrix[i, j], matrix[i, j + 1], matrix[i, j + 2], matrix[i, j + 3]
            for g in range(forms.shape[1]):
                found[i, g] += p * forms[j, g] + q * forms[j + 1, g] + r * forms[j + 2, g] + s * forms[j + 3, g]
        for j in range(fours, n):
            p = matrix[i, j]
            for g in range(forms.shape[1]):
                found[i, g] += p * forms[j, g]


@inner
def clear(forms, row):
    for g in range(forms.shape[1]):
        forms[row, g] = 0.0


@inner
def counted(size):
    """The numbers from 0 on; ``np.arange`` takes half a second to compile."""
    found = np.empty(size, dtype=np.int64)
    for i in range(size):
        found[i] = i
    return found


@inner
def uncertain(radius, unit, size):
    """What forms are off by, and what products with them round; one so small that this would underflow counts more."""
    found = np.empty(radius.size)
    for j in range(size.size):
        found[j] = radius[j]
        if size[j] != 0.0:
            found[j] += unit * (SMALL if size[j] < SMALL else size[j])  # what is not a number stays so
    return found


@inner
def shared(forms, row, known, shares, place):
    """The shares of the inputs in how far a form reaches, into row ``place`` of ``shares``.

    A generator reaches as far through an input as the neuron that made it, which ``known`` tells: where what an input
    does straight away cancels, a box as long as ever would else seem to be short in it.
    """
    inputs = shares.shape[1]
    whole = 0.0
    found = np.zeros(inputs)
    for t in range(inputs):
        found[t] = abs(forms[row, 1 + t])
    for g in range(forms.shape[1] - 1 - inputs):
        size = abs(forms[row, 1 + inputs + g])
        if size > 0.0:
            for t in range(inputs):
                found[t] += size * known[g, t]
    for t in range(inputs):
        whole += found[t]
    for t in range(inputs):
        shares[place, t] = found[t] / whole if whole > 0.0 else 0.0
