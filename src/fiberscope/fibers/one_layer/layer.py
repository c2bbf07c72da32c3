"""One hidden layer on all of space or on the non-negative orthant: hyperplanes, their weights, and linear parts.

Every decision is exact: signs of weights are compared as they are stored, coincidence and cancellation of hyperplanes
in rational arithmetic, ranks over the rationals, cones by linear programs whose verdicts are proven.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Any

import flint
import numpy as np

from fiberscope.errors import InputError
from fiberscope.network.network import Network
from fiberscope.numerics.exact_arrays import fractions, product
from fiberscope.numerics.floats import FloatArray, IntArray
from fiberscope.numerics.lp.programs import Polyhedron
from fiberscope.numerics.rows import proportional_rows
from fiberscope.results import Result, hidden

DEAD, LINEAR, NONLINEAR = -1, 1, 0


@dataclass(frozen=True, slots=True, eq=False)
class Hyperplane(Result):
    """One hyperplane ``normal x + offset = 0`` (unit normal), the neurons on it, and the jump of the gradient across.

    ``weight`` is ``sum_i V e_i ||w_i||`` over its neurons, ``(m,)``; ``visible`` whether that is exactly not zero.
    ``along`` says which neurons are oriented as the normal.
    """

    normal: FloatArray
    offset: float
    neurons: tuple[int, ...]
    along: tuple[bool, ...] = field(metadata=hidden())
    weight: FloatArray
    visible: bool

    @property
    def mixed(self) -> bool:
        """Whether neurons of both orientations share it."""
        return len(set(self.along)) == 2


class OneLayer:
    """``x -> V relu(W x + b) + c`` on all of space, or on ``x >= 0``.

    Parameters
    ----------
    W, b, V, c
        ``(n, d)``, ``(n,)``, ``(m, n)``, ``(m,)``.
    orthant
        Whether the domain is the non-negative orthant, which is what a layer behind a ReLU sees.

    >>> layer = OneLayer([[1.0, 2.0], [1.0, -1.0], [-1.0, -2.0]], [0.5, 0.0, -1.0], [[1.0, 1.0, 1.0]], [0.0], True)
    >>> layer.roles.tolist()  # linear, nonlinear, dead
    [1, 0, -1]
    """

    def __init__(self, W: Any, b: Any, V: Any, c: Any, orthant: bool) -> None:
        self.W, self.b, self.V, self.c = (np.asarray(x, dtype=np.float64) for x in (W, b, V, c))
        n, d = self.W.shape
        m = len(self.c)
        if self.b.shape != (n,) or self.V.shape != (m, n):
            raise InputError(f"layer: expected b ({n},) and V ({m}, {n}), got {self.b.shape} and {self.V.shape}")
        self.n, self.d, self.m, self.orthant = n, d, m, orthant

    @classmethod
    def of(cls, chain: Network, orthant: bool) -> OneLayer:
        """The last two affine maps of a chain."""
        return cls(chain.weights[-2], chain.biases[-2], chain.weights[-1], chain.biases[-1], orthant)

    @property
    def rows(self) -> FloatArray:
        """``(W | b)``."""
        return np.column_stack([self.W, self.b])

    @cached_property
    def roles(self) -> IntArray:
        """-1 dead, 1 linear, 0 nonlinear on the domain: by signs of stored numbers, so for certain."""
        seen = self.rows if self.orthant else np.column_stack([np.abs(self.W), -np.abs(self.W), self.b])
        never = (seen <= 0).all(axis=1)
        always = (seen >= 0).all(axis=1) & ~never
        return np.where(never, DEAD, np.where(always, LINEAR, NONLINEAR)).astype(np.int64)

    def where(self, role: int) -> list[int]:
        """The neurons of a role."""
        return [int(i) for i in np.flatnonzero(self.roles == role)]

    @cached_property
    def hyperplanes(self) -> tuple[Hyperplane, ...]:
        """The hyperplanes that meet the inside of the domain, each once, in the order of their first neurons."""
        inner = self.where(NONLINEAR)
        groups = proportional_rows(self.rows[inner]) if inner else []
        taken = {i for group in groups for i in group}
        groups = sorted([*groups, *([i] for i in range(len(inner)) if i not in taken)])
        return tuple(self._hyperplane([inner[i] for i in group]) for group in groups)

    def _hyperplane(self, group: list[int]) -> Hyperplane:
        rows = self.rows
        first = rows[group[0]]
        pivot = int(np.abs(first).argmax())
        along = tuple(bool(rows[i, pivot] * np.sign(first[pivot]) > 0) for i in group)
        # squares of weights may leave the range of floats: hypot forms none
        size = math.hypot(*first[:-1])
        norms = np.array([math.hypot(*self.W[i]) for i in group])
        visible = False
        for out in self.V:
            scaled = (Fraction(float(out[i])) * abs(Fraction(float(rows[i, pivot]))) for i in group)
            visible = visible or sum(scaled, Fraction(0)) != 0
        with np.errstate(over="ignore", invalid="ignore"):  # for people; decisions are taken on exact numbers
            weight = self.V[:, group] @ norms if visible else np.zeros(self.m)
            normal, offset = first[:-1] / size, float(first[-1] / size)
        return Hyperplane(normal, offset, tuple(group), along, weight, visible)

    @property
    def plain(self) -> bool:
        """No dead neuron, no two neurons on one hyperplane, no outgoing weights that are all zero."""
        outgoing = bool((self.V != 0).any(axis=0).all()) if self.n else True
        return not self.where(DEAD) and outgoing and all(len(h.neurons) == 1 for h in self.hyperplanes)

    def linear_part(self, flipped: Sequence[int]) -> Any:
        """``A_T = V_lin W_lin + sum_{i in T} v_i w_i^T`` exactly, ``(m, d)``: what linear neurons must realise."""
        used = [*self.where(LINEAR), *flipped]
        return product(self.V[:, used], self.W[used])

    def cell_dimension(self) -> int:
        """Dimension, modulo rescaling, of the set of Definition 22 in which the parameter lies.

        Free are: the rows and outgoing weights of dead neurons while they stay dead, those of linear neurons, the
        shares of the weight of a hyperplane on which several neurons lie, and hyperplanes whose weights cancel.
        The output bias absorbs constants; the linear part must stay what it is, ``m d`` equations, whose rank at the
        parameter is subtracted. Without coincidences this is ``ell (d + m) - r (d + m - r)`` with
        ``r = min(ell, d, m)``, and ``d + m`` for every dead neuron.
        """
        d, m = self.d, self.m
        dead, linear = len(self.where(DEAD)), len(self.where(LINEAR))
        free = (dead + linear) * ((d if self.orthant else 0) + m)
        rows: list[Any] = []
        if self.orthant:
            rows += [np.outer(e, self.W[i]) for i in self.where(LINEAR) for e in np.eye(m)]
            rows += [np.outer(self.V[:, i], e) for i in self.where(LINEAR) for e in np.eye(d)]
        for plane in self.hyperplanes:
            free += m * (len(plane.neurons) - 1) + (0 if plane.visible else d)
            if not plane.mixed:
                continue
            w = self.W[plane.neurons[0]]
            rows += [np.outer(e, w) for e in np.eye(m)]
            if not plane.visible:
                rows += [np.outer(self._against(plane), e) for e in np.eye(d, dtype=int)]
        return free - (rational_rank(np.stack([fractions(r).ravel() for r in rows])) if rows else 0)

    def _against(self, plane: Hyperplane) -> Any:
        """The weight of the neurons that look against the normal, exactly, up to a positive factor."""
        pivot = int(np.abs(self.rows[plane.neurons[0]]).argmax())
        against = [i for i, along in zip(plane.neurons, plane.along, strict=True) if not along]
        sizes = fractions(np.abs(self.rows[against, pivot]))
        return fractions(self.V[:, against]) @ sizes


def rational_rank(matrix: Any) -> int:
    """Rank of an exact matrix (floats or fractions)."""
    if not matrix.size:
        return 0
    entries = [flint.fmpq(f.numerator, f.denominator) for f in fractions(matrix).ravel()]
    return int(flint.fmpq_mat(*matrix.shape, entries).rank())


def pointed(layer: OneLayer, flipped: Sequence[int]) -> bool | None:
    """Whether the cone spanned by the columns of ``A_T`` is pointed (zero columns do not count); None if undecided.

    Pointed means that some ``y`` has ``y a > 0`` for every column. The columns are products that floats do not hold,
    so the program has the variables ``y`` and ``z = V^T y``: then all its coefficients are stored numbers.

    >>> layer = OneLayer(np.eye(2), [1.0, 1.0], [[1.0, -1.0]], [0.0], True)
    >>> pointed(layer, [])  # the columns 1 and -1
    False
    """
    used = [*layer.where(LINEAR), *flipped]
    A = layer.linear_part(flipped)
    columns = [j for j in range(layer.d) if any(a != 0 for a in A[:, j])]
    if not columns:
        return True
    V, W = layer.V[:, used], layer.W[used][:, columns]
    inequality = np.concatenate([np.zeros((len(columns), layer.m)), -W.T], axis=1)
    equation = np.concatenate([V.T, -np.eye(len(used))], axis=1)
    found = Polyhedron(inequality, np.zeros(len(columns)), equations=(equation, np.zeros(len(used)))).interior()
    return found.answer


def nonnegative_rank(layer: OneLayer, flipped: Sequence[int]) -> int | None:
    """Nonnegative column rank of ``A_T``: the least ``k`` with ``A_T = V W``, ``W >= 0`` of ``k`` rows.

    It is the rank if the cone of the columns is pointed, and one more otherwise.

    >>> layer = OneLayer(np.eye(2), [1.0, 1.0], [[1.0, -1.0]], [0.0], True)
    >>> nonnegative_rank(layer, [])  # x_1 - x_2 needs two linear neurons
    2
    """
    rank = rational_rank(layer.linear_part(flipped))
    if rank in (0, layer.d):
        return rank
    sharp = pointed(layer, flipped)
    return None if sharp is None else rank + (0 if sharp else 1)
