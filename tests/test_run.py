"""Progress, limit, deadline and interruption as one object."""

from __future__ import annotations

import inspect
import math
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fiberscope as fs
from fiberscope.errors import InputError, OutOfTimeError
from fiberscope.run import ENDLESS, STOPPED, Run


def test_a_step_reports_and_then_looks_at_the_clock() -> None:
    seen: list[tuple[int, int | None, str]] = []
    run = Run(lambda *args: seen.append(args), deadline=time.monotonic() - 1)
    with pytest.raises(OutOfTimeError, match="time is up"):
        run.step(3, 10, "three")
    assert seen == [(3, 10, "three")]


def test_without_a_deadline_time_never_ends() -> None:
    assert ENDLESS.seconds_left == math.inf
    assert not ENDLESS.is_over
    ENDLESS.check()


def test_an_attempt_never_outlives_its_run() -> None:
    run = Run.begin(time_limit=1.0)
    assert run.within(100.0).deadline == run.deadline
    assert run.within(0.0).is_over
    assert run.quietly().progress is None


@pytest.mark.parametrize("seconds", [0.0, -1.0, math.nan])
def test_a_time_limit_is_a_positive_number(seconds: float) -> None:
    with pytest.raises(InputError, match="time_limit: expected a positive number"):
        Run.begin(time_limit=seconds)


def test_a_deadline_that_is_not_a_number_is_over() -> None:
    assert Run(deadline=math.nan).is_over


def test_both_ways_to_stop_are_caught_together() -> None:
    def interrupt(done: int, total: int | None, text: str) -> None:
        raise KeyboardInterrupt

    for run in (Run(interrupt), Run(deadline=0.0)):
        with pytest.raises(STOPPED):
            run.step(1)


# --- the public functions that can be watched ---------------------------------------------------------------------

X = np.array([[0.25, -0.5], [1.0, 0.75], [-0.5, 0.125], [0.75, 0.5]])
BOX = fs.Box([-1.0, -1.0], [1.0, 1.0])
NET = fs.Network.random((2, 4, 3, 2), seed=3)
OTHER = fs.Network.random((2, 4, 3, 2), seed=4)
SOLID = fs.Network.random((3, 4, 1), seed=3)
CANCELLED = fs.Network([[[1.0], [-1.0], [1.0]], [[1.0, -1.0, 1.0]]], [[0.0, 0.0, -3.0], [0.0]])
LAYER = (np.zeros((2, 3)), np.ones((2, 3)), np.eye(2, 3))

Watched = Callable[..., Any]


def drained(stream: Any) -> Any:
    for _ in stream:
        pass
    return stream


RAISES: Callable[[Any], bool] | None = None

