"""The single conditions behind genericity, each decided on a complex with the neurons at fault."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise, product

import numpy as np

from fiberscope.geometry.complex import Complex
from fiberscope.geometry.folds.hyperplanes import form_classes, neuron_name
from fiberscope.geometry.folds.masked_ranks import masked_ranks
from fiberscope.geometry.stars import star_signs
from fiberscope.network.network import Network
from fiberscope.network.nodes import PiecewiseLinear
from fiberscope.numerics.floats import BoolArray, FloatArray, IntArray, SignArray
from fiberscope.results import Result
from fiberscope.run import ENDLESS, Run

MAX_PATTERNS = 1024
"""Up to so many activity patterns all are enumerated, whether they occur or not."""

MAX_FUNCTIONS = 20_000
"""Affine functions of units that are compared before the answer says that it covers only some."""

_ENOUGH = 100
"""Failures after which the work ends: one is enough for the answer, and each costs exact numbers."""

_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Condition(Result):
    """True, False or None (undecided), what was looked at, whether that is everything, and why it fails."""

    holds: bool | None
    coverage: str
    exhaustive: bool = False
    reasons: tuple[str, ...] = ()


def _judge(reasons: Sequence[str], coverage: str, exhaustive: bool) -> Condition:
    shown = tuple(reasons[:_SHOWN])
    if len(reasons) > _SHOWN:
        shown = (*shown, f"and {len(reasons) - _SHOWN} more like these")
    return Condition(not reasons, coverage, exhaustive, shown)


def _names(net: Network, entries: Iterable[int]) -> str:
    """A few neurons one by one, many of them by layers."""
    wanted = [int(entry) for entry in entries]
    if len(wanted) < _SHOWN:
        return " and ".join(neuron_name(net, entry) for entry in wanted)
    texts = []
    for layer, part in enumerate([place.columns for place in net.layout.places], start=1):
        own = [entry - part.start for entry in wanted if part.start <= entry < part.stop]
        if own:
            more = "" if len(own) <= _SHOWN else f" and {len(own) - _SHOWN} more"
            texts.append(f"neurons {', '.join(map(str, own[:_SHOWN]))}{more} of layer {layer}")
    return " and ".join(texts)


def _near(complex: Complex, dimension: int, cell: int) -> str:
    """Floats inside of a cell, for people."""
    own = complex.structure.vertices_of(dimension)[cell]
    rays = complex.rays[own]
    point: FloatArray = complex.vertices[own[~rays]].mean(axis=0) + complex.vertices[own[rays]].sum(axis=0) + 0.0
    return "(" + ", ".join(f"{x:.4g}" for x in point) + ")"


# -- on the cells ------------------------------------------------------------------------------------------------------


def is_supertransversal(complex: Complex) -> Condition:
    """Every cell of codimension k inside of the domain lies on exactly k bent hyperplanes.

    More than k neurons may vanish there, never fewer: near a cell only its own hyperplanes cut.
    """
    net, d = complex.net, complex.dimension
    kinked = ~net.linear_entries
    found: dict[tuple[int, ...], str] = {}
    count = 0
    for k, _, _, outer in star_signs(complex):
        zero = (complex.structure.signs(k) == 0) & kinked
        inner = ~outer & ~complex.structure.at_infinity(k)
        count += int(inner.sum())
        for cell in np.flatnonzero(inner & (zero.sum(axis=1) != d - k)).tolist():
            makers = tuple(np.flatnonzero(zero[cell]).tolist())
            if any(set(known) <= set(makers) for known in found):
                continue  # the same coincidence, seen from a face
            where = "a region" if k == d else f"a cell of codimension {d - k}"
            verb = "vanishes" if len(makers) == 1 else "vanish"
            found[makers] = f"{_names(net, makers)} {verb} on {where}, near {_near(complex, k, cell)}"
    return _judge(list(found.values()), f"all {count} cells inside of {complex.domain}", exhaustive=True)


def no_zero_optimum(complex: Complex) -> Condition:
    """No preactivation has a local maximum or minimum of value zero inside of the domain.

    Where a neuron vanishes it must be positive on one region around, and negative on another.
    """
    net = complex.net
    kinked = ~net.linear_entries
    found: dict[int, str] = {}
    count = 0
    for k, positive, negative, outer in star_signs(complex):
        inner = ~outer & ~complex.structure.at_infinity(k)
        count += int(inner.sum())
        bad = (complex.structure.signs(k) == 0) & kinked & inner[:, None] & ~(positive & negative)
        for cell, entry in np.argwhere(bad).tolist():
            if entry not in found:
                kind = "has a local minimum 0" if positive[cell, entry] else "has a local maximum 0"
                if not positive[cell, entry] and not negative[cell, entry]:
                    kind = "vanishes identically"
                found[entry] = f"{neuron_name(net, entry)} {kind} near {_near(complex, k, cell)}"
    return _judge(list(found.values()), f"all {count} cells inside of {complex.domain}", exhaustive=True)


def is_honest(complex: Complex) -> Condition:
    """Every ridge that does not bend lies on bent hyperplanes of a single layer."""
    reason = _dishonest(complex)
    coverage = f"all {len(complex.ridges)} ridges inside of {complex.domain}"
    return _judge([] if reason is None else [reason], coverage, exhaustive=True)


def _dishonest(complex: Complex) -> str | None:
    net, switch = complex.net, complex.net.layout.switch
    signs = complex.structure.signs(max(0, complex.dimension - 2))
    for row in np.flatnonzero(~complex.bending).tolist():
        makers = np.unique(np.concatenate([complex.facets.neurons[int(f)] for f in complex.ridges.facets[row]]))
        cell = int(complex.ridges.cell[row])
        on = makers[signs[cell, makers] == 0]
        if len(np.unique(switch[on])) > 1:
            return f"{_names(net, on)} cross without bending near {_near(complex, complex.dimension - 2, cell)}"
    return None


def cancels_nothing(complex: Complex) -> Condition:
    """A facet is invisible only where no active path leads from its neurons to the output."""
    facets, net = complex.facets, complex.net
    reasons: dict[tuple[int, ...], str] = {}
    for row in np.flatnonzero(facets.path & ~facets.visible).tolist():
        makers = tuple(facets.neurons[row].tolist())
        near = _near(complex, complex.dimension - 1, int(facets.cell[row]))
        reasons.setdefault(makers, f"the paths from {_names(net, makers)} to the output cancel near {near}")
    coverage = f"all {int((~facets.boundary).sum())} facets inside of {complex.domain}"
    return _judge(list(reasons.values()), coverage, exhaustive=True)


# -- on sign vectors ---------------------------------------------------------------------------------------------------


def is_transparent(net: Network, signs: SignArray, where: str, *, exhaustive: bool) -> Condition:
    """In every hidden layer at least one unit is not negative, or passes a slope where it is.

    Regions are enough: where all units of a layer are negative they are so on a neighbourhood, hence on a region.
    """
    reasons = []
    for layer, place in enumerate(net.layout.places, start=1):
        blocked = (signs[:, place.columns] < 0).all(axis=1) & ~place.node.slopes.any()
        if blocked.any():
            reasons.append(f"all neurons of layer {layer} are negative on {int(blocked.sum())} of {where}")
    if reasons or exhaustive:
        return _judge(reasons, where, exhaustive)
    return Condition(None, f"no violation at {where}")


def passing_patterns(net: Network, signs: SignArray) -> BoolArray:
    """The distinct patterns of activity, ``(count, num_signs)``."""
    return np.unique(signs > 0, axis=0) if len(signs) else np.zeros((0, net.num_signs), dtype=bool)


def _every_pattern(net: Network) -> BoolArray | None:
    """All patterns, if there are few; a linear neuron always passes."""
    free = np.flatnonzero(~net.linear_entries)
    if len(free) > 30 or 1 << len(free) > MAX_PATTERNS:
        return None
    patterns = np.ones((1 << len(free), net.num_signs), dtype=bool)
    for row, active in enumerate(product((False, True), repeat=len(free))):
        patterns[row, free] = active
    return patterns


def _single_units(net: Network) -> BoolArray:
    """Patterns that single out one unit in each of two layers in a row: their products are zero where a weight is."""
    parts = [place.columns for place in net.layout.places]
    rows = []
    for before, after in pairwise(parts):
        for i, j in product(range(before.start, before.stop), range(after.start, after.stop)):
            row = np.zeros(net.num_signs, dtype=bool)
            row[[part.start for part in parts]] = True
            row[before], row[after] = False, False
            row[[i, j]] = True
            rows.append(row | net.linear_entries)
    return np.array(rows, dtype=bool).reshape(-1, net.num_signs)


def ranks_are_maximal(net: Network, patterns: BoolArray, where: str, run: Run = ENDLESS) -> Condition:
    """Every masked product of consecutive layers has the largest possible rank, under all masks or those given."""
    if not net.is_chain:
        return Condition(None, "not asked: masked products are those of a plain chain of layers")
    every = _every_pattern(net)
    if every is None:
        found = masked_ranks(net, np.concatenate([patterns, _single_units(net)]), failure_limit=_ENOUGH, run=run)
        masks = f"the {len(patterns)} masks that {where} and those that single out two units"
    else:
        found = masked_ranks(net, every, failure_limit=_ENOUGH, run=run)
        masks = f"all {len(every)} masks"
    part = "" if found.complete else ", then stopped"
    whole = found.complete and every is not None
    return _judge([str(failure) for failure in found.failures], f"{found.checked} products under {masks}{part}", whole)


def distinct_functions(net: Network, signs: SignArray) -> Condition:
    """No two pairs of a unit and an activity of the layers before give affine functions that are multiples.

    Activities must have a passing unit in every one of these layers (Lemma A.11 of the paper): behind a layer that is
    off all units are constant. The output's functions take part, and a function must not be zero.
    """
    every = _every_pattern(net)
    patterns = passing_patterns(net, signs) if every is None else every
    extended = _with_output_units(net)
    all_signs, all_entries = _pairs(extended, patterns)
    for limit in (_ENOUGH, MAX_FUNCTIONS):
        chosen, entries = all_signs[:limit], all_entries[:limit]
        classes = form_classes(extended, chosen, entries)
        if (classes.label < 0).any() or len(np.unique(classes.label)) < len(entries):
            break
    complete = len(entries) == len(all_entries)

    def name(i: int, verb: str = "") -> str:
        return f"{_unit(net, int(entries[i]))}{verb} where {_passing(extended, chosen[i], int(entries[i]))}"

    reasons = [name(i, " is zero") for i in np.flatnonzero(classes.label < 0).tolist()]
    order = np.argsort(classes.label, kind="stable")
    for a, b in pairwise(order.tolist()):
        if classes.label[a] >= 0 and classes.label[a] == classes.label[b]:
            one, two = sorted((a, b))
            reasons.append(f"{name(one)} is a multiple of {name(two)}")
    which = "the activities that occur" if every is None else "all activities"
    part = "" if complete else ", the first of more"
    coverage = f"{len(entries)} functions, of every unit under {which}{part}"
    return _judge(reasons, coverage, complete and every is not None)


def _with_output_units(net: Network) -> Network:
    """The network with one unit more for every output, so that the outputs have entries in the sign vector."""
    size = net.out_size
    return Network.from_nodes([*net.nodes, PiecewiseLinear(len(net.nodes), np.zeros(size), (size,))], net.input_shape)


def _pairs(extended: Network, patterns: BoolArray) -> tuple[SignArray, IntArray]:
    """All units, each under every activity of the layers before it in which every layer has a passing unit."""
    rows, entries = [], []
    passing = np.ones(len(patterns), dtype=bool)
    for place in extended.layout.places:
        part = place.columns
        before = np.unique(patterns[passing, : part.start], axis=0)
        block = np.zeros((len(before), extended.num_signs), dtype=np.int8)
        block[:, : part.start] = np.where(before, 1, -1)
        rows.append(np.repeat(block, part.stop - part.start, axis=0))
        entries.append(np.tile(np.arange(part.start, part.stop), len(before)))
        if part.stop <= patterns.shape[1]:
            passing &= (patterns[:, part] | (place.node.slopes != 0)).any(axis=1)
    return np.concatenate(rows), np.concatenate(entries)


def _unit(net: Network, entry: int) -> str:
    return neuron_name(net, entry) if entry < net.num_signs else f"output {entry - net.num_signs}"


def _passing(extended: Network, signs: SignArray, entry: int) -> str:
    """Which units are active before a unit, in words."""
    parts = [place.columns for place in extended.layout.places if place.stop <= entry]
    texts = [f"{np.flatnonzero(signs[part] > 0).tolist()} of layer {k}" for k, part in enumerate(parts, start=1)]
    return " and ".join(texts) + " are active" if texts else "any are active"
