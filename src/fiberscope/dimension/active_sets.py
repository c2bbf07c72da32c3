"""Directions that change nothing, read off from which neurons switch where a neuron behind them is on.

A neuron ``j`` reads the layer before it only where it is on and an output sees it: on its *active set*. There every
neuron ``i`` of that layer is off throughout, on throughout, or it switches. Of one that is off the weight into ``j``
is free. The values of those that are on are combinations of *atoms*: the inputs, the constant, and neurons further back
that switch on the active set. With more values than atoms they depend on each other, and the weights into ``j`` can
move along every dependency. A neuron that switches on no active set behind it can be changed as one likes: the neurons
that read it take the change back through the others that are on.

Seen from the other side: what the weights out of one neuron do to the outputs is its value times what its readers pass
on. Where that neuron is on, readers may depend on each other. Networks with two hidden layers whose regions
are all known are asked more: see ``jumps``.

All of this is about signs, and about kernels of small matrices whose rank modulo a prime is the rational one. Such a
kernel is the reduction of the kernel over the rationals. So directions that are independent modulo the prime come from
as many independent ones over the rationals, and ``D`` minus their number is a proven bound of the rank.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fiberscope.dimension.jumps import Adjacency, second_layer_kernel
from fiberscope.dimension.symmetries import activity, acts_freely_on, columns_of, first_bias, free_columns, tangents
from fiberscope.network.network import Network
from fiberscope.numerics.algebra.residue import ModularAlgebra
from fiberscope.numerics.elimination import Echelon, echelon_mod, rank_mod
from fiberscope.numerics.floats import BoolArray, FloatArray, IntArray, SignArray
from fiberscope.numerics.modular import MIDDLE, Residues, matmul_mod, random_primes
from fiberscope.numerics.rank import RATIONAL_LIMIT, exact_rank
from fiberscope.run import ENDLESS, Run

WORK = 2 * 10**10
"""Products that all small kernels and the rank of the directions may cost; above, nothing is counted."""


def active_directions(net: Network, signs: SignArray, work: int = WORK, run: Run = ENDLESS) -> int | None:
    """At least so many independent directions change no output on a batch with these certified signs.

    None where they are not looked for: networks that are no chain of ReLU layers with parameters of their own, batches
    with a preactivation that is exactly zero, and more work than ``work``.

    The second layer's neuron is on where ``x > 1``, and there both neurons before it are on: of the three weights into
    it one is too many, beside the three rescalings. The first layer's kinks are not seen: there are two more.

    >>> net = Network([[[1.0], [2.0]], [[1.0, 1.0]], [[1.0]]], [[0.0, 1.0], [-4.0], [0.0]])
    >>> X = np.array([[-3.0], [-2.0], [-0.4], [-0.2], [0.5], [0.7], [2.0], [3.0]])
    >>> active_directions(net, net.signs(X).signs)
    6
    """
    found = unseen_rows(net, signs, work, run)
    if found is None:
        return None
    rows, free, prime = found
    table = np.ascontiguousarray(rows[:, ~free])
    return int(free.sum()) + (rank_mod(table, prime, run) if table.size else 0)


def unseen_rows(
    net: Network, signs: SignArray, work: int = WORK, run: Run = ENDLESS
) -> tuple[Residues, BoolArray, int] | None:
    """Those directions as rows modulo a prime, the parameters on which nothing depends as a mask, and the prime."""
    plain = acts_freely_on(net) and bool((net.layout.slopes == 0).all())
    if not plain or not len(net.layout.places) or any(p.node.linear.any() for p in net.layout.places):
        return None
    if (signs == 0).any() or _work(net) > work:
        return None
    (prime,) = random_primes(1, 0, MIDDLE)
    layers = activity(net, signs)
    free = free_columns(net, layers)
    rows = list(tangents(net, layers, prime))
    patterns = np.unique(signs > 0, axis=0)
    on = [patterns[:, place.columns] for place in net.layout.places]
    ring = ModularAlgebra(prime)
    jumps = second_layer_kernel(net, Adjacency.of(patterns), ring, run)
    rows.append(_senders(net, on, ring, run) if jumps is None else jumps)
    for k, read in enumerate(_read(net, on)):
        found = _Layer(net, k, on, read, ring, run)
        free |= found.free()
        rows.append(found.directions())
    return np.concatenate(rows), free, prime


def _work(net: Network) -> int:
    """For every neuron a small elimination, then one of all directions; a rough count, the largest it can be."""
    widths = net.widths
    pairs = enumerate(itertools.pairwise(widths[1:]))
    small = sum(n * m * m * sum(widths[: k + 1]) for k, (m, n) in pairs)
    return int(small) + net.num_parameters**2 * max(widths)


def _read(net: Network, on: list[BoolArray]) -> list[BoolArray]:
    """For every hidden layer where its readers (neurons, at last outputs) are on and seen: ``(regions, readers)``."""
    result = [np.ones((len(on[-1]), net.out_size), dtype=bool)]
    for k in range(len(on) - 1, 0, -1):
        behind = (net.weights[k + 1] != 0).astype(np.float32)
        result.append(on[k] & (result[-1].astype(np.float32) @ behind > 0))
    return result[::-1]


@dataclass(frozen=True, slots=True, eq=False)
class _Values:
    """What one reader gets from the neurons that do not switch for it.

    ``table`` are their values in atoms, ``(neurons, atoms)``, and ``before`` the values that they read with the
    constant as the last row; ``used`` says which atoms can occur at all.
    """

    neurons: IntArray
    table: Residues
    before: Residues
    used: BoolArray


@dataclass(eq=False)
class _Layer:
    """Hidden layer ``k`` and its readers, the rows of ``weights[k + 1]``."""

    net: Network
    k: int
    on: list[BoolArray]
    read: BoolArray
    ring: ModularAlgebra
    run: Run

    @cached_property
    def total(self) -> IntArray:
        return np.asarray(self.read.sum(axis=0))

    def _counts(self, layer: int) -> IntArray:
        """In how many regions of a reader's active set a neuron is on, ``(readers, neurons)``."""
        return np.rint(self.read.T.astype(np.float64) @ self.on[layer].astype(np.float64)).astype(np.int64)

    @cached_property
    def counts(self) -> list[IntArray]:
        return [self._counts(layer) for layer in range(self.k + 1)]

    def free(self) -> BoolArray:
        """The weights from neurons that are off where their readers are on, and into those that no reader gets."""
        mask = np.zeros(self.net.num_parameters, dtype=bool)
        mask[columns_of(self.net, self.k + 1)[self.counts[self.k] == 0]] = True
        unread = np.flatnonzero(~self._passed.any(axis=0))
        mask[columns_of(self.net, self.k)[unread].reshape(-1)] = True
        bias = first_bias(self.net, self.k)
        if bias is not None:
            mask[bias + unread] = True
        return mask

    @cached_property
    def _passed(self) -> BoolArray:
        """Where a reader gets a neuron's value at all, ``(readers, neurons)``."""
        return np.asarray((self.net.weights[self.k + 1] != 0) & (self.counts[self.k] > 0))

    def directions(self) -> Residues:
        """Dependencies of the values that a reader gets, and changes of hidden neurons that their readers take back."""
        net, k = self.net, self.k
        seen = (net.weights[k + 1] != 0) & (self.total > 0)[:, None]
        values = {int(j): self._values(int(j)) for j in np.flatnonzero(self.total)}
        still = self.counts[k] == 0
        for j, found in values.items():
            still[j, found.neurons] = True
        passed = self._passed
        changes = _Changes(net, k, np.flatnonzero((still | ~seen).all(axis=0) & passed.any(axis=0)))
        rows = [self._reader(j, found, passed[j], changes) for j, found in values.items()]
        return np.concatenate([np.zeros((0, net.num_parameters), np.uint64), *rows, changes.kept()])

    def _values(self, j: int) -> _Values:
        """In atoms."""
        below = [(c[j] == self.total[j], (c[j] > 0) & (c[j] < self.total[j])) for c in self.counts]
        values, before, filled = _in_atoms(self.net, below, self.ring)
        neurons = np.flatnonzero(below[self.k][0])
        used = np.array(filled[neurons].any(axis=0))
        used[self.net.in_size] |= first_bias(self.net, self.k + 1) is not None
        return _Values(neurons, values[neurons], before, used)

    def _reader(self, j: int, found: _Values, passed: BoolArray, changes: _Changes) -> Residues:
        """Dependencies among what reader ``j`` gets; its part of every change goes to ``changes``."""
        self.run.check()
        net, k = self.net, self.k
        bias = first_bias(net, k + 1)
        places, table = columns_of(net, k + 1)[j, found.neurons], found.table
        if bias is not None:
            places, table = np.append(places, bias + j), np.concatenate([table, found.before[-1:]])
        moved = np.flatnonzero(passed[changes.hidden])
        targets = changes.targets(j, moved, found, self.ring)
        kernel = self._lifted(found, table, targets)
        if kernel is None:
            changes.drop(moved)
            moved = moved[:0]
            kernel = self._lifted(found, table, targets[:0])
            if kernel is None:
                return np.zeros((0, net.num_parameters), np.uint64)
        own = kernel.free < len(places)
        basis = kernel.kernel()
        changes.take(moved, places, basis[~own][:, : len(places)])
        rows = np.zeros((int(own.sum()), net.num_parameters), np.uint64)
        rows[:, places] = basis[own][:, : len(places)]
        return rows

    def _lifted(self, found: _Values, table: Residues, targets: Residues) -> Echelon | None:
        """Values and targets eliminated, if this says what the rationals would say: no target is a pivot."""
        echelon = echelon_mod(np.ascontiguousarray(np.concatenate([table, targets]).T), self.ring.prime)
        if any(pivot >= len(table) for pivot in echelon.pivots):
            return None
        # Over the rationals the rank is not smaller, and not larger than the number of atoms that can occur.
        whole = echelon.rank == int(found.used.sum())
        return echelon if whole or (echelon.rank == len(table) and not len(targets)) else None