# name -> the call, and how an answer that came too late says so (None: there is no answer)
WATCHED: dict[str, tuple[Watched, Callable[[Any], bool] | None]] = {
    "barrier": (lambda **w: fs.barrier(NET, NET, "cross_entropy", (X, np.array([0, 1, 0, 1])), 3, **w), RAISES),
    "boundary_distance": (lambda **w: fs.boundary_distance(NET, X, **w), RAISES),
    "chord_deviation": (lambda **w: fs.chord_deviation(NET, NET, X, points=3, **w), RAISES),
    "count_along": (lambda **w: fs.count_along([NET], fs.Circle(), **w), RAISES),
    "count_by_traversal": (lambda **w: fs.count_by_traversal(NET, BOX, **w), lambda found: not found.complete),
    "count_regions": (lambda **w: fs.count_regions(NET, BOX, **w), lambda found: not found.complete),
    "curvature": (lambda **w: fs.curvature(NET, X, **w), RAISES),
    "geodesic_distance": (
        lambda **w: fs.geodesic_distance(fs.Torus(), [[1.4, 0.0, 0.0]], [[0.0, 1.4, 0.0]], **w),
        RAISES,
    ),
    "iter_regions": (lambda **w: drained(fs.iter_regions(NET, BOX, **w)), lambda found: not found.complete),
    "decisive_set": (lambda **w: fs.decisive_set(NET, **w), RAISES),
    "equivalent": (
        lambda **w: fs.equivalent(NET, OTHER, BOX, tolerance=2.0, **w),
        lambda found: found.equal is None,
    ),
    "equivalent_around": (
        lambda **w: fs.equivalent_around(NET, OTHER, X, 0.25, tolerance=2.0, **w),
        lambda found: any(verdict.equal is None for verdict in found.verdicts),
    ),
    "deformations": (lambda **w: fs.deformations(fs.Network.random((2, 3, 2, 1), 0), BOX, **w), RAISES),
    "estimate_regions": (lambda **w: fs.estimate_regions(NET, BOX, samples=40, runs=2, points=10, **w), RAISES),
    "expected_boundary_volume": (lambda **w: fs.expected_boundary_volume(fs.Ensemble.of((2, 3, 1)), BOX, **w), RAISES),
    "explain": (lambda **w: fs.explain(NET, X, **w), RAISES),
    "fold_set": (lambda **w: fs.fold_set(NET, BOX, **w), RAISES),
    "functional_dimension": (lambda **w: fs.functional_dimension(NET, X, **w), RAISES),
    "genericity": (lambda **w: fs.genericity(NET, BOX, **w), RAISES),
    "jacobian": (lambda **w: fs.jacobian(NET, X, **w), RAISES),
    "kernel_eigenfunctions": (lambda **w: fs.kernel_eigenfunctions(NET, X, 1, **w), RAISES),
    "kernel_spectrum": (lambda **w: fs.kernel_spectrum(NET, X, count=2, **w), RAISES),
    "largest_difference": (lambda **w: fs.largest_difference(NET, OTHER, BOX, **w), RAISES),
    "level_persistence": (lambda **w: fs.level_persistence(NET, BOX, **w), RAISES),
    "level_topology": (lambda **w: fs.level_topology(NET, BOX, **w), RAISES),
    "learning_coefficient": (lambda **w: fs.learning_coefficient(NET, X, chains=2, draws=9, burn_in=0, **w), RAISES),
    "local_identifiability": (lambda **w: fs.local_identifiability(NET, BOX, **w), RAISES),
    "match": (lambda **w: fs.match(NET, NET, data=X, **w), RAISES),
    "match_many": (lambda **w: fs.match_many([NET, NET], **w), RAISES),
    "merge": (lambda **w: fs.merge([NET, NET], **w), RAISES),
    "ntk": (lambda **w: fs.ntk(NET, X, **w), RAISES),
    "recover": (lambda **w: fs.recover(NET, NET.widths, **w), RAISES),
    "record_activations": (lambda **w: fs.record_activations(NET.to_torch(), None, X, **w), RAISES),
    "record_inputs": (lambda **w: fs.record_inputs(NET.to_torch(), None, X, **w), RAISES),
    "region_theory": (lambda **w: fs.region_theory(fs.Ensemble.of((2, 3, 1)), fs.Circle(), networks=2, **w), RAISES),
    "regions": (lambda **w: fs.regions(NET, BOX, **w), lambda found: not found.complete),
    "regions_along": (lambda **w: fs.regions_along(NET, fs.Circle(), **w), RAISES),
    "regions_on": (lambda **w: fs.regions_on(NET, fs.Mesh.grid(X[[[0, 1], [2, 3]]]), **w), lambda f: not f.complete),
    "round_regions": (lambda **w: fs.round_regions(SOLID, fs.Sphere(), **w), RAISES),
    "relaxed_cost": (lambda **w: fs.relaxed_cost(LAYER, np.eye(3), activation="tanh", **w), RAISES),
    "repair": (lambda **w: fs.repair(NET, X, (NET, NET), **w), RAISES),
    "report": (lambda **w: fs.report(NET, **w), lambda found: len(found.unasked) > 1),
    "theory_constants": (lambda **w: fs.theory_constants(fs.Ensemble.of((2, 3, 1)), fs.Circle(), **w), RAISES),
    "train_generator": (
        lambda **w: fs.train_generator(np.eye(4), epochs=3, latent=2, widths=(3,), **w),
        lambda made: len(made.losses) < 3,
    ),
    "train_many": (lambda **w: fs.train_many((2, 3, 1), (X, X[:, :1]), [0], epochs=2, **w), RAISES),
    "traverse": (lambda **w: list(fs.traverse(NET, BOX, **w)), lambda found: len(found) < 9),
    "visible_boundary_distance": (
        lambda **w: fs.visible_boundary_distance(CANCELLED, [[-1.0]], **w),
        lambda found: not found.ended.all(),
    ),
}


# what they have done is kept on disk, and they go on from there; the tests of studies and of checkpoints stop them
ON_DISK = {"align_checkpoints", "apply_alignment", "merge_checkpoints", "reproduce"}


def test_all_of_them_are_in_the_table() -> None:
    found = {
        name
        for name in fs.__all__
        if inspect.isfunction(function := getattr(fs, name)) and "progress" in inspect.signature(function).parameters
    }
    assert found - ON_DISK == set(WATCHED)


@pytest.mark.parametrize("name", WATCHED)
def test_progress_says_what_is_done_of_how_much(name: str) -> None:
    seen: list[tuple[Any, ...]] = []
    WATCHED[name][0](progress=lambda *args: seen.append(args))
    assert seen
    for done, total, text in seen:
        assert isinstance(done, int) and (total is None or isinstance(total, int)) and isinstance(text, str)


@pytest.mark.parametrize("name", WATCHED)
def test_no_time_is_no_answer_or_a_part_that_says_so(name: str) -> None:
    call, is_part = WATCHED[name]
    if is_part is None:
        with pytest.raises(OutOfTimeError):
            call(time_limit=1e-9)
    else:
        assert is_part(call(time_limit=1e-9)) and not is_part(call())


def test_progress_has_one_type() -> None:
    package = Path(fs.__file__).parent
    alias = re.compile(r"^Progress\b.*=", re.MULTILINE)
    assert [path.name for path in sorted(package.rglob("*.py")) if alias.search(path.read_text())] == ["run.py"]
