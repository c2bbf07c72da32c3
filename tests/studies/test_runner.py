"""The runner: the same table whatever happens, failures that sink nothing, bad input refused in one line."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import laboratory
import pytest
import torch

from fiberscope import backends
from fiberscope.errors import InputError, MissingExtraError
from fiberscope.studies.lab import registry, runner, store
from fiberscope.studies.lab.progress import Status
from fiberscope.studies.lab.registry import all_studies
from fiberscope.studies.lab.runner import list_studies, reproduce
from fiberscope.studies.lab.study import Study
from fiberscope.studies.lab.table import Table

HERE = Path(__file__).parent
FINAL = ("table.csv", "table.json", "summary.csv", "verdicts.json", "study.json")


def contents(folder: Path) -> dict[str, bytes]:
    """Every file that must not depend on how the work was done."""
    names = [folder / name for name in FINAL] + sorted((folder / "tasks").iterdir())
    return {str(path.relative_to(folder)): path.read_bytes() for path in names}


def executions(folder: Path) -> dict[int, int]:
    return {int(path.name): len(path.read_text()) for path in folder.iterdir()}


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("expected")
    reproduce(laboratory.study(), jobs=1, out=folder)
    return contents(folder)


# -- the same table, whatever happens --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("jobs", "cluster"), [(1, None), (2, None), (3, "local"), (2, "threading"), (2, "multiprocessing")]
)
def test_same_bytes_on_every_backend(
    jobs: int, cluster: str | None, tmp_path: Path, expected: dict[str, bytes]
) -> None:
    result = reproduce(laboratory.study(), jobs=jobs, cluster=cluster, out=tmp_path)
    assert (result.computed, result.reused, result.complete) == (6, 0, True)
    assert contents(tmp_path) == expected


def test_same_bytes_on_a_dask_cluster_of_two_workers(tmp_path: Path, expected: dict[str, bytes]) -> None:
    distributed = pytest.importorskip("distributed")
    path = os.environ.get("PYTHONPATH", "")
    os.environ["PYTHONPATH"] = f"{HERE}{os.pathsep}{path}"  # the workers must find the test studies
    try:
        with distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, worker_dashboard_address=None
        ) as cluster:
            address = cluster.scheduler_address.replace("tcp://", "dask://")
            result = reproduce(laboratory.study(), cluster=address, out=tmp_path / "numbers")
            assert result.computed == 6 and contents(tmp_path / "numbers") == expected
            small: dict[str, Any] = {"seeds": 3, "widths": [5], "depths": [1, 2]}
            there = reproduce("initialisation", cluster=address, out=tmp_path / "there", **small)
            here = reproduce("initialisation", jobs=1, out=tmp_path / "here", **small)
            assert there.complete and here.complete
            assert contents(tmp_path / "there") == contents(tmp_path / "here")
            failed = reproduce(laboratory.study(laboratory.failing, 2, "failing"), cluster=address, out=tmp_path / "f")
            assert [failure.settings["index"] for failure in failed.failures] == [1]
    finally:
        os.environ["PYTHONPATH"] = path


def stand_in_for_ray() -> ModuleType:
    """What we use of ray, done at once and in this process; calls that were made are kept."""
    ray = ModuleType("ray")
    calls: list[str] = []

    def remote(**settings: Any) -> Any:
        return lambda function: SimpleNamespace(remote=lambda *given: lambda: function(*given))

    def wait(waiting: list[Any], num_returns: int) -> tuple[list[Any], list[Any]]:
        return waiting[-num_returns:], waiting[:-num_returns]  # in another order than asked

    ray.__dict__.update(
        calls=calls,
        init=lambda address, **settings: calls.append(f"init {address} {settings.get('num_cpus')}"),
        shutdown=lambda: calls.append("shutdown"),
        remote=remote,
        wait=wait,
        get=lambda done: [one() for one in done],
    )
    return ray


def test_same_bytes_by_way_of_ray(tmp_path: Path, expected: dict[str, bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    ray = stand_in_for_ray()
    monkeypatch.setitem(sys.modules, "ray", ray)
    result = reproduce(laboratory.study(), jobs=3, cluster="ray", out=tmp_path / "numbers")
    assert result.computed == 6 and contents(tmp_path / "numbers") == expected
    trace = tmp_path / "trace"
    trace.mkdir()
    study = laboratory.study(laboratory.failing, 2, "failing")
    failed = reproduce(study, cluster="ray", out=tmp_path / "f", trace=str(trace))
    assert [failure.settings["index"] for failure in failed.failures] == [1]
    cores = os.cpu_count()
    assert ray.calls == ["init None 3", "shutdown", f"init None {cores}", "shutdown"]


def test_same_bytes_on_ray(tmp_path: Path, expected: dict[str, bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ray", reason="an extra: pip install fiberscope[ray]")
    monkeypatch.setenv("PYTHONPATH", f"{HERE}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    result = reproduce(laboratory.study(), jobs=2, cluster="ray", out=tmp_path / "numbers")
    assert result.computed == 6 and contents(tmp_path / "numbers") == expected


def test_a_second_call_repeats_nothing(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    trace.mkdir()
    study = laboratory.study()
    first = reproduce(study, jobs=1, out=tmp_path / "out", trace=str(trace))
    before = contents(tmp_path / "out")
    second = reproduce(study, jobs=2, out=tmp_path / "out", trace=str(trace))
    assert (first.computed, second.computed, second.reused) == (6, 0, 6)
    assert set(executions(trace).values()) == {1}
    assert contents(tmp_path / "out") == before


def test_results_are_used_by_a_larger_plan(tmp_path: Path) -> None:
    """Tasks are known by their settings, not by their place in the plan; other options are another folder's matter."""
    small, large = laboratory.study(count=3), laboratory.study(count=5)
    keys = [task.key for task in small.tasks("quick", {"count": 3})]
    longer = [task.key for task in large.tasks("quick", {"count": 3})]
    assert keys == longer
    assert keys != [task.key for task in laboratory.study(version=2).tasks("quick", {"count": 3})]
    assert [t.seed for t in small.tasks("quick", {})] == [
        t.seed for t in laboratory.study(count=3, version=2).tasks("quick", {})
    ]


