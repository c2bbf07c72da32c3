"""Mistakes that were made once, put back one by one: the fuzzer finds each of them.

A mistake is written as a patch of today's code that does what the old code did. The areas draw from their own seeds
until the first disagreement; a mistake that is not found in the time given is a hole in the fuzzer.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fiberscope import files
from fiberscope.dimension import exact_rank, functional
from fiberscope.equality import question, verify
from fiberscope.equality.rungs import symmetry
from fiberscope.fibers import identifiability, theorems
from fiberscope.fibers.canonical import labelling, matching
from fiberscope.fibers.fiber import Fiber
from fiberscope.fibers.generic import Generic
from fiberscope.fibers.one_layer.cancelling import NONE
from fiberscope.geometry import facets
from fiberscope.geometry.curves import follower, smooth, straight
from fiberscope.geometry.curves.breakpoints import marked
from fiberscope.geometry.distances import geodesics
from fiberscope.geometry.engines.planar import engine
from fiberscope.geometry.engines.planar.arrange import sure_signs
from fiberscope.geometry.surfaces import locate
from fiberscope.network import io
from fiberscope.network.action import chain
from fiberscope.network.formats.request import Request
from fiberscope.network.formats.stored.state_dict import as_chain
from fiberscope.numerics.ulps import DOUBLE
from fiberscope.run import Run

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from fuzz.areas import AREAS
from fuzz.case import case
from fuzz.runner import _verdict

SECONDS = 120.0

Patch = Callable[[pytest.MonkeyPatch], None]


@dataclass(frozen=True)
class Mistake:
    """What was wrong, the area that has to find it, and how to put it back."""

    name: str
    area: str
    back: Patch


MISTAKES: list[Mistake] = []


def mistake(area: str) -> Callable[[Patch], Patch]:
    def enter(patch: Patch) -> Patch:
        MISTAKES.append(Mistake(patch.__name__.replace("_", " "), area, patch))
        return patch

    return enter


@mistake("dimension")
def a_sample_is_called_complete(patch: pytest.MonkeyPatch) -> None:
    whole = functional.decide

    def sampled(*arguments: Any) -> Any:
        found = whole(*arguments)
        return replace(found, X=found.X[: max(1, len(found.X) // 3)])

    patch.setattr(functional, "decide", sampled)


@mistake("dimension")
def every_zero_is_a_kink(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(exact_rank, "kinks", lambda net, X, signs, run: signs == 0)


@mistake("identifiability")
def genericity_is_assumed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(theorems, "bottleneck_genericity", lambda layer: Generic(True, ("assumed",)))
    patch.setattr(theorems, "cancelled_hyperplanes", lambda *_: [])


@mistake("identifiability")
def sets_of_many_neurons_are_not_looked_at(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(identifiability, "_cancelling", lambda *_: NONE)


@mistake("fibers")
def the_largest_component_is_the_dimension(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Fiber, "dimension", property(lambda self: max((c.dimension for c in self.components), default=0)))
    patch.setattr(Fiber, "dimension_exact", property(lambda self: True))


@mistake("states")
def a_state_dict_is_a_chain_of_relus(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(io, "as_chain", lambda numbers, request: as_chain(numbers, _relu(request)))


def _relu(request: Request) -> Request:
    return replace(request, activation=request.activation or "relu")


@mistake("circles")
def the_closing_point_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    for module in (follower, straight):
        patch.setattr(module, "marked", lambda point, entry, order, closed: marked(point, entry, order, False))


@mistake("polynomials")
def a_zero_of_the_interpolant_is_the_zero(patch: pytest.MonkeyPatch) -> None:
    bands = smooth._SeriesFollower._bands

    def points(self: Any, *arguments: Any) -> Any:
        piece, label, t, _, _, sure = bands(self, *arguments)
        return piece, label, t, t, t, sure

    patch.setattr(smooth._SeriesFollower, "_bands", points)


@mistake("strips")
def a_point_is_the_vertex_that_is_nearest_in_space(patch: pytest.MonkeyPatch) -> None:
    def snapped(mesh: Any, points: Any, name: str) -> locate.Located:
        corner = [int(np.linalg.norm(mesh.vertices - x, axis=1).argmin()) for x in points]
        triangle = np.array([int((mesh.triangles == v).any(axis=1).argmax()) for v in corner])
        one = np.arange(len(points))
        return locate.Located(one, triangle, mesh.vertices[corner], one, np.zeros(len(points)))

    patch.setattr(geodesics, "locate", snapped)


@mistake("certificates")
def a_certificate_fits_any_model(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(verify, "_compared", lambda model, mine: replace(model, compared=None if mine is None else True))


@mistake("stored")
def every_rounding_is_that_of_doubles(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(question, "ROUNDINGS", dict.fromkeys(question.ROUNDINGS, replace(DOUBLE, precision="float32")))


@mistake("canonical")
def ties_are_left_as_they_are(patch: pytest.MonkeyPatch) -> None:
    def unsorted(self: Any) -> labelling.Labelling:
        return labelling.Labelling([np.arange(len(s)) for s in self.slopes], True)

    patch.setattr(labelling._Search, "run", unsorted)


@mistake("scales")
def a_symmetry_is_replayed_in_floats(patch: pytest.MonkeyPatch) -> None:
    def rounded(a: Any, s: Any, b: Any, t: Any) -> Any:
        with np.errstate(all="ignore"):
            return np.asarray((a / t) * s == b)

    for module in (matching, symmetry):
        patch.setattr(module, "same_products", rounded)


@mistake("segments")
def a_float_zero_is_a_zero_on_segments(patch: pytest.MonkeyPatch) -> None:
    _floats_are_zeros(patch, straight)


@mistake("planar")
def a_float_zero_is_a_zero_on_planes(patch: pytest.MonkeyPatch) -> None:
    _floats_are_zeros(patch, engine)


def _floats_are_zeros(patch: pytest.MonkeyPatch, module: Any) -> None:
    def loose(node: Any, source: Any, numbers: Any) -> Any:
        return sure_signs(node, replace(source, zeros=source.z == 0.0), numbers)

    patch.setattr(module, "sure_signs", loose)


@mistake("facets")
def a_normal_of_zero_proves_that_nothing_is_seen(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(facets, "_equal_maps", lambda net, one, two: np.ones(len(one), dtype=bool))


@mistake("equality")
def not_a_number_is_small_enough(patch: pytest.MonkeyPatch) -> None:
    told = symmetry.residual_of

    def passing(*arguments: Any) -> float:
        found = told(*arguments)
        return found if found <= 1e6 else 0.0

    patch.setattr(symmetry, "residual_of", passing)
    patch.setattr(matching, "residual_of", passing)


@mistake("actions")
def scales_may_leave_the_floats(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(chain, "TINY", 0.0)
    patch.setattr(chain, "_times", lambda array, scales, up, node: array * scales if up else array / scales)


@mistake("archives")
def archives_have_no_cap(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(files, "UNPACKED", 1 << 60)


@mistake("deadlines")
def nobody_looks_at_the_clock(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Run, "is_over", property(lambda self: False))


@pytest.mark.slow
@pytest.mark.parametrize("one", MISTAKES, ids=lambda one: one.name)
def test_a_mistake_is_found(one: Mistake, monkeypatch: pytest.MonkeyPatch) -> None:
    one.back(monkeypatch)
    area, start, seed = AREAS[one.area], time.process_time(), 0
    while time.process_time() - start < SECONDS:
        outcome, text = _verdict(area, case(area, seed))
        if outcome == "wrong":
            print(f"after {seed + 1} cases: {text}")
            return
        seed += 1
    pytest.fail(f"{seed} cases of {one.area} and no disagreement")
