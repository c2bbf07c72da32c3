"""The benchmark harness: right ratios, absent peers shown, wrong answers fatal."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

FOLDER = Path(__file__).resolve().parent.parent / "benchmarks"


@pytest.fixture(scope="module")
def bench() -> ModuleType:
    """``benchmarks/run.py`` as a module (it finds ``harness`` beside itself)."""
    spec = importlib.util.spec_from_file_location("benchmarks_run", FOLDER / "run.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    path = list(sys.path)
    spec.loader.exec_module(module)
    sys.path[:] = path
    return module


@pytest.fixture(scope="module")
def harness(bench: ModuleType) -> ModuleType:
    return sys.modules["harness"]


def absent() -> None:
    raise ImportError("no such peer")


def broken() -> None:
    raise RuntimeError("peer does not start")


class Clock:
    """A clock that only moves when a runner says so, in place of the module ``time``."""

    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        return self.now

    process_time = perf_counter

    def runner(self, seconds: float) -> Callable[[], int]:
        def run() -> int:
            self.now += seconds
            return 0

        return run


@pytest.fixture
def clock(harness: ModuleType, monkeypatch: pytest.MonkeyPatch) -> Clock:
    fake = Clock()
    monkeypatch.setattr(harness, "time", fake)
    return fake


def test_ratio_is_time_over_ours(harness: ModuleType, clock: Clock) -> None:
    case = harness.Case("m", "n", clock.runner(0.25), clock.runner(1.0))
    ours, reference = harness.measure(case, rounds=5, least=2.0)
    assert (ours.contestant, ours.ratio, ours.seconds) == ("ours", 1.0, 0.25)
    assert (reference.contestant, reference.ratio, reference.seconds) == ("reference", 4.0, 1.0)
    assert reference.low == reference.high == 4.0
    assert not ours.failed and not reference.failed


def test_peers_that_cannot_run_are_shown_and_not_fatal(harness: ModuleType) -> None:
    peers = {"absent": absent, "broken": broken, "present": lambda: lambda: 1, "raises": lambda: broken}
    rows = harness.measure(harness.Case("m", "n", lambda: 1, lambda: 1, peers), rounds=2, least=0.0)
    status = {row.contestant: row.status for row in rows}
    assert status.pop("raises").startswith("peer failed: RuntimeError")
    assert status == {
        "ours": "ok",
        "reference": "ok",
        "present": "ok",
        "absent": "not installed",
        "broken": "peer failed: RuntimeError",
    }
    assert not any(row.failed for row in rows)


def test_wrong_answers_and_own_failures_are_fatal(harness: ModuleType) -> None:
    peers = {"liar": lambda: lambda: 2}
    rows = harness.measure(harness.Case("m", "n", lambda: 1, lambda: 2, peers), rounds=2, least=0.0)
    assert {row.contestant for row in rows if row.failed} == {"reference", "liar"}
    rows = harness.measure(harness.Case("m", "n", broken, lambda: 1), rounds=2, least=0.0)
    assert [(row.contestant, row.failed) for row in rows] == [("ours", True)]
    rows = harness.measure(harness.Case("m", "n", lambda: 1, broken), rounds=2, least=0.0)
    assert [row.contestant for row in rows if row.failed] == ["reference"]


def test_rounds_are_interleaved_and_rotate(harness: ModuleType) -> None:
    calls: list[str] = []
    runners = {name: (lambda name=name: calls.append(name)) for name in "abc"}
    times = harness.interleaved(runners, rounds=3, least=0.0)
    assert "".join(calls[3:]) == "abc" + "bca" + "cab"  # after one calibrating call each
    assert {len(seconds) for seconds in times.values()} == {3}


def test_short_runners_are_repeated(harness: ModuleType, clock: Clock) -> None:
    assert 100 <= harness.repeats_for(clock.runner(0.01), least=1.0) <= 1000
    assert harness.repeats_for(clock.runner(2.0), least=1.0) == 1
    assert harness.repeats_for(clock.runner(0.0), least=1.0) == harness.MOST_CALLS


def test_the_command_runs_and_writes_json(
    bench: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in bench.THREAD_VARIABLES:
        monkeypatch.setenv(variable, "7")
    monkeypatch.syspath_prepend(str(FOLDER))
    out = tmp_path / "out.json"
    assert bench.main(["--quick", "--only", "harness", "--json", str(out)]) == 0
    content = json.loads(out.read_text())
    assert content["threads"] == 1
    assert {os.environ[variable] for variable in bench.THREAD_VARIABLES} == {"1"}
    rows = {row["contestant"]: row for row in content["rows"]}
    assert rows["ours"]["ratio"] == 1.0
    assert rows["reference"]["ratio"] > 1.5  # a Python loop over 8 x 8 x 8 products
    assert "reference" in capsys.readouterr().out


def test_wrong_case_in_a_folder_fails_the_command(bench: ModuleType, tmp_path: Path) -> None:
    text = "from harness import Case\ndef cases(): return [Case('m', 'n', lambda: 1, lambda: 2)]\n"
    (tmp_path / "bench_wrong.py").write_text(text)
    assert bench.main(["--quick"], folder=tmp_path) == 1
    assert bench.main(["--only", "no such case"], folder=tmp_path) == 2


@pytest.mark.parametrize(("seconds", "text"), [(2.5, "2.5 s"), (0.0125, "12.5 ms"), (3e-6, "3 µs"), (4e-9, "4 ns")])
def test_times_are_readable(bench: ModuleType, seconds: float, text: str) -> None:
    assert bench.human(seconds) == text
