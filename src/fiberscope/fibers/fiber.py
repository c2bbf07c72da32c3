"""The fiber of a parameter: all parameters of its architecture that are the same function."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from importlib import import_module
from math import factorial

import numpy as np

from fiberscope.errors import InputError, NotGenericError
from fiberscope.fibers.components import TURNS, Component, Connection, FiberPath
from fiberscope.fibers.generic import AMONG
from fiberscope.fibers.identifiability import (
    ORIENTATIONS,
    Identifiability,
    bottleneck_dimension,
    every_cell,
    identifiability,
    silent_flips,
)
from fiberscope.fibers.members import member
from fiberscope.fibers.membership import Membership
from fiberscope.fibers.nearby import distance, without_spare
from fiberscope.fibers.one_layer.assignments import LIMIT
from fiberscope.fibers.one_layer.layer import DEAD, LINEAR, NONLINEAR, nonnegative_rank
from fiberscope.fibers.one_layer.realisations import Cell, cells
from fiberscope.fibers.paths.connect import connect
from fiberscope.fibers.theorems import Setting, known_dimension, setting_of
from fiberscope.fibers.topology import Topology, topology_of_layer
from fiberscope.geometry.domains import Domain, Space
from fiberscope.network.border import NetworkLike, as_network
from fiberscope.network.chains import split
from fiberscope.network.comparison import identical
from fiberscope.network.network import Network, Seed
from fiberscope.results import Tabular, hidden

_ONE_LAYER = "one hidden layer: canonical fiber representation (Definition 22)"
_ORIENTED = "one hidden layer on the orthant: orientations and linear factorisations"
_HIDDEN = "three-layer bottleneck: hidden hyperplanes"
_RIGID = "three-layer bottleneck: the first layer is rigid"


@dataclass(frozen=True, slots=True, eq=False)
class Fiber(Tabular):
    """The parameters of one architecture that are the same function as ``net``, as far as it is known.

    ``components`` are listed up to permutation and rescaling; where ``complete``, there are no others among generic
    parameters (for one hidden layer: among all). ``dimension`` is the largest that is known, modulo rescaling, None
    where no theorem applies; ``dimension_exact`` says whether no part of the fiber is larger, degenerate ones included.
    """

    net: Network = field(repr=False, metadata=hidden())
    components: tuple[Component, ...]
    identifiability: Identifiability = field(repr=False)
    setting: Setting = field(repr=False, metadata=hidden())
    degenerate: int = field(default=0, repr=False, metadata=hidden())
    domain: Domain | None = field(default=None, repr=False, metadata=hidden())

    told = ("dimension", "dimension_exact", "complete")
    frame = "components"

    @property
    def complete(self) -> bool:
        """Whether the components are all, among generic parameters."""
        return all(c.complete for c in self.components)

    @property
    def dimension(self) -> int | None:
        """Largest known dimension of a part of the fiber, modulo rescaling: at least this, unless it is exact."""
        if self.domain is not None or self.setting.kind == "outside":
            return self.identifiability.fiber_dimension
        return max(self.degenerate, *(c.dimension for c in self.components))

    @property
    def dimension_exact(self) -> bool:
        """Whether no part of the fiber is larger: shown for one hidden layer where all its parts are listed.

        Where each of its neurons is needed for a hyperplane, all are orbits. Of a bottleneck only the generic members
        are known, and others may be more.
        """
        if self.setting.kind != "one layer":
            return self.setting.kind == "affine"
        layer = self.setting.layer
        return self.complete or (layer.plain and not layer.where(LINEAR))

    def sample(self, count: int, seed: Seed = 0) -> list[Network]:
        """Random members of random components, permuted and rescaled by powers of two; the same function each."""
        if not isinstance(count, int | np.integer) or count < 0:
            raise InputError(f"count: expected a number of networks, got {count}")
        rng = np.random.default_rng(seed)
        picks = [int(rng.integers(len(self.components))) for _ in range(count)]
        return [member(self.setting, self.components[k], rng) for k in picks]

    def assignments(self, limit: int | None = LIMIT) -> Iterator[Cell]:
        """The sets of Definition 22 for the last hidden layer, generic or not, one after the other.

        For one hidden layer they are the whole fiber. For a bottleneck they are the members with this first layer.
        Raises :class:`TooLargeError` at once where there are more than ``limit`` assignments to try, and
        :class:`NotGenericError` for networks that no theorem covers.

        >>> net = Network([[[1.0], [2.0]], [[1.0, 1.0]]], [[1.0, 2.0], [0.0]])  # 3 relu(x + 1), by two neurons
        >>> [(c.assignment.visible[0], c.assignment.dead, c.dimension) for c in fiber(net).assignments()]
        [((1, 0), 0, 1), ((1, 0), 1, 1), ((1, 0), 0, 1), ((1, 1), 0, 0), ((2, 0), 0, 1)]
        """
        if self.setting.kind not in ("one layer", "bottleneck"):
            raise NotGenericError(
                "assignments: expected one hidden layer or a three-layer bottleneck, got "
                f"{self.net.architecture[:60]}: {self.setting.reason or 'no hidden layer'}"
            )
        return cells(self.setting.layer, limit)

    def contains(self, other: NetworkLike, tolerance: float = 0.0) -> Membership:
        """Whether ``other`` has the same architecture and function, up to rounding; on the domain, if there is one.

        With a ``tolerance`` it also counts as a member where a known one, up to order and scale of neurons and the
        translation of a hidden hyperplane, has rows of largest entry 1 that differ by no more.
        """
        other = as_network(other, "other")
        near = self._nearly(other, tolerance)
        return near if near is not None else self._member(other)

    def _nearly(self, other: Network, tolerance: float) -> Membership | None:
        if not tolerance >= 0:
            raise InputError(f"tolerance: expected a number that is not negative, got {tolerance}")
        if not tolerance or self.setting.kind == "affine" or self.net.architecture != other.architecture:
            return None
        there, text = split(other), ""
        both = (self.setting.parts, there)
        fronts = [Network.from_nodes(part.prefix, part.input_shape) for part in both if part.prefix]
        if fronts and not identical(*fronts):  # what stands before the chain is compared by its function
            return None
        apart = distance(self.setting, other, tolerance)
        if not apart <= tolerance:
            mine, theirs = (without_spare(chain, tolerance) for chain in (self.setting.chain, there.tail))
            if mine.widths == theirs.widths != self.setting.chain.widths:
                apart, text = distance(setting_of(mine), theirs, tolerance), ", but for neurons that add nothing,"
        if not apart <= tolerance:
            return None
        return Membership(True, f"a member{text} has rows that differ by {apart:.2g} where the largest entry is 1")

    def _member(self, other: Network) -> Membership:
        ask = import_module("fiberscope.equality.membership").membership
        found: Membership = ask(self.net, other, self.domain)
        return found

    def connection(self, other: NetworkLike) -> Connection:
        """A path inside the fiber to ``other``, up to the order of its neurons, or why there is none."""
        other = as_network(other, "other")
        found = self.contains(other)
        if found.contained is not True:
            return Connection(None if found.contained is None else False, None, f"not a member: {found.reason}")
        return connect(self.setting, other, self.identifiability.families, self.complete)

    def path(self, other: NetworkLike) -> FiberPath | None:
        """A path inside the fiber from the network to ``other``, or None; :meth:`connection` says why.

        It ends at ``other`` with its neurons in the order ``path.permutations``. All pairs that one component of the
        theorems holds are joined.

        >>> net = Network([[[1.0], [2.0]], [[1.0, 1.0]]], [[0.0, 1.0], [0.0]])
        >>> other = Network([[[4.0], [0.5]], [[0.5, 2.0]]], [[2.0, 0.0], [0.0]])
        >>> path = fiber(net).path(other)
        >>> path.permutations, path(0.5).weights[0].ravel()
        ((array([1, 0]),), array([0.70710678, 2.82842712]))
        """
        return self.connection(other).path

    def topology(self) -> Topology:
        """Connected components, and the graph of strata that meet: :mod:`~fiberscope.fibers.topology`.

        Proven for one hidden layer, among all parameters; for a three-layer bottleneck among generic ones, where its
        parts are orbits and translations. Elsewhere ``components`` is None.

        >>> ramp = Network([[[1.0], [1.0]], [[1.0, -1.0]]], [[0.0, -1.0], [0.0]])
        >>> fiber(ramp).topology()
        Topology(2 components up to order, 4 with names, among all parameters)
        """
        if self.domain is None and self.setting.kind == "one layer":
            return topology_of_layer(self.setting.layer)
        among, kinds = "generic parameters", {c.kind for c in self.components}
        if self.domain is None and self.setting.kind == "bottleneck" and self.complete and not (
            self.setting.layer.where(LINEAR) or kinds - {"orbit", "translation", "orientation"}
        ):  # fmt: skip
            # rows of generic parameters are distinct, so that no two neurons ever change places
            orders = factorial(self.setting.layer.d) * factorial(self.setting.layer.n)
            return Topology(len(self.components), len(self.components) * orders, among)
        return Topology(None, None, among, "proven for one hidden layer and for bottlenecks of orbits and translations")

    def __repr__(self) -> str:
        count = len(self.components)
        least = "" if self.dimension_exact else "at least "
        size = "unknown dimension" if self.dimension is None else f"dimension {least}{self.dimension}"
        among = "" if self.setting.kind == "one layer" else " among generic parameters"
        known = f"complete{among}" if self.complete else "not known to be complete"
        return f"Fiber({count} component{'s' if count > 1 else ''}, {size}, {known})"


def fiber(net: NetworkLike, domain: Domain | None = None) -> Fiber:
    """The fiber of a parameter, up to permutation and rescaling of neurons: its components, as far as they are known.

    For one hidden layer and for generic three-layer bottlenecks the list is complete among generic parameters: one
    orbit; the translations of a hidden hyperplane (with reflections of the others, for one second-layer neuron); or,
    where second-layer neurons are linear, one component for every orientation of the nonlinear ones whose linear part
    has nonnegative column rank at most their number. A parameter with dead or superfluous neurons has a larger fiber:
    for one hidden layer on all of space it is listed whole where it is small, one component for every assignment of
    neurons (Definition 22); otherwise the known part is given, and :meth:`Fiber.assignments` lists the rest. Elsewhere
    only symmetries that certainly hold are listed. On a ``domain`` the function is compared there only, and the fiber
    is one orbit among general networks where :func:`fiberscope.identifiability` says so, else not known to be complete.

    >>> net = Network([[[1.0, 0.5], [0.0, 1.0]], [[1.0, -2.0]], [[1.0]]], [[0.0, 0.0], [-0.5], [0.0]])
    >>> fiber(net)
    Fiber(2 components, dimension at least 1, complete among generic parameters)
    >>> other = fiber(net).sample(1, seed=1)[0]
    >>> bool(abs(net([[3.0, 0.25]]) - other([[3.0, 0.25]])) < 1e-12)
    True
    """
    net = as_network(net)
    if domain is not None and not isinstance(domain, Space):
        found = identifiability(net, domain)
        return Fiber(
            net, (_on_domain(found), *_deformation(found)), found, replace(setting_of(net), kind="outside"), 0, domain
        )
    found = identifiability(net)
    setting = setting_of(net)
    return Fiber(net, tuple(_components(setting, found)), found, setting, _degenerate(setting))


def _on_domain(found: Identifiability) -> Component:
    """One component: the orbit where the domain determines it, else what is known."""
    text = "; ".join(found.reasons) or "permutations and rescalings"
    if found.identifiable is True:
        return Component("orbit", found.theorem, True, 0, (), "one orbit, among general networks")
    return Component("known", found.theorem, False, found.fiber_dimension or 0, (), text)


def _deformation(found: Identifiability) -> list[Component]:
    """The rows that can be deformed, as one component: no two families are in each other's way."""
    if not found.families:
        return []
    size, text = sum(f.dimension for f in found.families), "; ".join(f.text for f in found.families)
    return [Component("deformation", TURNS, False, size, (), text, None, found.families)]


