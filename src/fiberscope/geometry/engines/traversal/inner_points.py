"""Points deep inside cells, and behind the middle of facets: a second chance for floats before exact arithmetic.

The traversal names regions by the first point behind a facet that is certainly theirs. Now and then it lies so close to
the border that rounding hides the rest of the cell. A linear program finds a point that is far from all sides at once;
it is a proposal and nothing else, all that follows from it is checked as before.
"""

from __future__ import annotations

import numpy as np

from fiberscope.geometry.engines.traversal import kernels
from fiberscope.numerics.floats import FloatArray, IntArray, SignArray
from fiberscope.numerics.lp.programs import Polyhedron
from fiberscope.run import ENDLESS, Run


def deep_points(H: FloatArray, kinds: SignArray, X: FloatArray, run: Run = ENDLESS) -> FloatArray:
    """A point deep inside every cell ``h_k >= 0``, the old one of ``X`` where none is found.

    ``H`` is ``(cells, m, n + 1)``, ``kinds`` as in :func:`.kernels.cells`. Unbounded cells are cut off at
    some distance.

    >>> unit = np.array([[[1.0, 0.0], [-1.0, 1.0]]])  # x >= 0 and x <= 1
    >>> deep_points(unit, np.ones((1, 2), dtype=np.int8), np.array([[1e-9]])).round(6).tolist()
    [[0.5]]
    """
    points = [_deep(h[on], x, run) for h, on, x in zip(H, kinds != kernels.OFF, X, strict=True)]
    return np.array([x if p is None else p for p, x in zip(points, X, strict=True)]).reshape(X.shape)


def points_behind(H: FloatArray, kinds: SignArray, X: FloatArray, pairs: IntArray, run: Run = ENDLESS) -> FloatArray:
    """For facets ``(cell, row)`` a point behind the facet and one on it, both far from its rim, ``(pairs, 2 n)``.

    ``X`` are inner points of the cells. Where nothing is found these are given, which no check will accept.
    """
    own, back = np.unique(pairs[:, 0], return_inverse=True)
    deep = deep_points(H[own], kinds[own], X[own], run)[back]
    result = np.tile(X[pairs[:, 0]], 2)
    for k, (cell, row) in enumerate(pairs.tolist()):
        on = kinds[cell] != kernels.OFF
        flipped = H[cell].copy()
        flipped[row] *= -1.0
        x, far = deep[k], _deep(flipped[on], deep[k], run)
        if far is None:
            continue
        inside, outside = (float(H[cell, row, :-1] @ p + H[cell, row, -1]) for p in (x, far))
        if inside > 0.0 > outside:
            result[k] = np.concatenate([far, x + inside / (inside - outside) * (far - x)])
    return result


def _deep(rows: FloatArray, x: FloatArray, run: Run) -> FloatArray | None:
    run.check()
    with np.errstate(over="ignore", invalid="ignore"):
        norms = np.linalg.norm(rows[:, :-1], axis=1)
        rows = rows[norms > 0.0] / norms[norms > 0.0, None]
        reach = 1.0 + float(np.abs(x).max())
        low, high = x - reach, x + reach
    if not (len(rows) and all(np.isfinite(part).all() for part in (rows, low, high))):
        return None
    return Polyhedron(-rows[:, :-1], rows[:, -1], lower=low, upper=high).interior().point
