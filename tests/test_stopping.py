"""Every long question knows a deadline: a small one stops it soon, and so does Ctrl-C.

What gives a lower bound when it is stopped (regions, traversals) is tested in ``tests/geometry/test_stopping.py``; the
questions here have no half answer and raise.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import Any

import numpy as np
import pytest

import fiberscope as fs

QUESTIONS = {
    "functional dimension": "fs.functional_dimension(net(3, 60, 60, 1), time_limit=LIMIT)",
    "functional dimension, sampled": "fs.functional_dimension(net(6, 48, 48, 2), time_limit=LIMIT)",
    "functional dimension on a batch": "fs.functional_dimension(net(8, 60, 60, 4), X(2000, 8), time_limit=LIMIT)",
    "tangent kernel": "fs.ntk(net(20, 600, 600, 1), X(15000, 20), time_limit=LIMIT)",
    "spectrum": "fs.kernel_spectrum(net(20, 400, 400, 1), X(5000, 20), 200, time_limit=LIMIT)",
    "distance": "fs.boundary_distance(net(60, 200, 200, 200, 1), X(20000, 60), time_limit=LIMIT)",
    "fold-set": "fs.fold_set(net(3, 160, 160, 1), fs.Box.cube(3), time_limit=LIMIT)",
    "genericity": "fs.genericity(net(3, 160, 160, 1), fs.Box.cube(3), time_limit=LIMIT)",
    "curve": "fs.regions_along(net(2, 400, 400, 400, 400, 1), fs.Circle(radius=3.0), time_limit=LIMIT)",
    "constants": "fs.theory_constants(fs.Ensemble.of((9, 60, 60, 1)), fs.Box.cube(9), samples=99999, time_limit=LIMIT)",
}  # fmt: skip
"""Each would take many seconds."""

FIRST = {
    "functional dimension": "fs.functional_dimension(net(2, 3, 1)), fs.functional_dimension(net(4, 3, 1))",
    "tangent kernel": "fs.ntk(net(2, 3, 1), X(3, 2)), fs.kernel_spectrum(net(2, 3, 1), X(9, 2), 2)",
    "distance": "fs.boundary_distance(net(2, 3, 1), X(3, 2)), fs.regions_along(net(2, 3, 3, 1), fs.Circle())",
    "fold-set": "fs.fold_set(net(3, 3, 1), fs.Box.cube(3)), fs.genericity(net(3, 3, 1), fs.Box.cube(3))",
    "size": "fs.estimate_regions(net(3, 3, 1), fs.Box.cube(3))",
    "cut back": "fs.regions(net(3, 8, 8, 1), fs.Box.cube(3), limit=20)",
}
"""What is compiled and loaded before the clock begins."""


def net(*widths: int) -> fs.Network:
    return fs.Network.random(widths, 0)


def X(count: int, size: int) -> Any:
    return np.random.default_rng(0).normal(size=(count, size))


@pytest.fixture(scope="module")
def ready() -> None:
    for text in FIRST.values():
        eval(text)


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_small_limit_stops_it_soon(name: str, ready: None) -> None:
    with pytest.raises(fs.OutOfTimeError):
        eval(QUESTIONS[name], {**globals(), "LIMIT": 1e-9})
    begin = time.process_time()
    with pytest.raises(fs.OutOfTimeError):
        eval(QUESTIONS[name], {**globals(), "LIMIT": 0.2})
    assert time.process_time() - begin < 2.5


@pytest.mark.parametrize("limit", [0, -1.0, float("nan")])
def test_limits_that_are_none_are_refused(limit: float) -> None:
    small = net(2, 3, 1)
    for ask in (fs.functional_dimension, fs.jacobian, fs.ntk, fs.kernel_spectrum, fs.boundary_distance):
        with pytest.raises(fs.InputError, match="time_limit: expected a positive number"):
            ask(small, X(3, 2), time_limit=limit)
    for question in (fs.fold_set, fs.genericity):
        with pytest.raises(fs.InputError, match="time_limit: expected a positive number"):
            question(small, fs.Box.cube(2), time_limit=limit)
    with pytest.raises(fs.InputError, match="time_limit: expected a positive number"):
        fs.theory_constants(fs.Ensemble.of((2, 3, 1)), fs.Box.cube(2), time_limit=limit)


def test_progress_is_told() -> None:
    small, seen = net(4, 5, 5, 1), []
    fs.functional_dimension(small, progress=lambda *told: seen.append(told))
    fs.boundary_distance(small, X(3, 4), progress=lambda *told: seen.append(told))
    fs.ntk(small, X(3, 4), progress=lambda *told: seen.append(told))
    fs.kernel_spectrum(small, X(9, 4), 2, progress=lambda *told: seen.append(told))
    fs.fold_set(net(2, 3, 1), fs.Box.cube(2), progress=lambda *told: seen.append(told))
    fs.genericity(net(2, 3, 1), fs.Box.cube(2), progress=lambda *told: seen.append(told))
    texts = {text for _, _, text in seen}
    assert {"round 0 of regions", "exact rank", "points", "rows of the kernel", "masked_ranks", "facets"} <= texts


def test_answers_do_not_depend_on_the_clock() -> None:
    small = net(3, 6, 5, 1)
    for points in (None, X(40, 3)):
        assert (
            fs.functional_dimension(small, points).exact == fs.functional_dimension(small, points, time_limit=60).exact
        )
    near, same = (fs.boundary_distance(small, X(40, 3), time_limit=limit) for limit in (None, 60))
    assert np.array_equal(near.distance, same.distance)


INTERRUPTED = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever was started in the background ignores it
import numpy as np
import fiberscope as fs
net = lambda *widths: fs.Network.random(widths, 0)
X = lambda count, size: np.random.default_rng(0).normal(size=(count, size))
{first}
print("go", flush=True)
try:
    {work}
    print("done")
except KeyboardInterrupt:
    print("interrupted")
"""


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
@pytest.mark.parametrize("name", ["functional dimension", "fold-set"])
def test_an_interruption_is_no_answer(name: str) -> None:
    code = INTERRUPTED.format(first=FIRST[name], work=QUESTIONS[name].replace("LIMIT", "None"))
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=os.environ.copy())
    assert process.stdout is not None
    assert process.stdout.readline() == "go\n"
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    assert out == "interrupted\n"