def _degenerate(setting: Setting) -> int:
    """Largest dimension of a set of Definition 22 behind the first layer of a bottleneck, where they are few."""
    every = every_cell(setting.layer) if setting.kind == "bottleneck" else None
    return max((cell.dimension for cell in every or ()), default=0)


def _components(setting: Setting, found: Identifiability) -> list[Component]:
    if setting.kind == "outside":
        text = "; ".join(s.text for s in setting.symmetries) or "permutations and rescalings"
        size = known_dimension(setting.symmetries)
        return [Component("known", "known symmetries, no theorem", False, size, (), text), *_deformation(found)]
    if setting.kind == "affine":
        return [Component("orbit", "an affine map is its own parameter", True, 0)]
    if setting.kind == "bottleneck":
        special = _special(setting)
        if special is not None:
            return special
    return _oriented(setting, found)


def _special(setting: Setting) -> list[Component] | None:
    """Where the first layer is not rigid: a constant function, a hidden hyperplane, a mirror image."""
    layer = setting.layer
    size = bottleneck_dimension(setting)
    if not setting.alive:
        return [Component("constant", "all second-layer neurons are dead", False, size, (), "the first layer is free")]
    dead = bool(layer.where(DEAD))
    generic = setting.generic.holds is True
    if setting.hidden is not None:
        complete = not dead and layer.d > 1 and generic
        if len(setting.alive) > 1 or layer.d == 1:
            return [Component("translation", _HIDDEN, complete, size, (), "translations of the hidden hyperplane")]
        others = [k for k in range(layer.d) if k != setting.hidden]
        if len(others) > ORIENTATIONS:
            text = f"translations; 2^{len(others)} reflections are not listed"
            return [Component("translation", _HIDDEN, False, size, (), text)]
        return [Component("translation", _HIDDEN, complete, size, S, _reflection_text(S)) for S in _subsets(others)]
    if setting.reflects:
        theorem = "three-layer network with one first-layer neuron: mirror image"
        return [
            Component("orbit", theorem, False, size, (), "as given"),
            Component("reflection", theorem, False, size, (), "the first neuron reflected"),
        ]
    return None


