"""The compiled part of the estimate: which cells of a population one neuron splits.

A cell is kept as the rows that bound it and a point that is certainly inside. A neuron with a certain sign at that
point splits the cell iff its row would be a facet there, which is the question of the traversal's kernel.

Arrays, for a population of cells: ``H``, ``E`` ``(cells, room, n + 1)`` and ``count (cells,)``: the first ``count[r]``
rows bound cell r, oriented to be positive inside, and row ``count[r]`` is always free for the neuron that is asked;
``X (cells, n)`` inner points; ``F``, ``G`` ``(origins, n + 1)`` the neuron as an affine function, which children share
with their ``origin``. Invariant: ``X[r]`` is strictly inside, certainly.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fiberscope.geometry.engines.traversal.kernels import ABSENT, FACET, OPEN, UNASKED, by_box, prove_rows
from fiberscope.numerics.compiling.kernels import inner, kernel
from fiberscope.numerics.cutoffs import NOISE
from fiberscope.numerics.floats import TINY, U


@inner
def _sign_at(F: Any, G: Any, x: Any) -> int:
    """Certain sign of a functional at x; 2 if it is not certain, 0 only for a functional that is exactly zero."""
    n = x.size
    value, size, zero = F[n], abs(F[n]) * (2 * n + 8) * U + G[n], F[n] == 0.0 and G[n] == 0.0
    for c in range(n):
        value += F[c] * x[c]
        size += (abs(F[c]) * (2 * n + 8) * U + G[c]) * abs(x[c]) + TINY
        zero = zero and F[c] == 0.0 and G[c] == 0.0
    if zero:
        return 0
    if not abs(value) > 1.0001 * size:
        return 2
    return 1 if value > 0 else -1


@inner
def _constant(F: Any, G: Any) -> bool:
    flat = True
    for c in range(F.size - 1):
        flat = flat and F[c] == 0.0 and G[c] == 0.0
    return flat


@kernel
def split(
    F: Any, G: Any, origin: Any, copy: bool, box: Any, bounded: bool, cells: Any, answer: Any, signs: Any, far: Any,
    stop: Any,
) -> None:  # fmt: skip
    """Which cells one neuron splits.

    ``F`` and ``G`` are its functionals and their error bounds, cell r has those of ``origin[r]``. ``cells = (H, E, X,
    count)``: the first ``count[r]`` rows bound cell r, ``X[r]`` is inside. ``answer`` becomes FACET for a cell that is
    split, ABSENT for one that is not, OPEN for one that floats do not decide; ``signs`` is the sign at ``X``, ``far`` a
    point on the other side. The row of the neuron, positive at ``X``, is left behind the others. ``stop`` is a flag;
    when somebody sets it, nothing of all this holds.
    """
    H, E, X, count = cells
    low, high = box
    n, total = X.shape[1], H.shape[1]
    centre, none, zero = np.empty(n + 1), np.empty(n, np.int64), np.zeros(n)
    state, beyond = np.empty(total, np.int8), np.empty((total, 2 * n))
    reach = 0.0
    for c in range(n):
        none[c] = -1
        reach = max(reach, abs(low[c]), abs(high[c]))
    for r in range(len(X)):
        if stop[0]:
            return
        f, g = F[origin[r]], G[origin[r]]
        sign = _sign_at(f, g, X[r])
        signs[r], answer[r] = sign, OPEN
        if sign == 2:
            continue
        answer[r] = ABSENT
        if copy or sign == 0 or _constant(f, g):
            continue
        last = count[r]
        for c in range(n + 1):
            H[r, last, c], E[r, last, c] = sign * f[c], g[c]
        if bounded and by_box(H[r], E[r], none, zero, last, low, high):
            continue
        if not bounded:
            reach = 0.0
            for c in range(n):
                reach = max(reach, abs(X[r, c]))
        for k in range(last):
            state[k] = UNASKED
        state[last] = OPEN
        rows, errors = H[r][: last + 1], E[r][: last + 1]
        prove_rows(rows, errors, X[r], low, high, bounded, NOISE * reach, beyond, state, centre, stop)
        answer[r] = state[last]
        if answer[r] == FACET:
            for c in range(n):
                far[r, c] = beyond[last, c]
