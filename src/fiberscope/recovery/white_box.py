"""The parameters from the folds of a function: a complex with exact affine maps, no value is asked.

What is used is the weighted breakpoint complex and the affine maps on its two sides, nothing else of the network that
made it: the folds, which of them bend at which, and the jumps of the gradient. On a part of the domain on which the
known layers are affine and of full rank, the network behind them is a network of its own. By Lemma 3 of Phuong and
Lampert (ICLR 2020), read with *bending* edges, the pieces of its fold-set from which a chain of bends as long as there
are later layers starts belong to its first layer. A layer is refused unless there are exactly as many of them as it has
neurons. The gradient is a combination of the layer's rows, and across the fold of one neuron just its coefficient
changes, from one to ``slope``: that tells the sign. The last layer is a linear system. Everything is in fractions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np

from fiberscope.errors import InputError
from fiberscope.geometry.affine_forms import rational_output
from fiberscope.geometry.complex import Complex
from fiberscope.geometry.folds.dependency import dependency_graph, longest_chains
from fiberscope.geometry.folds.fold_set import Piece, fold_set_within
from fiberscope.geometry.folds.hyperplanes import refuse_pooling
from fiberscope.geometry.verify import exact_vertices
from fiberscope.network.chains import slopes_of
from fiberscope.network.network import Network
from fiberscope.numerics.exact_arrays import fractions, nearest
from fiberscope.numerics.exact_linear import matrix_of, reduced, unit
from fiberscope.numerics.floats import BoolArray, ObjectArray
from fiberscope.recovery.recovered import Layers, Recovery, network_of
from fiberscope.recovery.unresolved import Unresolved
from fiberscope.run import Run

PROOF = "its parameters are those of the complex's network up to order and positive scale of neurons, in fractions"


class RefusedError(Exception):
    """A layer cannot be told; ``item`` says why."""

    def __init__(self, layer: int, reason: str, neuron: int | None = None) -> None:
        super().__init__(reason)
        self.item = Unresolved(layer, neuron, reason)


@dataclass
class Parts:
    """The function and the layers that are known, on every region.

    ``maps`` are those of the function, ``(out, n + 1)`` with the constant last, ``known`` those of the activations of
    the last known layer, ``on`` which known neurons are active there.
    """

    complex: Complex
    slope: Fraction
    maps: list[ObjectArray]
    points: ObjectArray
    known: list[ObjectArray]
    on: list[tuple[bool, ...]]
    layers: list[tuple[ObjectArray, ObjectArray]] = field(default_factory=list)

    @classmethod
    def begin(cls, complex: Complex, slope: float, run: Run) -> Parts:
        net, maps = complex.net, []
        for k, signs in enumerate(complex.sign_vectors):
            run.step(k, complex.num_regions, "affine maps")
            maps.append(rational_output(net, signs))
        start = np.concatenate([unit(net.in_size), fractions(np.zeros((net.in_size, 1)))], axis=1)
        count = complex.num_regions
        return cls(complex, Fraction(slope), maps, _points_inside(complex, run), [start] * count, [()] * count)

    def full_parts(self) -> list[BoolArray]:
        """Masks of the parts of the domain on which the known layers have full rank."""
        keys = sorted(set(self.on))
        found = []
        for key in keys:
            own = [k for k, pattern in enumerate(self.on) if pattern == key]
            matrix = self.known[own[0]][:, :-1]
            if len(reduced(matrix)[0]) == len(matrix):
                found.append(np.isin(np.arange(len(self.on)), own))
        return found

    def forms(self, W: ObjectArray, b: ObjectArray) -> list[ObjectArray]:
        """``W a + b`` on every region, ``(rows, n + 1)``; regions with the same known pattern share one array."""
        shared: dict[tuple[bool, ...], ObjectArray] = {}
        for pattern, before in zip(self.on, self.known, strict=True):
            if pattern not in shared:
                z = W @ before
                z[:, -1] += b
                shared[pattern] = z
        return [shared[pattern] for pattern in self.on]

    def add(self, W: ObjectArray, b: ObjectArray) -> None:
        """A further layer, with its signs."""
        self.layers.append((W, b))
        for k, z in enumerate(self.forms(W, b)):
            active = tuple(bool(v > 0) for v in z[:, :-1] @ self.points[k] + z[:, -1])
            scale = np.array([Fraction(1) if a else self.slope for a in active], dtype=object)
            self.known[k], self.on[k] = scale[:, None] * z, (*self.on[k], *active)


def _points_inside(complex: Complex, run: Run) -> ObjectArray:
    """A point inside of every region: the mean of its vertices where, beyond some ten layers, it holds no float."""
    points = fractions(complex.points)
    inside = (complex.net.signs(complex.points).signs == complex.sign_vectors).all(axis=1)
    for region in np.flatnonzero(~inside).tolist():
        run.check()
        own = complex.structure.vertices_of(complex.dimension)[region]
        vertices = matrix_of(exact_vertices(complex, own, region), complex.dimension + 1)
        total = sum(row / (row[-1] or 1) for row in vertices)  # directions at infinity end with zero
        points[region] = total[:-1] / total[-1]
    return points


def white_box(complex: Complex, widths: tuple[int, ...], run: Run) -> Recovery:
    """Recover the network of a complex from its folds; see :func:`fiberscope.recovery.recover.recover`."""
    slope = _checked(complex, widths)
    parts = Parts.begin(complex, slope, run)
    unresolved: tuple[Unresolved, ...] = ()
    rational: Layers | None = None
    try:
        for number in range(1, len(widths) - 1):
            run.step(number - 1, len(widths) - 1, f"layer {number}")
            parts.add(*_layer(parts, number, widths))
        rational = (*parts.layers, _outputs(parts))
    except RefusedError as refusal:
        unresolved = (refusal.item,)
    planes = tuple((nearest(W), nearest(b)) for W, b in (rational or parts.layers))
    if rational is None:
        return Recovery(widths, None, np.inf, 0.0, 0.0, 0, 0, unresolved, False, complex.domain, planes, slope=slope)
    same = same_parameters(rational, complex.net)
    if not same:
        text = "the function is this one, but the complex was made by other parameters: it does not determine them"
        unresolved = (Unresolved(len(widths) - 1, None, text),)
    net = network_of([W for W, _ in planes], [b for _, b in planes], slope)
    size = float(max((abs(v) for m in parts.maps for v in m.ravel()), default=Fraction(0)))
    return Recovery(widths, net, 0.0, size, 0.0, 0, 0, unresolved, same, complex.domain, planes, rational,
                    PROOF if same else None, slope)  # fmt: skip


def _checked(complex: Complex, widths: tuple[int, ...]) -> float:
    """The slope of negative inputs, which all neurons must share."""
    net = complex.net
    refuse_pooling(net, "recover")
    if complex.view.frame is not None:
        raise InputError(f"recover: expected a complex on a domain with interior points, got {complex.domain}")
    if not complex.complete:
        raise InputError("recover: expected a complete complex, got one that was interrupted")
    if widths[0] != net.in_size or widths[-1] != net.out_size:
        raise InputError(f"widths: expected {net.in_size} inputs and {net.out_size} outputs, got {list(widths)}")
    slopes = {float(s) for part in slopes_of(net) for s in np.ravel(part)} if net.is_chain else set()
    if len(slopes) > 1 or not net.is_chain:
        raise InputError("recover: expected a complex of a chain of dense layers whose neurons share one slope")
    return slopes.pop() if slopes else 0.0


def _layer(parts: Parts, number: int, widths: Sequence[int]) -> tuple[ObjectArray, ObjectArray]:
    """Rows and offsets of a layer behind the known ones, with signs; raises :class:`RefusedError`."""
    width, needed = widths[number], len(widths) - 2 - number
    if width > widths[number - 1]:
        raise RefusedError(number, f"it is wider than the layer before, {width} against {widths[number - 1]}: no chain "
                           "of bends is known to tell its neurons")  # fmt: skip
    masks = parts.full_parts()
    if not masks:
        raise RefusedError(number, "the image of the layers before has no interior: nowhere are enough of them active")
    found: dict[tuple[Fraction, ...], list[tuple[BoolArray, Piece]]] = {}
    for mask in masks:
        folds = fold_set_within(parts.complex, mask)
        chains = longest_chains(dependency_graph(folds))
        for piece in folds.pieces:
            if chains[piece.index] < needed or (not needed and piece.order > 1):
                continue
            if piece.order > 1:
                raise RefusedError(number, f"a fold that bends starts a chain of {needed} bends: the network is not "
                                   "general and transparent there")  # fmt: skip
            row = _row(parts, piece)
            if row is None:
                raise RefusedError(number, f"a fold with a chain of {needed} bends is no combination of the neurons "
                                   "before")  # fmt: skip
            found.setdefault(row, []).append((mask, piece))
    if len(found) != width:
        raise RefusedError(number, f"{len(found)} folds start a chain of {needed} bends, expected {width}, one for "
                           "every neuron")  # fmt: skip
    rows = np.array(list(found), dtype=object)
    signs = _signs(parts, number, rows, list(found.values()))
    rows = np.array(signs, dtype=object)[:, None] * rows
    return rows[:, :-1], rows[:, -1]


def _row(parts: Parts, piece: Piece) -> tuple[Fraction, ...] | None:
    """The fold as a row over the activations before, with its offset; the largest entry is 1. None if it is none."""
    head = int(piece.facets[0])
    one, two = parts.complex.facets.regions[head].tolist()
    jump = parts.maps[two] - parts.maps[one]
    plane = next(row for row in jump if any(row))
    return _combination(parts.known[one], plane)


def _combination(known: ObjectArray, plane: ObjectArray) -> tuple[Fraction, ...] | None:
    """``(v, b)`` with ``v known + (0, b) = plane``, scaled so that its largest entry is 1; None if there is none."""
    v = _solved(known[:, :-1], plane[:-1])
    if v is None:
        return None
    row = [*v, plane[-1] - (v @ known)[-1]]
    lead = max(row, key=abs)
    return tuple(x / lead for x in row)


def _solved(rows: ObjectArray, target: ObjectArray) -> ObjectArray | None:
    """The coefficients of ``target`` over independent rows; None where it is no combination of them."""
    echelon, pivots = reduced(np.concatenate([rows.T, target[:, None]], axis=1))
    if pivots != list(range(len(rows))):
        return None
    return np.asarray(echelon[:, -1])


def _signs(parts: Parts, number: int, rows: ObjectArray, pieces: Sequence[Sequence[tuple[BoolArray, Piece]]]) -> (
    list[int]
):  # fmt: skip
    """On which side of its fold every neuron is active.

    The gradient is a combination of the rows; on the other side the neuron's coefficient is ``slope`` times that here.
    """
    signs, known = [], _Coefficients(parts, parts.forms(rows[:, :-1], rows[:, -1]))
    regions = parts.complex.facets.regions
    for j, own in enumerate(pieces):
        told: set[int] = set()
        for facet in {facet for _, piece in own for facet in piece.facets.tolist()}:
            told |= known.told(j, *regions[facet].tolist())
        if len(told) != 1:
            why = "both sides of its fold look active" if told else "no side of its fold has fewer components"
            raise RefusedError(number, f"the gradient does not tell its sign: {why}", j)
        signs.append(told.pop())
    return signs


@dataclass
class _Coefficients:
    """The gradients of the function over the rows of a layer, found once for every region."""

    parts: Parts
    forms: list[ObjectArray]
    found: dict[int, list[ObjectArray | None]] = field(default_factory=dict)

    def at(self, region: int) -> list[ObjectArray | None]:
        if region not in self.found:
            rows = self.forms[region][:, :-1]
            self.found[region] = [_solved(rows, row[:-1]) for row in self.parts.maps[region]]
        return self.found[region]

    def told(self, j: int, one: int, two: int) -> set[int]:
        """The sign of row ``j`` as two neighbouring regions tell it: one entry, or none where they tell nothing."""
        side = {}
        for region in (one, two):
            z = self.forms[region][j]
            height = z[:-1] @ self.parts.points[region] + z[-1]
            side[1 if height > 0 else -1] = [None if c is None else c[j] for c in self.at(region)]
        if len(side) < 2:
            return set()
        slope, pairs = self.parts.slope, {s: list(zip(side[s], side[-s], strict=True)) for s in (1, -1)}
        return {s for s in (1, -1) if all(on is not None and off == slope * on for on, off in pairs[s])}


def _outputs(parts: Parts) -> tuple[ObjectArray, ObjectArray]:
    """The last layer, from the maps of all regions at once."""
    n = len(parts.known[0])
    columns = []
    for known, own in zip(parts.known, parts.maps, strict=True):
        constant = fractions(np.zeros((known.shape[1], 1)))
        constant[-1, 0] = Fraction(1)
        columns.append(np.concatenate([known.T, constant, own.T], axis=1))
    system = np.concatenate(list({tuple(row): row[None] for block in columns for row in block}.values()))
    echelon, pivots = reduced(system)
    last = len(parts.layers) + 1
    if any(p > n for p in pivots):
        raise RefusedError(last, "the outputs are no linear function of the neurons that were found")
    if len(pivots) <= n:
        raise RefusedError(last, "the outputs do not determine their weights: some neurons depend on others")
    return echelon[:n, n + 1 :].T, echelon[n, n + 1 :]


def same_parameters(rational: Layers, net: Network) -> bool:
    """Whether the layers are those of the network up to order and positive scale of neurons, exactly."""
    if [len(W) for W, _ in rational] != list(net.widths[1:]):
        return False
    order, scale = list(range(net.in_size)), [Fraction(1)] * net.in_size
    for (W, b), weight, bias in zip(rational, net.weights, net.biases, strict=True):
        truth = np.concatenate([fractions(weight)[:, order] * np.array(scale, dtype=object), fractions(bias)[:, None]],
                               axis=1)  # fmt: skip
        mine = np.concatenate([W, b[:, None]], axis=1)
        if weight is net.weights[-1]:
            return bool((mine == truth).all())
        index = {tuple(row / max(abs(row))): (j, max(abs(row))) for j, row in enumerate(truth) if any(row)}
        pairs = [(index.get(tuple(row / max(abs(row)))), max(abs(row))) for row in mine]
        matched = [(found[0], found[1] / size) for found, size in pairs if found is not None]
        order, scale = [j for j, _ in matched], [s for _, s in matched]
        if len(set(order)) != len(truth):
            return False
    return False