def start_command(folder: Path) -> subprocess.Popen[bytes]:
    """``fiberscope reproduce initialisation --scale quick --jobs 2``."""
    program = "import typer; from fiberscope.cli.reproduce import reproduce; typer.run(reproduce)"
    command = [sys.executable, "-c", program, "initialisation", "--scale", "quick", "--jobs", "2", "--out", str(folder)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True)


def alive_in_session(session: int) -> list[int]:
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if os.getsid(int(entry.name)) == session and "Z" not in (entry / "stat").read_text().split()[2]:
                found.append(int(entry.name))
        except (OSError, ProcessLookupError):
            continue
    return found


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no kill -9 on this system")
def test_kill_9_half_way_then_resume_gives_the_same_bytes(tmp_path: Path) -> None:
    folder = tmp_path / "killed"
    process = start_command(folder)
    deadline = time.monotonic() + 120
    while len(list((folder / "tasks").glob("[0-9a-f]*.json"))) < 10:
        assert process.poll() is None, "it was over before it could be killed"
        assert time.monotonic() < deadline
        time.sleep(0.005)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    done = {path.name: path.stat().st_mtime_ns for path in (folder / "tasks").glob("[0-9a-f]*.json")}
    assert 10 <= len(done) < 36 and not (folder / "table.csv").exists()
    (folder / "tasks" / ".half.json.part-1.json").write_bytes(b"{")  # as if it had died while it wrote

    result = reproduce("initialisation", "quick", jobs=2, out=folder)
    assert result.complete and result.reused == len(done) and result.computed == 36 - len(done)
    assert result.recomputed == ()
    now = {path.name: path.stat().st_mtime_ns for path in (folder / "tasks").glob("[0-9a-f]*.json")}
    assert all(now[name] == stamp for name, stamp in done.items()), "a finished task was written again"

    reproduce("initialisation", "quick", jobs=1, out=tmp_path / "straight")
    assert contents(folder) == contents(tmp_path / "straight")
    if Path("/proc/self").exists():  # the orphaned workers end by themselves
        deadline = time.monotonic() + 30
        while alive_in_session(process.pid) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert not alive_in_session(process.pid)


