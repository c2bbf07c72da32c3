"""Certificates: what speaks for a complex, and what of it is a proof.

Witnesses and labels prove, without any trust in the engine that made the complex, that there are at least so many
regions: every region has a point at which the network is evaluated again, exactly. That there are no more rests on the
engine's decisions, each of which was certified when it was made. The other checks measure whether what it stored fits
together; they read the same structure and can only refute it. A certificate says which is which.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import flint
import numpy as np

from fiberscope.errors import NotGenericError, OutOfTimeError
from fiberscope.geometry.affine_forms import ExactRegion, exact_output
from fiberscope.geometry.cells import Cells
from fiberscope.geometry.domains import Box, View
from fiberscope.geometry.engines.lattice.engine import lattice_cells
from fiberscope.geometry.engines.lattice.exact import Integers, exact_signs, integers, reduced
from fiberscope.geometry.facets import Facets
from fiberscope.geometry.measures import metrics
from fiberscope.geometry.ridges import Balance
from fiberscope.network.network import Network
from fiberscope.network.pool_ties import signs_at
from fiberscope.network.walk import switch_values
from fiberscope.numerics.algebra.ball import EXACT, HomogeneousBalls
from fiberscope.numerics.floats import BoolArray, FloatArray, IntArray, SignArray, gamma
from fiberscope.numerics.points import integer_rows
from fiberscope.results import Result, Tabular, hidden
from fiberscope.run import STOPPED, Progress, Run

_CHUNK = 1 << 22
"""Numbers in one batch of witness points."""


class Subject(Protocol):
    """What is checked: the parts of a :class:`~fiberscope.Complex` that a certificate speaks of."""

    @property
    def view(self) -> View: ...
    @property
    def structure(self) -> Cells: ...
    def _measure_within(self, run: Run) -> None: ...
    def find_within(self, run: Run, *names: str) -> None: ...
    @property
    def points(self) -> FloatArray: ...
    @property
    def volumes(self) -> FloatArray: ...
    @property
    def wall_sizes(self) -> FloatArray: ...
    @property
    def facets(self) -> Facets: ...
    @property
    def euler_characteristic(self) -> int: ...
    def balance(self) -> Balance: ...


@dataclass(frozen=True, slots=True)
class Check(Result):
    """One check: what was measured, against what, in words; ``ok`` is None if it was not decided.

    ``independent`` says that it is a proof on its own: it asks the network, not what the engine stored.
    """

    name: str
    ok: bool | None
    measured: float | None
    allowed: float | None
    text: str
    independent: bool = False


@dataclass(frozen=True, slots=True)
class Certificate(Tabular):
    """The outcome of all checks; true if every one of them holds.

    ``at_least`` is the number of regions that the independent checks prove, None if they do not hold or were not
    decided. That there are no more is the word of the engine, which the other checks failed to refute.
    """

    checks: tuple[Check, ...]
    regions: int = field(metadata=hidden())

    told = ("ok", "at_least", "claim")
    frame = "checks"

    @property
    def ok(self) -> bool | None:
        """False if a check fails; else None if one was not decided: interrupted, or beyond what floats can tell."""
        outcomes = [check.ok for check in self.checks]
        return False if False in outcomes else None if None in outcomes else True

    @property
    def at_least(self) -> int | None:
        """So many regions are proven to exist, independently of the engine; None if that was not shown."""
        independent = [check for check in self.checks if check.independent]
        return self.regions if independent and all(check.ok for check in independent) else None

    @property
    def claim(self) -> str:
        """What is proven, and what only repeats the engine's word, in one line."""
        lower = "nothing is proven" if self.at_least is None else f"proven anew: at least {self.at_least} regions"
        others = [check for check in self.checks if not check.independent]
        failed = [check.name for check in others if check.ok is False]
        vague = [check.name for check in others if check.ok is None]
        rest = f"which fails by {', '.join(failed)}" if failed else "which the other checks do not contradict"
        rest += f" (undecided: {', '.join(vague)})" if vague and not failed else ""
        return f"{lower}; that there are no more is the word of the engine that built them, {rest}"

    def __bool__(self) -> bool:
        return self.ok is True

    def __repr__(self) -> str:
        words = {True: "ok", False: "FAILED", None: "undecided"}
        lines = [f"  {words[check.ok]:<9} {check.name}: {check.text}" for check in self.checks]
        return "\n".join([f"Certificate({words[self.ok]})", *lines, f"  {self.claim}"])


