"""Neurons of which one coefficient is not known yet, from kinks that are there already.

A surface is followed over few folds of a neuron that is nearly always on, or off. Where one direction of coefficients
is left, every kink of the neuron behind such a fold tells how far to go along it, and those of others tell anything: a
number that several kinks agree on is that of the neuron. Where no such kink was met lines are drawn to meet some, for
rows that switch where they should at places that the direction does not matter to.
"""

from __future__ import annotations

import numpy as np

from fiberscope.numerics.cutoffs import NOT_ZERO, SAME, SPAN
from fiberscope.numerics.floats import FloatArray
from fiberscope.recovery.layers.bent_surfaces import Equations, Row
from fiberscope.recovery.layers.refitting import MOST, features_of, meet, switches_of
from fiberscope.recovery.pool import Pool
from fiberscope.recovery.prefix import Prefix
from fiberscope.recovery.telling import draw_telling

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


PLACES, LINES, ENDS = 12, 4, 2000
"""Places at which such a row must switch to be believed, lines that are drawn for it, and points drawn for these."""


def lines_for(pool: Pool, prefix: Prefix, row: Row) -> tuple[FloatArray, FloatArray] | None:
    """Ends of lines on which kinks tell what a row lacks; None if it is not seen to be a neuron of this layer."""
    free = open_direction(row)
    if free is None:
        return None
    X = switches_of(pool.place, prefix, row.coefficients, prefix, pool.rng)
    features = features_of(prefix, X)
    X = X[np.abs(features @ free) <= SPAN * np.linalg.norm(features, axis=1)]
    if len(X) < PLACES:
        return None
    found, _ = meet(pool, prefix, row.coefficients, X)
    sizes = np.linalg.norm(features_of(prefix, found), axis=1)
    near = np.abs(features_of(prefix, found) @ row.coefficients) <= SAME * NEARER * sizes
    if near.sum() < MOST * len(X):
        return None
    ends = draw_telling(pool.place, prefix, pool.rng, ENDS)
    features = features_of(prefix, ends)
    ends = ends[np.abs(features @ free) > SEEN * np.linalg.norm(features, axis=1)][: 2 * LINES]
    return (ends[: len(ends) // 2], ends[len(ends) // 2 : len(ends) // 2 * 2]) if len(ends) > 1 else None
