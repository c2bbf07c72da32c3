"""Rows of later neurons that may turn: what a neuron does on the image of the layers before leaves its row free.

A neuron of layer ``l`` reads ``a = g(x)``, the activations of the layer before, and the network sees
``relu(w a + b)`` on the image of ``g`` alone. On every cell ``R`` of the complex ``g(x) = G_R (x, 1)`` is affine. Where
the neuron is positive on ``R``, another row ``(w', b')`` does the same there if and only if it agrees with ``(w, b)``
on ``g(R)``, so on its affine hull: linear equations. Where it is nowhere positive, ``w' a + b' <= 0`` on ``g(R)``,
which is an inequality for every vertex of ``R`` and for every direction in which ``R`` is unbounded. Hence

    all rows that do the same on the image are a polyhedron, here in rational numbers.

It is more than a point where the cells on which the neuron is positive do not span the space that it reads: the
hyperplane then turns about its intersection with the image. That takes a layer wider than the input (appendix G.1 of
the paper on fibers), an image that earlier layers bound or flatten (G.2), or weights that are not generic (G.3).

No activation changes along the way, so the families of all neurons, in all layers, are free of each other: their
product is a convex part of the fiber. Neurons that are positive nowhere have no family here: what is free about them is
known without the image.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from math import gcd, lcm

import numpy as np

from fiberscope.errors import InputError, NotGenericError, OutOfTimeError, TooLargeError
from fiberscope.fibers.row_family import Deformation, deformed
from fiberscope.geometry.affine_forms import ExactRegion
from fiberscope.geometry.complex import Complex
from fiberscope.geometry.domains import Domain, Space, domain_of
from fiberscope.geometry.regions import regions_within
from fiberscope.geometry.verify import exact_vertices
from fiberscope.network.border import NetworkLike, as_network
from fiberscope.network.chains import rows_of, slopes_of
from fiberscope.network.network import Network, Seed
from fiberscope.numerics.algebra.ball import exact_fraction
from fiberscope.numerics.exact_arrays import fractions, nearest
from fiberscope.numerics.exact_linear import basis, column_of, kernel_of, matrix_of, reduced
from fiberscope.numerics.floats import ObjectArray
from fiberscope.numerics.lp.programs import Polyhedron
from fiberscope.results import Result, hidden
from fiberscope.run import Progress, Run

REGIONS = 3000
"""Regions up to which the image is looked at, unless told otherwise."""

SMALL = (4, 24)
"""Inputs and hidden neurons up to which other questions look for families on the way."""

SECONDS = 3.0
"""What they spend on it at most."""


@dataclass(frozen=True, slots=True, eq=False)
class Deformations(Result):
    """The neurons of a network whose rows are not determined by what they do on the image of the layers before.

    ``complete`` says that every neuron was looked at on all of the domain; else ``reason`` says why not.
    """

    net: Network = field(repr=False, metadata=hidden())
    domain: Domain
    families: tuple[Deformation, ...]
    complete: bool = True
    reason: str = ""

    told = ("dimension",)

    @property
    def dimension(self) -> int:
        """Of all families together: they are free of each other."""
        return sum(family.dimension for family in self.families)

    def contains(self, other: NetworkLike) -> bool:
        """Whether another network is this one but for rows of the families, which are in them; exact."""
        other = as_network(other, "other")
        if not other.is_chain or other.widths != self.net.widths or any((s != 0).any() for s in slopes_of(other)):
            return False
        known = {(f.layer, f.neuron): f for f in self.families}
        for layer, (mine, theirs) in enumerate(zip(rows_of(self.net), rows_of(other), strict=True), 1):
            for neuron in np.flatnonzero((mine != theirs).any(axis=1)).tolist():
                family = known.get((layer, neuron))
                if family is None or not family.contains(theirs[neuron].tolist()):
                    return False
        return True

    def sample(self, count: int, seed: Seed = 0) -> list[Network]:
        """Random members of the product of all families, rounded to floats."""
        if not isinstance(count, int | np.integer) or count < 0:
            raise InputError(f"count: expected a number of networks, got {count}")
        rng = np.random.default_rng(seed)
        return [deformed(self.net, self.families, rng) for _ in range(count)]

    def __repr__(self) -> str:
        names = ", ".join(f"{f.neuron} of layer {f.layer}" for f in self.families) or "none"
        known = "" if self.complete else f"; not all: {self.reason}"
        return f"Deformations(of dimension {self.dimension}; neurons: {names}{known})"


def deformations(
    net: NetworkLike,
    domain: Domain | None = None,
    *,
    limit: int = REGIONS,
    progress: Progress | None = None,
    time_limit: float | None = None,
) -> Deformations:
    """Rows of neurons that may change without changing what the neurons do on the image of the layers before.

    Parameters
    ----------
    net
        A chain of dense layers and ReLU.
    domain
        Where the function counts; None is all of space.
    limit
        Regions up to which the complex is built; above, nothing is listed and ``complete`` is False.
    progress, time_limit
        Called as ``progress(done, total, text)``; seconds after which :class:`OutOfTimeError` is raised.

    Examples
    --------
    The first layer bends the line at 0 and at 1. Behind it ``a_1 + a_2 - 2`` is positive only on the ray from (1, 0)
    along (1, 1), and its hyperplane may turn about the point where it meets that ray:

    >>> net = Network([[[1.0], [1.0]], [[1.0, 1.0]], [[1.0]]], [[0.0, -1.0], [-2.0], [0.0]])
    >>> found = deformations(net)
    >>> found
    Deformations(of dimension 1; neurons: 0 of layer 2)
    >>> family = found.families[0]
    >>> family.directions.tolist(), family.interval(family.directions[0])
    ([[Fraction(-1, 1), Fraction(1, 1), Fraction(1, 1)]], (None, Fraction(2, 1)))
    >>> family.contains([0.0, 2.0, -1.0]), family.contains([-2.0, 4.0, 1.0])
    (True, False)
    """
    net, run = as_network(net), Run.begin(progress, time_limit, limit)
    if not net.is_chain or any((s != 0).any() for s in slopes_of(net)):
        raise InputError(f"net: expected a chain of dense layers and ReLU, got {net.architecture[:60]}")
    domain = domain_of(net, domain)
    if len(net.widths) < 4:
        return Deformations(net, domain, ())
    front = _narrowed(net) if isinstance(domain, Space) else net
    try:
        complex = regions_within(front, domain if front is net else Space(front.in_size), run)
    except (NotGenericError, TooLargeError) as error:
        return Deformations(net, domain, (), False, str(error))
    if not complex.complete:
        return Deformations(net, domain, (), False, f"more than {limit} regions")
    image = _Image(front, complex, run)
    try:
        later = [(layer, neuron) for layer in range(2, len(net.widths) - 1) for neuron in range(net.widths[layer])]
        found = []
        for done, (layer, neuron) in enumerate(later):
            run.step(done, len(later), f"neuron {neuron} of layer {layer}")
            found.append(image.family(layer, neuron))
    except NotGenericError as error:
        return Deformations(net, domain, (), False, str(error))
    return Deformations(net, domain, tuple(f for f in found if f is not None))


def _narrowed(net: Network) -> Network:
    """The network on as many inputs as its first matrix has rank: independent columns have the same image."""
    columns = reduced(fractions(net.weights[0]))[1]
    if len(columns) in (0, net.in_size):
        return net
    return Network([net.weights[0][:, columns], *net.weights[1:]], list(net.biases))


def small_deformations(net: Network, domain: Domain | None) -> tuple[Deformation, ...]:
    """The families of a network that is small, as far as they are found soon; none for others."""
    if net.in_size > SMALL[0] or net.num_hidden > SMALL[1] or len(net.widths) < 4:
        return ()
    try:
        found = deformations(net, domain, time_limit=SECONDS).families
    except (InputError, TooLargeError, NotGenericError, OutOfTimeError):
        return ()
    return tuple(f for f in found if f.dimension)


@dataclass(eq=False)
class _Image:
    """What every layer reads on the regions of a complex."""

    net: Network
    complex: Complex
    run: Run
    _maps: dict[tuple[int, bytes], ObjectArray] = field(default_factory=dict)
    _points: dict[int, ObjectArray] = field(default_factory=dict)

    def family(self, layer: int, neuron: int) -> Deformation | None:
        """That of one neuron, None where its row is determined or where it is positive nowhere."""
        signs = self.complex.sign_vectors[:, self.net.layout.starts[layer - 1] + neuron]
        if not (signs > 0).any():
            return None
        pinned = self._pinned(layer, np.flatnonzero(signs > 0).tolist())
        directions = _integers(kernel_of(pinned))
        if not len(directions):
            return None
        row = column_of([*self.net.weights[layer - 1][neuron].tolist(), float(self.net.biases[layer - 1][neuron])])
        below = self._below(layer, np.flatnonzero(signs <= 0).tolist(), directions)
        size, exact = _size(directions, below, row)
        return Deformation(layer, neuron, size, exact, row, directions, pinned, below)

    def _pinned(self, layer: int, regions: list[int]) -> ObjectArray:
        """A basis of the span of ``(a, 1)`` over these regions."""
        width = self.net.widths[layer - 1] + 1
        span = matrix_of([], width)
        for maps in self._distinct(layer, regions):
            span = basis(np.concatenate([span, maps.T]))
            if len(span) == width:
                break
        return span

    def _distinct(self, layer: int, regions: list[int]) -> Iterator[ObjectArray]:
        seen: set[bytes] = set()
        for region in regions:
            key = self._key(layer, region)
            if key not in seen:
                seen.add(key)
                yield self._map(layer, region)

    def _key(self, layer: int, region: int) -> bytes:
        """What the layers before do there."""
        return bytes(self.complex.sign_vectors[region, : self.net.layout.starts[layer - 1]] > 0)

    def _map(self, layer: int, region: int) -> ObjectArray:
        """``G`` with ``(a, 1) = G (x, 1)`` on a region, ``(n_{l-1} + 1, n + 1)``."""
        key = layer, self._key(layer, region)
        if key not in self._maps:
            self.run.check()
            label = self.complex.sign_vectors[region]
            exact, n = ExactRegion(self.complex.view.net, label), self.complex.dimension
            start, stop = self.net.layout.starts[layer - 2 : layer]
            rows = [[exact_fraction(v) for v in exact.margin(k)] if label[k] > 0 else [0] * (n + 1)
                    for k in range(start, stop)]  # fmt: skip
            self._maps[key] = matrix_of([*rows, [0] * n + [1]], n + 1)
        return self._maps[key]

    def _below(self, layer: int, regions: list[int], directions: ObjectArray) -> ObjectArray:
        """``(a, 1)`` at the vertices of these regions, and ``(a, 0)`` for directions, where a move is noticed."""
        found: dict[tuple[Fraction, ...], None] = {}
        for region in regions:
            self.run.check()
            for q in self._vertices(region) @ self._map(layer, region).T:
                if (directions @ q).any():
                    found[tuple(_primitive(q))] = None
        return matrix_of(list(found), self.net.widths[layer - 1] + 1)

    def _vertices(self, region: int) -> ObjectArray:
        if region not in self._points:
            own = self.complex.structure.vertices_of(self.complex.dimension)[region]
            self._points[region] = matrix_of(exact_vertices(self.complex, own, region), self.complex.dimension + 1)
        return self._points[region]


def _primitive(row: ObjectArray) -> list[Fraction]:
    """A positive multiple in integers without a common factor."""
    scale = lcm(*(v.denominator for v in row))
    whole = [int(v * scale) for v in row]
    common = gcd(*whole) or 1
    return [Fraction(v // common) for v in whole]


def _integers(rows: ObjectArray) -> ObjectArray:
    return matrix_of([_primitive(row) for row in rows], rows.shape[1])


def _size(directions: ObjectArray, below: ObjectArray, row: ObjectArray) -> tuple[int, bool]:
    """The dimension of the polyhedron, and whether it is not only a lower bound.

    It is convex and holds ``row``, so only the inequalities without room there count: where one direction gives way to
    all of them, or there are none, all directions are free.
    """
    tight = below[[k for k, value in enumerate(below @ row) if value == 0]] @ directions.T
    if not len(tight):
        return len(directions), True
    scale = nearest(np.abs(tight).max(axis=1))[:, None]
    rows = nearest(tight) / scale
    if np.isfinite(rows).all():
        found = Polyhedron(rows, np.full(len(rows), -1.0), lower=-(2.0**20), upper=2.0**20).feasible()
        if found.answer and found.point is not None and all(v < 0 for v in tight @ column_of(found.point.tolist())):
            return len(directions), True
    free = sum(
        any(all(sign * v <= 0 for v in column) for sign in (1, -1)) for column in tight.T
    )  # fmt: skip
    return free, False
