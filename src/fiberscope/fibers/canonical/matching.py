"""Are two parameters the same up to permutation and positive rescaling? Decided by assignment, layer by layer."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from scipy.optimize import linear_sum_assignment

from fiberscope.fibers.canonical.form import Normalised, normalised
from fiberscope.fibers.canonical.labelling import canonical_orders
from fiberscope.network.action.chain import Symmetry
from fiberscope.network.border import NetworkLike, as_network
from fiberscope.network.chains import Split, slopes_of, split
from fiberscope.network.network import Network
from fiberscope.network.nodes import Affine
from fiberscope.network.operators import Dense
from fiberscope.numerics.floats import FloatArray, IntArray
from fiberscope.numerics.ulps import DOUBLE, GRID, ROWS, Rounding
from fiberscope.numerics.wide import Wide, same_products, ulps_apart
from fiberscope.results import Result, named
from fiberscope.run import ENDLESS, Run

_SHIFTS = (0.0, 0.37)
"""Entries of normalised rows are rounded to a grid twice: what lies on an edge of one is inside of another."""

Readers = Callable[[IntArray], FloatArray]
"""From some neurons to a description of what reads them."""


@dataclass(frozen=True, slots=True, eq=False)
class Match(Result):
    """Whether ``symmetry(a)`` is ``b``, entry by entry up to rounding; true or false in conditions.

    ``same`` is None only where equal neurons left several assignments open and none of those tried fits. ``residual``
    is the largest distance of an entry of ``symmetry(a)`` from that of ``b`` in ulps. ``exact`` says that the match
    proves the two to be the same real function: as rational numbers, no entry differs.
    """

    same: bool | None
    symmetry: Symmetry | None = field(default=None, repr=False, metadata=named("witness"))
    residual: float = field(default=np.inf, metadata=named("residual_ulps"))
    reason: str = ""
    exact: bool = False

    @property
    def permutations(self) -> tuple[IntArray, ...]:
        """Neuron ``i`` of ``b`` is neuron ``permutations[l][i]`` of ``a``; empty without a match."""
        return () if self.symmetry is None else self.symmetry.permutations

    @property
    def scales(self) -> tuple[FloatArray, ...]:
        """What the neurons of ``a`` are multiplied by; empty without a match."""
        return () if self.symmetry is None else self.symmetry.scales

    def __bool__(self) -> bool:
        return self.same is True


def same_up_to_symmetry(a: NetworkLike, b: NetworkLike) -> Match:
    """Whether a permutation and positive rescaling of hidden neurons carries ``a`` onto ``b`` within a few ulps.

    Rows are normalised, which leaves permutations only; layer by layer the rows of ``a`` are assigned to those of
    ``b``. A row whose projection has one counterpart within rounding is assigned at once; the others by the least total
    distance (the Hungarian method). So the result does not hang on the order of a sort.

    >>> net = Network.random((2, 3, 1), seed=0)
    >>> same_up_to_symmetry(net, Symmetry([[2, 0, 1]], [[0.5, 4.0, 1.0]])(net)).permutations
    (array([2, 0, 1]),)
    """
    a = as_network(a, "a")
    b = as_network(b, "b")
    left, right = split(a), split(b)
    reason = _shape_reason(left, right)
    if reason:
        return Match(False, reason=reason)
    return match_chains(left.tail, right.tail)


def _shape_reason(a: Split, b: Split) -> str:
    if a.tail.widths != b.tail.widths:
        return f"widths {a.tail.widths} and {b.tail.widths} differ"
    if not same_prefix(a, b):
        return "the affine maps before the first dense layer differ"
    return ""


def same_prefix(a: Split, b: Split) -> bool:
    """Whether two networks begin with the same affine maps, bit for bit."""
    if len(a.prefix) != len(b.prefix) or a.tail.in_size != b.tail.in_size:
        return False
    for p, q in zip(a.prefix, b.prefix, strict=True):
        if not isinstance(p, Affine) or not isinstance(q, Affine) or type(p.operator) is not type(q.operator):
            return False
        if not np.array_equal(p.operator.coefficients, q.operator.coefficients):
            return False
        if not isinstance(p.operator, Dense) and (p.operator.sparse() != q.operator.sparse()).nnz:
            return False
        offsets = [np.zeros(n.operator.out_size) if n.offset is None else n.offset for n in (p, q)]
        if not np.array_equal(offsets[0], offsets[1]):
            return False
    return True


def match_chains(a: Network, b: Network, loose: bool = False, rounding: Rounding = DOUBLE, run: Run = ENDLESS) -> Match:
    """The match of two chains of the same widths; ``loose`` assigns nearest rows however far apart they are.

    ``rounding`` says how far apart entries may be. The residual counts ulps of its precision. Behind the deadline of
    the ``run``, :class:`OutOfTimeError` is raised.
    """
    try:
        left, right = normalised(a), normalised(b)
    except ValueError as error:
        return Match(None, reason=str(error))
    run.check()
    orders, reason, open_ties = _assigned(left, right, loose, ROWS * rounding.steps, run)
    match = Match(False, reason=reason)
    if orders is not None:
        match = _weighed(a, b, orders, left.scales, right.scales, loose, rounding, run)
    if match.same is not False or not open_ties:
        return match
    # equal neurons: the refinement of the canonical form tells apart what a row and its readers do not
    for shift, apart in itertools.product(_SHIFTS, (True, False)):
        run.check()
        orders = _relabelled(left, right, shift, max(4.0, GRID / rounding.steps), apart)
        match = _weighed(a, b, orders, left.scales, right.scales, loose, rounding, run)
        if match.same is not False:
            return match
    return Match(None, reason="equal neurons leave several assignments open, and those tried do not fit")


def _relabelled(left: Normalised, right: Normalised, shift: float, grid: float, apart: bool) -> list[IntArray]:
    """The neurons of both in canonical order, entries that agree up to rounding taken for equal.

    ``apart`` tells neurons apart whose scales differ by more than a power of two: a copy by powers of two has an exact
    match, and equal neurons of other scales would hide it.
    """
    with np.errstate(over="ignore"):  # entries beyond the floats are taken for equal; the match is weighed afterwards
        grids = [[np.round(rows * grid + shift) for rows in form.rows] for form in (left, right)]
    colours = [_colours(form) if apart else form.slopes for form in (left, right)]
    pairs = [canonical_orders(*pair) for pair in zip(grids, colours, strict=True)]
    return [p[np.argsort(q)] for p, q in zip(*pairs, strict=True)]


def _colours(form: Normalised) -> list[FloatArray]:
    """A number for every slope of an activation and significand of a scale, the same in all networks."""
    return [slopes + 2.0 * np.frexp(scales)[0] for slopes, scales in zip(form.slopes, form.scales, strict=True)]


def _assigned(
    left: Normalised, right: Normalised, loose: bool, near: float, run: Run
) -> tuple[list[IntArray] | None, str, bool]:
    """Layer by layer the neuron of the left for each of the right; why not; and whether equal rows left a choice."""
    orders: list[IntArray] = []
    open_ties = False
    for layer in range(len(left.scales)):
        mine, theirs = left.rows[layer], right.rows[layer]
        if layer:
            mine = np.column_stack([mine[:, :-1][:, orders[-1]], mine[:, -1]])
        mine = np.column_stack([mine, left.slopes[layer]])
        theirs = np.column_stack([theirs, right.slopes[layer]])
        last = layer + 1 == len(left.scales)
        readers = (partial(_outgoing, left.rows[layer + 1], last), partial(_outgoing, right.rows[layer + 1], last))
        digits = np.frexp(left.scales[layer])[0], np.frexp(right.scales[layer])[0]
        order, ties = _assign(mine, theirs, readers, digits, loose, near, run)
        open_ties |= ties
        if order is None:
            return None, f"layer {layer + 1}: no assignment of its rows agrees up to rounding", open_ties
        orders.append(order)
    return orders, "", open_ties


def _weighed(
    a: Network,
    b: Network,
    orders: list[IntArray],
    mine: list[FloatArray],
    theirs: list[FloatArray],
    loose: bool,
    rounding: Rounding,
    run: Run,
) -> Match:
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        scales = [t / s[order] for order, s, t in zip(orders, mine, theirs, strict=True)]
    if not all(np.isfinite(s).all() and (s > 0).all() for s in scales):
        return Match(None, reason="a scale is beyond the range of float64")
    element = Symmetry(orders, scales)
    residual = residual_of(element, a, b, run) / rounding.steps
    if residual <= rounding.few:
        return Match(True, element, residual, exact=carries(element, a, b, run))
    return Match(False, element if loose else None, residual, f"an entry is {residual:.3g} ulps off")


def residual_of(element: Symmetry, a: Network, b: Network, run: Run = ENDLESS) -> float:
    """Largest distance in ulps of an entry of ``element(a)`` from that of ``b``; both are chains.

    What the element gives is computed with free exponents: in float64 a scale can take a weight out of the range and
    the next one back. Two roundings of an entry are part of the distance, so 0 proves nothing: see :func:`carries`.
    """
    worst = 0.0
    for moved, other in _images(element, a, b, run):
        if moved is None:
            return np.inf
        weight, scale, divisor = (Wide.of(x) for x in moved)
        off = ulps_apart(weight * scale / divisor, Wide.of(other))
        if not off < np.inf:
            return np.inf
        worst = max(worst, off)
    return worst


def carries(element: Symmetry, a: Network, b: Network, run: Run = ENDLESS) -> bool:
    """Whether ``element(a)`` is ``b`` in exact arithmetic; both are chains.

    Every entry is a quotient ``w s / t``, compared as ``w s = v t`` without rounding, whatever the scales are.

    >>> net = Network([[[3.0]], [[5.0]]], [[1.0], [0.0]])
    >>> carries(Symmetry([[0]], [[5.0]]), net, Network([[[15.0]], [[1.0]]], [[5.0], [0.0]]))
    True
    """
    return all(
        moved is not None and bool(same_products(moved[0], moved[1], other, moved[2]).all())
        for moved, other in _images(element, a, b, run)
    )


def _images(
    element: Symmetry, a: Network, b: Network, run: Run
) -> Iterator[tuple[tuple[FloatArray, FloatArray, FloatArray] | None, FloatArray]]:
    """Entries ``w``, factors ``s`` and divisors ``t`` with ``w s / t`` the entries of ``element(a)``, beside those of
    ``b``: weights and biases in turn, None where the activations do not fit."""
    slopes = (slopes_of(a), slopes_of(b))
    order, divisor = np.arange(a.in_size), np.ones(a.in_size)
    for layer, (w, bias) in enumerate(zip(a.weights, a.biases, strict=True)):
        run.check()
        rows, scale = np.arange(len(bias)), np.ones(len(bias))
        if layer < len(element.scales):
            rows, scale = element.permutations[layer], element.scales[layer]
            if not np.array_equal(slopes[0][layer][rows], slopes[1][layer]):
                yield None, b.biases[layer]
        yield (w[np.ix_(rows, order)], scale[:, None], divisor[None]), b.weights[layer]
        yield (bias[rows], scale, np.ones(len(bias))), b.biases[layer]
        order, divisor = rows, scale


def _outgoing(rows: FloatArray, last: bool, which: IntArray) -> FloatArray:
    """What tells neurons with equal rows apart: their outgoing weights, sorted where their readers have no order."""
    columns = rows[:, which].T
    return columns if last else np.sort(columns, axis=1)


def _assign(
    mine: FloatArray,
    theirs: FloatArray,
    readers: tuple[Readers, Readers],
    digits: tuple[FloatArray, FloatArray],
    loose: bool,
    near: float,
    run: Run,
) -> tuple[IntArray | None, bool]:
    """For each row of ``theirs`` the row of ``mine``, or None; and whether equal rows left a choice.

    Of neurons with equal rows and equal readers those are paired whose scales have the same ``digits``, if there are
    such: the match of a copy by powers of two is exact then.
    """
    n = len(mine)
    direction = np.random.default_rng(n).normal(size=mine.shape[1])
    reach = near * np.abs(direction).sum()
    keys = np.concatenate([mine @ direction, theirs @ direction])
    order = np.argsort(keys, kind="stable")
    breaks = np.flatnonzero(np.diff(keys[order]) > 2 * reach) + 1
    result = np.full(n, -1, dtype=np.int64)
    rest_mine: list[int] = []
    rest_theirs: list[int] = []
    ties = False
    sizes = np.diff(np.concatenate([[0], breaks, [2 * n]]))
    if (sizes == 2).all():  # the common case, all at once
        pairs = np.sort(order.reshape(n, 2), axis=1)
        if (pairs[:, 0] < n).all() and (pairs[:, 1] >= n).all():
            result[pairs[:, 1] - n] = pairs[:, 0]
            if loose or np.abs(mine[result] - theirs).max(initial=0.0) <= near:
                return result, False
            return None, False
    for block in np.split(order, breaks):
        own, other = block[block < n], block[block >= n] - n
        if len(own) != len(other):
            if not loose:
                return None, False
            rest_mine += own.tolist()
            rest_theirs += other.tolist()
            continue
        cost = _distances(mine[own], theirs[other], run)
        beyond = ~(cost <= near)
        if len(own) > 1:
            spread = _distances(readers[0](own), readers[1](other), run)
            ties |= bool((~beyond).sum() > len(own))
            spread += near * (digits[0][own][:, None] != digits[1][other])
            cost = np.where(beyond, 1e6 + cost, np.minimum(spread, 1e3))
        chosen, places = linear_sum_assignment(cost)
        if beyond[chosen, places].any():
            if not loose:
                return None, False
            rest_mine += own.tolist()
            rest_theirs += other.tolist()
            continue
        result[other[places]] = own[chosen]
    if rest_mine:
        cost = _distances(mine[rest_mine], theirs[rest_theirs], run)
        chosen, places = linear_sum_assignment(cost)
        result[np.array(rest_theirs)[places]] = np.array(rest_mine)[chosen]
    return result, ties


def _distances(a: FloatArray, b: FloatArray, run: Run) -> FloatArray:
    """Largest difference of two rows, for all pairs; row by row, to keep memory small and to look at the clock."""
    found = np.zeros((len(a), len(b)))
    for k, row in enumerate(a):
        run.check()
        found[k] = np.abs(b - row).max(axis=1, initial=0.0)
    return found
