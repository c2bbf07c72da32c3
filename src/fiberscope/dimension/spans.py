"""How many bits sums of products of floats can have, without forming them."""

from __future__ import annotations

from math import frexp
from typing import Any

import numpy as np

Span = tuple[int, int]
"""``(low, high)``: all numbers are multiples of ``2^low`` and below ``2^high`` in absolute value."""


def span(values: Any) -> Span:
    """The span of some floats; zeros have any.

    >>> span([0.5, 3.0])
    (-1, 2)
    """
    numbers = np.asarray(values, dtype=np.float64).reshape(-1)
    numbers = numbers[numbers != 0]
    if len(numbers) == 0:
        return 0, 0
    mantissas, exponents = np.frexp(numbers)
    integers = np.abs(mantissas * 2.0**53).astype(np.int64)
    trailing = np.frexp((integers & -integers).astype(np.float64))[1] - 1
    return int((exponents - 53 + trailing).min()), frexp(float(np.abs(numbers).max()))[1]


def _log(count: int) -> int:
    return max(0, int(count) - 1).bit_length()


def multiplied(a: Span, b: Span, terms: int) -> Span:
    """The span of sums of ``terms`` products."""
    return a[0] + b[0], a[1] + b[1] + _log(terms)


def repeated(a: Span, terms: int) -> Span:
    """The span of sums of ``terms`` numbers of one span."""
    return a[0], a[1] + _log(terms)


def united(spans: list[Span]) -> Span:
    """The span of numbers of any of these spans."""
    return min(s[0] for s in spans), max(s[1] for s in spans)


def summed(spans: list[Span]) -> Span:
    """The span of sums of one number of each span."""
    low, high = united(spans)
    return low, high + _log(len(spans))