def verify(complex: Subject, progress: Progress | None = None, time_limit: float | None = None) -> Certificate:
    """Check a complex: witnesses, labels, closed walls, Euler characteristic, facets, volumes, balance.

    Witnesses and labels are an independent proof of *at least* so many regions. The others read what the engine stored:
    they can refute it, and they do not prove that nothing is missing. ``claim`` says so.

    ``progress`` is called before every check. When interrupted, or after ``time_limit`` seconds, the checks that were
    not finished are undecided.

    >>> from fiberscope.geometry.regions import regions
    >>> found = verify(regions(Network.random((2, 4, 1), 0), Box.cube(2)))
    >>> found.ok, found.at_least
    (True, 4)
    >>> [check.name for check in found.checks if check.independent]
    ['witnesses', 'labels']
    """
    names = [name for name, (_, partial) in _CHECKS.items() if partial or complex.structure.complete]
    run = Run.begin(progress, time_limit)
    checks: list[Check] = []
    try:
        for done, name in enumerate(names):
            run.step(done, len(names), name)
            checks.append(_CHECKS[name][0](complex, run))
    except STOPPED as reason:
        text = f"{'out of time' if isinstance(reason, OutOfTimeError) else 'interrupted'} before it was decided"
        rest = names[len(checks) :]
        checks += [Check(name, None, None, None, text, name in ("witnesses", "labels")) for name in rest]
    return Certificate(tuple(checks), len(complex.structure.top_signs))


def _complete(complex: Subject, run: Run) -> Check:
    text = "all neurons were reached" if complex.structure.complete else "the work was interrupted"
    return Check("complete", complex.structure.complete, float(complex.structure.complete), 1.0, text)


