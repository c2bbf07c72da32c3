"""Nothing runs for ever: refusals at once, deadlines, interruptions, and compiled loops that can be stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from fiberscope.cli.app import app
from fiberscope.dimension.decisive import decisive_set
from fiberscope.errors import InputError, OutOfTimeError, TooLargeError
from fiberscope.geometry.domains import Box, Orthant, Polytope, Space
from fiberscope.geometry.engines.lattice.engine import lattice_cells
from fiberscope.geometry.engines.lattice.skeleton import count_by_skeleton
from fiberscope.geometry.engines.lattice.start import box_start
from fiberscope.geometry.engines.planar import engine as planar_engine
from fiberscope.geometry.engines.planar.engine import Engine, planar_cells, planar_count
from fiberscope.geometry.engines.traversal.engine import count_by_traversal, traverse
from fiberscope.geometry.engines.traversal.estimate import estimate_regions
from fiberscope.geometry.engines.watched import Workers
from fiberscope.geometry.regions import count_regions, regions, regions_within
from fiberscope.network.io import save
from fiberscope.network.network import Network
from fiberscope.run import ENDLESS, Run

OVER = Run(deadline=0.0)


@pytest.mark.parametrize("domain", [Box.cube(1000), Space(1000), Orthant(1000)])
def test_a_thousand_dimensions_are_refused_at_once_with_advice(domain: Any) -> None:
    net = Network.random((1000, 64, 64, 10), 0)
    begin = time.process_time()
    for ask in (regions, count_regions, count_by_traversal):
        with pytest.raises(TooLargeError, match=r"take a slice \(fs.Plane, --slice\).*regions_along.*estimate_regions"):
            ask(net, domain)
    assert time.process_time() - begin < 1.0


def test_a_polytope_in_fifty_dimensions_is_refused() -> None:
    rows = np.random.default_rng(0).normal(size=(300, 50))
    with pytest.raises(TooLargeError, match="got 50 dimensions and 200 neurons"):
        count_regions(Network.random((50, 100, 100, 1), 0), Polytope(rows, np.ones(300)))


def test_few_neurons_are_counted_in_any_dimension() -> None:
    net = Network.random((40, 3, 1), 0)
    found = count_regions(net, Space(40))
    assert (int(found), found.complete) == (8, True)


def test_the_command_line_refuses_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "large.npz"
    save(Network.random((1000, 20, 10), 0), path)
    result = CliRunner().invoke(app, ["regions", str(path)])
    assert result.exit_code != 0
    text = str(result.exception) if isinstance(result.exception, TooLargeError) else result.output
    assert "--slice" in text


NET = Network.random((3, 12, 12, 1), 0)


@pytest.mark.parametrize(
    "ask",
    [
        lambda: regions(NET, Box.cube(3), limit=10**6, time_limit=1e-9).complete,
        lambda: lattice_cells(NET, Box.cube(3), OVER).complete,
        lambda: planar_cells(Network.random((2, 20, 20, 1), 0), Box.cube(2), OVER).complete,
        lambda: planar_count(Network.random((2, 20, 20, 1), 0), Box.cube(2), OVER).complete,
        lambda: count_by_skeleton(NET, box_start(Box.cube(3)), OVER)[1],
        lambda: count_by_traversal(NET, Box.cube(3), time_limit=1e-9).complete,
        lambda: regions(NET, Box.cube(3)).verify(time_limit=1e-9).ok,
    ],
)
def test_what_runs_out_of_time_is_incomplete(ask: Callable[[], Any]) -> None:
    assert not ask()


def test_facets_and_maps_keep_to_the_clock_and_can_be_asked_again() -> None:
    found = regions(Network.random((2, 8, 8, 1), 0), Box.cube(2))
    for name in ("bounded_maps", "facets", "ridges"):
        with pytest.raises(OutOfTimeError):
            found.find_within(OVER, name)
        assert name not in found.__dict__
    found.find_within(Run.begin(time_limit=60.0), "bounded_maps", "facets", "ridges")
    again = regions(Network.random((2, 8, 8, 1), 0), Box.cube(2))
    np.testing.assert_array_equal(found.facets.weight, again.facets.weight)
    np.testing.assert_array_equal(found.bounded_maps.value, again.bounded_maps.value)
    assert len(found.ridges) == len(again.ridges)


def test_vertices_from_exact_numbers_keep_to_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fiberscope.geometry.engines.planar.engine.PLACE", 0.0)  # every vertex is too vague
    net = Network.random((2, 8, 8, 1), 0)
    engine = Engine.on(net, Box.cube(2))
    mesh, reached = engine.run(engine.start(), ENDLESS)
    engine.arranger.run = OVER
    assert not engine.cells(mesh, reached).complete
    engine.arranger.run = ENDLESS
    found = engine.cells(mesh, reached)
    assert found.complete
    monkeypatch.undo()
    np.testing.assert_allclose(found.points, planar_cells(net, Box.cube(2)).points, atol=1e-12)


def test_a_count_out_of_time_is_a_lower_bound() -> None:
    found = count_by_traversal(Network.random((8, 30, 30, 1), 0), Box.cube(8), time_limit=0.5)
    assert not found.complete
    assert found.stopped == "out of time"
    assert found.count >= 1
    assert "at least" in str(found)


def test_no_memory_is_not_taken_for_an_interruption(monkeypatch: pytest.MonkeyPatch) -> None:
    net = Network.random((2, 20, 20, 1), 0)
    monkeypatch.setattr(planar_engine, "MEMORY", 10_000)
    with pytest.raises(TooLargeError, match="the limit of memory"):
        regions_within(net, Box.cube(2), Run.begin(time_limit=60.0))
    assert not regions_within(net, Box.cube(2), Run.begin(time_limit=60.0, limit=10**6)).complete
    assert not decisive_set(net, Box.cube(2)).complete  # which explores instead


def test_a_stream_ends_when_its_time_is_over() -> None:
    stream = traverse(Network.random((8, 30, 30, 1), 0), Box.cube(8), time_limit=0.5)
    given = sum(1 for _ in stream)
    assert given <= stream.summary.count
    assert stream.summary.stopped == "out of time"
    assert not stream.summary.complete


def test_an_estimate_out_of_time_is_none() -> None:
    with pytest.raises(OutOfTimeError):
        estimate_regions(NET, Box.cube(3), time_limit=1e-9)
    for ask in (regions, count_regions, count_by_traversal, estimate_regions):
        with pytest.raises(InputError, match="time_limit: expected a positive number"):
            ask(NET, Box.cube(3), time_limit=-1.0)


def test_progress_of_an_estimate() -> None:
    seen: list[tuple[int, int | None, str]] = []
    estimate_regions(NET, Box.cube(3), samples=20, runs=2, points=0, chords=0, progress=lambda *x: seen.append(x))
    assert [x[0] for x in seen] == list(range(24))


def waits(stop: np.ndarray) -> None:
    """A loop that ends only when it is told to."""
    while not stop[0]:
        time.sleep(0.01)


def test_compiled_loops_are_stopped_by_the_deadline() -> None:
    begin = time.monotonic()
    with pytest.raises(OutOfTimeError), Workers(Run.begin(time_limit=0.2)) as workers:
        workers.all(waits, [(), ()])
    assert time.monotonic() - begin < 5.0


def test_errors_of_compiled_loops_come_through() -> None:
    def fails(stop: np.ndarray) -> None:
        raise ArithmeticError("as expected")

    with pytest.raises(ArithmeticError, match="as expected"), Workers() as workers:
        workers.call(fails)


ENDLESS_WORK = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever was started in the background ignores it
import fiberscope as fs
small = fs.Network.random((3, 3, 1), 0)
fs.count_regions(small, fs.Box.cube(3)), fs.count_by_traversal(small, fs.Box.cube(3)), fs.regions(small, fs.Box.cube(3))
net = fs.Network.random({widths}, 0)
print("go", flush=True)
print(repr({work}))
"""

WORK = {
    "traversal": ((12, 40, 40, 1), "fs.count_regions(net, fs.Box.cube(12))"),
    "one cell of a thousand dimensions": ((1000, 64, 64, 1), "fs.count_regions(net, fs.Box.cube(1000), limit=9)"),
    "lattice": ((4, 60, 60, 60, 1), "fs.regions(net, fs.Box.cube(4), limit=10**9)"),
}


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
@pytest.mark.parametrize("name", sorted(WORK))
def test_an_interruption_is_noticed(name: str) -> None:
    widths, work = WORK[name]
    code = ENDLESS_WORK.format(widths=widths, work=work)
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=os.environ.copy())
    assert process.stdout is not None
    assert process.stdout.readline() == "go\n"
    time.sleep(1.5)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)  # a second or two on an idle machine; without, it would be an hour
    assert "at least" in out
