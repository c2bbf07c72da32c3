"""The fold-set of a network, where it is not differentiable, and its canonical layering (Phuong & Lampert, ICLR 2020).

On an open convex domain Z the fold-set S is the union of the closed visible facets. A *piece* with respect to a
partition of Z is what a hyperplane cuts out of one cell P of the partition, all of it, and it must lie in S. The pieces
of order 1 are the full hyperplanes in S; they partition Z, and the pieces of order 2 are taken with respect to that
partition; and so on. Every set found so is as large as possible, so the representation is unique (Lemma A.6).

All cells of these partitions are convex, since hyperplanes cut convex sets. So the facets of S on one hyperplane within
one cell P are a piece if and only if they have no edge inside of P: at every ridge that is neither on the border of Z
nor on pieces of lower order, each of them goes straight on.

A fold-set need not be a union of pieces. ``max(0, x, y)`` folds along three rays from the origin and contains no line.
For a *general* and *transparent* network it is one, of order at most the number of hidden layers (Lemma 2); for any
network the union of all units' kinks is (Corollary A.1).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from fiberscope.errors import InputError
from fiberscope.geometry.complex import Complex
from fiberscope.geometry.domains import Domain
from fiberscope.geometry.facets import switched
from fiberscope.geometry.folds.hyperplanes import form_classes, refuse_pooling
from fiberscope.geometry.folds.masked_ranks import product_rank
from fiberscope.geometry.regions import regions_within
from fiberscope.geometry.stars import Level, inner_facets, levels
from fiberscope.network.border import NetworkLike, as_network
from fiberscope.numerics.floats import BoolArray, FloatArray, IntArray
from fiberscope.results import Pictured, Result, Tabular, hidden
from fiberscope.run import ENDLESS, Progress, Run

Surface = Literal["function", "units"]


@dataclass(frozen=True, slots=True, eq=False)
class Piece(Result):
    """What one hyperplane cuts out of one cell of the partition by the pieces of lower order.

    Parameters
    ----------
    index, order
        Its place in ``fold_set.pieces``, and its order, from 1.
    hyperplane
        Pieces with the same number lie in one hyperplane; decided exactly.
    normal, offset
        The piece lies in ``normal x = offset``; unit normal in floats.
    facets
        Rows of ``complex.facets`` that it consists of.
    neurons
        Entries of the sign vector that make one of its facets, or more.
    whole
        Those that make every one of its facets.
    size
        Its volume in dimension ``d - 1``.
    """

    index: int
    order: int
    hyperplane: int
    normal: FloatArray
    offset: float
    facets: IntArray
    neurons: tuple[int, ...]
    whole: tuple[int, ...]
    size: float

    def __repr__(self) -> str:
        return f"Piece({self.index}: order {self.order}, {len(self.facets)} facets of neurons {list(self.neurons)})"


@dataclass(frozen=True, eq=False)
class FoldSet(Tabular, Pictured):
    """The canonical representation of a fold-set; made by :func:`fold_set`.

    Parameters
    ----------
    complex
        The complex on which it was found.
    surface
        ``"function"``: where the network is not differentiable; ``"units"``: the kinks of all units, seen or not.
    pieces
        In the order of their orders.
    facets
        Rows of ``complex.facets`` that make up the set.
    facet_order
        Order of each of them; 0 for what belongs to no piece.
    facet_hyperplane
        Equal numbers for facets in one hyperplane, as in ``piece.hyperplane``.
    inside
        Mask over the regions whose union is the domain, or None for all of them.
    exact_decisions
        How many comparisons of hyperplanes needed exact numbers.
    """

    complex: Complex = field(metadata=hidden())
    surface: Surface
    pieces: tuple[Piece, ...]
    facets: IntArray = field(repr=False)
    facet_order: IntArray = field(repr=False)
    facet_hyperplane: IntArray = field(repr=False, metadata=hidden())
    inside: BoolArray | None = field(default=None, repr=False, metadata=hidden())
    exact_decisions: int = 0

    told = ("network=complex.net.architecture", "domain=complex.domain", "order", "is_surface", "units=_unit_numbers")
    frame = "pieces"
    picture = "fold_set"

    @property
    def order(self) -> int:
        """The largest order of a piece; 0 if there is none."""
        return max((piece.order for piece in self.pieces), default=0)

    @property
    def is_surface(self) -> bool:
        """Whether the pieces are all of it: whether the set is a piece-wise linear surface."""
        return bool((self.facet_order > 0).all())

    @property
    def rest(self) -> IntArray:
        """Rows of the facets that belong to no piece."""
        return np.asarray(self.facets[self.facet_order == 0])

    def of_order(self, order: int) -> tuple[Piece, ...]:
        """The pieces of one order."""
        return tuple(piece for piece in self.pieces if piece.order == order)

    @cached_property
    def units(self) -> BoolArray:
        """Which neurons, entries of the sign vector, make at least one facet of the set."""
        neurons = self.complex.facets.neurons
        found = np.zeros(self.complex.net.num_signs, dtype=bool)
        for row in self.facets.tolist():
            found[neurons[row]] = True
        return found

    def _unit_numbers(self) -> IntArray:
        return np.flatnonzero(self.units)

    def __repr__(self) -> str:
        counts = ", ".join(str(len(self.of_order(k))) for k in range(1, self.order + 1)) or "none"
        left = "" if self.is_surface else f"; {len(self.rest)} facets in no piece"
        return f"FoldSet({self.surface} of {self.complex.net.architecture}: pieces by order {counts}{left})"


def fold_set(
    source: NetworkLike | Complex,
    domain: Domain | None = None,
    *,
    surface: Surface = "function",
    progress: Progress | None = None,
    time_limit: float | None = None,
) -> FoldSet:
    """The fold-set of a network on the interior of a domain, layered into pieces of hyperplanes.

    Parameters
    ----------
    source
        A network, or its complex, which has its domain already.
    domain
        For a network: any domain that :func:`fiberscope.regions` takes.
    surface
        ``"function"``: the points where the network is not differentiable. ``"units"``: the kinks of all hidden units,
        which Lemma 3 is about; the same set for a general and transparent network.
    progress, time_limit
        Called as ``progress(done, total, text)``; seconds after which :class:`OutOfTimeError` is raised.

    Examples
    --------
    Two lines of the first layer, a unit of the second that bends at both, and one that does not meet them in the box.
    Its line counts as order 1, too: straightness alone does not prove a fold to come from the first layer.

    >>> from fiberscope.geometry.domains import Box
    >>> from fiberscope.network.network import Network
    >>> weights = [[[1.0, 0.0], [0.0, 1.0]], [[1.0, 1.0], [-1.0, -1.0]], [[1.0, 2.0]]]
    >>> net = Network(weights, [[0.0, 0.0], [-0.5, 1.5], [0.0]])
    >>> found = fold_set(net, Box.cube(2))
    >>> found
    FoldSet(function of 2-2-2-1: pieces by order 3, 3)
    >>> [piece.neurons for piece in found.of_order(1)]
    [(0,), (1,), (3,)]
    """
    if surface not in ("function", "units"):
        raise InputError(f"surface: expected 'function' or 'units', got {surface!r}")
    run = Run.begin(progress, time_limit)
    return _fold_set(as_complex(source, domain, run), surface, None, run)


def fold_set_within(complex: Complex, inside: BoolArray, run: Run = ENDLESS) -> FoldSet:
    """The fold-set of the function on the interior of a union of regions, which must be convex."""
    return _fold_set(complex, "function", inside, run)


def as_complex(source: NetworkLike | Complex, domain: Domain | None, run: Run = ENDLESS) -> Complex:
    """The complex itself, or that of a network on a domain."""
    if isinstance(source, Complex):
        if domain is not None and domain is not source.domain:
            raise InputError(f"domain: expected none beside a complex, which has {source.domain}, got {domain}")
        return source
    net = as_network(source, "source")
    if domain is None:
        raise InputError("domain: expected one beside a network, got none")
    run.step(0, None, "regions")
    return regions_within(net, domain, run)


def _fold_set(complex: Complex, surface: Surface, inside: BoolArray | None, run: Run = ENDLESS) -> FoldSet:
    refuse_pooling(complex.net, "fold-set")
    run.step(0, None, "facets")
    rows = np.flatnonzero(inner_facets(complex, inside) & _folds(complex, surface))
    facets, top = complex.facets, complex.sign_vectors
    entry = facets.neuron[rows]
    one, two = facets.regions[rows].T
    # A neuron may vanish on one side as a whole; its hyperplane is that of the other.
    side = np.where(top[one, entry] != 0, one, two) if len(rows) else one
    classes = form_classes(complex.view.net, top[side], entry)
    order, group = _layers(complex, rows, classes.label, inside, run)
    pieces = _pieces(complex, rows, classes.label, order, group)
    return FoldSet(complex, surface, pieces, rows, order, classes.label, inside, classes.exact_decisions)


def _folds(complex: Complex, surface: Surface) -> BoolArray:
    """Which facets the set consists of."""
    facets = complex.facets
    if surface == "function":
        return facets.visible
    found = np.zeros(len(facets), dtype=bool)
    inner = np.flatnonzero(~facets.boundary)
    one, two = (complex.sign_vectors[facets.regions[inner, k]] for k in (0, 1))
    found[inner] = (switched(complex.net, one, two) & ~complex.net.linear_entries).any(axis=1)
    return found


def _layers(
    complex: Complex, rows: IntArray, label: IntArray, inside: BoolArray | None, run: Run
) -> tuple[IntArray, IntArray]:
    """Order of every facet of the set, and the number of its piece; both 0 and -1 where it belongs to none."""
    order, group = np.zeros(len(rows), dtype=np.int64), np.full(len(rows), -1, dtype=np.int64)
    ridges = next(iter(levels(complex, inside)), None)
    on, covered = _ridges_of(rows, ridges)
    sides = complex.facets.regions
    inner = np.flatnonzero(inner_facets(complex, inside))
    in_piece = np.zeros(len(complex.facets), dtype=bool)
    level = count = 0
    while (left := np.flatnonzero(order == 0)).size:
        level += 1
        run.step(len(rows) - len(left), len(rows), f"pieces of order {level}")
        open_walls = inner[~in_piece[inner]]
        cell = _components(sides[open_walls], complex.num_regions)
        owner, ridge = on[0][~covered[on[1]]], on[1][~covered[on[1]]]
        ragged = np.zeros(len(rows), dtype=bool)
        if len(owner):
            _, back, around = np.unique(ridge * len(rows) + label[owner], return_inverse=True, return_counts=True)
            ragged[owner[around[back.reshape(-1)] < 2]] = True
        _, piece = np.unique(cell[sides[rows[left], 0]] * len(rows) + label[left], return_inverse=True)
        piece = piece.reshape(-1)
        good = ~np.isin(piece, piece[ragged[left]])
        if not good.any():
            break
        _, number = np.unique(piece[good], return_inverse=True)
        order[left[good]], group[left[good]] = level, count + number.reshape(-1)
        count = int(group.max()) + 1
        in_piece[rows[left[good]]] = True
        covered[on[1][order[on[0]] > 0]] = True
    return order, group


def _ridges_of(rows: IntArray, ridges: Level | None) -> tuple[tuple[IntArray, IntArray], BoolArray]:
    """Pairs of a facet of the set, by its place in ``rows``, and a ridge on it; and the ridges on the border."""
    if ridges is None:
        none = np.zeros(0, dtype=np.int64)
        return (none, none), np.zeros(0, dtype=bool)
    owner, ridge = ridges.facets[rows].nonzero()
    return (owner.astype(np.int64), ridge.astype(np.int64)), ridges.outer.copy()


def _components(walls: IntArray, count: int) -> IntArray:
    """Number of the component of every region, joined through the open walls."""
    graph = coo_array((np.ones(len(walls)), (walls[:, 0], walls[:, 1])), shape=(count, count))
    return np.asarray(connected_components(graph, directed=False)[1], dtype=np.int64)


def _pieces(complex: Complex, rows: IntArray, label: IntArray, order: IntArray, group: IntArray) -> tuple[Piece, ...]:
    facets, sizes = complex.facets, complex.wall_sizes
    places = np.argsort(group, kind="stable")
    places = places[group[places] >= 0]
    found: list[Piece] = []
    if not len(places):
        return ()
    for members in np.split(places, np.flatnonzero(np.diff(group[places])) + 1):
        own = rows[members]
        makers = [set(facets.neurons[row].tolist()) for row in own.tolist()]
        head = int(own[0])
        found.append(
            Piece(
                index=len(found),
                order=int(order[members[0]]),
                hyperplane=int(label[members[0]]),
                normal=facets.normal[head],
                offset=float(facets.offset[head]),
                facets=own,
                neurons=tuple(sorted(set.union(*makers))),
                whole=tuple(sorted(set.intersection(*makers))),
                size=float(sizes[facets.cell[own]].sum()),
            )
        )
    return tuple(found)


# -- truncated networks --------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Truncation(Result):
    """Fold-sets of ``h_{l:L}``, the network from layer l on, inside of the image of the domain.

    The interior of the image is made of the images of the regions of the layers before l on which their affine map has
    full rank. Each of these is convex, and gets one fold-set. They are given where the complex has them, in the input
    space: the affine map carries hyperplanes, pieces and their meetings over in both directions.

    ``whole`` is True if there is at most one such part: then its canonical representation is that of the whole
    interior. With several parts, whose images may overlap, every part is treated as a domain of its own.
    """

    layer: int
    parts: tuple[FoldSet, ...]
    coverage: str

    told = ("whole",)

    @property
    def whole(self) -> bool:
        return len(self.parts) <= 1

    def __repr__(self) -> str:
        return f"Truncation(from layer {self.layer}: {self.coverage})"


def truncated_fold_sets(complex: Complex, layer: int) -> Truncation:
    """The fold-sets of the network from ``layer`` on, counted from 1, on the interior of the image of the domain.

    Examples
    --------
    Behind the first layer of the example of :func:`fold_set` the second is two lines:

    >>> from fiberscope.geometry.domains import Box
    >>> from fiberscope.geometry.regions import regions
    >>> from fiberscope.network.network import Network
    >>> weights = [[[1.0, 0.0], [0.0, 1.0]], [[1.0, 1.0], [-1.0, -1.0]], [[1.0, 2.0]]]
    >>> complex = regions(Network(weights, [[0.0, 0.0], [-0.5, 1.5], [0.0]]), Box.cube(2))
    >>> truncated_fold_sets(complex, 2)
    Truncation(from layer 2: the interior of the image is one convex part)
    >>> truncated_fold_sets(complex, 2).parts[0]
    FoldSet(function of 2-2-2-1: pieces by order 2)
    """
    net = complex.net
    if complex.view.frame is not None:
        raise InputError(f"truncated network: expected a domain with interior points, got {complex.domain}")
    if not 1 <= layer <= len(net.widths) - 1:
        raise InputError(f"layer: expected 1 to {len(net.widths) - 1}, got {layer}")
    if layer == 1:
        return Truncation(1, (_fold_set(complex, "function", None),), "the whole domain")
    front = [place.columns for place in net.layout.places][: layer - 1]
    active = complex.sign_vectors[:, : front[-1].stop] > 0
    patterns, owner = np.unique(active, axis=0, return_inverse=True)
    slopes = [np.asarray(node.slopes) for node in net.switches[: layer - 1]]
    parts = []
    for k, pattern in enumerate(patterns):
        masks = [np.where(pattern[s], 1.0, slope) for s, slope in zip(front, slopes, strict=True)]
        if product_rank(net.weights[: layer - 1], masks) == net.widths[layer - 1]:
            parts.append(_fold_set(complex, "function", owner.reshape(-1) == k))
    texts = {0: "the image has no interior", 1: "the interior of the image is one convex part"}
    several = f"the interior of the image is made of {len(parts)} convex parts, each taken on its own"
    return Truncation(layer, tuple(parts), texts.get(len(parts), several))