# -- damage and failure ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("damage", ["empty", "cut", "flipped", "list", "old version", "directory name kept"])
def test_damaged_result_files_are_recomputed_and_reported(
    damage: str, tmp_path: Path, expected: dict[str, bytes]
) -> None:
    study = laboratory.study()
    reproduce(study, jobs=1, out=tmp_path)
    victim = sorted((tmp_path / "tasks").iterdir())[2]
    content = victim.read_bytes()
    if damage == "empty":
        victim.write_bytes(b"")
    elif damage == "cut":
        victim.write_bytes(content[: len(content) // 2])
    elif damage == "flipped":
        victim.write_bytes(content.replace(b'"flag": true', b'"flag": false').replace(b'"one, two"', b'"one, six"'))
    elif damage == "list":
        victim.write_bytes(b"[1, 2]")
    elif damage == "old version":
        data = json.loads(content)
        data["fiberscope"] = "0.0.1"
        data.pop("sha256")
        data["sha256"] = store._digest(data)
        victim.write_text(json.dumps(data))
    else:
        other = sorted((tmp_path / "tasks").iterdir())[3]
        victim.write_bytes(other.read_bytes())  # whole, but another task's
    result = reproduce(study, jobs=1, out=tmp_path)
    assert (result.computed, result.reused) == (1, 5)
    assert len(result.recomputed) == 1 and victim.name in result.recomputed[0]
    assert contents(tmp_path) == expected
    log = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [event["task"] for event in log if event["event"] == "recompute"] == [victim.stem]


@pytest.mark.parametrize("jobs", [1, 2])
def test_failing_tasks_are_tried_twice_and_sink_nothing(jobs: int, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    trace.mkdir()
    seen: list[Status] = []
    study = laboratory.study(laboratory.failing, 6, "failing")
    result = reproduce(study, jobs=jobs, out=tmp_path / "out", trace=str(trace), progress=seen.append)
    assert executions(trace) == {0: 1, 1: 2, 2: 2, 3: 2, 4: 1, 5: 1}
    assert result.table.column("index") == [0, 2, 4, 5]
    assert not result.complete
    first, second = result.failures
    assert "RuntimeError: this one never works (laboratory.py:" in first.error and "\n" not in first.error
    assert first.settings["index"] == 1 and "expected rows, got none" in second.error
    assert sum("failed" in status.message for status in seen) == 5
    assert seen[-1].done == 4 and seen[-1].failed == 2
    written = json.loads((tmp_path / "out" / "table.json").read_text())
    assert [missing["settings"]["index"] for missing in written["provenance"]["missing"]] == [1, 3]
    again = reproduce(study, jobs=jobs, out=tmp_path / "out", trace=str(trace))
    assert again.reused == 4 and len(again.failures) == 2  # what failed is tried again by the next call


def test_columns_of_the_runner_are_not_overwritten() -> None:
    task = laboratory.Task("key", {}, 0)
    assert runner.rows_of(lambda _: [{"index": 1}], task) == [{"index": 1}]
    for name in runner.OURS:
        with pytest.raises(InputError, match="columns task and seed"):
            runner.rows_of(lambda _, name=name: [{name: 1}], task)  # type: ignore[misc]


def test_a_worker_that_dies_is_found_out_and_the_rest_is_done(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    trace.mkdir()
    study = laboratory.study(laboratory.deadly, 4, "deadly")
    result = reproduce(study, jobs=2, out=tmp_path / "out", trace=str(trace))
    assert result.table.column("index") == [0, 2, 3]
    assert [failure.settings["index"] for failure in result.failures] == [1]
    assert "the worker died" in result.failures[0].error


def test_a_cluster_that_goes_away_ends_the_run_and_keeps_what_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, expected: dict[str, bytes]
) -> None:
    study = laboratory.study()

    def breaks(work: Any, tasks: Any, backend: Any, client: Any) -> Iterator[backends.Outcome]:
        yield backends.execute(work, tasks[0])
        monkeypatch.setattr(backends, "_reach", original)
        raise ConnectionError("gone")

    original, pool = backends._reach, backends._pool
    monkeypatch.setattr(backends, "_reach", lambda address: None)
    monkeypatch.setattr(runner, "connected", lambda backend: nullcontext(object()))
    monkeypatch.setattr(backends, "_pool", breaks)
    with pytest.raises(InputError, match=r"no answer.*finished tasks are kept"):
        reproduce(study, cluster="dask://127.0.0.1:9", out=tmp_path)
    monkeypatch.setattr(backends, "_pool", pool)
    assert reproduce(study, jobs=1, out=tmp_path).reused == 1
    assert contents(tmp_path) == expected


def test_workers_of_another_version_are_refused() -> None:
    (task, *_) = laboratory.study().tasks("quick", {})
    outcome = backends._execute_there(laboratory.numbers, task, "0.0.0", None)
    assert outcome.value is None and "expected 0.0.0" in outcome.error


def test_tasks_run_on_one_thread_and_leave_the_caller_as_he_was() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with backends.one_thread():
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_incomplete_tables_leave_claims_undecided(tmp_path: Path) -> None:
    result = reproduce(laboratory.study(), jobs=1, out=tmp_path)
    holds = {verdict.claim: verdict.holds for verdict in result.verdicts}
    assert holds == {"positive": True, "absent": None}
    assert "undecided" in repr(result) and json.dumps(result.to_dict())


def test_two_processes_do_not_share_a_folder(tmp_path: Path) -> None:
    study = laboratory.study()
    first = store.Store(tmp_path, study, "quick", study.settle("quick", {}))
    with pytest.raises(InputError, match=f"nobody works in.*process {os.getpid()}"):
        reproduce(study, jobs=1, out=tmp_path)
    first.close()
    assert reproduce(study, jobs=1, out=tmp_path).complete


def test_time_left_and_progress(tmp_path: Path) -> None:
    seen: list[Status] = []
    reproduce(laboratory.study(), jobs=1, out=tmp_path, progress=seen.append)
    assert [status.done for status in seen] == list(range(7))
    assert seen[0].seconds_left is None and seen[-1].seconds_left == 0


# -- bad input -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"name": "initialization"}, "did you mean initialisation"),
        ({"scale": "qick"}, "did you mean quick"),
        ({"jobs": 0}, "jobs"),
        ({"jobs": 1.5}, "jobs"),
        ({"cluster": "dask"}, "dask://HOST:PORT"),
        ({"cluster": "dask://nowhere"}, "dask://HOST:PORT"),
        ({"cluster": "dask://127.0.0.1:9"}, "no answer"),
        ({"cluster": "lokyy"}, "did you mean"),
        ({"seds": 3}, "did you mean seeds"),
        ({"seeds": -1}, "seeds"),
        ({"widths": [0]}, "widths"),
        ({"batches": ["segmnt"]}, "did you mean segment"),
    ],
)
def test_bad_arguments_are_one_line(arguments: dict[str, Any], text: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=text) as error:
        reproduce(**{"name": "initialisation", "out": tmp_path / "out", **arguments})
    assert len(str(error.value).splitlines()) == 1
    assert list(tmp_path.iterdir()) == []  # refused before anything was written


def test_folders_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="out: expected a folder that can be written"):
        reproduce("initialisation", out=tmp_path / "file")
    reproduce(laboratory.study(), jobs=1, out=tmp_path / "taken")
    with pytest.raises(InputError, match="one of the same study"):
        reproduce("initialisation", jobs=1, out=tmp_path / "taken")
    with pytest.raises(InputError, match="with options"):
        reproduce(laboratory.study(), jobs=1, out=tmp_path / "taken", count=4)


