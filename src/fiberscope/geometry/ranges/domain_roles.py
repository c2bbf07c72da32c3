"""What a neuron does on a whole domain: dead, linear or switching, each one proven, and the rest listed as
undecided."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fiberscope.errors import FiberscopeError
from fiberscope.geometry.domains import Box, Domain, Orthant, Plane, Polytope, Solid, Space, domain_of, view_of
from fiberscope.geometry.engines.choose import cells_on
from fiberscope.geometry.ranges.intervals import ranges
from fiberscope.geometry.ranges.relaxation import BRANCHES, Relaxation
from fiberscope.network.border import NetworkLike, as_network
from fiberscope.network.chains import try_split
from fiberscope.network.network import Network
from fiberscope.network.nodes import Affine, Node, PiecewiseLinear, behind
from fiberscope.network.operators import Dense
from fiberscope.network.roles import Roles, structural_roles
from fiberscope.network.roles import roles as batch_roles
from fiberscope.network.walk import switch_values
from fiberscope.numerics.algebra.bounded import BOUNDED
from fiberscope.numerics.floats import BoolArray, FloatArray, IntArray, SignArray
from fiberscope.numerics.signs import UNDECIDED, bounded_signs, join
from fiberscope.results import Tabular, hidden, named
from fiberscope.run import ENDLESS, Run

SAMPLES = 1024
"""Random points whose certified signs prove that a neuron switches."""

_SMALL = 48
"""Neurons up to which the regions of a plane or interval are listed to decide what is left."""


@dataclass(frozen=True, slots=True, eq=False)
class DomainRoles(Tabular):
    """One role for every hidden neuron on a whole domain; the four masks are ``(num_hidden,)`` and exclude each other.

    *dead*: never positive, and the activation is zero there; *linear*: the activation acts as one linear map on the
    domain; *switching*: both signs occur; *undecided*: none of these was proven. ``nonnegative`` and ``nonpositive``
    are the signs that were proven, ``layers`` the activation layer of each neuron, counted from 1.
    """

    dead: BoolArray = field(metadata=named(told=np.flatnonzero))
    linear: BoolArray = field(metadata=named(told=np.flatnonzero))
    switching: BoolArray = field(metadata=named(told=np.flatnonzero))
    undecided: BoolArray = field(metadata=named(told=np.flatnonzero))
    nonnegative: BoolArray = field(metadata=hidden())
    nonpositive: BoolArray = field(metadata=hidden())
    layers: IntArray = field(metadata=hidden())
    where: str

    told = ("layers=per_layer",)
    frame = "per_layer"

    @property
    def signs(self) -> IntArray:
        """-1 where a neuron is proven nowhere positive, 1 nowhere negative, 0 else; a neuron that is zero has -1."""
        return np.where(self.nonpositive, -1, np.where(self.nonnegative, 1, 0))

    def per_layer(self) -> list[dict[str, int]]:
        """Counts of every role in every layer."""
        names = ("dead", "linear", "switching", "undecided")
        return [
            {"layer": int(layer), "width": int((self.layers == layer).sum())}
            | {name: int(getattr(self, name)[self.layers == layer].sum()) for name in names}
            for layer in np.unique(self.layers)
        ]

    def __repr__(self) -> str:
        counts = ", ".join(
            f"{int(getattr(self, name).sum())} {name}" for name in ("dead", "linear", "switching", "undecided")
        )
        return f"DomainRoles({counts} {self.where})"


def roles(net: NetworkLike, where: Any) -> Roles | DomainRoles:
    """Roles of the hidden neurons on a batch ``(points, in_size)``, or on a whole domain.

    >>> roles(Network([[[1.0]], [[1.0]]], [[3.0], [0.0]]), Box([-1], [1]))
    DomainRoles(0 dead, 1 linear, 0 switching, 0 undecided on Box([-1, 1]))
    """
    net = as_network(net, points=where)
    if isinstance(where, Box | Orthant | Space | Polytope | Plane):
        return domain_roles(net, where)
    return batch_roles(net, where)


def domain_roles(
    net: NetworkLike, domain: Domain | None = None, time_limit: float = 5.0, seed: int = 0, run: Run = ENDLESS
) -> DomainRoles:
    """Roles of the hidden neurons on a domain, proven; None is all of space.

    Random points with certified signs show which neurons switch. For the others, the signs of the weights (exact for
    the first layer on an orthant or all of space) and interval bounds with outward rounding come first; then, for
    chains, linear relaxations whose optima are proven, with branching over neurons of earlier layers; and for small
    networks on a plane or an interval the list of all regions. ``time_limit`` bounds the samples and the last two, in
    seconds, and so does the ``run`` that this is a part of: what is not proven by then is undecided.

    >>> net = Network([[[1.0], [1.0], [-1.0]], [[1.0, 1.0, 1.0]]], [[0.0, 9.0, -9.0], [0.0]])
    >>> domain_roles(net, Box([-1], [1])).per_layer()
    [{'layer': 1, 'width': 3, 'dead': 1, 'linear': 1, 'switching': 1, 'undecided': 0}]
    """
    net = as_network(net)
    where = domain_of(net, domain)
    seen = where.view(net)
    view, place = seen.net.composed, seen.domain
    run = run.within(time_limit)
    state = _State(view, place)
    state.by_structure()
    if isinstance(place, Box):
        state.by_ranges(place)
    if state.open.any():
        points = place.sample(SAMPLES, seed)
        for part in np.array_split(points, 16):
            state.by_samples(part, run)
            if run.is_over:
                break
    if state.open.any():
        state.by_relaxation(run.deadline)
    if state.open.any() and place.dimension <= 2 and view.num_hidden <= _SMALL:
        state.by_regions(run)
    return state.result(f"on {where}" if domain is not None else "for every input")


class _State:
    """What is known of every entry of the sign vector so far."""

    def __init__(self, net: Network, domain: Solid) -> None:
        self.net, self.domain = net, domain
        size = net.num_signs
        self.nonnegative, self.nonpositive = np.zeros(size, dtype=bool), np.zeros(size, dtype=bool)
        self.positive, self.negative = np.zeros(size, dtype=bool), np.zeros(size, dtype=bool)
        self.neurons = ~net.layout.pooled

    @property
    def open(self) -> BoolArray:
        decided = self.nonnegative | self.nonpositive | (self.positive & self.negative) | self.net.linear_entries
        return self.neurons & ~decided

    def by_structure(self) -> None:
        """Signs of weights; on an orthant the input counts as the output of a ReLU."""
        net = self.net
        if isinstance(self.domain, Orthant):
            n = net.in_size
            front: list[Node] = [Affine(0, Dense(np.eye(n))), PiecewiseLinear(1, np.zeros(n), (n,))]
            found = structural_signs(Network.from_nodes([*front, *behind(net.nodes, 2)], (n,)))[:, n:]
        else:
            found = structural_signs(net)
        self.nonnegative[self.neurons] |= found[0]
        self.nonpositive[self.neurons] |= found[1]
        if isinstance(self.domain, Space | Orthant) and self.net.switches:
            # a first layer sees all of the domain, so that its weights decide
            first, layer = net.layout.places[0], net.nodes[0]
            straight = first.index == 1 and self.neurons[0]
            if straight and isinstance(layer, Affine) and len(layer.operator.stages()) == 1:
                block = first.columns
                up, down = _first_signs(layer, isinstance(self.domain, Space))
                self.positive[block] |= up
                self.negative[block] |= down
                self.nonnegative[block] |= ~down
                self.nonpositive[block] |= ~up

    def by_ranges(self, box: Box) -> None:
        """Interval arithmetic with outward rounding."""
        found = ranges(self.net, box)
        for place in self.net.layout.places:
            if self.neurons[place.start]:
                self.nonnegative[place.columns] |= found[place.source].low >= 0
                self.nonpositive[place.columns] |= found[place.source].high <= 0

    def by_samples(self, points: FloatArray, run: Run = ENDLESS) -> None:
        """Certified signs at points; one that rounding put outside of the domain shows nothing.

        Floats with a bound of their error decide nearly all. Exact numbers are worth their time where that leaves a
        neuron open which is not known to switch, and not for pools, where what activations put to zero is equal.
        """
        kept = points[self.domain.contains(points)]
        if not len(kept):
            return
        with np.errstate(over="ignore", invalid="ignore"):
            values = switch_values(self.net.layout, BOUNDED.take(kept), BOUNDED)
        signs = join([bounded_signs(value) for value in values], len(kept))
        self._seen(signs)
        for x, known in zip(kept, signs, strict=True):
            if not (known == UNDECIDED)[self.open].any():
                continue
            if run.is_over:
                return
            self._seen(self.net.signs(x[None]).signs)

    def _seen(self, signs: SignArray) -> None:
        """Signs at points, those that are known."""
        self.positive |= (signs == 1).any(axis=0)
        self.negative |= (signs == -1).any(axis=0)

    def by_relaxation(self, deadline: float) -> None:
        """Proven optima of linear relaxations, layer by layer, so that later ones use what earlier ones gave."""
        parts = try_split(self.net)
        if parts is None or parts.tail.num_signs != self.net.num_signs:
            return
        relaxation = Relaxation.of(parts, self.domain, self.nonnegative, self.nonpositive)
        if relaxation is None:
            return
        # all neurons once without branching, which sharpens the relaxations of later layers; then the rest
        for entry, branches in [(e, n) for n in (1, BRANCHES) for e in np.flatnonzero(self.open).tolist()]:
            if not self.open[entry]:
                continue
            for sign, seen, proven in ((1, self.positive, self.nonpositive), (-1, self.negative, self.nonnegative)):
                if seen[entry] or time.monotonic() > deadline:
                    continue
                bound, points = relaxation.decide(entry, sign, branches, deadline)
                for x in points:
                    if x.size == self.net.in_size:
                        self.by_samples(x.reshape(1, -1))
                if bound:
                    proven[entry] = True
                    relaxation.learn(entry, -sign)
                    break

    def by_regions(self, run: Run) -> None:
        """All regions of a plane or an interval: every sign that occurs inside of one."""
        try:
            run.check()
            found = cells_on(view_of(self.net, self.domain), run.quietly())
        except (FiberscopeError, OverflowError):  # a corner may lie beyond the floats
            return
        if not found.complete:
            return
        signs = found.top_signs
        self.nonnegative |= (signs >= 0).all(axis=0) & self.neurons
        self.nonpositive |= (signs <= 0).all(axis=0) & self.neurons
        self.positive |= (signs > 0).any(axis=0)
        self.negative |= (signs < 0).any(axis=0)

    def result(self, where: str) -> DomainRoles:
        layout, keep = self.net.layout, self.neurons
        slope = layout.slopes[keep]
        never_positive, never_negative = self.nonpositive[keep], self.nonnegative[keep]
        dead = never_positive & (slope == 0)
        linear = ~dead & (never_positive | never_negative | (slope == 1))
        switching = ~dead & ~linear & self.positive[keep] & self.negative[keep]
        return DomainRoles(
            dead,
            linear,
            switching,
            ~dead & ~linear & ~switching,
            never_negative,
            never_positive,
            layout.layers,
            where,
        )


def _first_signs(layer: Affine, everywhere: bool) -> tuple[BoolArray, BoolArray]:
    """Which neurons of a first layer are positive somewhere, and negative somewhere, in an orthant or in all of space.

    ``w x + b`` is unbounded in the direction of a weight, and near the origin it has the sign of ``b``.
    """
    ones, weights = np.ones((1, layer.operator.in_size)), layer.operator.coefficients
    offset = np.zeros(layer.operator.out_size) if layer.offset is None else layer.offset

    def some(mask: BoolArray) -> BoolArray:
        return np.asarray(layer.operator.with_coefficients(mask.astype(np.float64)).apply(ones)[0] > 0)

    rises, falls = some(weights > 0), some(weights < 0)
    if everywhere:
        rises = falls = rises | falls
    return rises | (offset > 0), falls | (offset < 0)


def structural_signs(net: Network) -> BoolArray:
    """Whether each neuron is nowhere negative, and nowhere positive, by its weights alone: ``(2, num_hidden)``."""
    found = structural_roles(net)
    slope = net.layout.slopes[~net.layout.pooled]
    # structural roles call a leaky neuron linear whichever sign it keeps, and one with slope 1 whatever it does
    nonnegative = found.linear & (slope == 0)
    return np.stack([nonnegative, found.dead])
