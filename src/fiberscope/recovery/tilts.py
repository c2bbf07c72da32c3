"""Normals of kinks in noisy values: from the places where a surface is met, not from gradients.

A gradient over a small ball is as wrong as the noise over its radius. The place of a kink is known to the noise over
the jump of slopes, whatever the length of the segment; points of a flat surface that are far apart give its normal to
that over their distance. So the points are taken farther and farther away, for as long as the surface is found flat.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fiberscope.numerics.cutoffs import ORACLE_CLEAR, REGRESSION, SPAN
from fiberscope.numerics.floats import FloatArray
from fiberscope.recovery.oracle import Oracle
from fiberscope.recovery.probes import locate_all

SPREAD = 2.0
"""Points of the surface for each coordinate of the normal."""

MANY = 5.0
"""The same for hyperplanes of the first layer, on which all others rest."""

GROWTH = 3.0
"""By which the distance grows from one round to the next."""

OFF, SEEN = 8.0, 50.0
"""How far off, and on how long a segment, the next points are looked for, in errors of a point."""

LEAST_MET = 1.25
"""Points per coordinate that must be met, so that a bend between them is seen."""

REFITS, TRIMMED = 8, 10.0
"""Rounds of a fit to kinks, and how far beyond the usual one may be, in medians."""

BESIDE = 0.2
"""Half of the segment on which a kink is looked for at first, in parts of the distance of its point."""


@dataclass(frozen=True)
class Tilt:
    """A point of a surface, its unit normal, how far it was seen flat, and by how much the normal may be off.

    ``sees`` is half of the shortest segment on which its kink is clear of the noise.
    """

    x: FloatArray
    n: FloatArray
    reach: float
    off: float
    sees: float = 0.0


def tilted(oracle: Oracle, x: FloatArray, n: FloatArray, near: float, far: float,
           rng: np.random.Generator) -> Tilt | None:  # fmt: skip
    """The plane of a kink at ``x`` with about the normal ``n``, from points at distances from ``near`` to ``far``.

    None where the surface was not found flat at any of them.
    """
    now, found = Tilt(x, n, near, BESIDE), None
    reach = near
    while reach <= far:
        fresh = _measured(oracle, now, reach, rng)
        if fresh is not None:
            now = found = fresh
        elif found is not None:
            break
        reach *= GROWTH
    return found


def plane_again(oracle: Oracle, now: Tilt, far: float, rng: np.random.Generator) -> Tilt:
    """A hyperplane that is known already, through many points at growing distances from one of its points."""
    for share in (0.1, 0.3, 1.0):
        now = _measured(oracle, now, share * far, rng, MANY) or now
    return now


def _measured(oracle: Oracle, now: Tilt, reach: float, rng: np.random.Generator,
              spread: float = SPREAD) -> Tilt | None:  # fmt: skip
    """The plane through points of the surface at one distance; None where they lie on no plane, or too few are met."""
    x, n, d = now.x, now.n, len(now.x)
    E = rng.normal(size=(int(spread * d) + 4, d))
    E -= np.outer(E @ n, n)
    E *= reach / np.maximum(np.linalg.norm(E, axis=1, keepdims=True), np.finfo(float).tiny)
    met = locate_all(oracle, x + E, n, max(now.off * reach, now.sees))
    if met.found.sum() < LEAST_MET * d + 2:
        return None
    P = (E + met.at[:, None] * n)[met.found]
    # heights over the old plane are linear in the tangent part
    basis = np.linalg.svd(n[None])[2][1:]
    A, y = np.column_stack([P @ basis.T, np.ones(len(P))]), P @ n
    jump = np.abs(met.jump[met.found])
    error = ORACLE_CLEAR * oracle.noise * oracle.scale
    blur = 2 * error / jump
    kept = np.ones(len(P), dtype=bool)
    for _ in range(3):
        solved, *_ = np.linalg.lstsq(A[kept] / blur[kept, None], y[kept] / blur[kept], rcond=None)
        off = np.abs(y - A @ solved) / blur
        if (off[kept] <= ORACLE_CLEAR).all():
            break
        kept &= off <= max(ORACLE_CLEAR, float(np.median(off)) * 4)
        if kept.sum() < LEAST_MET * d + 2:
            return None
    else:
        return None
    normal = n - basis.T @ solved[:-1]
    size = float(np.linalg.norm(normal))
    mid = float(np.median(blur))
    return Tilt(x + solved[-1] * n / size**2, normal / size, reach, OFF * mid / reach, SEEN * mid)


def refitted(features: FloatArray, row: FloatArray, sizes: FloatArray, blurs: FloatArray,
             tolerance: float) -> FloatArray | None:  # fmt: skip
    """A row that vanishes at points where a measured one nearly does: least squares over all that fit.

    ``features`` are those of kinks, ``(kinks, features)``; ``sizes`` turn a value of the row into a distance there, and
    ``blurs`` are how far each of them may be off. The points that count come closer with every round. None where they
    are too few to tell the row.
    """
    told = sizes > SPAN * sizes.max(initial=0.0)  # elsewhere a row says nothing about places
    for _ in range(REFITS):
        far = np.abs(features @ row) / sizes
        near = (far <= np.maximum(tolerance, ORACLE_CLEAR * blurs)) & (blurs <= tolerance) & told
        if near.sum() < LEAST_MET * len(row):
            return None
        weights = 1 / (sizes * np.maximum(blurs, far))[near]  # those that are off count little
        A = features[near] * weights[:, None]
        scale = np.linalg.norm(A, axis=0)
        scale[scale == 0] = 1.0
        # the size of a row is free, and what these points do not tell about it stays
        largest = int(np.abs(row * scale).argmax())
        rest = np.delete(np.arange(len(row)), largest)
        change, *_ = np.linalg.lstsq((A / scale)[:, rest], -(A @ row), rcond=REGRESSION)
        fresh = row.copy()
        fresh[rest] += change / scale[rest]
        row = fresh * (np.linalg.norm(row) / np.linalg.norm(fresh))
        off = np.abs(features[near] @ row) / sizes[near]
        tolerance = min(tolerance, TRIMMED * max(float(np.median(off)), float(np.median(blurs))))
    # as many points as there are coefficients can always be met
    fits = np.abs(features @ row) / sizes <= ORACLE_CLEAR * blurs
    return row if fits.sum() >= LEAST_MET * len(row) else None
