"""Equality by regions: the affine maps of two networks compared on the common refinement of their regions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, ClassVar

import numpy as np

from fiberscope.equality.counterexample import Counterexample, confirmed
from fiberscope.equality.evidence import Check, Evidence, integers
from fiberscope.equality.question import Question
from fiberscope.equality.refutation import different, small_enough
from fiberscope.equality.verdict import Rung, Verdict, answered
from fiberscope.errors import FiberscopeError
from fiberscope.geometry.affine_forms import exact_output, output_forms
from fiberscope.geometry.complex import Complex
from fiberscope.geometry.engines.traversal.engine import VisitedRegion, traverse
from fiberscope.geometry.regions import regions
from fiberscope.network.compose import difference_network
from fiberscope.network.network import Network
from fiberscope.network.nodes import Affine, Node, PiecewiseLinear
from fiberscope.network.operators import Dense
from fiberscope.numerics.algebra.bounded import Bounded
from fiberscope.numerics.floats import FloatArray, IntArray

_DIMENSION = 3
_NEURONS = {1: 4000, 2: 600, 3: 60}
"""Hidden neurons of both networks together up to which their regions are listed, by dimension."""


_REGIONS = 1_000_000
"""Regions of both networks together after which the list is given up."""

_SHARE = 0.5
"""Part of the time that is left in which regions are visited one by one."""

_VISITED = 120
"""Hidden neurons of both networks together up to which regions are visited to decide a tolerance."""

_CHUNK = 256
"""Regions whose affine maps are compared at a time."""


@dataclass(frozen=True, slots=True, eq=False)
class RegionCount(Evidence):
    """The affine maps agree on so many regions; there is no shorter proof than to list them, which the check does."""

    kind: ClassVar[str] = "regions"

    regions: int

    def check(self, question: Question) -> Check:
        verdict = by_regions(question)
        if verdict is None or verdict.equal is not True:
            return Check(False, "the regions do not prove equality")
        if not isinstance(verdict.evidence, RegionCount) or verdict.evidence.regions != self.regions:
            return Check(False, f"{verdict.reason}, and these are not {self.regions}")
        return Check(
            True, f"{verdict.reason}; all of them were listed again, the certificate holds no shorter proof",
            verdict.bound, verdict.residual,
        )  # fmt: skip

    @classmethod
    def from_dict(cls, found: dict[str, Any]) -> RegionCount:
        return cls(*integers([found["regions"]], "the number of regions"))


def by_regions(question: Question) -> Verdict | None:
    """The search: the difference on every region of both networks together.

    In up to three dimensions they are built with their faces where neurons are few; else visited one by one, as many
    as there is time for.
    """
    size = question.place.dimension
    neurons = question.a.num_signs + question.b.num_signs
    if size > _DIMENSION or neurons > _NEURONS[size]:
        return by_visits(question)
    gap = difference_network(question.a, question.b)

    wanted = threshold_network(gap, question.tolerance) if question.tolerance else gap
    try:
        question.run.check()
        found = regions(wanted, question.place, limit=_REGIONS, time_limit=question.seconds_left)
    except (FiberscopeError, OverflowError) as error:  # a corner may lie beyond the floats
        question.notes.append(str(error))
        return None
    if not found.complete:
        question.run.check()
        question.notes.append(f"more than {_REGIONS} regions")
        return None
    if question.tolerance:
        return _within(question, found)
    forms = output_forms(gap, found.sign_vectors)
    with np.errstate(invalid="ignore"):  # an order to look in: where floats do not reach, last
        size = np.abs(forms.value).max(axis=(1, 2)) - forms.error.max(axis=(1, 2))
    return _same_maps(question, found, forms) or _different(question, found, np.argsort(-size))


def batched(found: Iterable[VisitedRegion], size: int) -> Iterator[list[VisitedRegion]]:
    """In portions."""
    stream = iter(found)
    while part := list(islice(stream, size)):
        yield part


def by_visits(question: Question) -> Verdict | None:
    """The search where regions are visited one by one, in any dimension, for half of the time that is left."""
    many = question.a.num_signs + question.b.num_signs > _VISITED
    if not small_enough(question) or (many and question.tolerance):
        return None  # a tolerance is decided by bounds, where regions are too many to be visited
    gap = difference_network(question.a, question.b)
    wanted = threshold_network(gap, question.tolerance) if question.tolerance else gap
    run = question.run.within(_SHARE * question.seconds_left)
    try:
        stream = traverse(wanted, question.place, limit=_REGIONS, time_limit=max(run.seconds_left, 1e-3))
        judge = _Visits(question, gap)
        for part in batched(stream, _CHUNK):
            verdict = judge.take(part)
            if verdict is not None:
                return verdict
    except (FiberscopeError, OverflowError) as error:
        question.notes.append(str(error))
        return None
    if not stream.summary.complete:
        question.notes.append(f"{stream.summary} of the two together, visited one by one")
        return None
    return judge.verdict(stream.summary.count)


class _Visits:
    """What the regions that were visited say."""

    def __init__(self, question: Question, gap: Network) -> None:
        self.question, self.gap = question, gap
        self.exact, self.agree, self.residual = True, True, 0.0

    def take(self, part: list[VisitedRegion]) -> Verdict | None:
        """Some regions; a verdict if the two differ on one of them."""
        question = self.question
        signs = np.array([region.signs for region in part])
        if question.tolerance:
            over = (signs[:, -2 * question.a.out_size :] > 0).any(axis=1)
            return self._differ([part[k] for k in np.flatnonzero(over)])
        forms = output_forms(self.gap, signs)
        near = np.isfinite(forms.error) & (np.abs(forms.value) <= forms.error)
        zero = ((forms.value == 0) & (forms.error == 0)).all(axis=(1, 2))
        suspects = np.flatnonzero(~near.all(axis=(1, 2)))
        for k in np.flatnonzero(~zero):
            if not self.exact:
                break
            rows = exact_output(self.gap, signs[k])
            if not all(v.is_zero() for v in np.asarray(rows).ravel()):
                self.exact = False
                suspects = np.union1d(suspects, [k])
            question.run.check()
        self.agree = self.agree and bool(near.all())
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.where(forms.value == 0, 0.0, np.abs(forms.value) / forms.error)
        self.residual = max(self.residual, float(np.nan_to_num(ratio, nan=np.inf).max(initial=0.0)))
        return self._differ([part[k] for k in suspects.tolist()])

    def _differ(self, found: list[VisitedRegion]) -> Verdict | None:
        for region in found[:8]:
            example = confirmed(self.question, region.witness)
            if example is not None and self.question.place.contains(region.witness[None])[0]:
                return different(self.question, "regions", example, "the affine maps differ on a region")
        if found and self.question.tolerance:
            self.agree = False  # somewhere on the region the tolerance is passed, but no float was found there
        return None

    def verdict(self, count: int) -> Verdict | None:
        """When all regions were seen."""
        question = self.question
        if question.tolerance:
            if not self.agree:
                return None
            text = f"the difference exceeds the tolerance on none of the {count} regions of the two"
            return answered(question, "regions", RegionCount(count), Check(True, text, bound=question.tolerance))
        if not self.exact and (question.tolerance is not None or not self.agree):
            return None
        text = f"the affine maps agree on all {count} regions of the two together"
        residual = 0.0 if self.exact else self.residual
        return answered(
            question, "regions", RegionCount(count), Check(True, text, 0.0 if self.exact else None, residual)
        )


def _same_maps(question: Question, found: Complex, forms: Bounded) -> Verdict | None:
    """All maps of the difference are zero: exactly, or for equality up to rounding within their error bounds."""
    if not (np.isfinite(forms.error) & (np.abs(forms.value) <= forms.error)).all():
        return None  # an infinite bound, or a value that is not a number, proves nothing
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(forms.value == 0, 0.0, np.abs(forms.value) / forms.error)
    exact = _exactly_zero(question, found, forms)
    if not exact and question.tolerance is not None:
        return None
    residual = 0.0 if exact else float(ratio.max(initial=0.0))
    text = f"the affine maps agree on all {found.num_regions} regions of the two together"
    return answered(
        question, "regions", RegionCount(found.num_regions), Check(True, text, 0.0 if exact else None, residual)
    )


def _exactly_zero(question: Question, found: Complex, forms: Bounded) -> bool:
    zero = (forms.value == 0) & (forms.error == 0)
    for cell in np.flatnonzero(~zero.all(axis=(1, 2))):
        question.run.check()
        rows = exact_output(found.net, found.sign_vectors[cell])
        if not all(v.is_zero() for v in rows.ravel()):
            return False
    return True


def threshold_network(gap: Network, tolerance: float) -> Network:
    """The difference, followed by one neuron for each side on which an output can exceed the tolerance.

    Signs of neurons are certified, so the regions decide the question without any error bound.
    """
    m, last = gap.out_size, len(gap.nodes)
    rows = np.concatenate([np.eye(m), -np.eye(m)])
    ends: list[Node] = [
        Affine(last, Dense(rows), np.full(2 * m, -tolerance)),
        PiecewiseLinear(last + 1, np.zeros(2 * m), (2 * m,)),
    ]
    return Network.from_nodes([*gap.nodes, *ends], gap.input_shape)


def _within(question: Question, found: Complex) -> Verdict | None:
    """Whether an output exceeds the tolerance on some region."""
    assert question.tolerance is not None
    over = found.sign_vectors[:, -2 * question.a.out_size :] > 0
    cells = np.flatnonzero(over.any(axis=1))
    if not len(cells):
        text = f"the difference exceeds the tolerance on none of the {found.num_regions} regions of the two"
        return answered(
            question, "regions", RegionCount(found.num_regions), Check(True, text, bound=question.tolerance)
        )
    return _different(question, found, cells)


def _different(question: Question, found: Complex, cells: IntArray) -> Verdict | None:
    """A region on which the maps differ gives an input at which the networks do."""
    for cell in cells[:8]:
        for x in _inner_points(found, int(cell)):
            if not question.place.contains(x[None])[0]:
                continue
            example = confirmed(question, x)
            if example is not None:
                return different(question, "regions", example, "the affine maps differ on a region")
    return None


def _inner_points(found: Complex, cell: int) -> list[FloatArray]:
    point = found.points[cell]
    own = found.structure.vertices_of(found.dimension)[cell]
    corners = [v for v in own if not found.rays[v]]
    with np.errstate(over="ignore", invalid="ignore"):  # corners beyond the floats make points that are not confirmed
        moved_points = [point + t * (found.vertices[v] - point) for v in corners[:6] for t in (0.5, 0.999, 1.0)]
    rays = [point + s * found.vertices[v] for v in own if found.rays[v] for s in (1.0, 1e3, 1e6)]
    return [point, *moved_points, *rays]


RUNG: Rung = Rung(by_regions, (RegionCount, Counterexample))
