"""How far two evaluations of what should be one function are apart, and when that is more than rounding."""

from __future__ import annotations

import numpy as np

from fiberscope.errors import InputError
from fiberscope.numerics.floats import FloatArray

DRIFT = 1e-9
"""Relative drift that is still rounding. In float64 a sum of thousands of terms in another order moves by about 1e-13,
a few layers of them by 1e-12; a neuron in the wrong place moves the outputs by a part of their size."""

ROUNDINGS = 64.0
"""The same for coarser types, in units of their precision: a correct permutation of a transformer whose norms compute
in float32 drifts by four units."""

COARSEST = 0.05
"""Never more than this, however coarse the type: wrong permutations were seen to move outputs by a fifth and more."""

FINE = 1e-4
"""Where less than this is rounding, intermediate values can be compared, too, and not outputs alone."""

LARGEST = 1e6
"""Larger intermediate values, as those of masks, count as this one."""


def allowed_drift(epsilon: float) -> float:
    """Relative drift that is still rounding where ``epsilon`` is the coarsest precision that the function computes in.

    >>> allowed_drift(2.0**-52), allowed_drift(2.0**-23) < 1e-5, allowed_drift(2.0**-7)
    (1e-09, True, 0.05)
    """
    return max(DRIFT, min(ROUNDINGS * epsilon, COARSEST))


def relative_drift(before: FloatArray, after: FloatArray) -> float:
    """The largest difference of two outputs, relative to the largest of the first.

    >>> relative_drift(np.array([2.0, -4.0]), np.array([2.0, -4.4]))
    0.1...
    """
    if not np.isfinite(before).all():
        raise InputError("outputs: expected finite numbers, got NaN or infinity")
    scale = float(np.abs(before).max(initial=0.0))
    gap = float(np.abs(after - before).max(initial=0.0))
    drift = gap / scale if scale > 0 else gap
    return drift if drift >= 0 else np.inf  # what is not a number has drifted
