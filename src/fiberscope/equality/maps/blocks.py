"""Composed maps by channels: the rows of some channels, and other channels put in for those that are read.

A channel of a convolution has one value per pixel, a neuron of a dense layer has one value. Kernels and matrices stay
what they are wherever channels move as a whole; other maps become sparse matrices.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np
from scipy import sparse as sp

from fiberscope.equality.maps.skeleton import ComposedMap, Gate, Piece, added, checked_size, may_underflow, per_channel
from fiberscope.network.convolutions import Convolution, full_kernel
from fiberscope.network.nodes import MaxPool
from fiberscope.network.operators import Dense, Operator, Scale, Sparse
from fiberscope.numerics.floats import INFLATE, LOST, BoolArray, FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class Blocks:
    """How the entries of a value are ordered: ``channels`` of ``positions`` entries each.

    The entries of a channel stand side by side, or, with ``last``, all channels of one position do.

    >>> Blocks(2, 3).places.tolist(), Blocks(2, 3, last=True).places.tolist()
    ([[0, 1, 2], [3, 4, 5]], [[0, 2, 4], [1, 3, 5]])
    """

    channels: int
    positions: int
    last: bool = False

    @property
    def size(self) -> int:
        return self.channels * self.positions

    @cached_property
    def places(self) -> IntArray:
        """``(channels, positions)``: where every entry stands."""
        every = np.arange(self.size)
        if self.last:
            return every.reshape(self.positions, self.channels).T
        return every.reshape(self.channels, self.positions)


def read_by(gate: Gate) -> Blocks:
    """The channels of what a switch reads, which are those of what it gives."""
    size = gate.form.offset.size
    if isinstance(gate.node, MaxPool):
        return Blocks(1, size) if gate.node.table is not None else Blocks(gate.node.in_shape[0], _image(gate.node))
    for piece in gate.form.pieces.values():
        if isinstance(piece.values, Convolution):
            return Blocks(piece.values.out_shape[0], size // piece.values.out_shape[0])
    shape = tuple(n for n in gate.node.shape if n != 1) if len(gate.node.shape) < 3 else gate.node.shape
    if len(shape) == 2:  # rows of features: a dense layer that acts on each of them
        return Blocks(shape[1], shape[0], last=True)
    return Blocks(shape[0], size // shape[0]) if shape else Blocks(1, size)


def given_by(gate: Gate, read: Blocks) -> Blocks:
    """The channels of what a switch gives."""
    size = prod(gate.node.shape)
    return read if size == read.size else Blocks(read.channels, size // read.channels)


def _image(node: MaxPool) -> int:
    return prod(node.in_shape) // node.in_shape[0]


# -- other channels in the place of those that are read ----------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Naming:
    """What every channel of a value is: ``factors[c]`` times channel ``members[c]`` of value ``values[c]``, or the
    constant ``constants[c]`` (a number per position) where ``values[c]`` is negative."""

    values: IntArray
    members: IntArray
    factors: FloatArray
    constants: FloatArray | None = None

    @classmethod
    def itself(cls, value: int, channels: int) -> Naming:
        return cls(np.full(channels, value), np.arange(channels), np.ones(channels))

    def is_itself(self, value: int) -> bool:
        plain = (self.values == value) & (self.members == np.arange(len(self.members))) & (self.factors == 1)
        return bool(plain.all())

    @property
    def constant(self) -> BoolArray:
        return np.asarray(self.values < 0)

    def filled(self, blocks: Blocks) -> FloatArray:
        """The constants in their places, zeros in those of other channels."""
        value = np.zeros(blocks.size)
        if self.constants is not None:
            value[blocks.places[self.constant]] = self.constants[self.constant]
        return value


def renamed(form: ComposedMap, namings: Mapping[int, Naming], blocks: Mapping[int, Blocks]) -> ComposedMap:
    """The same map read from the channels that others stand for; every rounding on the way is counted."""
    pieces: dict[int, Piece] = {}
    offset, offset_sizes = form.offset, form.offset_sizes
    rounded, lost, reach = 0, 0.0, 1.0
    for name, piece in form.pieces.items():
        naming = namings[name]
        parts = [(name, piece)]
        if not naming.is_itself(name):
            mixtures = list(_mixtures(piece, name, naming, blocks))
            parts = [(value, mixed) for value, mixed, _ in mixtures]
            steps, most = _cost(naming)
            rounded = max(rounded, 0 if all(exact for *_, exact in mixtures) else steps)
            reach = max(reach, most)
            lost += (steps + 1) * LOST if may_underflow(piece.values.coefficients, naming.factors) else 0.0
        for value, part in parts:
            rounded += value in pieces
            pieces[value] = added(pieces[value], part) if value in pieces else part
        constants = naming.filled(blocks[name])
        if constants.any():
            offset = offset + piece.values.apply(constants[None])[0]
            offset_sizes = offset_sizes + piece.sizes.apply(np.abs(constants)[None])[0]
            rounded += 0 if piece.is_identity and not form.offset.any() else piece.values.fan_in + 2
            lost += piece.values.fan_in * LOST if may_underflow(piece.values.coefficients, constants) else 0.0
            reach = max(reach, float(np.abs(constants).sum()))
    if form.lost:
        lost += form.lost * len(form.pieces) * (1 + reach) * INFLATE
    return ComposedMap(pieces, offset, offset_sizes, form.roundings + rounded, lost)


def _cost(naming: Naming) -> tuple[int, float]:
    """Roundings of a coefficient at most, and the largest sum of factors."""
    steps, reach = 0, 1.0
    for value in np.unique(naming.values[~naming.constant]):
        which = naming.values == value
        members = naming.members[which]
        steps = max(steps, int(np.bincount(members).max()) + 1)
        reach = max(reach, float(np.bincount(members, naming.factors[which]).max()))
    return steps, reach


def _mixtures(
    piece: Piece, name: int, naming: Naming, blocks: Mapping[int, Blocks]
) -> Iterator[tuple[int, Piece, bool]]:
    """The map of one value as maps of the values that are put in, and whether nothing was rounded."""
    for value in np.unique(naming.values[~naming.constant]).tolist():
        which = np.flatnonzero(naming.values == value)
        to, factors = blocks[value], naming.factors[which]
        (values, exact), (sizes, _) = (
            _mixed(operator, blocks[name], to, which, naming.members[which], factors)
            for operator in (piece.values, piece.sizes)
        )
        yield value, Piece(values, sizes), exact and bool((np.frexp(factors)[0] == 0.5).all())


def _mixed(
    operator: Operator, own: Blocks, to: Blocks, which: IntArray, members: IntArray, factors: FloatArray
) -> tuple[Operator, bool]:
    """The map read from other channels, and whether all sums were exact."""
    whole = own.channels == to.channels == len(which) and own.last == to.last
    if whole and (members == np.arange(len(which))).all() and (factors == 1).all():
        return operator, True
    image = as_kernel(operator, own)
    if image is not None and not to.last:
        made, exact = _gathered(full_kernel(image)[:, which], to.channels, members, factors)
        shape = (to.channels, *image.in_shape[1:])
        return Convolution(made, shape, image.stride, image.padding, image.dilation), exact
    if isinstance(operator, Dense):
        matrix = operator.matrix[:, own.places[which].reshape(-1)].reshape(-1, len(which), own.positions)
        table, exact = _gathered(matrix, to.channels, members, factors)
        return Dense(table.reshape(len(table), -1)[:, _inverse(to)]), exact
    checked_size(operator)
    rows, columns = own.places[which].reshape(-1), to.places[members].reshape(-1)
    entries = (np.repeat(factors, own.positions), (rows, columns))
    matrix = operator.sparse() @ sp.csr_array(entries, shape=(own.size, to.size))
    return Sparse(matrix, (to.size,), operator.out_shape), len(np.unique(members)) == len(members)


def _inverse(blocks: Blocks) -> IntArray:
    """From channels and positions in order to the places of a value."""
    return np.argsort(blocks.places.reshape(-1), kind="stable")


def _gathered(table: FloatArray, size: int, members: IntArray, factors: FloatArray) -> tuple[FloatArray, bool]:
    """The entries along the second axis times their factors, added up at their new places; whether sums are exact."""
    weighted = table * factors.reshape(1, -1, *(1 for _ in table.shape[2:]))
    found = np.zeros((table.shape[0], size, *table.shape[2:]))
    if len(np.unique(members)) == len(members):
        found[:, members] = weighted
        return found, True
    exact = True
    for k, member in enumerate(members.tolist()):
        before, more = found[:, member], weighted[:, k]
        total = before + more
        back = total - before
        exact = exact and not ((before - (total - back)) + (more - back)).any()  # what the sum lost; never for NaN
        found[:, member] = total
    return found, exact


def as_kernel(operator: Operator, blocks: Blocks) -> Convolution | None:
    """An operator that reads channels as a convolution of them, if it is one or is a factor per channel."""
    if blocks.last:
        return None
    if isinstance(operator, Convolution):
        return operator if operator.in_shape[0] == blocks.channels else None
    if isinstance(operator, Scale) and blocks.positions > 1:
        factors = np.broadcast_to(operator.factors, operator.in_shape).reshape(-1)
        each = per_channel(factors, (blocks.channels, blocks.positions, 1))
        if each is not None:
            return Convolution(np.diag(each)[:, :, None, None], (blocks.channels, blocks.positions, 1))
    return None


# -- rows of some channels ---------------------------------------------------------------------------------------------


def rows_of(form: ComposedMap, blocks: Blocks, channels: IntArray, factors: FloatArray | None = None) -> ComposedMap:
    """The map to some channels alone, in that order, times a factor for each."""
    places = blocks.places[channels].reshape(-1)
    times = np.ones(len(channels)) if factors is None else factors
    each = np.repeat(times, blocks.positions)
    dyadic = bool((np.frexp(times)[0] == 0.5).all())
    lost, pieces = form.lost * float(times.max(initial=1.0)), {}
    for name, piece in form.pieces.items():
        found = [_rows(operator, blocks, channels, places, times) for operator in (piece.values, piece.sizes)]
        pieces[name] = Piece(found[0], found[1])
        if (times != 1).any() and may_underflow(piece.values.coefficients, times):
            lost += LOST
    if (times != 1).any() and may_underflow(form.offset, times):
        lost += LOST
    offset, sizes = form.offset[places] * each, form.offset_sizes[places] * each
    return ComposedMap(pieces, offset, sizes, form.roundings + (0 if dyadic else 1), lost)


def _rows(operator: Operator, blocks: Blocks, channels: IntArray, places: IntArray, times: FloatArray) -> Operator:
    image = operator
    if isinstance(operator, Scale):
        image = as_kernel(operator, blocks) or operator
    if isinstance(image, Convolution) and not blocks.last and image.out_shape[0] == blocks.channels:
        kernel = full_kernel(image)
        whole = len(channels) == blocks.channels and (channels == np.arange(len(channels))).all()
        if whole and (times == 1).all() and image.groups == 1:
            return image
        kernel = kernel[channels] * times[:, None, None, None]
        return Convolution(kernel, image.in_shape, image.stride, image.padding, image.dilation)
    each = np.repeat(times, blocks.positions)[:, None]
    if isinstance(operator, Dense):
        return Dense(operator.matrix[places] * each)
    checked_size(operator)
    matrix = sp.csr_array(operator.sparse()[places])
    return Sparse(matrix.multiply(each).tocsr(), (operator.in_size,), (len(places),))
