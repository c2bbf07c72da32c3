"""Changes of the second layer of a network with two hidden layers that no output sees, over the rationals.

Let ``c`` change the weights and biases of the second hidden layer. In a region, where the neurons ``I`` of the first
layer and ``J`` of the second are on, output ``o`` changes by the affine function

    g = sum_{j in J} v_oj (sum_{i in I} c_ji (w_i, b_i) + c_j e),

with ``e`` the constant. Across the line of neuron ``i`` it jumps by ``(sum_{j in J} v_oj c_ji) (w_i, b_i)``, and
across that of ``j`` by ``v_oj (sum_{i in I} c_ji (w_i, b_i) + c_j e)``. If all jumps vanish, and ``g`` is the same
constant in one region of every connected set of regions, then the bias of the output takes it back, and nothing is
changed at all.

The equations of the first kind are about single neurons ``i``, those of the second kind about single neurons ``j``.
What solves the first has few entries, so that the second fall apart into small blocks; these are solved in integers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import flint
import numpy as np
from scipy import sparse as sp
from scipy.sparse.csgraph import connected_components

from fiberscope.dimension.symmetries import columns_of, first_bias
from fiberscope.network.network import Network
from fiberscope.numerics.algebra.residue import ModularAlgebra
from fiberscope.numerics.floats import BoolArray, IntArray, ObjectArray
from fiberscope.numerics.modular import Residues, residues_of_integers
from fiberscope.numerics.points import integer_rows, to_dyadic
from fiberscope.run import ENDLESS, Run

ROOTS = 8
"""Connected sets of regions up to which this is worth its while; a batch of scattered points has more."""

BLOCK = 400
"""Unknowns of a block up to which it is solved in integers."""


@dataclass(frozen=True, slots=True, eq=False)
class Adjacency:
    """Regions as patterns ``(regions, neurons)``, and all pairs that differ in one entry: ``(left, right, entry)``."""

    patterns: BoolArray
    left: IntArray
    right: IntArray
    entry: IntArray

    @classmethod
    def of(cls, patterns: BoolArray) -> Adjacency:
        """Found by hashes that flip with an entry, and then compared.

        >>> found = Adjacency.of(np.array([[True, False], [True, True], [False, True]]))
        >>> sorted(zip(found.left.tolist(), found.right.tolist(), found.entry.tolist()))
        [(0, 1, 1), (1, 2, 0)]
        """
        count, entries = patterns.shape
        marks = np.random.default_rng(0).integers(0, 2**63, entries, dtype=np.uint64)
        hashes = np.bitwise_xor.reduce(np.where(patterns, marks, np.uint64(0)), axis=1)
        order = np.argsort(hashes)
        wanted = (hashes[:, None] ^ marks).reshape(-1)
        places = np.minimum(np.searchsorted(hashes[order], wanted), count - 1)
        hit = np.flatnonzero(hashes[order][places] == wanted)
        left, entry, right = hit // entries, hit % entries, order[places[hit]]
        fine = left < right
        left, entry, right = left[fine], entry[fine], right[fine]
        fine = (patterns[left] != patterns[right]).sum(axis=1) == 1
        return cls(patterns, left[fine], right[fine], entry[fine])

    def roots(self) -> IntArray:
        """One region of every connected set."""
        count = len(self.patterns)
        graph = sp.coo_array((np.ones(len(self.left)), (self.left, self.right)), shape=(count, count))
        _, label = connected_components(graph, directed=False)
        return np.unique(label, return_index=True)[1]


def second_layer_kernel(net: Network, regions: Adjacency, ring: ModularAlgebra, run: Run = ENDLESS) -> Residues | None:
    """Directions that solve the equations above, reduced modulo the prime, as rows ``(count, num_parameters)``.

    None for other networks than chains with two hidden ReLU layers, and where regions are not connected.
    """
    roots = regions.roots() if len(net.weights) == 3 else None
    if roots is None or len(roots) > ROOTS:
        return None
    if ((ring.take(net.weights[2]) == 0) != (net.weights[2] == 0)).any():
        return None  # the prime divides a weight
    found = _System(net, regions, run)
    rows = [np.zeros((0, net.num_parameters), np.uint64)]
    rows += [found.reduced(block, roots, ring) for block in found.blocks() if len(block[0]) <= BLOCK]
    return np.concatenate(rows)


class _System:
    """The equations of a network; unknown ``(j, i)`` has number ``j (n + 1) + i``, and ``i = n`` stands for the bias.

    With one output the unknowns are ``v_j c_ji``, so that jumps across first-layer lines have coefficients 0 and 1.
    """

    def __init__(self, net: Network, regions: Adjacency, run: Run) -> None:
        self.net, self.run = net, run
        self.n, self.m = net.widths[1], net.widths[2]
        self.first, self.second = regions.patterns[:, : self.n], regions.patterns[:, self.n :]
        integers, exponent = to_dyadic(np.column_stack([net.weights[0], net.biases[0]]))
        self.maps = np.asarray(integers, dtype=object)
        self.one = 1 << max(0, -exponent)
        if exponent > 0:
            self.maps = self.maps * (1 << exponent)
        self.last = net.weights[2]
        self.scaled = net.out_size == 1
        # A neuron that no output reads passes nothing on.
        self.second = self.second & (self.last != 0).any(axis=0)
        self.biased = first_bias(net, 1) is not None
        self._regions = regions

    def _line(self, i: int) -> ObjectArray:
        """Solutions of the equations of neuron ``i`` of the first layer, as rows over the second layer's neurons."""
        crossed = self._regions.left[self._regions.entry == i]
        patterns = np.unique(self.second[crossed], axis=0)
        if self.scaled:
            return integer_kernel(patterns.astype(np.int64))
        passed = (patterns[:, None, :] * self.last[None]).reshape(-1, self.m)
        return integer_kernel(integer_rows(np.unique(passed, axis=0)))

    def blocks(self) -> Iterator[tuple[list[dict[int, int]], list[int]]]:
        """Solutions of the first kind, sparse, and neurons of the second layer, in groups that share no neuron."""
        vectors: list[dict[int, int]] = []
        for i in range(self.n):
            self.run.check()
            for row in self._line(i):
                vectors.append({int(j) * (self.n + 1) + i: int(row[j]) for j in np.flatnonzero(row != 0)})
        if self.biased:
            vectors += [{j * (self.n + 1) + self.n: 1} for j in range(self.m)]
        pairs = np.array([(k, q // (self.n + 1)) for k, v in enumerate(vectors) for q in v], dtype=np.int64)
        size = len(vectors) + self.m
        k, j = pairs.reshape(-1, 2).T
        graph = sp.coo_array((np.ones(len(k)), (k, len(vectors) + j)), shape=(size, size))
        count, label = connected_components(graph, directed=False)
        for block in range(count):
            members = np.flatnonzero(label == block)
            own = [vectors[k] for k in members if k < len(vectors)]
            if own:
                yield own, [int(k) - len(vectors) for k in members if k >= len(vectors)]

    def _solved(self, vectors: list[dict[int, int]], neurons: list[int]) -> ObjectArray:
        """Combinations ``(count, vectors)`` of a block that solve the equations of the second kind."""
        rows: set[tuple[int, ...]] = set()
        for j in neurons:
            self.run.check()
            entries = [(k, *divmod(q, self.n + 1), x) for k, v in enumerate(vectors) for q, x in v.items()]
            local = [(k, i, x) for k, reader, i, x in entries if reader == j]
            senders = sorted({i for _, i, _ in local if i < self.n})
            crossed = self._regions.left[self._regions.entry == self.n + j]
            if not self.last[:, j].any() or not len(crossed):
                continue
            for pattern in np.unique(self.first[crossed][:, senders], axis=0):
                on = {i for i, is_on in zip(senders, pattern, strict=True) if is_on}
                table = np.zeros((self.maps.shape[1], len(vectors)), dtype=object)
                for k, i, x in local:
                    if i == self.n:
                        table[-1, k] += x * self.one
                    elif i in on:
                        table[:, k] += x * self.maps[i]
                rows |= {tuple(row) for row in table.tolist() if any(row)}
        if not rows:
            return np.eye(len(vectors), dtype=object)
        return integer_kernel(np.array(sorted(rows), dtype=object))

    def reduced(self, block: tuple[list[dict[int, int]], list[int]], roots: IntArray, ring: ModularAlgebra) -> Residues:
        """The solutions of a block that are a constant at most, with that taken back, as rows over all parameters."""
        vectors, neurons = block
        mixes = self._solved(vectors, neurons)
        table = np.zeros((len(vectors), self.m * (self.n + 1)), dtype=object)
        for k, v in enumerate(vectors):
            table[k, list(v)] = list(v.values())
        used = np.flatnonzero((table != 0).any(axis=0))
        values = np.zeros((len(mixes), table.shape[1]), dtype=object)
        values[:, used] = mixes @ table[:, used]
        kept, constants = self._constants(values, roots)
        return self._placed(values[kept], constants[kept], ring)

    def _constants(self, values: ObjectArray, roots: IntArray) -> tuple[BoolArray, ObjectArray]:
        """Which solutions are one constant in all roots, and this constant, in units of the first layer's integers.

        With several outputs only those count of which every neuron passes on nothing.
        """
        count = len(values)
        grid = values.reshape(count, self.m, self.n + 1)
        maps = np.concatenate([self.maps, np.zeros((1, self.maps.shape[1]), dtype=object)])
        maps[-1, -1] = self.one
        constants = np.zeros(count, dtype=object)
        kept = np.ones(count, dtype=bool)
        for number, root in enumerate(roots):
            senders, on = np.append(self.first[root], True), self.second[root]
            forms = (grid[:, on][:, :, senders] @ maps[senders]).reshape(count, int(on.sum()), maps.shape[1])
            if self.scaled:
                forms = forms.sum(axis=1, keepdims=True)
                if first_bias(self.net, 2) is not None:
                    constants = forms[:, 0, -1].copy() if number == 0 else constants
                    forms[:, 0, -1] -= constants
            kept &= ~(forms != 0).any(axis=(1, 2))
        return kept, constants

    def _placed(self, values: ObjectArray, constants: ObjectArray, ring: ModularAlgebra) -> Residues:
        net, p = self.net, ring.prime
        rows = np.zeros((len(values), net.num_parameters), np.uint64)
        grid = residues_of_integers(values, p).reshape(len(values), self.m, self.n + 1)
        if self.scaled:
            grid = ring.multiply(grid, _inverses(ring.take(self.last[0]), p)[None, :, None])
        rows[:, columns_of(net, 1).reshape(-1)] = grid[:, :, :-1].reshape(len(values), self.m * self.n)
        bias, output = first_bias(net, 1), first_bias(net, 2)
        if bias is not None:
            rows[:, bias : bias + self.m] = grid[:, :, -1]
        if self.scaled and output is not None:
            # The constant is counted in units of the first layer's integers.
            unit = pow(self.one, -1, p)
            rows[:, output] = residues_of_integers(constants * -unit, p)
        return rows


def _inverses(values: Residues, prime: int) -> Residues:
    """Inverses modulo a prime; of zero, a weight through which nothing passes, one."""
    return np.array([pow(int(v), -1, prime) if v else 1 for v in values], np.uint64)


def integer_kernel(matrix: Any) -> ObjectArray:
    """A basis of the kernel of an integer matrix, as rows of integers without a common factor.

    >>> integer_kernel(np.array([[1, 1, 0]])).tolist()
    [[-1, 1, 0], [0, 0, 1]]
    """
    table = np.asarray(matrix)
    columns = table.shape[1]
    if not len(table):
        return np.eye(columns, dtype=object)
    echelon, unit, rank = flint.fmpz_mat(table.tolist()).rref()
    rows = np.array(echelon.tolist(), dtype=object).reshape(-1, columns)[:rank]
    pivots = [int(np.flatnonzero(row != 0)[0]) for row in rows]
    free = np.setdiff1d(np.arange(columns), pivots)
    result = np.zeros((len(free), columns), dtype=object)
    for k, column in enumerate(free):
        result[k, column] = int(unit)
        result[k, pivots] = [-int(x) for x in rows[:, column]]
        result[k] //= int(np.gcd.reduce(result[k][result[k] != 0]))
    return result
