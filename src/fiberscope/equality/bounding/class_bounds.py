"""Compiled bounds of how far a class of ``a`` may be beaten in ``b``, from the forms of both outputs.

Arrays, for k classes: ``za (k, 1 + common)`` are forms of the outputs of ``a`` and ``zc`` those of the difference
``d = a - b`` in common generators, ``zo (k, own)`` its own ones; ``era``, ``erd`` ``(k,)`` are the radii of both.
Invariant: a bound that is not a number is never the smaller one, so it cannot hide a pair of classes.
"""
# mypy: disable-error-code="no-untyped-def, type-arg"

from __future__ import annotations

import numpy as np

from fiberscope.numerics.compiling.kernels import adding, inner
from fiberscope.numerics.floats import EPS, TINY


@adding
def between(one, two, i, j, sign, own, weight, radius):
    """An upper bound of ``sign ((one - weight two)_i - (one - weight two)_j)``, with ``own`` generators of ``two``."""
    centre, total, size = 0.0, 0.0, 0.0
    for g in range(one.shape[1]):
        part = (one[i, g] - weight * two[i, g]) - (one[j, g] - weight * two[j, g])
        size += abs(one[i, g]) + abs(one[j, g]) + abs(two[i, g]) + abs(two[j, g])
        if g == 0:
            centre = sign * part
        else:
            total += abs(part)
    for g in range(own.shape[1]):
        total += abs(own[i, g] - own[j, g])
        size += abs(own[i, g]) + abs(own[j, g])
    count = one.shape[1] + own.shape[1] + 16
    return (centre + total + radius) + 4.0 * EPS * size + count * EPS * (abs(centre) + total + radius) + TINY


@inner
def worst_classes(za, zc, zo, era, erd, margin):
    """For the pair of classes that is hardest: the bound, the two classes, and which of three bounds it is.

    A class ``i`` of ``a`` that ``j`` beats in ``b`` needs ``a_i - a_k >= margin`` for all ``k``, ``b_j > b_i``, and
    then ``d_i - d_j`` is above the margin. One bound that says no is enough.
    """
    nothing = np.zeros((1, 0))
    best, first, second, mode = -np.inf, 0, 1, 0
    for i in range(za.shape[0]):
        lead = np.inf  # a class needs to be ahead of all others
        for j in range(za.shape[0]):
            if i != j:
                found = between(za, zc, i, j, 1.0, nothing, 0.0, era[i] + era[j]) - margin
                found += EPS * (abs(found) + margin) + TINY
                if found < lead:  # noqa: PLR1730 -- what is not a number is no bound
                    lead = found
        for j in range(za.shape[0]):
            if i == j:
                continue
            ra, rd = era[i] + era[j], erd[i] + erd[j]
            gain = between(zc, za, i, j, 1.0, zo, 0.0, rd) - margin
            gain += EPS * (abs(gain) + margin)
            lost = between(za, zc, i, j, -1.0, zo, 1.0, ra + rd)
            # What is not a number is no bound, and must not be replaced by that of another pair.
            value, which = (gain if gain < np.inf else np.inf), 1
            if lead < value:
                value, which = lead, 0
            if lost < value:
                value, which = lost, 2
            if value > best:
                best, first, second, mode = value, i, j, which
    return best, first, second, mode
