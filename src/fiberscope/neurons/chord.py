"""Chord deviation of one layer: how far its output on a segment of weights is from the mixture of its outputs at the
ends.

``xi(t; x) = H(W(t); x) - ((1 - t) H(W_A; x) + t H(W_B; x))`` with ``H = eta((F + D * W) x)``, in the norm ``sqrt(E
|xi|^2)``. Beside the measurement stand

* Theorem D.1 of :cite:`neuronidentifiability` for ReLU: ``sqrt(2 pi^2 / 3) (1 + q) q^(3/2) |F Sigma^(1/2)|_F``, and
D.2 for smooth
  activations: ``sqrt(3) / 2 sup|eta''| q^2 |F Sigma^(1/2)|_F^2``; both ask for Gaussian inputs of mean zero and for
  ``q = max |d_i * w_i|_Sigma / |f_i|_Sigma < 1``. Inputs of other kinds exceed them.
* bounds for inputs of any kind, from the change ``u = Z_B - Z_A`` of the preactivations on these inputs: ``|xi| <= |u|
/ 4`` for
  ReLU, since ``|xi| = min((1-t) |Z_A|, t |Z_B|)`` where the signs differ, and ``|xi| <= sup|eta''| u^2 / 8`` for
  smooth activations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from fiberscope.errors import InputError
from fiberscope.neurons.activations import Activation, activation_of
from fiberscope.neurons.layers import LayerArrays
from fiberscope.numerics.floats import FloatArray
from fiberscope.results import Result

GAUSSIAN = "inputs Gaussian with mean zero"
"""The assumption of Theorems D.1 and D.2, which no sample can prove."""

KINKED = {"relu": 1.0, "leaky_relu": 0.99}
"""Activations that are a line plus this multiple of ReLU; a line does not deviate from its chord."""


@dataclass(frozen=True, slots=True, eq=False)
class LayerChord(Result):
    """The deviation of one layer along the segment, and its bounds."""

    name: str
    activation: str
    t: FloatArray = field(repr=False)
    deviations: FloatArray = field(repr=False)
    """``sqrt(E |xi(t)|^2)`` at every ``t``."""
    q: float
    """``max |d_i * w_i|_Sigma / |f_i|_Sigma`` over neurons and both runs."""
    fixed: float
    """``|F Sigma^(1/2)|_F``."""
    bound: float
    """Theorem D.1 or D.2; infinite for ``q >= 1``. Assumes Gaussian inputs of mean zero."""
    theorem: str
    any_inputs: float
    """A bound that assumes nothing of the inputs but uses both end points' preactivations."""
    mean_share: float

    assumption: ClassVar[str] = GAUSSIAN
    told = ("worst", "assumption")
    """``|E x|^2 / E |x|^2``: far from 0, the assumption of the theorems does not hold."""

    @property
    def worst(self) -> float:
        """The largest deviation over the points ``t``."""
        return float(self.deviations.max())

    def __str__(self) -> str:
        q = f"q = {self.q:.3g}"
        bound = (
            f"<= {self.bound:.4g} if {GAUSSIAN}" if np.isfinite(self.bound) else f"no bound by {self.theorem}: {q} >= 1"
        )
        return (
            f"{self.name} ({self.activation}): deviation {self.worst:.4g}; {self.theorem}: {bound} ({q}, "
            f"mean holds {self.mean_share:.0%} of the energy); any inputs: <= {self.any_inputs:.4g}"
        )


class ChordSums:
    """Sums over inputs that stream through; :meth:`result` turns them into a :class:`LayerChord`."""

    def __init__(self, a: LayerArrays, b: LayerArrays, activation: Any, t: FloatArray) -> None:
        if not (np.array_equal(a.F, b.F) and np.array_equal(a.D, b.D)):
            raise InputError(f"{a.name}: expected one fixed part F and D in both runs, got two")
        if a.W.shape != b.W.shape:
            raise InputError(f"{a.name}: expected equal shapes, got {a.W.shape} and {b.W.shape}")
        self.eta: Activation = activation_of(activation)
        self.name, self.t, self.fixed = a.name, t, a.F
        self.trained = (a.D * a.W, b.D * b.W)
        m = len(a.F)
        self.count = 0
        self.squares = np.zeros(len(t))
        self.norms = np.zeros((3, m))
        self.changes = np.zeros(2)
        self.mean = np.zeros(a.width)
        self.energy = 0.0

    def add(self, rows: FloatArray) -> None:
        """Inputs ``(n, d)``."""
        if not np.isfinite(rows).all():
            raise InputError(f"{self.name}: expected finite inputs, got NaN or infinity")
        center = rows @ self.fixed.T
        parts = [rows @ part.T for part in self.trained]
        self.norms += np.stack([(values**2).sum(axis=0) for values in (center, *parts)])
        ends = [center + part for part in parts]
        change = ends[1] - ends[0]
        self.changes += np.array([(change**2).sum(), (change**4).sum()])
        left, right = (self.eta.value(end) for end in ends)
        for place, t in enumerate(self.t):
            middle = self.eta.value(ends[0] + t * change)
            self.squares[place] += float(((middle - (left + t * (right - left))) ** 2).sum())
        self.mean += rows.sum(axis=0)
        self.energy += float((rows**2).sum())
        self.count += len(rows)

    def result(self) -> LayerChord:
        """The deviation and its bounds."""
        if self.count == 0:
            raise InputError(f"{self.name}: expected at least one input, got none; was the layer run on the data?")
        center, *parts = np.sqrt(self.norms / self.count)
        # 0 / 0: a neuron that does nothing at either end deviates by nothing.
        ratios = [np.divide(p, center, out=np.where(p == 0, 0.0, np.inf), where=center > 0) for p in parts]
        q, fixed = float(np.max(ratios)), float(np.linalg.norm(center))
        theorem, bound = _theorem(self.eta, q, fixed)
        energy = self.energy / self.count
        share = float(((self.mean / self.count) ** 2).sum() / energy) if energy > 0 else 0.0
        return LayerChord(
            self.name,
            self.eta.name,
            self.t,
            np.sqrt(self.squares / self.count),
            q,
            fixed,
            bound,
            theorem,
            self._any_inputs(),
            share,
        )

    def _any_inputs(self) -> float:
        second, fourth = np.sqrt(self.changes / self.count)
        if self.eta.name in KINKED:
            return KINKED[self.eta.name] * float(second) / 4
        return self.eta.curvature * float(fourth) / 8


def _theorem(eta: Activation, q: float, fixed: float) -> tuple[str, float]:
    """Which theorem speaks, and its bound."""
    if eta.name in KINKED:
        bound = KINKED[eta.name] * float(np.sqrt(2 * np.pi**2 / 3)) * (1 + q) * q**1.5 * fixed if q < 1 else np.inf
        return "Theorem D.1", bound
    return "Theorem D.2", float(np.sqrt(3)) / 2 * eta.curvature * q**2 * fixed**2 if q < 1 else np.inf


def path_points(points: int | Sequence[float]) -> FloatArray:
    """``points`` equally spaced values of ``t`` with both ends, or the given values in ``[0, 1]``.

    >>> path_points(3).tolist()
    [0.0, 0.5, 1.0]
    """
    if isinstance(points, int):
        if points < 2:
            raise InputError(f"points: expected at least 2, got {points}")
        return np.linspace(0.0, 1.0, points)
    t = np.asarray(points, dtype=np.float64)
    if t.ndim != 1 or t.size == 0 or not ((t >= 0) & (t <= 1)).all():
        raise InputError(f"points: expected values of t in [0, 1], got {points!r}")
    return t
