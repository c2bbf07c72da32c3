"""The hyperplane representation of one hidden layer in rational arithmetic, and when two of them are one function.

``x -> V relu(W x + b) + c`` on all of space or on the non-negative orthant is an affine map plus one vector of weights
for every hyperplane that meets the interior of the domain. The functions ``relu(p_h)`` of different hyperplanes, the
coordinates and the constant are linearly independent, so two layers are the same function if and only if their
representations are the same. Nothing is rounded, and the cost is that of reading the numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import gcd, lcm
from typing import Any

import numpy as np

from fiberscope.numerics.exact_arrays import fractions, is_float, joined, product
from fiberscope.numerics.points import to_dyadic

Vector = tuple[Fraction, ...]
Primitive = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Form:
    """``x -> affine (x, 1) + sum_h weight_h relu(row_h (x, 1))``, exactly.

    ``planes`` maps primitive integer rows ``(w | b)``, whose first non-zero entry is positive, to weights ``(m,)`` that
    are not zero; ``affine`` is ``(m, d + 1)``.
    """

    planes: dict[Primitive, Vector]
    affine: tuple[Vector, ...]

    @property
    def inputs(self) -> int:
        """The dimension of the domain."""
        return len(self.affine[0]) - 1

    @property
    def is_constant_but_for_planes(self) -> bool:
        """Whether the affine part has no linear part."""
        return not any(any(row[:-1]) for row in self.affine)

    def moved(self, permutation: Sequence[int], scales: Sequence[Fraction]) -> Form:
        """The form as a function of ``y`` where input ``i`` is ``scales[i] * y[permutation[i]]``."""

        def carried(row: Sequence[Fraction | int]) -> Vector:
            new = [Fraction(0)] * len(row)
            new[-1] = Fraction(row[-1])
            for i, k in enumerate(permutation):
                new[k] = row[i] * scales[i]
            return tuple(new)

        rows = [(carried(row), weight) for row, weight in self.planes.items()]
        return collected(rows, [carried(row) for row in self.affine])


def primitive(row: Sequence[Fraction]) -> tuple[Primitive, Fraction]:
    """The integer row without common divisor and the positive factor that gives ``row`` back; zero gives factor 1.

    >>> primitive([Fraction(1, 2), Fraction(-3, 4)])
    ((2, -3), Fraction(1, 4))
    """
    below = lcm(*(v.denominator for v in row))
    whole = [v.numerator * (below // v.denominator) for v in row]
    content = gcd(*whole)
    if not content:
        return tuple(whole), Fraction(1)
    return tuple(v // content for v in whole), Fraction(content, below)


def opposite(row: Primitive) -> Primitive:
    """The same hyperplane from the other side."""
    return tuple(-v for v in row)


def leads(row: Primitive) -> bool:
    """Whether the first entry that is not zero is positive."""
    return next((v > 0 for v in row if v), False)


def collected(rows: Iterable[tuple[Sequence[Fraction], Vector]], affine: Sequence[Sequence[Fraction]]) -> Form:
    """The form of ``affine + sum_k weight_k relu(row_k)``; every row must meet the interior of the domain."""
    base = [list(row) for row in affine]
    planes: dict[Primitive, list[Fraction]] = {}
    for row, weight in rows:
        key, factor = primitive(row)
        if not leads(key):  # relu(p) = p + relu(-p)
            key = opposite(key)
            for line, v in zip(base, weight, strict=True):
                for k, p in enumerate(row):
                    line[k] += v * p
        total = planes.setdefault(key, [Fraction(0)] * len(base))
        for k, v in enumerate(weight):
            total[k] += v * factor
    kept = {key: tuple(total) for key, total in planes.items() if any(total)}
    return Form(kept, tuple(tuple(line) for line in base))


def form_of(W: Any, b: Any, V: Any, c: Any, orthant: bool) -> Form:
    """The form of ``x -> V relu(W x + b) + c`` for floats or fractions; dead neurons drop out, linear ones are affine.

    >>> import numpy as np
    >>> found = form_of(np.array([[1.0], [-1.0]]), np.zeros(2), np.array([[1.0, -1.0]]), np.zeros(1), False)
    >>> found.planes, found.affine  # relu(x) - relu(-x) = x
    ({}, ((Fraction(1, 1), Fraction(0, 1)),))
    """
    table = joined([W, np.asarray(b).reshape(-1, 1)], axis=1)
    seen = table if orthant else np.concatenate([W, -W, np.asarray(b).reshape(-1, 1)], axis=1)
    never = (seen <= 0).all(axis=1)
    always = (seen >= 0).all(axis=1) & ~never
    planes: dict[Primitive, list[Fraction]] = {}
    straight = np.flatnonzero(always).tolist()
    weights = fractions(V)
    for i in np.flatnonzero(~never & ~always).tolist():
        key, factor = _primitive_of(table[i])
        if not leads(key):  # relu(p) = p + relu(-p)
            key = opposite(key)
            straight.append(i)
        total = planes.setdefault(key, [Fraction(0)] * len(weights))
        for k, v in enumerate(weights[:, i]):
            total[k] += v * factor
    base = fractions(product(V[:, straight], table[straight]))
    base[:, -1] = base[:, -1] + fractions(c)
    kept = {key: tuple(total) for key, total in planes.items() if any(total)}
    return Form(kept, tuple(tuple(line) for line in base))


def _primitive_of(row: Any) -> tuple[Primitive, Fraction]:
    """As :func:`primitive`, for a row of floats by integers alone."""
    if not is_float(row):
        return primitive(row)
    numbers, exponent = to_dyadic(row)
    whole = numbers.tolist()
    content = gcd(*whole)
    return tuple(v // content for v in whole), content * Fraction(2) ** exponent
