"""A function that can only be evaluated: every row that is asked is counted, and the answers are checked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fiberscope.errors import FiberscopeError, InputError
from fiberscope.numerics.cutoffs import ORACLE_CLEAR, ORACLE_NOISE, ORACLE_WORST
from fiberscope.numerics.floats import BoolArray, FloatArray

if TYPE_CHECKING:
    from fiberscope.recovery.place import Place

Function = Callable[[FloatArray], Any]

TOLD = 3
"""Points with second differences that are no accident."""

STEP = 2.0**-12
"""Part of the place that is stepped to see whether a function changes."""

ROUNDING = 0.125
"""Part of the spacing of floats that typical values are rounded by at least, in parts of the largest."""

LOGGED = 4_000_000
"""Numbers of inputs that are remembered, to be used again when the parameters are polished."""


class SpentError(Exception):
    """The queries that were allowed are used up."""


@dataclass(eq=False)
class Oracle:
    """``function`` on batches ``(points, inputs)``; ``spent`` rows so far, at most ``limit``.

    ``values`` gives ``(points, outputs)``. ``along`` gives one number for every point, a fixed random combination of
    the outputs, whose kinks are those of all outputs but for accidents. ``noise`` is the relative error of a value, and
    ``coarse`` the least one that their type allows.
    """

    function: Function
    inputs: int
    limit: int | None = None
    seed: int = 0
    spent: int = 0
    noise: float = ORACLE_NOISE
    scale: float = 1.0
    outputs: int = 0
    place: Place | None = None
    coarse: float = 0.0
    _mix: FloatArray | None = field(default=None, repr=False)
    _log: list[tuple[FloatArray, FloatArray]] = field(default_factory=list, repr=False)
    _logged: int = 0

    def values(self, X: FloatArray, keep: bool = True) -> FloatArray:
        """The function at the rows of ``X``, counted; raises :class:`SpentError` instead of exceeding the limit."""
        if not len(X):
            return np.zeros((0, self.outputs))
        if self.limit is not None and self.spent + len(X) > self.limit:
            raise SpentError
        self.spent += len(X)
        Y = self.uncounted(X)
        if keep and self._logged + X.size <= LOGGED:
            self._log.append((X, Y))
            self._logged += X.size
        return Y

    def allowed(self, X: FloatArray) -> bool:
        """Whether all rows lie in a bounded domain; always, where it is not bounded."""
        return self.place is None or not self.place.bounded or bool(self.place.inside(X).all())

    def uncounted(self, X: FloatArray) -> FloatArray:
        """As :meth:`values`, for the check at the end, which is no part of the search."""
        raw = self._asked(X)
        if raw.dtype.kind not in "fiu":
            raise InputError(f"function: expected real numbers, got {raw.dtype}")
        if raw.dtype == np.float16:  # too coarse to be seen as noise: most small steps change nothing
            raise InputError("function: expected values no noisier than float32, got float16")
        if raw.shape[:1] != (len(X),) or not raw.size:
            raise InputError(f"function: expected one value or one row for each of {len(X)} inputs, got {raw.shape}")
        if raw.dtype.kind == "f":
            self.coarse = ROUNDING * float(np.finfo(raw.dtype).eps)
        Y: FloatArray = raw.reshape(len(X), -1).astype(np.float64)
        self.outputs = self.outputs or Y.shape[1]
        if Y.shape[1] != self.outputs:
            raise InputError(f"function: expected {self.outputs} outputs as before, got {Y.shape[1]}")
        if not np.isfinite(Y).all():
            row = int(np.flatnonzero(~np.isfinite(Y).all(axis=1))[0])
            raise InputError(
                f"function: expected finite values, got {Y[row].tolist()} at {np.round(X[row], 3).tolist()}"
            )
        return Y

    def _asked(self, X: FloatArray) -> Any:
        """What the function says, as an array. It gets a copy, since it may write into its input."""
        try:
            raw = self.function(X.copy())
            return raw.detach().cpu().numpy() if hasattr(raw, "detach") else np.asarray(raw)
        except (FiberscopeError, MemoryError):
            raise
        except Exception as error:
            first = (str(error).splitlines() or [""])[0][:120]
            raise InputError(
                f"function: expected values for {X.shape[0]} x {X.shape[1]} inputs, got {type(error).__name__}: {first}"
            ) from error

    @property
    def mix(self) -> FloatArray:
        """The combination of outputs that is searched for kinks, ``(outputs,)``."""
        if self._mix is None or len(self._mix) != self.outputs:
            draw = np.random.default_rng(self.seed + 1).normal(size=self.outputs)
            self._mix = np.ones(1) if self.outputs == 1 else draw / np.linalg.norm(draw)
        return self._mix

    def along(self, X: FloatArray) -> FloatArray:
        """The combination of outputs at the rows, ``(points,)``."""
        Y = self.values(X)
        return np.asarray(Y @ self.mix)

    def same_as_before(self) -> None:
        """Raise unless the first points that were asked still have their values, where the limit lets them be asked."""
        if self._log and (self.limit is None or self.spent + len(self._log[0][0]) <= self.limit):
            X, Y = self._log[0]
            _compare(Y, self.values(X, keep=False))

    def log(self) -> tuple[FloatArray, FloatArray]:
        """All points that were asked and remembered, and the values there."""
        X = np.concatenate([x for x, _ in self._log]) if self._log else np.zeros((0, self.inputs))
        return X, np.concatenate([y for _, y in self._log]) if self._log else np.zeros((0, self.outputs))


def _compare(Y: FloatArray, again: FloatArray) -> None:
    if not np.array_equal(Y, again):
        worst = np.abs(Y - again).max()
        raise InputError(f"function: expected the same values for the same inputs, got a difference of {worst:.2g}")


def settle(oracle: Oracle, place: Place, rng: np.random.Generator) -> None:
    """Ask a few points: the number of outputs, the size and noise of the values; refuse what is no function of points.

    The noise is the median of the second differences on tiny steps, where a piecewise linear function has none but for
    rounding. A smooth function has second differences like the square of the step: they are seen in the scan.
    """
    oracle.place = place
    X = place.draw(rng, 12)
    Y = oracle.values(X)
    _compare(Y, oracle.values(X))
    oracle.scale = max(float(np.abs(Y).max()), np.finfo(float).tiny)
    step = rng.normal(size=X.shape)
    step *= place.size * 2.0**-24 / np.linalg.norm(step, axis=1, keepdims=True)
    line = np.stack([Y, *(oracle.values(place.clip(X + k * step)) for k in (1, 2, 3))])
    second = np.abs(np.diff(line, 2, axis=0)).max(axis=(0, 2))
    told = second[second > 0]  # where the function is constant it has no noise, which says nothing about elsewhere
    rough = max(float(np.median(told)) / oracle.scale if len(told) >= TOLD else 0.0, oracle.coarse)
    if not rough <= ORACLE_WORST:
        raise InputError(f"function: expected values no noisier than float32, got second differences of {rough:.1g}")
    oracle.noise = max(ORACLE_NOISE, rough)


ALIVE = 0.5
"""Share of random points near which a function must change; where it is less, the search goes where it does."""

LOOKED, LOOKS = 200, 3
"""Points that are looked at for it, and how often."""


def alive(oracle: Oracle, place: Place, rng: np.random.Generator) -> Place:
    """The place, with points near which the function is not constant if it is constant at most others.

    Second layers whose neurons are seldom active leave most of space flat, and nothing can be learnt there.
    """
    seen = place.draw(rng, 24)
    if _changes(oracle, place, seen, rng).mean() >= ALIVE:
        return place
    found = np.zeros((0, len(place.low)))
    for _ in range(LOOKS):
        X = (replace(place, live=found) if len(found) else place).draw(rng, LOOKED)
        found = np.concatenate([found, X[_changes(oracle, place, X, rng)]])
    return replace(place, live=found) if len(found) else place


def _changes(oracle: Oracle, place: Place, X: FloatArray, rng: np.random.Generator) -> BoolArray:
    """Near which points the function is not constant."""
    step = rng.normal(size=X.shape)
    step *= place.size * STEP / np.linalg.norm(step, axis=1, keepdims=True)
    near = place.pulled(place.clip(X + step))
    change = np.abs(oracle.values(near) - oracle.values(X)).max(axis=1)
    return np.asarray(change > ORACLE_CLEAR * oracle.noise * oracle.scale)