def _senders(net: Network, on: list[BoolArray], ring: ModularAlgebra, run: Run) -> Residues:
    """Dependencies of what the neurons of the last hidden layer pass on, where a neuron before them is on.

    What the weights from one neuron (or the biases) do to the outputs are its value times what its readers pass on. So
    these can be mixed along every dependency of the patterns, times the last weights, that the readers have there.
    """
    last = len(on) - 1
    senders = on[last - 1] if last else np.ones((len(on[0]), net.in_size), dtype=bool)
    places = list(columns_of(net, last).T)
    bias = first_bias(net, last)
    if bias is not None:
        senders = np.concatenate([senders, np.ones((len(senders), 1), dtype=bool)], axis=1)
        places.append(bias + np.arange(net.widths[-2]))
    rows = [np.zeros((0, net.num_parameters), np.uint64)]
    for sent, columns in zip(senders.T, places, strict=True):
        run.check()
        patterns = np.unique(on[last][sent], axis=0)
        passed = np.unique((patterns[:, None, :] * net.weights[-1][None]).reshape(-1, patterns.shape[1]), axis=0)
        kernel = rational_kernel(passed, ring)
        block = np.zeros((len(kernel), net.num_parameters), np.uint64)
        block[:, columns] = kernel
        rows.append(block)
    return np.concatenate(rows)


