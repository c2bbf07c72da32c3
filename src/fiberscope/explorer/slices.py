"""Which three data points a slice goes through, so that it shows something, and the middle part of a large one."""

from __future__ import annotations

import numpy as np

from fiberscope.errors import TooLargeError
from fiberscope.geometry.domains import Box, Domain, Plane
from fiberscope.numerics.floats import FloatArray, IntArray

MOST = 5_000
"""Points that are looked at."""


def corner_points(X: FloatArray, classes: IntArray | None) -> tuple[tuple[int, int, int], str]:
    """Rows of three points, and why these.

    With three classes or more: of each of the three largest, the point nearest to the class's mean. Else the point
    nearest to the mean of all, the one farthest from it, and the one farthest from the line through both.

    >>> X = np.array([[0.0, 0.0], [0.1, 0.0], [3.0, 0.0], [0.0, 2.0]])
    >>> corner_points(X, None)[0]
    (1, 2, 3)
    """
    X = X[:MOST]
    if classes is not None:
        names, counts = np.unique(classes[:MOST], return_counts=True)
        if len(names) >= 3:
            chosen = names[np.argsort(-counts, kind="stable")[:3]]
            rows = [_nearest(X, np.flatnonzero(classes[: len(X)] == name)) for name in chosen]
            text = ", ".join(f"row {row} (class {name})" for row, name in zip(rows, chosen.tolist(), strict=True))
            return (rows[0], rows[1], rows[2]), f"{text}, each the most typical of its class"
    first = _nearest(X, np.arange(len(X)))
    away = X - X[first]
    second = int(np.linalg.norm(away, axis=1).argmax())
    line = away[second] / (np.linalg.norm(away[second]) or 1.0)
    third = int(np.linalg.norm(away - np.outer(away @ line, line), axis=1).argmax())
    if len({first, second, third}) < 3:  # all on one line: any three
        first, second, third = 0, 1, 2
    text = f"row {first} (nearest to the mean), row {second} (farthest from it) and row {third}"
    return (first, second, third), text


def _nearest(X: FloatArray, rows: IntArray) -> int:
    """The row nearest to the mean of some rows."""
    return int(rows[np.linalg.norm(X[rows] - X[rows].mean(axis=0), axis=1).argmin()])


def middle_part(domain: Domain, share: float = 0.5) -> Domain:
    """A slice or box around the same middle, so many times as wide.

    >>> middle_part(Box.cube(2))
    Box([-0.5, 0.5] x [-0.5, 0.5])
    """
    box = domain.box if isinstance(domain, Plane) else domain
    if not isinstance(box, Box):
        raise TooLargeError("too many regions on this domain; try a smaller one")
    middle, reach = (box.low + box.high) / 2, (box.high - box.low) * (share / 2)
    smaller = Box(middle - reach, middle + reach)
    return Plane(domain.origin, domain.u, domain.v, smaller) if isinstance(domain, Plane) else smaller
