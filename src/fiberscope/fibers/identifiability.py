"""Is a parameter determined by its function, up to permutation and rescaling of neurons?"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from fiberscope.errors import InputError
from fiberscope.fibers.one_layer.assignments import count_assignments
from fiberscope.fibers.one_layer.cancelling import NONE, Cancelling, cancelling_subset
from fiberscope.fibers.one_layer.layer import LINEAR, NONLINEAR, OneLayer
from fiberscope.fibers.one_layer.realisations import Cell, cells
from fiberscope.fibers.one_layer.representation import opposite, primitive
from fiberscope.fibers.theorems import KnownSymmetry, Setting, setting_of
from fiberscope.geometry.domains import Domain, Space, domain_of
from fiberscope.network.border import NetworkLike, as_network
from fiberscope.network.network import Network
from fiberscope.numerics.exact_arrays import fractions
from fiberscope.numerics.floats import BoolArray
from fiberscope.numerics.rank import exact_rank
from fiberscope.results import Result, hidden, named

if TYPE_CHECKING:
    from fiberscope.fibers.row_family import Deformation

ORIENTATIONS = 10
"""Nonlinear neurons up to which all orientations are enumerated."""

PRODUCTS = 200_000
"""Numbers up to which the products of single neurons are written down as exact vectors."""

CELLS = 1000
"""Assignments of neurons up to which a degenerate layer is described by all of them."""

SHARED = "neurons of both orientations share hyperplanes and can shift their outgoing weights"
OPEN = "whether some set of neurons of layer {} can be reversed together is not decided: there are too many"


@dataclass(frozen=True, slots=True, eq=False)
class Identifiability(Result):
    """Whether the fiber of a parameter is one orbit of permutations and rescalings; None is undecided.

    ``reasons`` are sentences that name neurons (layers from 1, neurons from 0) and say dead, linear or hidden.
    ``fiber_dimension`` is the dimension, modulo rescaling, of the known part of the fiber at the parameter, None where
    no theorem applies; ``dimension_exact`` says whether nothing else meets there, otherwise the fiber may be larger.
    ``rigid`` tells for every first-layer neuron whether its hyperplane is the same along the fiber (True), or not shown
    to be (False). ``assumptions`` says among which parameters both hold; ``symmetries`` lists what is known.
    """

    identifiable: bool | None
    reasons: tuple[str, ...]
    fiber_dimension: int | None
    rigid: BoolArray = field(repr=False)
    theorem: str
    assumptions: tuple[str, ...] = ()
    symmetries: tuple[KnownSymmetry, ...] = field(default=(), repr=False)
    dimension_exact: bool = False
    witness: Network | None = field(default=None, repr=False, metadata=hidden())
    families: tuple[Deformation, ...] = field(default=(), repr=False, metadata=hidden())

    def __repr__(self) -> str:
        word = {True: "identifiable", False: "not identifiable", None: "undecided"}[self.identifiable]
        least = "" if self.dimension_exact else "at least "
        free = "" if self.fiber_dimension is None else f", fiber of dimension {least}{self.fiber_dimension}"
        why = f": {'; '.join(self.reasons)}" if self.reasons else ""
        return f"Identifiability({word}{free}{why})"


def identifiability(net: NetworkLike, domain: Domain | None = None) -> Identifiability:
    """Whether a parameter is determined by its function up to permutation and positive rescaling of hidden neurons.

    Decided for one hidden layer, and for two hidden layers of widths ``n_1 <= n_0`` with a first weight matrix of full
    rank. There a parameter is not identifiable if and only if, reading rows of ``(W_2 | b_2)``, one is all negative (a
    *dead* neuron) or all positive (a *linear* one), or all rows are positive in one column and negative in the others,
    bias included (a *hidden* hyperplane); for ``n_1 = 1`` also if all rows have signs ``(-, +)``. *No* is certain: a
    symmetry is known. *Yes* says that no other generic parameter has the function, where the parameter itself is
    checked to be generic (all of :mod:`~fiberscope.fibers.generic`); for one hidden layer no other at all,
    where no set of neurons can be reversed together (:mod:`~fiberscope.fibers.one_layer.cancelling`). A parameter that
    is not generic, or has too many submatrices or subsets to look at, is *undecided* unless a symmetry is known. So is
    every other network, with the symmetries that are known, unless the image of some layers keeps a later neuron dead
    or linear on all of space, or lets its row turn (:mod:`~fiberscope.fibers.deformations`), which proves *no*.

    On a ``domain`` the question is about the function there (:mod:`~fiberscope.fibers.on_domain`): *no* where a neuron
    never switches on it, or can be deformed, with another parameter as ``witness``, equal on the domain up to rounding;
    *yes* among general networks of the architecture where the network is general, transparent and bends enough.

    >>> from fiberscope.network.network import Network
    >>> net = Network([[[1.0, 0.5], [0.0, 1.0]], [[1.0, -2.0]], [[1.0]]], [[0.0, 0.0], [-0.5], [0.0]])
    >>> identifiability(net)
    Identifiability(not identifiable, fiber of dimension 1: the hyperplane of neuron 0 of layer 1 is hidden by every
    neuron of layer 2: it can be moved by any t > -0.5)
    """
    net = as_network(net)
    if not isinstance(where := domain_of(net, domain), Space):
        return _told(_on_domain(net, where), net)
    setting = setting_of(net)
    known = setting.symmetries
    first = setting.chain.widths[1] if setting.kind != "affine" else 0
    if setting.kind == "affine":
        theorem = "an affine map is its own parameter"
        return Identifiability(True, (), 0, np.zeros(0, dtype=bool), theorem, dimension_exact=True)
    if setting.kind == "outside":
        images = _on_domain(net, None)
        if images.identifiable is False:
            return _told(images, net, known)
        reasons = (f"no theorem applies: {setting.reason}", *(f"known symmetry: {s.text}" for s in known))
        return Identifiability(None, reasons, None, np.zeros(first, dtype=bool), "none", (), known)
    if setting.kind == "one layer":
        return _one_layer(setting, known)
    return _bottleneck(setting, known)


def _on_domain(net: Network, domain: Domain | None) -> Any:
    """The verdict of :mod:`~fiberscope.fibers.on_domain`."""
    return import_module("fiberscope.fibers.on_domain").on_domain(net, domain)


def _told(verdict: Any, net: Network, known: tuple[KnownSymmetry, ...] = ()) -> Identifiability:
    """The verdict of a domain as an answer; nothing is said about single hyperplanes."""
    rigid = np.full(net.widths[1] if net.is_chain and len(net.widths) > 2 else 0, verdict.identifiable is True)
    return Identifiability(
        verdict.identifiable, verdict.reasons, verdict.dimension, rigid, verdict.theorem, verdict.assumptions, known,
        verdict.identifiable is True, verdict.witness, verdict.families,
    )  # fmt: skip


def silent_flips(layer: OneLayer) -> tuple[list[tuple[int, ...]], bool]:
    """Non-empty sets of nonlinear neurons with ``A_T = 0``, and whether the list is all; none where some are linear.

    Such neurons can all be reversed at once. Of many neurons one such set is looked for. (Linear neurons of an orthant
    may make up for more; on all of space they are constants.)
    """
    inner = layer.where(NONLINEAR)
    if (layer.orthant and layer.where(LINEAR)) or not inner:
        return [], True
    if len(inner) <= ORIENTATIONS:
        subsets = itertools.chain.from_iterable(itertools.combinations(inner, k) for k in range(1, len(inner) + 1))
        silent = (T for T in subsets if not any(a != 0 for a in layer.linear_part(T).ravel()))
        return [T for T in silent if not _only_swaps(layer, T)], True
    found = _cancelling(layer, inner)
    if found.subset is None:
        return [], found.decided
    T = tuple(inner[k] for k in found.subset)
    return ([] if _only_swaps(layer, T) else [T]), False


def _cancelling(layer: OneLayer, inner: list[int]) -> Cancelling:
    """A set of nonlinear neurons whose ``v_i w_i^T`` add up to zero; independent factors exclude all."""
    V, W = layer.V[:, inner], layer.W[inner]
    read = bool(V.any(axis=0).all())  # and w != 0, since the neurons are nonlinear
    if read and len(inner) in (exact_rank(V).lower, exact_rank(W).lower):
        return NONE
    if V.size * W.size // len(inner) > PRODUCTS:
        return Cancelling(None, False)
    terms = fractions(V).T[:, :, None] * fractions(W)[:, None, :]
    return cancelling_subset(terms.reshape(len(inner), -1))


def _only_swaps(layer: OneLayer, T: Sequence[int]) -> bool:
    """Whether reversing these neurons gives the same ones in another order, as for ``relu(z) + relu(-z)``."""
    rows, out = fractions(layer.rows), fractions(layer.V)
    before: list[tuple[Any, ...]] = []
    after: list[tuple[Any, ...]] = []
    for i in T:
        key, size = primitive(rows[i])
        weight = tuple(v * size for v in out[:, i])
        before.append((key, weight))
        after.append((opposite(key), weight))
    return sorted(before) == sorted(after)


def every_cell(layer: OneLayer) -> list[Cell] | None:
    """All sets of Definition 22 that have members, where they are few and each is decided; else None."""
    visible = sum(plane.visible for plane in layer.hyperplanes)
    if count_assignments(visible, layer.n) > CELLS:
        return None
    found = list(cells(layer))
    return found if all(cell.nonempty for cell in found) else None


def _one_layer(setting: Setting, known: tuple[KnownSymmetry, ...]) -> Identifiability:
    layer = setting.layer
    rigid = np.zeros(layer.n, dtype=bool)
    for plane in layer.hyperplanes:
        rigid[list(plane.neurons)] = plane.visible and len(plane.neurons) == 1
    flips, complete = silent_flips(layer)
    dimension = layer.cell_dimension()

    def answer(identifiable: bool | None, reasons: Sequence[str], assumptions: tuple[str, ...] = ()) -> Identifiability:
        theorem = "one hidden layer on all of space: hyperplane representation"
        exact = layer.plain or identifiable is True  # a fiber of finitely many orbits
        return Identifiability(identifiable, tuple(reasons), dimension, rigid, theorem, assumptions, known, exact)

    reasons = [s.text for s in known] + [_flip_text(T, 1) for T in flips]
    if reasons or dimension:
        return answer(False, reasons or [SHARED])
    if not layer.plain:
        text = "two neurons of opposite orientation share a hyperplane"
        every = every_cell(layer)
        if every is None:
            return answer(None, [text])
        if len(every) > 1:
            return answer(False, [f"{text}, and there are {len(every)} assignments of neurons to hyperplanes"])
    elif not complete:
        return answer(None, [OPEN.format(1)])
    # every hyperplane needs a neuron, so each has exactly one: nothing generic is assumed
    return answer(True, [], ("among all parameters",))


def _flip_text(T: Sequence[int], layer: int) -> str:
    names = ", ".join(map(str, T))
    return f"neurons {names} of layer {layer} can be reversed together: their linear parts cancel"


def _rigid(setting: Setting) -> BoolArray:
    """A hyperplane on which some second-layer neuron is positive somewhere (section 3), of a generic parameter."""
    layer = setting.layer
    rigid = np.zeros(layer.d, dtype=bool)
    if layer.d == 1 or setting.generic.holds is not True:
        return rigid
    for i in range(layer.d):
        others = np.delete(layer.W[setting.alive], i, axis=1)
        rigid[i] = bool((others > 0).any() or (layer.b[setting.alive] > 0).any())
    return rigid


def bottleneck_dimension(setting: Setting) -> int:
    """Dimension, modulo rescaling, of the known part of the fiber at the parameter; all of it at a generic one."""
    layer = setting.layer
    if not setting.alive:
        first = setting.chain.widths[1] * setting.chain.widths[0]  # the first layer is free
        return layer.cell_dimension() + first
    return layer.cell_dimension() + (0 if setting.hidden is None else 1) + len(setting.cancelled)


def _bottleneck(setting: Setting, known: tuple[KnownSymmetry, ...]) -> Identifiability:
    layer, generic = setting.layer, setting.generic
    single = layer.d == 1
    dimension = bottleneck_dimension(setting)
    flips, complete = silent_flips(layer) if setting.hidden is None else ([], True)

    def answer(identifiable: bool | None, reasons: Sequence[str]) -> Identifiability:
        theorem = "three-layer bottleneck" + (", one neuron in the first layer (on its own)" if single else "")
        rigid = np.ones(1, dtype=bool) if single and identifiable else _rigid(setting)
        exact = generic.holds is True
        return Identifiability(
            identifiable, tuple(reasons), dimension, rigid, theorem, generic.texts, known, exact
        )  # fmt: skip

    reasons = [s.text for s in known]
    if not setting.alive:
        reasons.append("all neurons of layer 2 are dead: the function is constant and the first layer is free")
    if setting.reflects:
        reasons.append(
            "neuron 0 of layer 1 can be reflected: it stands alone, and all neurons of layer 2 have signs (-, +)"
        )
    reasons += [_flip_text(T, 2) for T in flips]
    if reasons or dimension:
        return answer(False, reasons or [SHARED])
    if generic.holds is not True:
        word = "is not generic" if generic.holds is False else "is not shown to be generic"
        return answer(None, [f"the parameter {word}: {generic.reason}"])
    return answer(True, []) if complete else answer(None, [OPEN.format(2)])


@dataclass(frozen=True, slots=True)
class IdentifiableFraction(Result):
    """The share of identifiable parameters in a ball around zero: exact, with the bounds of the paper."""

    widths: tuple[int, ...]
    value: Fraction = field(metadata=named(told=float))
    lower: Fraction = field(metadata=named(told=float))
    upper: Fraction = field(metadata=named(told=float))

    told = ("exact=_fractions",)

    def _fractions(self) -> dict[str, Fraction]:
        return {"value": self.value, "lower": self.lower, "upper": self.upper}

    def __float__(self) -> float:
        return float(self.value)

    def __repr__(self) -> str:
        shape = "-".join(map(str, self.widths))
        return (
            f"IdentifiableFraction({shape}: {float(self.value):.6g}, "
            f"between {float(self.lower):.6g} and {float(self.upper):.6g})"
        )


def identifiable_fraction(widths: Sequence[int]) -> IdentifiableFraction:
    """The share of parameters of widths ``(n_0, n_1, n_2, n_3)`` that are identifiable, with ``n_1 <= n_0``.

    All sign patterns of ``(W_2 | b_2)`` have the same share, so the value is that of the patterns without a dead or a
    linear row and without a hidden column: ``(1 - 2^-n_1)^n_2 - n_1 2^-((n_1 + 1) n_2)``. For ``n_1 = 1`` the patterns
    with signs ``(-, +)`` in all rows go as well. The paper's bounds are
    ``1 - 2 n_2 2^-(n_1 + 1) - n_1 2^-((n_1 + 1) n_2)``, which may be negative, and ``(1 - 2^-(n_1 + 1))^n_2``.
    One hidden layer is identifiable but for a set of measure zero.

    >>> identifiable_fraction((2, 2, 1, 1)).value, identifiable_fraction((3, 1, 2, 1)).value
    (Fraction(1, 2), Fraction(1, 8))
    """
    sizes = tuple(widths)
    if len(sizes) not in (3, 4) or not all(isinstance(n, int | np.integer) and n >= 1 for n in sizes):
        raise InputError(f"widths: expected three or four positive integers, got {list(sizes)}")
    sizes = tuple(int(n) for n in sizes)
    one = Fraction(1)
    if len(sizes) == 3:
        return IdentifiableFraction(sizes, one, one, one)
    n0, n1, n2, _ = sizes
    if n1 > n0:
        raise InputError(f"widths: expected n_1 <= n_0, the bottleneck of the theorem, got {n1} > {n0}")
    corner, hide = Fraction(1, 2 ** (n1 + 1)), Fraction(n1, 2 ** ((n1 + 1) * n2))
    hide = 2 * hide if n1 == 1 else hide  # reflected as well as hidden
    value = (1 - 2 * corner) ** n2 - hide
    return IdentifiableFraction(sizes, value, 1 - 2 * n2 * corner - hide, (1 - corner) ** n2)
