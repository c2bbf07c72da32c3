"""Certified signs: the sign of every preactivation of a batch, each one proven.

A running float error bound decides almost all of them. Where it does not, the point is evaluated again in ball
arithmetic of growing precision, and at last exactly: floats are dyadic rationals, and a network's operations keep
them dyadic. Only exact arithmetic can prove a zero, and a zero is reported as zero.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fiberscope.numerics.algebra.ball import EXACT, BallAlgebra, ball_signs
from fiberscope.numerics.algebra.bounded import BOUNDED, Bounded
from fiberscope.numerics.floats import FloatArray, IntArray, SignArray
from fiberscope.results import Result

PRECISIONS = (128, 512)
"""Bits of the balls tried between the float bound and exact evaluation."""

UNDECIDED = 2

Runner = Callable[[Any, Any], Sequence[Any]]
"""Runs a program in an algebra on an input of that algebra and gives the values whose signs are wanted."""


@dataclass(frozen=True, slots=True)
class CertifiedSigns(Result):
    """Signs with their evidence.

    ``signs`` is ``(points, neurons)`` in {-1, 0, 1}; the counts say how many entries each algebra decided.
    """

    signs: SignArray
    by_float: int
    by_ball: int
    by_exact: int

    @property
    def zeros(self) -> IntArray:
        """Pairs ``(point, neuron)`` at which a preactivation is exactly zero, ``(count, 2)``."""
        return np.argwhere(self.signs == 0)

    def __repr__(self) -> str:
        points, neurons = self.signs.shape
        return (
            f"CertifiedSigns({points} points x {neurons} neurons, {len(self.zeros)} zeros; decided by float "
            f"{self.by_float}, by balls {self.by_ball}, exactly {self.by_exact})"
        )


def certified_signs(run: Runner, X: FloatArray, settle: Callable[[SignArray], int] | None = None) -> CertifiedSigns:
    """Sign of every value that ``run`` produces on the batch ``X``, floats taken as exact rationals.

    Parameters
    ----------
    run
        Called as ``run(algebra, input)``; must return the wanted values in the same order in every algebra.
    X
        The batch, ``(points, features)``.
    settle
        Sets open signs for which there is a proof without arithmetic, in place, and says how many these were.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        signs = join([bounded_signs(v) for v in run(BOUNDED, BOUNDED.take(X))], len(X))
    counts = [int((signs != UNDECIDED).sum())]
    settled = settle(signs) if settle is not None and (signs == UNDECIDED).any() else 0
    for precision in (*PRECISIONS, EXACT):
        rows = np.flatnonzero((signs == UNDECIDED).any(axis=1))
        before = int((signs == UNDECIDED).sum())
        if before:
            balls = BallAlgebra(precision)
            with balls.working():
                found = join([ball_signs(v) for v in run(balls, balls.take(X[rows]))], len(rows))
            # A ball of finite precision proves a non-zero sign; what the float bound proved stays as it is.
            signs[rows] = np.where(signs[rows] == UNDECIDED, found, signs[rows])
        counts.append(before - int((signs == UNDECIDED).sum()))
    if (signs == UNDECIDED).any():  # pragma: no cover - would need numbers of 2^24 bits
        raise ArithmeticError(f"exact evaluation needs more than {EXACT} bits")
    return CertifiedSigns(signs, counts[0], sum(counts[1:-1]), settled + counts[-1])


def bounded_signs(value: Bounded) -> SignArray:
    """Signs that the error bound proves, :data:`UNDECIDED` elsewhere."""
    return np.where(value.decided, np.sign(value.value), UNDECIDED).astype(np.int8)


def join(parts: Sequence[SignArray], points: int) -> SignArray:
    """The parts side by side; no part at all is a network without hidden neurons."""
    return np.concatenate([*parts], axis=1) if parts else np.zeros((points, 0), dtype=np.int8)
