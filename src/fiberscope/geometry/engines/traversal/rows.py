"""The half-spaces of many cells at once: every neuron as an affine function of the input, its signs held fixed.

For a sign vector s, the preactivation of neuron k is an affine function ``f_k`` of the input, which depends on the
signs before k only. The points with sign vector s are those where ``sign f_k = s_k`` for all k: an intersection of
open half-spaces, and of zero sets. It is open if the ``f_k`` with ``s_k = 0`` vanish identically, and convex always;
so sign vectors (zeros included) and regions correspond one to one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import flint
import numpy as np

from fiberscope.errors import InputError, UnsupportedModelError
from fiberscope.network.nodes import Affine
from fiberscope.network.walk import affine_start, boundaries, choices_of
from fiberscope.numerics.algebra.ball import EXACT_ROWS
from fiberscope.numerics.algebra.bounded import BOUNDED_ROWS, Bounded
from fiberscope.numerics.floats import BoolArray, FloatArray, IntArray, SignArray
from fiberscope.numerics.rows import proportional_rows

if TYPE_CHECKING:
    from fiberscope.geometry.domains import Solid
    from fiberscope.network.network import Network, Seed

_DENSE = 1 << 22
"""Entries of a matrix up to which copies are looked for; without, coincident neurons are found cell by cell."""

_TRIES = 200
"""Random points tried before a start is given up."""


def check(net: Network) -> None:
    """Raise unless the regions of ``net`` can be traversed."""
    if net.layout.pooled.any():
        node = net.layout.at(int(net.layout.pooled.argmax())).index
        raise UnsupportedModelError(
            f"node {node}: max pooling is not supported by traversal; take net.as_mlp(), which has other neurons, "
            "or a two-dimensional slice (Plane, or --slice on the command line)"
        )


def functionals(net: Network, signs: SignArray) -> Bounded:
    """All preactivations as affine functions, ``(cells, num_signs, n + 1)``, with bounds of the errors.

    The last column is the constant term. An entry with error 0 is exact; zero slopes make exact zeros.

    >>> from fiberscope.network.network import Network
    >>> net = Network([[[1.0], [-1.0]], [[1.0, 1.0]]], [[0.0, 2.0], [0.0]])
    >>> functionals(net, np.array([[1, 1]], dtype=np.int8)).value.tolist()
    [[[1.0, 0.0], [-1.0, 2.0]]]
    """
    return onward(net, signs, {0: affine_start(net.in_size, signs, BOUNDED_ROWS)}, 0)


def onward(net: Network, signs: SignArray, values: dict[int, Bounded], first: int) -> Bounded:
    """The preactivations from node ``first`` on, as :func:`functionals` gives them.

    ``values`` are those that are read from there on, ``(cells, rows, features)`` each, one block for all or one for
    every cell, as affine functions of whatever coordinates; the last row is the constant term.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        found = boundaries(net.layout, values, BOUNDED_ROWS, choices_of(net.layout, signs), first=first)
    shape = (len(signs), *found.value.shape[1:])
    parts = (np.broadcast_to(x, shape).swapaxes(1, 2) for x in (found.value, found.error))
    return Bounded(*(np.ascontiguousarray(x) for x in parts))


def exact_functionals(net: Network, signs: SignArray) -> list[list[Any]]:
    """The affine functions of one cell as exact rationals, a row of ``n + 1`` for every neuron."""
    with EXACT_ROWS.working():
        start = affine_start(net.in_size, signs, EXACT_ROWS)
        rows = boundaries(net.layout, {0: start}, EXACT_ROWS, choices_of(net.layout, signs))
        return [[_rational(x) for x in column] for column in rows.T]


def _rational(x: Any) -> Any:
    mantissa, exponent = x.man_exp()
    power = flint.fmpz(2) ** abs(int(exponent))
    return flint.fmpq(mantissa * power) if exponent >= 0 else flint.fmpq(mantissa, power)


def is_open(net: Network, signs: SignArray) -> BoolArray:
    """Which sign vectors ``(cells, num_signs)`` of points are those of regions: every zero vanishes identically."""
    zero = (signs == 0).any(axis=1)
    result = np.ones(len(signs), dtype=bool)
    if zero.any():
        rows = functionals(net, signs[zero])
        surely = ((rows.value == 0) & (rows.error == 0)).all(axis=2)
        result[zero] = (surely | (signs[zero] != 0)).all(axis=1)
        for r in np.flatnonzero(~result):
            exact = exact_functionals(net, signs[r])
            result[r] = all(not any(exact[k]) for k in np.flatnonzero(signs[r] == 0))
    return result


def copies(net: Network) -> IntArray:
    """For every neuron the first one whose functional is a multiple of its own whatever the signs are, or itself.

    >>> from fiberscope.network.network import Network
    >>> copies(Network([[[1.0], [2.0], [3.0]], [[1.0, 1.0, 1.0]]], [[1.0, 2.0, 0.0], [0.0]]))
    array([0, 0, 2])
    """
    first = np.arange(net.num_signs)
    for place in net.layout.places:
        source = net.nodes[place.source - 1] if place.source else None
        if isinstance(source, Affine):
            last = source.operator.stages()[-1]  # of a composition the others do not matter, and are not multiplied out
            offset = np.zeros(last.out_size) if source.offset is None else source.offset
            if last.in_size * last.out_size <= _DENSE:
                for group in proportional_rows(np.column_stack([last.dense(), offset])):
                    own = [place.start + k for k in group if not net.linear_entries[place.start + k]]
                    first[own] = own[0] if own else 0
    return first


@dataclass(frozen=True, slots=True, eq=False)
class Sides:
    """A domain as rows ``g x + c >= 0``, ``(sides, n + 1)``, and its bounding box where that is known."""

    rows: FloatArray
    low: FloatArray
    high: FloatArray

    @classmethod
    def of(cls, domain: Solid) -> Sides:
        A, b = domain.halfspaces()
        low, high = domain.bounds()
        return cls(np.column_stack([-A, b]), np.array(low), np.array(high))

    @property
    def bounded(self) -> bool:
        """Whether the box is finite."""
        return bool(np.isfinite(self.low).all() and np.isfinite(self.high).all())


def start(net: Network, domain: Solid, seed: Seed) -> tuple[FloatArray, SignArray]:
    """An inner point of the domain in an open region, with its sign vector."""
    rng = np.random.default_rng(seed)
    for _ in range(_TRIES):
        X = domain.sample(8, rng)
        X = X[domain.surely_inside(X)]
        if len(X):
            signs = net.signs(X).signs
            good = np.flatnonzero(is_open(net, signs))
            if len(good):
                return X[good[0]], signs[good[0]]
    raise InputError(f"domain: expected a set with interior points, none found in {domain}")
