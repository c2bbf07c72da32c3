"""Ties in pooling windows at points, proven without arithmetic: their inputs are one and the same number.

The background of an image makes thousands of windows whose inputs are equal patches. Floats cannot prove that two
numbers are equal, and exact numbers of a convolutional network take a tenth of a second for every point; to compare
what they are made of proves it at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fiberscope.network.equal_entries import equal_entries
from fiberscope.network.nodes import MaxPool
from fiberscope.network.walk import switch_values, switches
from fiberscope.numerics.algebra.bounded import BOUNDED, Bounded
from fiberscope.numerics.floats import FloatArray, IntArray, SignArray
from fiberscope.numerics.signs import UNDECIDED, certified_signs

if TYPE_CHECKING:
    from fiberscope.network.layout import Layout
    from fiberscope.network.network import Network


def signs_at(net: Network, X: FloatArray) -> SignArray:
    """The same as ``net.signs(X).signs``, and as certain: for many points at which windows tie."""
    found = certified_signs(
        lambda algebra, x: switch_values(net.layout, x, algebra), X, lambda signs: settle_ties(net.layout, X, signs)
    )
    return np.where(net.linear_entries, np.int8(1), found.signs)


def settle_ties(layout: Layout, X: FloatArray, signs: SignArray) -> int:
    """Set open signs of pooling windows whose inputs are equal by what they are made of; how many these were.

    ``signs`` are those of the points ``X``, :data:`UNDECIDED` where the float bound left them open.
    """
    pools = [place for place in layout.places if isinstance(place.node, MaxPool)]
    open_rows = (signs == UNDECIDED)[:, layout.pooled].any(axis=1) if pools else np.zeros(0, dtype=bool)
    rows = np.flatnonzero(open_rows)
    if not len(rows):
        return 0
    before = int((signs == UNDECIDED).sum())
    numbers = [equal_entries(layout, X[row][:, None]) for row in rows]
    values = {0: BOUNDED.take(X[rows])}
    with np.errstate(over="ignore", invalid="ignore"):
        for place in switches(layout, values, BOUNDED):
            if isinstance(place.node, MaxPool):
                own = np.stack([table[place.source] for table in numbers])
                found = _window_signs(place.node.windows, values[place.source], own)
                part = signs[rows, place.columns]
                signs[rows, place.columns] = np.where(part == UNDECIDED, found, part)
    return before - int((signs == UNDECIDED).sum())


def _window_signs(windows: IntArray, value: Bounded, numbers: IntArray) -> SignArray:
    """Signs of the inputs of every window that have twins in it, ``(points, windows * size)``; the others stay open.

    Twins win together if all other inputs are certainly smaller, and lose if one of these is certainly larger.
    """
    inside = windows >= 0
    own = numbers[:, windows]
    low = np.nextafter(value.value - value.error, -np.inf)[:, windows]
    high = np.nextafter(value.value + value.error, np.inf)[:, windows]
    wins = np.ones(own.shape, dtype=bool)
    loses, twin = np.zeros(own.shape, dtype=bool), np.zeros(own.shape, dtype=bool)
    for j in range(windows.shape[1]):  # every input as a rival of all
        there = inside[:, j][None, :, None] & inside
        same = own == own[:, :, j : j + 1]
        rival = there & ~same
        wins &= ~rival | (low > high[:, :, j : j + 1])
        loses |= rival & (high < low[:, :, j : j + 1])
        twin |= there & same & (np.arange(windows.shape[1]) != j)
    found = np.where(twin & wins, 0, np.where(twin & loses, -1, UNDECIDED))
    return found.reshape(len(own), -1).astype(np.int8)
