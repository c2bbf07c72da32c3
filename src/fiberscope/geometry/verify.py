"""Certificates: what proves that a complex is right, measured anew and independently of how it was made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import flint
import numpy as np

from fiberscope.errors import NotGenericError
from fiberscope.geometry.domains import Box, Plane
from fiberscope.geometry.forms import exact_neuron, exact_output
from fiberscope.geometry.lattice import lattice_cells
from fiberscope.geometry.lattice_exact import HomogeneousBalls, Integers, exact_signs, integers, reduced
from fiberscope.geometry.metrics import metrics
from fiberscope.network.network import Network
from fiberscope.network.nodes import MaxPool
from fiberscope.network.run import switch_values
from fiberscope.numerics.arithmetic import EXACT
from fiberscope.numerics.floats import IntArray, SignArray, gamma
from fiberscope.numerics.points import integer_rows

if TYPE_CHECKING:
    from fiberscope.geometry.complex import Complex

Progress = Callable[[int, int, str], Any]
"""Called as ``progress(done, total, text)``; may raise ``KeyboardInterrupt`` to stop."""

_CHUNK = 1 << 22
"""Numbers in one batch of witness points."""


@dataclass(frozen=True, slots=True)
class Check:
    """One check: what was measured, against what, in words; ``ok`` is None if it was not decided."""

    name: str
    ok: bool | None
    measured: float | None
    allowed: float | None
    text: str

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "name": self.name,
            "ok": self.ok,
            "measured": self.measured,
            "allowed": self.allowed,
            "text": self.text,
        }


@dataclass(frozen=True, slots=True)
class Certificate:
    """The outcome of all checks; true if every one of them holds."""

    checks: tuple[Check, ...]

    @property
    def ok(self) -> bool | None:
        """False if a check fails; else None if one was not decided, because the work was interrupted."""
        outcomes = [check.ok for check in self.checks]
        return False if False in outcomes else None if None in outcomes else True

    def __bool__(self) -> bool:
        return self.ok is True

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {"ok": self.ok, "checks": [check.to_dict() for check in self.checks]}

    def __repr__(self) -> str:
        words = {True: "ok", False: "FAILED", None: "undecided"}
        lines = [f"  {words[check.ok]:<9} {check.name}: {check.text}" for check in self.checks]
        return "\n".join([f"Certificate({words[self.ok]})", *lines])


def verify(complex: Complex, progress: Progress | None = None) -> Certificate:
    """Check a complex: witnesses, labels, closed walls, Euler characteristic, facets, volumes, balance.

    ``progress`` is called before every check. When interrupted, the checks that were not finished are undecided.

    >>> from fiberscope.geometry.regions import regions
    >>> print(verify(regions(Network.random((2, 4, 1), 0), Box.cube(2))).ok)
    True
    """
    names = [name for name, (_, partial) in _CHECKS.items() if partial or complex.complete]
    checks: list[Check] = []
    try:
        for done, name in enumerate(names):
            if progress is not None:
                progress(done, len(names), name)
            checks.append(_CHECKS[name][0](complex))
    except KeyboardInterrupt:
        text = "interrupted before it was decided"
        checks += [Check(name, None, None, None, text) for name in names[len(checks) :]]
    return Certificate(tuple(checks))


def _complete(complex: Complex) -> Check:
    text = "all neurons were reached" if complex.complete else "the work was interrupted"
    return Check("complete", complex.complete, float(complex.complete), 1.0, text)


def _witnesses(complex: Complex) -> Check:
    """Every region has a point whose exact sign vector is its label."""
    net, points, labels = complex.view, complex.points, complex.sign_vectors
    reached = np.arange(labels.shape[1]) if complex.complete else np.flatnonzero(complex.structure.vertex_signs.any(0))
    step = max(1, _CHUNK // max(int(np.prod(shape)) for shape in net.shapes))
    wrong: list[int] = []
    for start in range(0, len(points), step):
        rows = slice(start, start + step)
        found = net.signs(points[rows]).signs
        bad = (found[:, reached] != labels[rows][:, reached]).any(axis=1)
        wrong += (start + np.flatnonzero(bad)).tolist()
    rational = len(wrong)
    wrong = [region for region in wrong if not _exact_witness(complex, region, reached)]
    text = f"{len(points) - len(wrong)} of {len(points)} regions have a point with exactly their signs"
    text += f" ({rational - len(wrong)} of them a rational one)" if rational > len(wrong) else ""
    return Check("witnesses", not wrong, float(len(wrong)), 0.0, text)


def _exact_witness(complex: Complex, region: int, reached: IntArray) -> bool:
    """Whether an exact mean of the region's vertices has its signs: for regions thinner than floats can tell."""
    cells, net = complex.structure, complex.view
    if cells.domain_signs is None or any(isinstance(node, MaxPool) for node in net.switches):
        return False
    own = cells.vertices_of(cells.dimension)[region]
    try:
        points = [_exact_vertex(complex, int(v), region) for v in own]
    except NotGenericError:
        return False
    # In homogeneous coordinates every sum with positive weights is inside, directions at infinity included.
    inside = reduced(tuple(sum(column) for column in zip(*points, strict=True)))
    return bool((exact_point_signs(net, inside)[reached] == complex.sign_vectors[region][reached]).all())


