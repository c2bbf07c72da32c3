"""Rescalings of a program of any kind: which factors its values may take while the function stays the same.

Multiply every entry of every value by its own ``exp(c)``. Activations and pools let positive factors through, where the
inputs of a window have one; a sum has the factor of all of its parts; a constant map hands the factor of an input to
whatever it reaches, and a constant offset allows none; inputs and outputs have ``c = 0``. A parameter makes up for the
difference of what it gives and what it reads: a weight is multiplied by ``exp(c_out - c_in)``, a bias by
``exp(c_out)``. A number that is used at many places (the kernel of a convolution, a layer that is called twice) must be
multiplied by the same factor at each of them. Entries that one kernel makes, or reads, are taken to have one factor: a
channel. So there may be more rescalings than are found, but never fewer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple, assert_never

import numpy as np
from scipy import sparse as sp
from scipy.sparse.csgraph import connected_components

from fiberscope.dimension.jacobian import offsets
from fiberscope.network.network import Network
from fiberscope.network.nodes import Add, Affine, Concat, MaxPool, PiecewiseLinear
from fiberscope.network.operators import Operator
from fiberscope.numerics.elimination import echelon_mod
from fiberscope.numerics.floats import FloatArray, IntArray
from fiberscope.numerics.modular import residues
from fiberscope.numerics.rank import exact_rank

GROUND = 0
"""The atom whose factor is one: inputs, outputs, and what must not be multiplied."""


class _Place(NamedTuple):
    """Where numbers of one parameter enter: their columns, their values, and the atoms that they make and read."""

    columns: IntArray
    values: FloatArray
    made: IntArray
    read: IntArray


@dataclass(slots=True)
class _Atoms:
    """One atom for every entry of every value, the ground first; ``joined`` holds pairs that have one factor."""

    count: int = 1
    left: list[IntArray] = field(default_factory=list)
    right: list[IntArray] = field(default_factory=list)

    def fresh(self, size: int) -> IntArray:
        self.count += size
        return np.arange(self.count - size, self.count)

    def join(self, a: IntArray, b: IntArray) -> None:
        self.left.append(np.broadcast_to(a, np.shape(b)).ravel())
        self.right.append(np.asarray(b).ravel())

    def labels(self) -> IntArray:
        """For every atom the number of its class; the ground has 0."""
        a, b = np.concatenate([[0], *self.left]), np.concatenate([[0], *self.right])
        graph = sp.coo_array((np.ones(len(a), np.int8), (a, b)), shape=(self.count, self.count))
        found = np.asarray(connected_components(graph, directed=False)[1], dtype=np.int64)
        return np.where(found == found[GROUND], 0, np.where(found == 0, found[GROUND], found))


@dataclass(frozen=True, slots=True, eq=False)
class Rescalings:
    """Classes of entries that may be multiplied by a factor of their own, and the numbers that make up for it.

    Class 0 is not multiplied. For every place where a number is used and is not zero: it stands in column
    ``columns[k]`` of the parameters, and is multiplied by the factor of ``made[k]`` over that of ``read[k]``. ``ties``
    are equations between the logarithms of the factors, ``(equations, classes)`` integers: numbers at several places.
    """

    classes: int
    columns: IntArray
    values: FloatArray
    made: IntArray
    read: IntArray
    ties: FloatArray

    @property
    def rank(self) -> int:
        """How many independent directions the rescalings give at the parameter, exactly."""
        # Nothing moves where the factor is the same across every number, and 1 at the ground.
        graph = sp.coo_array((np.ones(len(self.made), np.int8), (self.made, self.read)), shape=(self.classes,) * 2)
        idle = int(connected_components(graph, directed=False)[0]) - 1
        tied = exact_rank(self.ties[:, 1:], method="rational").rank if len(self.ties) else 0
        return self.classes - 1 - tied - idle

    def directions(self, size: int, prime: int | None = None) -> Any:
        """Tangent vectors as rows ``(count, size)``, in floats or modulo a prime; they need not be independent."""
        if prime is None:
            factors: Any = self._factors()
            change = (factors[:, self.made] - factors[:, self.read]) * self.values
            rows: Any = np.zeros((len(factors), size))
        else:
            factors = self._residues(prime).astype(object)
            values = residues(self.values, prime).astype(object)
            change = ((factors[:, self.made] - factors[:, self.read]) * values % prime).astype(np.uint64)
            rows = np.zeros((len(factors), size), np.uint64)
        rows[:, self.columns] = change
        return rows

    def _residues(self, prime: int) -> Any:
        if len(self.ties) == 0:
            return np.eye(self.classes, dtype=np.uint64)[1:]
        return echelon_mod(np.ascontiguousarray(residues(self._grounded(), prime)), prime).kernel()

    def _factors(self) -> FloatArray:
        if len(self.ties) == 0:
            return np.eye(self.classes)[1:]
        count = self.classes - exact_rank(self._grounded(), method="rational").rank
        vectors: FloatArray = np.linalg.svd(self._grounded(), full_matrices=True)[2]
        return vectors[self.classes - count :]

    def _grounded(self) -> FloatArray:
        return np.concatenate([np.eye(1, self.classes), self.ties])


def rescalings(net: Network) -> Rescalings:
    """The rescalings of a program; its parameters stand in affine maps, each used as often as it likes.

    Two channels of a convolution with a bias, read by a dense layer:

    >>> from fiberscope.network.convolutions import Convolution
    >>> from fiberscope.network.operators import Dense
    >>> nodes = [Affine(0, Convolution(np.ones((2, 1, 2, 2)), (1, 3, 3)), np.ones((2, 1, 1)), "kernel", "bias")]
    >>> nodes += [PiecewiseLinear(1, 0.0, (2, 2, 2)), Affine(2, Dense(np.ones((1, 8)), (2, 2, 2)), None, "last")]
    >>> rescalings(Network.from_nodes(nodes, (1, 3, 3))).rank
    2
    """
    atoms = _Atoms()
    values = [atoms.fresh(net.in_size)]
    atoms.join(np.array(GROUND), values[0])
    starts, places = offsets(net), []
    for node in net.nodes:
        sources = [values[source] for source in node.sources]
        match node:
            case Affine():
                found = list(_affine(node, sources[0], atoms, starts))
                made = found.pop()
                places += found
                values.append(made.made)
                continue
            case PiecewiseLinear():
                value = sources[0]
            case MaxPool():
                value = sources[0][np.maximum(node.windows, 0)[np.arange(len(node.windows)), _first(node)]]
                window, entry = np.nonzero(node.windows >= 0)
                atoms.join(value[window], sources[0][node.windows[window, entry]])
            case Add():
                value = sources[0]
                for other in sources[1:]:
                    atoms.join(value, other)
            case Concat():
                value = np.concatenate(sources)
                value = value if node.order is None else value[node.order]
            case _:
                assert_never(node)
        values.append(value)
    atoms.join(np.array(GROUND), values[-1])
    return _collected(places, atoms.labels())


def _first(node: MaxPool) -> IntArray:
    return np.asarray((node.windows >= 0).argmax(axis=1))


def _affine(node: Affine, before: IntArray, atoms: _Atoms, starts: dict[str, int]) -> Iterator[_Place]:
    """The places of a node's parameters, and last one that only has its result."""
    for stage, place in zip(node.operator.stages(), node.operator.places(), strict=True):
        after = atoms.fresh(stage.out_size)
        if node.weight_name is None:
            matrix = stage.sparse().tocoo()
            through = matrix.data != 0
            i, j = matrix.coords
            atoms.join(after[i[through]], before[j[through]])
        else:
            yield from _weight(stage, before, after, atoms, starts[node.weight_name] + place.start)
        before = after
    if node.bias is not None and node.offset is not None:
        if node.bias_name is None:
            atoms.join(np.array(GROUND), before[node.offset != 0])
        else:
            own = np.arange(node.bias.size).reshape(node.bias.shape)
            k = np.broadcast_to(own, node.operator.out_shape).reshape(-1)
            yield from _used(
                k, node.bias.reshape(-1), before, np.full(len(before), GROUND), atoms, starts[node.bias_name]
            )
    nothing = np.zeros(0, np.int64)
    yield _Place(nothing, np.zeros(0), before, nothing)


