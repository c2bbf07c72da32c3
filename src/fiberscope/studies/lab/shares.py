"""Shares of yes and no with their uncertainty: Wilson's interval of one, Newcombe's of the difference of two."""

from __future__ import annotations

from collections.abc import Sequence
from math import hypot

from scipy.stats import binomtest

from fiberscope.errors import InputError


def wilson(yes: int, count: int, level: float = 0.95) -> tuple[float, float]:
    """The interval of Wilson for a share; nothing is known of no trials.

    >>> low, high = wilson(8, 10)
    >>> round(low, 3), round(high, 3)
    (0.49, 0.943)
    >>> wilson(0, 0)
    (0.0, 1.0)
    """
    if count == 0:
        return 0.0, 1.0
    found = binomtest(yes, count).proportion_ci(level, method="wilson")
    return float(found.low), float(found.high)


def newcombe(first: tuple[int, int], second: tuple[int, int], level: float = 0.95) -> tuple[float, float]:
    """The interval of Newcombe (1998, his method 10) for the second share minus the first, each ``(yes, count)``.

    >>> low, high = newcombe((48, 80), (56, 70))
    >>> round(low, 4), round(high, 4)
    (0.0524, 0.3339)
    """
    if not first[1] or not second[1]:
        raise InputError("expected two shares of some trials, got one of none")
    (p, q), ((a, b), (c, d)) = (x / n for x, n in (first, second)), (wilson(*s, level) for s in (first, second))
    return q - p - hypot(q - c, b - p), q - p + hypot(d - q, p - a)


def differs(first: Sequence[bool | None], second: Sequence[bool | None], level: float = 0.95) -> int:
    """1 where the second share is larger, -1 where it is smaller, 0 where the interval of the difference has zero.

    Answers that are None, *undecided*, count for yes and for no: the difference must be there either way.

    >>> differs([True] * 20, [False] * 20), differs([True] * 20, [None] * 20), differs([True, False], [False, False])
    (-1, 0, 0)
    """
    least, most = (
        [sum(a is True or (a is None and free) for a in part) for part in (first, second)] for free in (0, 1)
    )
    n, m = len(first), len(second)
    if newcombe((most[0], n), (least[1], m), level)[0] > 0:
        return 1
    return -1 if newcombe((least[0], n), (most[1], m), level)[1] < 0 else 0