def _exact_vertex(complex: Complex, vertex: int, region: int) -> Integers:
    """A vertex ``(X, t)`` from its equations: neurons that vanish there and not on the region, sides, and infinity."""
    cells = complex.structure
    assert cells.domain_signs is not None
    n = cells.dimension
    domain = complex.domain.box if isinstance(complex.domain, Plane) else complex.domain
    A, b = domain.halfspaces()
    label, far = complex.sign_vectors[region], bool(complex.rays[vertex])
    sides: list[list[int]] = integer_rows(np.concatenate([A, -b[:, None]], axis=1)).tolist() if len(A) else []
    neurons = np.flatnonzero(label != 0)
    forms = [list(integers(exact_neuron(complex.view, label, int(j)))) for j in neurons]
    rows = [*sides, *forms, [0] * n + [1]]
    signs = [*cells.domain_signs[vertex].tolist(), *cells.vertex_signs[vertex, neurons].tolist(), int(not far)]
    equations = [row for row, sign in zip(rows, signs, strict=True) if sign == 0]
    kernel, nullity = flint.fmpz_mat(equations or [[0] * (n + 1)]).nullspace()
    if nullity != 1:
        raise NotGenericError(f"vertex {vertex}: expected {n} independent equations, got {n + 1 - nullity}")
    point = reduced(tuple(int(kernel[i, 0]) for i in range(n + 1)))
    for row, sign in zip(rows, signs, strict=True):
        if sign:
            value = sum(int(a) * x for a, x in zip(row, point, strict=True))
            return point if (value > 0) == (sign > 0) else tuple(-x for x in point)
    raise NotGenericError(f"vertex {vertex}: nothing tells it from its opposite")


def exact_point_signs(net: Network, point: Integers) -> SignArray:
    """Signs at a rational point ``X / t``, given as integers ``(X, t)``."""
    with flint.ctx.workprec(EXACT):
        row = np.array([flint.arb(x) for x in point], dtype=object)[None, :]
        values = switch_values(net.nodes, row[:, :-1], HomogeneousBalls(row[:, -1]))
        signs = np.concatenate([exact_signs(v)[0] for v in values])
    return np.where(net.linear_entries, np.int8(1), signs).astype(np.int8)


def _labels(complex: Complex) -> Check:
    """No two regions with one sign vector share a facet."""
    labels = complex.sign_vectors
    distinct = len(np.unique(labels, axis=0)) if labels.shape[1] else 1
    joined = 0
    if distinct < len(labels):
        one, two = complex.sides[complex.sides[:, 1] >= 0].T
        joined = int((labels[one] == labels[two]).all(axis=1).sum())
    text = f"{distinct} sign vectors for {len(labels)} regions"
    text += f", {joined} facets between equal ones" if distinct < len(labels) else ""
    return Check("labels", joined == 0, float(joined), 0.0, text)


def _closed(complex: Complex) -> Check:
    """Every facet bounds one or two regions, and one only on the border of the domain or at infinity."""
    d, cells = complex.dimension, complex.structure
    number = np.bincount(cells.boundary[d - 1].indices, minlength=cells.count(d - 1))
    wrong = int(((number < 1) | (number > 2)).sum())
    if cells.domain_signs is not None and d >= 1:
        inside = cells.vertices_of(d - 1)
        on = np.logical_and.reduceat(cells.domain_signs[inside.indices] == 0, inside.indptr[:-1], axis=0).any(axis=1)
        wrong += int(((number == 1) != (on | complex.at_infinity(d - 1))).sum())
    return Check(
        "walls", wrong == 0, float(wrong), 0.0, f"{wrong} of {len(number)} facets bound a wrong number of regions"
    )