def _weight(stage: Operator, before: IntArray, after: IntArray, atoms: _Atoms, start: int) -> Iterator[_Place]:
    numbers = np.arange(1.0, stage.coefficients.size + 1).reshape(stage.coefficients.shape)
    matrix = stage.with_coefficients(numbers).sparse().tocoo()
    i, j = matrix.coords
    yield from _used(
        matrix.data.astype(np.int64) - 1, stage.coefficients.reshape(-1), after[i], before[j], atoms, start
    )


def _used(
    k: IntArray, values: FloatArray, made: IntArray, read: IntArray, atoms: _Atoms, start: int
) -> Iterator[_Place]:
    """Numbers ``k`` of a parameter at one place each; what one of them makes has one factor, and what it reads."""
    alive = values[k] != 0
    k, made, read = k[alive], made[alive], read[alive]
    numbers, first, inverse = np.unique(k, return_index=True, return_inverse=True)
    if len(numbers) < len(k):
        atoms.join(made[first][inverse], made)
        atoms.join(read[first][inverse], read)
    yield _Place(start + numbers, values[numbers], made[first], read[first])


def _collected(places: list[_Place], labels: IntArray) -> Rescalings:
    """Classes that some number knows, numbered from 1, and the equations of numbers that stand at several places."""
    none = np.zeros(0, np.int64)
    columns = np.concatenate([none, *(place.columns for place in places)])
    values = np.concatenate([np.zeros(0), *(place.values for place in places)])
    made = labels[np.concatenate([none, *(place.made for place in places)])]
    read = labels[np.concatenate([none, *(place.read for place in places)])]
    known = np.unique(np.concatenate([[0], made, read]))
    made, read = np.searchsorted(known, made), np.searchsorted(known, read)
    _, first, inverse = np.unique(columns, return_index=True, return_inverse=True)
    ties = np.zeros((0, len(known)))
    again = np.setdiff1d(np.arange(len(columns)), first)
    if len(again):
        pairs = np.stack([made[again], read[again], made[first[inverse[again]]], read[first[inverse[again]]]], axis=1)
        pairs = np.unique(pairs, axis=0)
        ties = np.zeros((len(pairs), len(known)))
        for column, sign in enumerate((1.0, -1.0, -1.0, 1.0)):
            np.add.at(ties, (np.arange(len(pairs)), pairs[:, column]), sign)
        ties = np.unique(ties[(ties[:, 1:] != 0).any(axis=1)], axis=0)
    return Rescalings(len(known), columns, values, made, read, ties)
