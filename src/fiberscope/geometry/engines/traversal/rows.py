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
from fiberscope.network.nodes import Affine, MaxPool, Node, PiecewiseLinear
from fiberscope.network.walk import affine_values, step
from fiberscope.numerics.algebra.ball import EXACT, EXACT_ROWS
from fiberscope.numerics.algebra.bounded import Bounded, BoundedAlgebra
from fiberscope.numerics.floats import BoolArray, FloatArray, IntArray, SignArray, gamma, round_up
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
    pool = next((index for index, node in enumerate(net.nodes) if isinstance(node, MaxPool)), None)
    if pool is not None:
        raise UnsupportedModelError(
            f"node {pool}: max pooling is not supported by traversal; take net.as_mlp(), which has other neurons, "
            "or a two-dimensional slice (Plane)"
        )


def functionals(net: Network, signs: SignArray) -> Bounded:
    """All preactivations as affine functions, ``(cells, num_signs, n + 1)``, with bounds of the errors.

    The last column is the constant term. An entry with error 0 is exact; zero slopes make exact zeros.

    >>> net = Network([[[1.0], [-1.0]], [[1.0, 1.0]]], [[0.0, 2.0], [0.0]])
    >>> functionals(net, np.array([[1, 1]], dtype=np.int8)).value.tolist()
    [[[1.0, 0.0], [-1.0, 2.0]]]
    """
    cells, n = len(signs), net.in_size
    unit = np.broadcast_to(np.eye(n + 1, n), (cells, n + 1, n)).reshape(-1, n)
    return onward(net, signs, [Bounded(unit, np.zeros_like(unit))], 0)


def onward(net: Network, signs: SignArray, values: list[Bounded], start: int) -> Bounded:
    """The preactivations from entry ``start`` of the sign vector on, as :func:`functionals` gives them.

    ``values`` are those of the first nodes, as many as there are; the last of them has ``n + 1`` rows for every cell.
    """
    cells = len(signs)
    width = len(values[-1].value) // cells if cells else net.in_size + 1
    found: list[Bounded] = []
    with np.errstate(over="ignore", invalid="ignore"):
        for node in net.nodes[len(values) - 1 :]:
            if isinstance(node, PiecewiseLinear):
                found.append(values[node.source])
                part = signs[:, start : start + node.num_signs]
                start += node.num_signs
                values.append(_activated(node, values[node.source], part))
                if start == net.num_signs:
                    break
            else:
                values.append(_linear(node, values, width - 1))
    if not found:
        return Bounded(np.zeros((cells, 0, width)), np.zeros((cells, 0, width)))
    shape = (cells, width, -1)
    value = np.concatenate([f.value.reshape(shape) for f in found], axis=2).transpose(0, 2, 1)
    error = np.concatenate([f.error.reshape(shape) for f in found], axis=2).transpose(0, 2, 1)
    return Bounded(np.ascontiguousarray(value), np.ascontiguousarray(error))


def _linear(node: Node, values: list[Bounded], n: int) -> Bounded:
    """A node without a kink; a bias goes to the constant terms alone."""
    if not isinstance(node, Affine):
        return step(node, values, BoundedAlgebra())
    result = BoundedAlgebra().affine(node.operator, None, values[node.source])
    if node.offset is None:
        return result
    value, error = result.value.copy(), result.error.copy()
    total = value[n :: n + 1] + node.offset
    exact = (error[n :: n + 1] == 0) & ((value[n :: n + 1] == 0) | (node.offset == 0))
    error[n :: n + 1] = np.where(exact, 0.0, round_up(error[n :: n + 1] + gamma(1) * np.abs(total), 2))
    value[n :: n + 1] = total
    return Bounded(value, error)


def _activated(node: PiecewiseLinear, before: Bounded, signs: SignArray) -> Bounded:
    slopes = np.where(signs > 0, 1.0, node.slopes)[:, None, :]
    shape = (len(signs), -1, node.num_signs)
    flat, old, slip = slopes == 0, before.value.reshape(shape), before.error.reshape(shape)
    value = np.where(flat, 0.0, old * slopes)  # flat whatever overflowed before
    error = np.where(flat, 0.0, slip * np.abs(slopes))
    rounded = round_up(error + gamma(1) * np.abs(value), 2)
    # A product of zero may have underflowed: only what was zero before is zero.
    error = np.where(flat | (slopes == 1) | ((old == 0) & (slip == 0)), error, rounded)
    return Bounded(value.reshape(before.value.shape), error.reshape(before.value.shape))


def exact_functionals(net: Network, signs: SignArray) -> list[list[Any]]:
    """The affine functions of one cell as exact rationals, a row of ``n + 1`` for every neuron."""
    rows: list[list[Any]] = []
    with flint.ctx.workprec(EXACT):
        values = affine_values(net.layout, net.in_size, signs, EXACT_ROWS)
        for node in net.switches:
            rows += [[_rational(x) for x in column] for column in values[node.source].T]
    return rows


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

    >>> copies(Network([[[1.0], [2.0], [3.0]], [[1.0, 1.0, 1.0]]], [[1.0, 2.0, 0.0], [0.0]]))
    array([0, 0, 2])
    """
    first = np.arange(net.num_signs)
    start = 0
    for node in net.switches:
        source = net.nodes[node.source - 1] if node.source else None
        if isinstance(source, Affine):
            last = source.operator.stages()[-1]  # of a composition the others do not matter, and are not multiplied out
            offset = np.zeros(last.out_size) if source.offset is None else source.offset
            if last.in_size * last.out_size <= _DENSE:
                for group in proportional_rows(np.column_stack([last.dense(), offset])):
                    own = [start + k for k in group if not net.linear_entries[start + k]]
                    first[own] = own[0] if own else 0
        start += node.num_signs
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