@pytest.fixture
def read_only(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "closed"
    folder.mkdir()
    folder.chmod(0o500)
    yield folder
    folder.chmod(0o700)


@pytest.mark.skipif(hasattr(os, "geteuid") and os.geteuid() == 0, reason="root may write everywhere")
def test_unwritable_folder(read_only: Path) -> None:
    with pytest.raises(InputError, match="can be written"):
        reproduce("initialisation", out=read_only / "out")


def test_missing_distributed_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backends, "_reach", lambda address: None)
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(MissingExtraError, match=r"pip install fiberscope\[dask\]"):
        reproduce(laboratory.study(), cluster="dask://127.0.0.1:1234", out=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_cluster_is_only_asked_for_what_is_missing(tmp_path: Path) -> None:
    study, gone = laboratory.study(), "dask://127.0.0.1:9"
    reproduce(study, jobs=1, out=tmp_path)
    before = contents(tmp_path)
    assert reproduce(study, cluster=gone, out=tmp_path).reused == 6
    damaged = next((tmp_path / "tasks").iterdir())
    damaged.write_bytes(b"{")
    with pytest.raises(InputError, match="no answer"):
        reproduce(study, cluster=gone, out=tmp_path)
    damaged.unlink()
    log = (tmp_path / "log.jsonl").read_bytes()
    with pytest.raises(InputError, match="no answer"):
        reproduce(study, cluster=gone, out=tmp_path)
    assert (tmp_path / "log.jsonl").read_bytes() == log
    reproduce(study, jobs=1, out=tmp_path)
    assert contents(tmp_path) == before


# -- the registry ----------------------------------------------------------------------------------------------------


def test_every_study_is_well_made() -> None:
    assert "initialisation" in all_studies()
    for name, study in all_studies().items():
        assert isinstance(study, Study) and study.name == name
        assert set(study.cost) == {"quick", "paper"} and study.claims and study.paper and study.figure
        for scale in ("quick", "paper"):
            tasks = study.tasks(scale, {})
            assert tasks == study.tasks(scale, {})
        page = HERE.parent.parent / "docs" / "studies" / f"{name}.md"
        assert page.is_file(), f"the study {name} has no page in docs/studies"


@pytest.mark.parametrize("fault", ["import no_such_library", "from os import nothing_like_it", "1 +", "{}['key']"])
def test_a_broken_study_is_named_and_the_others_work(
    fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_one.py").write_text(fault)
    monkeypatch.setattr(registry.home, "__path__", [*registry.home.__path__, str(tmp_path)])
    healthy = set(all_studies())
    registry._look.cache_clear()
    try:
        assert set(all_studies()) == healthy and list(registry.broken_studies()) == ["broken_one"]
        assert registry.find_study("initialisation").name == "initialisation"
        for name in ("broken_one", "broken-one"):
            with pytest.raises(InputError, match=f"study {name}: expected a module .* got .*Error: ") as error:
                reproduce(name, out=tmp_path / "out")
            assert len(str(error.value).splitlines()) == 1
        (info,) = [info for info in list_studies(tmp_path) if set(info.status.values()) == {"broken"}]
        assert info.name == "broken_one" and "Error: " in info.title and info.tasks == {"quick": 0, "paper": 0}
        assert {other.name for other in list_studies(tmp_path)} == healthy | {"broken_one"}
    finally:
        registry._look.cache_clear()
    assert not (tmp_path / "out").exists()


def test_list_shows_the_status(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    study = laboratory.study()
    monkeypatch.setattr(runner, "all_studies", lambda: {study.name: study})
    (info,) = list_studies()
    assert info.status == {"quick": "not run", "paper": "not run"} and info.tasks["quick"] == 6
    result = reproduce(study, jobs=1)
    assert result.folder == Path("fiberscope-studies/numbers-quick")
    assert list_studies()[0].status["quick"] == "done"
    next((result.folder / "tasks").iterdir()).unlink()
    assert list_studies()[0].status["quick"] == "5 of 6 tasks"
    changed = reproduce(study, jobs=1, count=2)
    assert changed.folder != result.folder and changed.folder.parent == result.folder.parent


def test_table_round_trip_and_refusals() -> None:
    table = Table.of([{"a": 1, "b": float("inf")}, {"a": None, "c": "x"}])
    assert table.columns == ("a", "b", "c")
    assert Table.from_dict(json.loads(json.dumps(table.to_dict()))) == table
    assert table.csv() == "a,b,c\n1,inf,\n,,x\n"
    with pytest.raises(InputError, match="expected one of a, b, c"):
        table.column("d")
    with pytest.raises(InputError, match="a number, a text"):
        Table.of([{"a": [1, 2]}])