def _reflection_text(S: tuple[int, ...]) -> str:
    moved = "translations of the hidden hyperplane"
    return f"{moved}, neurons {', '.join(map(str, S))} of layer 1 reflected" if S else moved


def _subsets(items: list[int]) -> list[tuple[int, ...]]:
    sizes = range(len(items) + 1)
    return list(itertools.chain.from_iterable(itertools.combinations(items, k) for k in sizes))


def _oriented(setting: Setting, found: Identifiability) -> list[Component]:
    """One component for every orientation of the nonlinear neurons that linear ones can make up for."""
    layer = setting.layer
    theorem = _ORIENTED if layer.orthant else _ONE_LAYER
    ell, inner = len(layer.where(LINEAR)), layer.where(NONLINEAR)
    size = bottleneck_dimension(setting) if layer.orthant else layer.cell_dimension()
    kept: list[tuple[int, ...]] = [()]
    complete = layer.plain
    if not ell or not layer.orthant:
        flips, all_found = silent_flips(layer)
        kept += flips if layer.plain else []
        complete = complete and all_found and not (ell and not layer.orthant)
    elif len(inner) > ORIENTATIONS:
        complete = False
    else:
        for T in _subsets(inner):
            least = nonnegative_rank(layer, T)
            # below the number of linear neurons: the parameter is not minimal, and there are members of other kinds
            complete = complete and least is not None and least >= ell
            if T and least is not None and least <= ell:
                kept.append(T)
    if layer.orthant:
        complete = complete and layer.d > 1 and setting.generic.holds is True
    complete = complete or found.identifiable is True
    if not complete and not layer.orthant:
        listed = every_cell(layer)
        if listed is not None:
            return [
                Component("assignment", _ONE_LAYER, True, c.dimension, (), "; ".join(c.constraints), c) for c in listed
            ]
    if not size and len(kept) == 1:
        name = _RIGID if layer.orthant else theorem
        return [Component("orbit", name, complete, 0, (), f"one orbit, {AMONG}" if layer.orthant else "one orbit")]
    texts = [f"reversed: neurons {', '.join(map(str, T))}" if T else "as given" for T in kept]
    return [Component("orientation", theorem, complete, size, T, x) for T, x in zip(kept, texts, strict=True)]
