"""Paths between networks whose rows differ by deformations, up to the order and the scales of neurons.

Layer by layer: what the other network reads is put into the order and the scales of the first one. A neuron is matched
with one whose row, at one scale, does the same on the image of the layers before. Both rows are then in one convex set,
so the segment between them is in the fiber.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from fiberscope.network.chains import rows_of
from fiberscope.network.network import Network
from fiberscope.numerics.exact_arrays import nearest
from fiberscope.numerics.floats import FloatArray, IntArray
from fiberscope.numerics.ulps import ROWS

if TYPE_CHECKING:
    from fiberscope.fibers.row_family import Deformation

Matched = tuple[list[IntArray], list[FloatArray]]
"""For every hidden layer the other's neurons in the order of ours, and by how much their rows are larger."""


def matched(chain: Network, other: Network, families: Sequence[Deformation]) -> Matched | None:
    """Which neurons of the other network do what ours do, up to rounding; None where some have no counterpart."""
    known = {(f.layer, f.neuron): f for f in families}
    orders: list[IntArray] = []
    scales: list[FloatArray] = []
    order, scale = np.arange(chain.in_size), np.ones(chain.in_size)
    mine, theirs = rows_of(chain), rows_of(other)
    for layer, (rows, found) in enumerate(zip(mine, theirs, strict=True), 1):
        there = np.column_stack([found[:, :-1][:, order] * scale, found[:, -1]])
        if layer == len(mine):
            same = np.abs(there - rows) <= ROWS * np.abs(rows).max(axis=1, initial=0.0)[:, None]
            return (orders, scales) if same.all() else None
        left = list(range(len(rows)))
        order, scale = np.zeros(len(rows), dtype=np.int64), np.ones(len(rows))
        for i, row in enumerate(rows):
            ratios = [(_ratio(row, there[j], known.get((layer, i))), j) for j in left]
            fits = [(r, j) for r, j in ratios if r is not None]
            if not fits:
                return None
            scale[i], order[i] = fits[0]
            left.remove(fits[0][1])
        orders.append(order)
        scales.append(scale)
    return None


def _ratio(row: FloatArray, other: FloatArray, family: Deformation | None) -> float | None:
    """How many times larger the other row is, where both do the same on the image; None where they do not."""
    pinned, below = np.eye(len(row)), np.zeros((0, len(row)))
    if family is not None:
        pinned, below = (_unit(nearest(part)) for part in (family.pinned, family.below))
    here, there, size = pinned @ row, pinned @ other, np.abs(pinned) @ np.abs(row)
    if not here.any():
        return 1.0 if not there.any() else None
    lead = int((np.abs(here) / np.where(size > 0, size, 1.0)).argmax())
    ratio = float(there[lead] / here[lead])
    if not (np.isfinite(ratio) and ratio > 0):
        return None
    scaled = other / ratio
    room = size + np.abs(pinned) @ np.abs(scaled)
    same = (np.abs(pinned @ scaled - here) <= ROWS * room).all()
    still = (below @ scaled <= ROWS * (np.abs(below) @ np.abs(scaled))).all()
    return ratio if same and still else None


def _unit(rows: FloatArray) -> FloatArray:
    """Rows of largest entry 1."""
    most = np.abs(rows).max(axis=1, initial=0.0)[:, None]
    return np.asarray(rows / np.where(most > 0, most, 1.0))