def _witnesses(complex: Subject, run: Run) -> Check:
    """Every region has a point of the domain whose exact sign vector is its label."""
    complex._measure_within(run)
    net, points, labels = complex.view.net, complex.points, complex.structure.top_signs
    reached = (
        np.arange(labels.shape[1])
        if complex.structure.complete
        else np.flatnonzero(complex.structure.vertex_signs.any(0))
    )
    step = max(1, _CHUNK // max(int(np.prod(shape)) for shape in net.shapes))
    missing = ~_within(complex, points)  # beyond the floats, or so thin that rounding moved it out
    for start in range(0, len(points), step):
        run.check()
        rows = start + np.flatnonzero(~missing[start : start + step])
        if not len(rows):
            continue
        found = signs_at(net, points[rows])
        missing[rows] = (found[:, reached] != labels[rows][:, reached]).any(axis=1)
    rational = [_exact_witness(complex, int(region), reached, run) for region in np.flatnonzero(missing)]
    wrong, vague, exact = (rational.count(outcome) for outcome in (False, None, True))
    text = f"{len(points) - wrong - vague} of {len(points)} regions have a point with exactly their signs"
    text += f" ({exact} of them a rational one)" if exact else ""
    text += f", for {vague} none could be named" if vague else ""
    return Check("witnesses", False if wrong else None if vague else True, float(wrong), 0.0, text, True)


def _exact_witness(complex: Subject, region: int, reached: IntArray, run: Run) -> bool | None:
    """Whether an exact mean of the region's vertices has its signs: for regions thinner than floats can tell.

    None where the vertices do not follow from their signs.
    """
    run.check()
    cells, net = complex.structure, complex.view.net
    if cells.domain_signs is None:
        return None
    own = cells.vertices_of(cells.dimension)[region]
    try:
        points = exact_vertices(complex, own, region)
    except NotGenericError:
        return None
    # In homogeneous coordinates every sum with positive weights is inside, directions at infinity included.
    inside = reduced(tuple(sum(column) for column in zip(*points, strict=True)))
    if not inside[-1] > 0 or any(_dot(side, inside) > 0 for side in _sides(complex)):
        return False
    return bool((exact_point_signs(net, inside)[reached] == complex.structure.top_signs[region][reached]).all())


def _within(complex: Subject, points: FloatArray) -> BoolArray:
    """Which points are certainly inside of the domain."""
    return np.asarray(np.isfinite(points).all(axis=1) & complex.view.domain.surely_inside(points))


def _sides(complex: Subject) -> list[list[int]]:
    """Rows ``(a, -b)`` of the domain's half-spaces, in integers up to positive factors."""
    A, b = complex.view.domain.halfspaces()
    return integer_rows(np.concatenate([A, -b[:, None]], axis=1)).tolist() if len(A) else []


def _dot(row: Sequence[int], point: Integers) -> int:
    return sum(int(a) * x for a, x in zip(row, point, strict=True))


def exact_vertices(complex: Subject, vertices: IntArray, region: int) -> list[Integers]:
    """Vertices ``(X, t)`` of a region from their equations: neurons that vanish there and not on the region, inputs of
    pooling windows that tie there and lose on the region, sides, and infinity.
    """
    cells, net = complex.structure, complex.view.net
    assert cells.domain_signs is not None
    n, label = cells.dimension, complex.structure.top_signs[region]
    pool = net.layout.pooled
    entries = np.flatnonzero(np.where(pool, (label < 0) & ~net.layout.padding, label != 0))
    exact = ExactRegion(net, label)
    forms = [list(integers(exact.margin(int(j)))) for j in entries]
    rows = [*_sides(complex), *forms, [0] * n + [1]]
    at = cells.vertex_signs[vertices][:, entries]
    at = np.where(pool[entries], np.minimum(at, 0), at)
    far = complex.structure.at_infinity(0)[vertices]
    signs = np.concatenate([cells.domain_signs[vertices], at, ~far[:, None]], axis=1).astype(int)
    return [_exact_vertex(rows, own.tolist(), n) for own in signs]


def _exact_vertex(rows: list[list[int]], signs: list[int], n: int) -> Integers:
    """The point where the rows of sign 0 vanish and the others have their signs."""
    equations = [row for row, sign in zip(rows, signs, strict=True) if sign == 0]
    kernel, nullity = flint.fmpz_mat(equations or [[0] * (n + 1)]).nullspace()
    if nullity != 1:
        raise NotGenericError(f"vertex: expected {n} independent equations, got {n + 1 - nullity}")
    point = reduced(tuple(int(kernel[i, 0]) for i in range(n + 1)))
    for row, sign in zip(rows, signs, strict=True):
        value = _dot(row, point) if sign else 0
        if value:
            return point if (value > 0) == (sign > 0) else tuple(-x for x in point)
    raise NotGenericError("vertex: nothing tells it from its opposite")


def exact_point_signs(net: Network, point: Integers) -> SignArray:
    """Signs at a rational point ``X / t``, given as integers ``(X, t)``."""
    with flint.ctx.workprec(EXACT):
        row = np.array([flint.arb(x) for x in point], dtype=object)[None, :]
        values = switch_values(net.layout, row[:, :-1], HomogeneousBalls(row[:, -1]))
        signs = np.concatenate([exact_signs(v)[0] for v in values])
    return np.where(net.linear_entries, np.int8(1), signs).astype(np.int8)


def _labels(complex: Subject, run: Run) -> Check:
    """No two regions have one sign vector: the points with one sign vector form a convex set."""
    labels = complex.structure.top_signs
    distinct = len(np.unique(labels, axis=0)) if labels.shape[1] else 1
    text = f"{distinct} sign vectors for {len(labels)} regions"
    return Check("labels", distinct == len(labels), float(len(labels) - distinct), 0.0, text, True)


def _closed(complex: Subject, run: Run) -> Check:
    """Every facet bounds one or two regions, and one only on the border of the domain or at infinity."""
    d, cells = complex.structure.dimension, complex.structure
    number = np.bincount(cells.boundary[d - 1].indices, minlength=cells.count(d - 1))
    wrong = int(((number < 1) | (number > 2)).sum())
    if cells.domain_signs is not None and d >= 1:
        inside = cells.vertices_of(d - 1)
        on = np.logical_and.reduceat(cells.domain_signs[inside.indices] == 0, inside.indptr[:-1], axis=0).any(axis=1)
        wrong += int(((number == 1) != (on | complex.structure.at_infinity(d - 1))).sum())
    return Check(
        "walls", wrong == 0, float(wrong), 0.0, f"{wrong} of {len(number)} facets bound a wrong number of regions"
    )


def _euler(complex: Subject, run: Run) -> Check:
    """Closed at infinity, the complex is a ball."""
    cells = complex.structure
    value = sum((-1) ** k * cells.count(k) for k in range(cells.dimension + 1))
    text = f"{value}, with cells at infinity; {complex.euler_characteristic} without"
    return Check("Euler characteristic", value == 1, float(value), 1.0, text)


def _facets(complex: Subject, run: Run) -> Check:
    """Normals have length 1 up to rounding, offsets are finite, and a facet is visible if and only if it has a weight.

    A weight beyond the largest float may be infinite or NaN. A visible facet may have the weight zero where underflow
    or rounding took it: then the exact weight must keep within the stated error. A facet whose normal says itself that
    nothing is known of it is undecided.
    """
    complex.find_within(run, "facets")
    facets, d = complex.facets, complex.structure.dimension
    # the roundings of the normal's entries, and those of this sum of squares
    allowed = gamma(4 * d + 16)
    length = np.abs(np.einsum("fn,fn->f", facets.normal, facets.normal) - 1)
    bad = ~(length <= allowed) | ~np.isfinite(facets.offset)
    vague = bad & ~(facets.normal_error < np.inf)
    bad &= ~vague
    weighted = (facets.weight != 0).any(axis=1)
    bad |= weighted & ~facets.visible
    for row in np.flatnonzero(facets.visible & ~weighted & ~bad & ~vague):
        run.check()
        bad[row] = not _exact_weight(complex, int(row)) <= facets.weight_error[row]
    measured, wrong, unknown = float(length[~vague].max(initial=0.0)), int(bad.sum()), int(vague.sum())
    text = (
        f"{wrong} of {len(facets)} have a wrong normal, offset or weight; squares of normals within {measured:.1e} of 1"
    )
    text += f"; of {unknown} the normal is lost in rounding" if unknown else ""
    return Check("facets", False if wrong else None if unknown else True, measured, allowed, text)


def _exact_weight(complex: Subject, row: int) -> float:
    """Largest entry of the jump along the stated normal, from exact maps."""
    facets, net = complex.facets, complex.view.net
    one, two = (exact_output(net, complex.structure.top_signs[r])[:-1] for r in facets.regions[row])
    with flint.ctx.workprec(EXACT):
        normal = np.array([flint.arb(float(x)) for x in facets.normal[row]], dtype=object)
        return max((abs(float(w.mid())) for w in normal @ (two - one)), default=0.0)


def _volumes(complex: Subject, run: Run) -> Check:
    if complex.structure.at_infinity(0).any():
        return Check("volumes", True, 0.0, 0.0, "the domain is unbounded")
    total = float(complex.volumes.sum())
    domain = complex.view.domain
    if isinstance(domain, Box):
        wanted = domain.volume
    else:
        empty = Network([np.zeros((1, domain.dimension))], [np.zeros(1)])
        wanted = float(metrics(lattice_cells(empty, domain), domain.dimension)[domain.dimension].volumes.sum())
    # A vertex that is a little off moves the walls around it; what that adds on one side it takes on the other,
    # except in cells so thin that they turn over.
    reach = float(np.abs(complex.structure.points).max(initial=1.0))
    slip = np.full(complex.structure.count(complex.structure.dimension - 1), gamma(1024) * reach)
    if complex.structure.point_errors is not None:
        inside = complex.structure.vertices_of(complex.structure.dimension - 1)
        slip += 4 * np.maximum.reduceat(complex.structure.point_errors[inside.indices], inside.indptr[:-1])
    allowed = gamma(1024) * wanted + float(slip @ complex.wall_sizes)
    difference = abs(total - wanted)
    text = f"{total:.12g} against {wanted:.12g}: difference {difference:.1e}, allowed {allowed:.1e}"
    if not np.isfinite([difference, allowed]).all():
        return Check("volumes", None, None, None, f"{text}; beyond the floats")
    return Check("volumes", difference <= allowed, difference, allowed, text)


def _balance(complex: Subject, run: Run) -> Check:
    complex.find_within(run, "facets", "ridges")
    found = complex.balance()
    text = (
        f"{found.ridges} inner ridges, largest sum {found.residual:.1e}, {found.excess:.1e} of what rounding explains"
    )
    text += f", {found.unchecked} without a bound" if found.unchecked else ""
    return Check("balance", None if found.ok and found.unchecked else found.ok, found.excess, 1.0, text)


_CHECKS: dict[str, tuple[Callable[[Subject, Run], Check], bool]] = {
    "complete": (_complete, True),
    "witnesses": (_witnesses, True),
    "labels": (_labels, True),
    "walls": (_closed, True),
    "Euler characteristic": (_euler, True),
    "facets": (_facets, False),
    "volumes": (_volumes, False),
    "balance": (_balance, False),
}
"""In order, each with whether it makes sense for a complex that is not complete."""
