"""Which neuron of one module is which of another, for copies whose neurons are in another order.

The entries that belong to a neuron, sorted, do not change when other neurons move, so that they tell where it went.
Nothing here proves anything: the element that comes out is applied, and the tensors are compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from fiberscope.modules.action import PERMUTATION, Axis, Group, act, members
from fiberscope.network.action.element import Element, Monomial
from fiberscope.numerics.floats import FloatArray, IntArray

SAMPLES = 48
"""Entries of a sorted slice that are looked at."""


def corresponding(groups: Iterable[Group], a: Mapping[str, Tensor], b: Mapping[str, Tensor]) -> Element:
    """An element that carries the tensors ``a`` as near to ``b`` as their sorted slices say.

    >>> from fiberscope.modules.action import Axis
    >>> group = Group("h", 2, (Axis("w", 0),))
    >>> corresponding([group], {"w": torch.tensor([1.0, 2.0])}, {"w": torch.tensor([2.0, 1.0])})["h"].orders.tolist()
    [[1, 0]]
    """
    now = dict(a)
    found: dict[str, Monomial] = {}
    for group in groups:  # a parent comes before what is inside it
        if group.kind != PERMUTATION:
            continue
        mine, theirs = ([_slices(tensors, axis, group) for axis in group.axes] for tensors in (now, b))
        p, q = np.concatenate(mine, axis=2), np.concatenate(theirs, axis=2)
        part = Monomial([order_of_rows(p[c], q[c]) for c in range(group.copies)], None, group.parents)
        found[group.name] = part
        if not part.is_identity:
            now |= act(part, group.axes, now)
    return Element(found)


def _slices(tensors: Mapping[str, Tensor], axis: Axis, group: Group) -> FloatArray:
    """The entries of every member, sorted, some of them: ``(copies, members, entries)``."""
    tensor = tensors[axis.tensor].detach()
    view = members(tensor.contiguous(), axis, group.size, group.copies)
    rows = view.reshape(group.copies, group.size, -1).to(torch.float64).sort(dim=2).values
    where = np.unique(np.linspace(0, rows.shape[2] - 1, min(rows.shape[2], SAMPLES)).astype(np.int64))
    return np.asarray(rows.cpu().numpy()[:, :, where])


def order_of_rows(mine: FloatArray, theirs: FloatArray) -> IntArray:
    """For every row of theirs the row of mine: the nearest, or, where that is none twice, the least total distance."""
    scale = np.maximum(np.abs(mine).max(axis=0), np.abs(theirs).max(axis=0))
    scale = np.where(scale > 0, scale, 1.0)
    p, q = mine / scale, theirs / scale
    apart = (q**2).sum(axis=1)[:, None] + (p**2).sum(axis=1) - 2 * (q @ p.T)
    nearest = apart.argmin(axis=1)
    if len(np.unique(nearest)) == len(nearest):
        return np.asarray(nearest, dtype=np.int64)
    rows, columns = linear_sum_assignment(apart)
    return np.asarray(columns[np.argsort(rows)], dtype=np.int64)
