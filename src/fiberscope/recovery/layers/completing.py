"""Neurons of which one coefficient is not known yet, from kinks that are there already.

A surface is followed over few folds of a neuron that is nearly always on, or off. Where one direction of coefficients
is left, every kink of the neuron behind such a fold tells how far to go along it, and those of others tell anything: a
number that several kinks agree on is that of the neuron. Nothing is asked.
"""

from __future__ import annotations

import numpy as np

from fiberscope.numerics.cutoffs import NOT_ZERO, SAME
from fiberscope.numerics.floats import FloatArray
from fiberscope.recovery.layers.bent_surfaces import Equations, Row

AGREEING = 4
"""Kinks that must agree on the number."""


def open_direction(row: Row) -> FloatArray | None:
    """The one direction of coefficients that is not known; None if there are more of them, or none."""
    known = row.equations.rows
    return np.linalg.svd(known)[2][-1] if len(known) == known.shape[1] - 1 else None


def completed(row: Row, features: FloatArray) -> Row | None:
    """A row that lacks one equation, with the number that most kinks agree on; None if too few do.

    ``features`` are those of kinks that nothing explains, ``(kinks, features)``.

    >>> rng, c = np.random.default_rng(0), np.array([1.0, 2.0, -3.0, 0.5])
    >>> F = rng.normal(size=(20, 4))
    >>> F[:6, 3] = -F[:6, :3] @ c[:3] / c[3]  # kinks of the neuron, among others
    >>> found = completed(Row(Equations(np.eye(4)[:3], c[:3])), F)
    >>> found.coefficients.round(12)
    array([ 1. ,  2. , -3. ,  0.5])
    """
    known, free, now = row.equations.rows, open_direction(row), row.coefficients
    if free is None or len(features) < AGREEING:
        return None
    sizes = np.maximum(np.linalg.norm(features, axis=1), NOT_ZERO)
    turns = features @ free
    seen = np.abs(turns) > SEEN * sizes
    t = np.sort(-(features[seen] @ now) / turns[seen])
    if len(t) < AGREEING:
        return None
    room = SAME * NEARER * np.maximum(np.abs(t), float(np.linalg.norm(now)))
    counts = np.searchsorted(t, t + room, side="right") - np.arange(len(t))
    best = int(counts.argmax())
    if counts[best] < AGREEING:
        return None
    value = float(np.median(t[best : best + counts[best]]))
    return Row(Equations(np.concatenate([known, free[None]]), np.append(row.equations.values, value)))


SEEN, NEARER = 1e-2, 0.1
"""Part of a kink's features that lies in the direction, at least, and how near numbers that agree are, beside what two
measurements of one neuron may differ by."""