def rational_kernel(matrix: FloatArray, ring: ModularAlgebra) -> Residues:
    """The kernel of a matrix of floats modulo the prime, if it is the reduction of the rational one; else nothing.

    A rank below full is compared with the rational one, which is found for small matrices only.

    >>> from fiberscope.numerics.modular import random_primes
    >>> ring = ModularAlgebra(random_primes(1, 0, MIDDLE)[0])
    >>> rational_kernel(np.array([[1.0, 1.0]]), ring).tolist() == [[ring.prime - 1, 1]]
    True
    """
    found = echelon_mod(ring.take(matrix), ring.prime)
    rows, columns = matrix.shape
    full = found.rank == min(rows, columns)
    if not full and max(rows, columns) > RATIONAL_LIMIT:
        return np.zeros((0, columns), np.uint64)
    if not full and exact_rank(matrix, method="rational").rank > found.rank:
        return np.zeros((0, columns), np.uint64)
    return found.kernel()


def _in_atoms(
    net: Network, below: list[tuple[BoolArray, BoolArray]], ring: ModularAlgebra
) -> tuple[Residues, Residues, BoolArray]:
    """Values of the last of some layers, and inputs of its map with the constant as their last row, in atoms.

    ``below`` says of every layer which neurons are on throughout and which switch: these are atoms themselves. The last
    answer says which entries of the values may be other than zero: a residue of zero does not tell.
    """
    atoms = net.in_size + 1 + sum(int(cut.sum()) for _, cut in below)
    eye, mask = ring.take(np.eye(atoms)), np.eye(atoms, dtype=bool)
    last = slice(net.in_size, net.in_size + 1)
    values, filled, start = eye[: net.in_size], mask[: net.in_size], net.in_size + 1
    before = values
    for k, (on, cut) in enumerate(below):
        before = np.concatenate([values, eye[last]])
        reached = np.concatenate([filled, mask[last]])
        values, filled = ring.take(np.zeros((len(on), atoms))), np.zeros((len(on), atoms), dtype=bool)
        maps = np.column_stack([net.weights[k][on], net.biases[k][on]])
        if len(maps):
            values[on] = matmul_mod(ring.take(maps), np.ascontiguousarray(before), ring.prime)
            filled[on] = (maps != 0) @ reached
        end = start + int(cut.sum())
        values[cut], filled[cut] = eye[start:end], mask[start:end]
        start = end
    return values, before, filled


