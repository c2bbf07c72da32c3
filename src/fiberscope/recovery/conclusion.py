"""What the answer of a search is worth: it is tried at fresh points, and what is missing is named."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fiberscope.numerics.cutoffs import RECOVERED
from fiberscope.numerics.floats import FloatArray
from fiberscope.recovery.polish import forward
from fiberscope.recovery.recovered import Recovery, Unresolved, network_of
from fiberscope.run import Run

if TYPE_CHECKING:
    from fiberscope.recovery.black_box import Search

HELD_OUT = 100_000
"""Fresh points at which the result is tried."""


def conclude(search: Search, whole: bool, domain: Any, run: Run) -> Recovery:
    """Try the result at fresh points and say what it is worth."""
    oracle = search.pool.oracle
    planes = tuple(zip(search.weights, search.biases, strict=True))
    if not search.holds:
        oracle.same_as_before()
    if not whole:
        search.unresolved += unreached(search)
        return Recovery(search.widths, None, np.inf, oracle.scale, oracle.noise, oracle.spent, 0,
                        tuple(search.unresolved), False, domain, planes, slope=search.slope)  # fmt: skip
    theta = search.padded()
    residual, size = held_out(search, theta, run)
    close = bool(residual <= RECOVERED * oracle.noise * size)
    if not close:
        text = f"the network differs by {residual:.2g} at held-out points, more than the noise of the values explains"
        search.unresolved.append(Unresolved(len(search.widths) - 1, None, text))
    elif search.polished and not search.holds:
        text = "the network differs at points where few neurons are active, more than the noise of the values explains"
        search.unresolved.append(Unresolved(len(search.widths) - 1, None, text))
    accuracy = search.accuracy if close and not search.unresolved else None
    return Recovery(search.widths, network_of(theta[::2], theta[1::2], search.slope), residual, size, oracle.noise,
                    oracle.spent, HELD_OUT, tuple(search.unresolved), close and not search.unresolved, domain, planes,
                    slope=search.slope, accuracy=accuracy)  # fmt: skip


def unreached(search: Search) -> list[Unresolved]:
    """Layers of which neurons are missing, and the first one that was not looked for."""
    found, hidden = [len(b) for b in search.biases], search.widths[1:-1]
    pairs = enumerate(zip(found, hidden, strict=False), 1)
    items = [Unresolved(k, None, f"{n} of its {width} neurons were found") for k, (n, width) in pairs if n < width]
    if len(found) < len(hidden):
        what = "it was" if len(found) + 1 == len(hidden) else f"it and the layers up to {len(hidden)} were"
        items.append(Unresolved(len(found) + 1, None, f"{what} not reached"))
    return items


def held_out(search: Search, theta: list[FloatArray], run: Run) -> tuple[float, float]:
    """The largest difference at fresh points, which are not counted, and the largest value there."""
    oracle, place, rng = search.pool.oracle, search.pool.place, search.pool.rng
    worst, size, done = 0.0, oracle.scale, 0
    step = max(1, min(HELD_OUT, 2_000_000 // place.low.size))
    while done < HELD_OUT:
        X = place.draw(rng, min(step, HELD_OUT - done))
        Y = oracle.uncounted(X)
        off = np.abs(Y - forward(theta, X, search.slope)[0]).max()
        worst = float(np.maximum(worst, off))  # NaN stays, and is not close to anything
        size, done = max(size, float(np.abs(Y).max())), done + len(X)
        run.step(done, HELD_OUT, "held-out points")
    return worst, size