def _euler(complex: Complex) -> Check:
    """Closed at infinity, the complex is a ball."""
    cells = complex.structure
    value = sum((-1) ** k * cells.count(k) for k in range(cells.dimension + 1))
    text = f"{value}, with cells at infinity; {complex.euler_characteristic} without"
    return Check("Euler characteristic", value == 1, float(value), 1.0, text)


def _facets(complex: Complex) -> Check:
    """Normals have length 1 up to rounding, offsets are finite, and a facet is visible if and only if it has a weight.

    A weight beyond the largest float may be infinite or NaN. A visible facet may have the weight zero where underflow
    or rounding took it: then the exact weight must keep within the stated error.
    """
    facets, d = complex.facets, complex.dimension
    # the roundings of the normal's entries, and those of this sum of squares
    allowed = gamma(4 * d + 16)
    length = np.abs(np.einsum("fn,fn->f", facets.normal, facets.normal) - 1)
    bad = ~(length <= allowed) | ~np.isfinite(facets.offset)
    weighted = (facets.weight != 0).any(axis=1)
    bad |= weighted & ~facets.visible
    for row in np.flatnonzero(facets.visible & ~weighted & ~bad):
        bad[row] = not _exact_weight(complex, int(row)) <= facets.weight_error[row]
    measured, wrong = float(length.max(initial=0.0)), int(bad.sum())
    text = (
        f"{wrong} of {len(facets)} have a wrong normal, offset or weight; squares of normals within {measured:.1e} of 1"
    )
    return Check("facets", wrong == 0, measured, allowed, text)


def _exact_weight(complex: Complex, row: int) -> float:
    """Largest entry of the jump along the stated normal, from exact maps."""
    facets, net = complex.facets, complex.view
    one, two = (exact_output(net, complex.sign_vectors[r])[:-1] for r in facets.regions[row])
    with flint.ctx.workprec(EXACT):
        normal = np.array([flint.arb(float(x)) for x in facets.normal[row]], dtype=object)
        return max((abs(float(w.mid())) for w in normal @ (two - one)), default=0.0)


def _volumes(complex: Complex) -> Check:
    total = float(complex.volumes.sum())
    if not np.isfinite(total):
        return Check("volumes", True, 0.0, 0.0, "the domain is unbounded")
    domain = complex.domain.box if isinstance(complex.domain, Plane) else complex.domain
    if isinstance(domain, Box):
        wanted = domain.volume
    else:
        empty = Network([np.zeros((1, domain.dimension))], [np.zeros(1)])
        wanted = float(metrics(lattice_cells(empty, domain), domain.dimension)[domain.dimension].volumes.sum())
    # A vertex that is a little off moves the walls around it; what that adds on one side it takes on the other,
    # except in cells so thin that they turn over.
    reach = float(np.abs(complex.vertices).max(initial=1.0))
    slip = np.full(complex.structure.count(complex.dimension - 1), gamma(1024) * reach)
    if complex.structure.point_errors is not None:
        inside = complex.structure.vertices_of(complex.dimension - 1)
        slip += 4 * np.maximum.reduceat(complex.structure.point_errors[inside.indices], inside.indptr[:-1])
    allowed = gamma(1024) * wanted + float(slip @ complex.wall_sizes)
    difference = abs(total - wanted)
    text = f"{total:.12g} against {wanted:.12g}: difference {difference:.1e}, allowed {allowed:.1e}"
    return Check("volumes", difference <= allowed, difference, allowed, text)


def _balance(complex: Complex) -> Check:
    found = complex.balance()
    text = (
        f"{found.ridges} inner ridges, largest sum {found.residual:.1e}, {found.excess:.1e} of what rounding explains"
    )
    text += f", {found.unchecked} without a bound" if found.unchecked else ""
    return Check("balance", found.ok, found.excess, 1.0, text)


_CHECKS: dict[str, tuple[Callable[[Complex], Check], bool]] = {
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