class _Changes:
    """Changes of hidden neurons, one for every weight into them and their bias, with what their readers take back."""

    def __init__(self, net: Network, k: int, hidden: IntArray) -> None:
        self.net, self.k, self.hidden = net, k, hidden
        bias = first_bias(net, k)
        own = columns_of(net, k)[hidden]
        self._places = own if bias is None else np.concatenate([own, (bias + hidden)[:, None]], axis=1)
        count, self._each = len(hidden), self._places.shape[1]
        self._rows = np.zeros((count, self._each, net.num_parameters), np.uint64)
        i, d = np.indices((count, self._each))
        self._rows[i, d, self._places] = 1
        self._fine = np.ones(count, dtype=bool)

    def targets(self, j: int, moved: IntArray, found: _Values, ring: ModularAlgebra) -> Residues:
        """What reader ``j`` gets from the changes of some hidden neurons, in atoms: ``(changes, atoms)``."""
        weights = ring.take(self.net.weights[self.k + 1][j, self.hidden[moved]])
        each = np.ascontiguousarray(found.before[None, : self._each])
        moves = ring.multiply(weights[:, None, None], each)
        return np.ascontiguousarray(moves.reshape(-1, found.before.shape[1]))

    def take(self, moved: IntArray, places: IntArray, back: Residues) -> None:
        """What a reader's weights do against the changes."""
        for row, i in enumerate(moved):
            self._rows[i][:, places] = back[row * self._each : (row + 1) * self._each]

    def drop(self, moved: IntArray) -> None:
        """These cannot be taken back, or it is not proven that they can."""
        self._fine[moved] = False

    def kept(self) -> Residues:
        return self._rows[self._fine].reshape(-1, self.net.num_parameters)
