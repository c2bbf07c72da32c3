"""The decision boundary of a classifier as a complex: where two classes share the largest output."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import combinations

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from fiberscope.errors import TooLargeError
from fiberscope.geometry.complex import Complex
from fiberscope.geometry.engines.choose import cells_on
from fiberscope.network.network import Network
from fiberscope.network.nodes import Affine, Node, PiecewiseLinear
from fiberscope.network.operators import Dense
from fiberscope.numerics.floats import BoolArray, IntArray, SignArray
from fiberscope.results import Result, hidden, named

MAX_CLASSES = 40
"""Above, the differences of all pairs of outputs are too many to cut by."""


@dataclass(frozen=True, eq=False)
class DecisionBoundary(Result):
    """Where two or more classes share the largest output of a classifier (or where its one output is zero).

    The decision changes only there, but it need not change all over it: ties are included where the same class wins on
    both sides (two outputs that touch and part again), and regions where classes tie all over.

    ``complex`` refines the network's complex by the differences of all pairs of outputs (by the sign of the output if
    there is only one), so that the boundary is a union of its cells. ``cells[k]`` are its ``k``-cells on the boundary,
    and ``labels`` the class of every region, -1 where two classes tie all over it.
    """

    complex: Complex = field(metadata=hidden())
    cells: tuple[IntArray, ...] = field(metadata=named(told=lambda cells: list(map(len, cells))))
    labels: IntArray = field(metadata=named("classes", np.unique))

    told = ("area", "components=num_components")

    @property
    def num_facets(self) -> int:
        """Cells of codimension one."""
        return len(self.cells[-2])

    @property
    def area(self) -> float:
        """Total volume of the facets, in their own dimension."""
        return float(self.complex.wall_sizes[self.cells[-2]].sum())

    @property
    def num_components(self) -> int:
        """Connected pieces, corners that touch included; what meets only at infinity does not touch."""
        structure = self.complex.structure
        # All cells take part, for a line or a plane without a vertex is a piece too.
        total, below = 0, np.zeros(0, dtype=np.int64)
        ends: list[tuple[IntArray, IntArray]] = []
        for k, own in enumerate(self.cells):
            place = np.full(structure.count(k), -1)
            place[own] = total + np.arange(len(own))
            if k:
                faces = structure.boundary[k - 1]
                cell, face = np.repeat(place, np.diff(faces.indptr)), below[faces.indices]
                both = (cell >= 0) & (face >= 0)
                ends.append((cell[both], face[both]))
            total, below = total + len(own), place
        if not total:
            return 0
        a, b = (np.concatenate(side) for side in zip(*ends, strict=True))
        graph = coo_array((np.ones(len(a)), (a, b)), shape=(total, total))
        return int(connected_components(graph, directed=False)[0])

    def __repr__(self) -> str:
        return f"DecisionBoundary({self.num_facets} facets in {self.num_components} pieces)"


def difference_network(net: Network) -> Network:
    """The network followed by one neuron for every difference of two outputs (or for the one output)."""
    m = net.out_size
    if m > MAX_CLASSES:
        raise TooLargeError(f"decision boundary: expected at most {MAX_CLASSES} classes, got {m}")
    rows = np.ones((1, 1)) if m == 1 else np.zeros((m * (m - 1) // 2, m))
    for row, (i, j) in enumerate(combinations(range(m), 2)):
        rows[row, i], rows[row, j] = 1.0, -1.0
    last = len(net.nodes)
    extra: list[Node] = [Affine(last, Dense(rows)), PiecewiseLinear(last + 1, np.zeros(len(rows)), (len(rows),))]
    return Network.from_nodes([*net.nodes, *extra], net.input_shape)


def winners_of(signs: SignArray, classes: int) -> BoolArray:
    """Which classes have the largest output, ``(cells, classes)``, from the signs of all differences."""
    if classes == 1:  # two classes, told apart by the sign of one output
        return np.concatenate([signs <= 0, signs >= 0], axis=1)
    best = np.ones((len(signs), classes), dtype=bool)
    for row, (i, j) in enumerate(combinations(range(classes), 2)):
        best[:, i] &= signs[:, row] >= 0
        best[:, j] &= signs[:, row] <= 0
    return best


def decision_boundary(complex: Complex) -> DecisionBoundary:
    """Where the largest output changes; the complex is built anew, cut by the differences of the outputs.

    >>> from fiberscope.geometry.domains import Box
    >>> from fiberscope.geometry.regions import regions
    >>> decision_boundary(regions(Network([np.eye(2)], [np.zeros(2)]), Box.cube(2)))  # the diagonal of a square
    DecisionBoundary(1 facets in 1 pieces)
    """
    net, classes = difference_network(complex.net), complex.net.out_size
    structure = cells_on(complex.domain.view(net))
    count = max(1, classes * (classes - 1) // 2)
    found = []
    for k in range(structure.dimension + 1):
        tied = winners_of(structure.signs(k)[:, -count:], classes).sum(axis=1) > 1
        found.append(np.flatnonzero(tied & ~structure.at_infinity(k)))
    best = winners_of(structure.top_signs[:, -count:], classes)
    labels = np.where(best.sum(axis=1) == 1, best.argmax(axis=1), -1)
    return DecisionBoundary(Complex(net, complex.domain, structure), tuple(found), labels)
