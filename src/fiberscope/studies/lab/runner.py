"""The runner: a study's tasks are computed where the user says, survive whatever happens, and end in one table."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from fiberscope.backends import Backend, Outcome, choose_backend, connected, outcomes
from fiberscope.errors import InputError, OutOfTimeError
from fiberscope.results import Result, Tabular, named
from fiberscope.run import Run
from fiberscope.studies.lab.progress import Clock, Status, Watcher, watching
from fiberscope.studies.lab.registry import all_studies, broken_studies, find_study
from fiberscope.studies.lab.store import Store
from fiberscope.studies.lab.study import SCALES, Study, Task, Verdict
from fiberscope.studies.lab.table import Row, Table
from fiberscope.training.records import LineFile, dumps

DEFAULT_FOLDER = Path("fiberscope-studies")


@dataclass(frozen=True, slots=True)
class TaskFailure(Result):
    """A task that failed twice; the table lacks its rows."""

    key: str
    settings: Mapping[str, Any]
    seed: int
    error: str


@dataclass(frozen=True, eq=False)
class StudyResult(Tabular):
    """What came out of a study.

    ``table`` has all rows in the order of the plan, ``summary`` what people read, ``verdicts`` the paper's claims with
    ours beside them. ``computed`` tasks were run now, ``reused`` ones were on disk; ``recomputed`` says which files on
    disk could not be used. ``failures`` lists the tasks that failed twice.
    """

    study: str
    scale: str
    folder: Path
    provenance: Mapping[str, Any]
    table: Table = field(metadata=named("rows", len))
    summary: Table
    verdicts: tuple[Verdict, ...]
    failures: tuple[TaskFailure, ...]
    recomputed: tuple[str, ...]
    computed: int
    reused: int
    seconds: float

    told = ("complete",)
    frame = "table.dicts"

    @property
    def complete(self) -> bool:
        """Whether no task is missing."""
        return not self.failures

    def __repr__(self) -> str:
        words = [verdict.word for verdict in self.verdicts]
        counts = ", ".join(f"{words.count(word)} {word}" for word in dict.fromkeys(words))
        failed = f"; {len(self.failures)} tasks failed" if self.failures else ""
        return f"StudyResult({self.study}, {self.scale}: {len(self.table)} rows; claims: {counts or 'none'}{failed})"


@dataclass(frozen=True, slots=True)
class StudyInfo(Result):
    """A line of :func:`list_studies`; ``tasks``, ``cost`` (seconds on one core) and ``status`` are by scale."""

    name: str
    title: str
    paper: str
    figure: str
    tasks: Mapping[str, int]
    cost: Mapping[str, float]
    status: Mapping[str, str]
    options: Mapping[str, Any]


def reproduce(
    name: str | Study,
    scale: str = "quick",
    jobs: int | None = None,
    cluster: str | None = None,
    out: str | Path | None = None,
    *,
    progress: bool | Watcher | None = None,
    time_limit: float | None = None,
    **options: Any,
) -> StudyResult:
    """Run a study, or finish one that was interrupted, and say what it found.

    Every finished task is one file in the folder. Killed at any moment, the same call goes on where the work stopped,
    and the final table is the same, byte for byte, whatever the backend and however often it was interrupted.

    Parameters
    ----------
    name
        A name from :func:`list_studies`, or a :class:`Study` of your own.
    scale
        ``"quick"`` (minutes on a laptop) or ``"paper"``.
    jobs
        Tasks at a time; None for all cores.
    cluster
        None or ``"local"``: processes on this machine. ``"dask://HOST:PORT"``: a running dask scheduler. Any other
        joblib backend by its name.
    out
        The folder; by default ``fiberscope-studies/<name>-<scale>`` below the current one.
    progress
        True or False for a bar on the terminal, None to show it only to people, or a function of a ``Status``.
    time_limit
        Seconds after which no task is begun any more: :class:`OutOfTimeError`. Finished tasks are kept, and the same
        call goes on where the work stopped.
    options
        The study's own options.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     result = reproduce("initialisation", jobs=1, out=folder, seeds=2, batches=["segment"], widths=[5])
    >>> len(result.table), result.complete
    (6, True)
    """
    run = Run.begin(time_limit=time_limit)
    study = name if isinstance(name, Study) else find_study(name)
    settled = study.settle(scale, options)
    tasks = study.tasks(scale, options)
    backend = choose_backend(jobs, cluster)
    folder = Path(out) if out is not None else default_folder(study, scale, options)
    with ExitStack() as stack:
        # A cluster that cannot be reached is found out before anything is written; a finished study needs none.
        missing = _done(folder, tasks) < len(tasks)
        client = stack.enter_context(connected(backend)) if missing else None
        store = Store(folder, study, scale, settled)
        stack.callback(store.close)
        watch = stack.enter_context(watching(progress))
        return _Run(study, scale, tasks, store, watch).finish(backend, client, run)


def default_folder(study: Study, scale: str, options: Mapping[str, Any], base: Path | None = None) -> Path:
    """Where results go when nobody says: other options have another folder."""
    changed = {key: value for key, value in options.items() if value != study.options.get(key)}
    mark = f"-{hashlib.sha256(dumps(changed).encode()).hexdigest()[:8]}" if changed else ""
    return (base or DEFAULT_FOLDER) / f"{study.name}-{scale}{mark}"


def list_studies(base: str | Path | None = None) -> tuple[StudyInfo, ...]:
    """Every study with its paper, figure, cost and how far its default folder is.

    A study whose module cannot be imported is listed with the status ``broken``, its title saying why.

    >>> [info.paper for info in list_studies() if info.name == "initialisation"]
    ['Empirical NTK tracks task complexity']
    """
    where = None if base is None else Path(base)
    infos = [_info(study, where) for study in all_studies().values()]
    infos += [_broken_info(name, reason) for name, reason in broken_studies().items()]
    return tuple(sorted(infos, key=lambda info: info.name))


def _broken_info(name: str, reason: str) -> StudyInfo:
    tasks, cost, status = dict.fromkeys(SCALES, 0), dict.fromkeys(SCALES, 0.0), dict.fromkeys(SCALES, "broken")
    return StudyInfo(name, f"cannot be loaded: {reason}", "unknown", "unknown", tasks, cost, status, {})


def _done(folder: Path, tasks: Sequence[Task]) -> int:
    return sum((folder / "tasks" / f"{task.key}.json").is_file() for task in tasks)


def _info(study: Study, base: Path | None) -> StudyInfo:
    tasks = {scale: study.tasks(scale, {}) for scale in SCALES}
    status = {}
    for scale in SCALES:
        folder = default_folder(study, scale, {}, base)
        done = _done(folder, tasks[scale])
        whole = done == len(tasks[scale]) and (folder / "table.csv").is_file()
        status[scale] = "done" if whole else f"{done} of {len(tasks[scale])} tasks" if done else "not run"
    counts = {scale: len(tasks[scale]) for scale in SCALES}
    return StudyInfo(
        study.name, study.title, study.paper, study.figure, counts, dict(study.cost), status, dict(study.options)
    )


OURS = ("task", "seed")
"""Columns that the runner adds to every row."""


def rows_of(run_task: Callable[[Task], Sequence[Row]], task: Task) -> list[Row]:
    """The rows of one task; apart from the study, which may hold what cannot travel to a worker."""
    rows = list(run_task(task))
    if not rows or not all(isinstance(row, dict) for row in rows):
        raise InputError("expected rows, got none")
    if any(name in row for row in rows for name in OURS):
        raise InputError(f"expected rows without the columns {' and '.join(OURS)}, which say what task made them")
    return rows


class _Run:
    """One call of :func:`reproduce`."""

    def __init__(self, study: Study, scale: str, tasks: Sequence[Task], store: Store, watch: Watcher) -> None:
        self.study = study
        self.scale = scale
        self.tasks = tasks
        self.store = store
        self.watch = watch
        self.begin = time.perf_counter()
        self.clock = Clock()
        self.log = LineFile(store.folder / "log.jsonl")
        self.rows: dict[str, Sequence[Row]] = {}
        self.failures: dict[str, TaskFailure] = {}
        self.recomputed: list[str] = []
        self.reused = 0

    def finish(self, backend: Backend, client: Any, run: Run) -> StudyResult:
        """Do what is missing, then write the table and what follows from it."""
        try:
            self._find_finished()
            waiting = [task for task in self.tasks if task.key not in self.rows]
            self._note("begin", backend=str(backend), waiting=len(waiting), reused=self.reused)
            self._tell()
            for outcome in outcomes(partial(rows_of, self.study.run_task), waiting, backend, client) if waiting else ():
                self._receive(outcome)
                self._check(run)
            result = self._write()
            self._note("end", failed=len(self.failures), seconds=result.seconds)
            return result
        finally:
            self.log.close()

    def _check(self, run: Run) -> None:
        """Give up behind the deadline, unless everything is done."""
        done, total = len(self.rows) + len(self.failures), len(self.tasks)
        if run.is_over and done < total:
            raise OutOfTimeError(f"the time is up after {done} of {total} tasks; they are kept, the same call goes on")

    def _find_finished(self) -> None:
        for task in self.tasks:
            rows, reason = self.store.load(task)
            if rows is not None:
                self.rows[task.key] = rows
            elif reason:
                self.recomputed.append(reason)
                self._note("recompute", task=task.key, reason=reason)
                self._tell(f"{reason}; it is computed again")
        self.reused = len(self.rows)

    def _receive(self, outcome: Outcome) -> None:
        task = outcome.task
        if not outcome.error:
            self.store.save(task, outcome.value)
            # Read back, so that rows computed now and rows from disk cannot differ.
            rows, reason = self.store.load(task)
            if rows is None:
                raise OSError(f"{self.store.path(task)}: written but not readable: {reason}")
            self.rows[task.key] = rows
            self.clock.computed += 1
            self._note("finished", task=task.key, seconds=outcome.seconds, attempt=outcome.attempt)
            self._tell()
            return
        self._note("failed", task=task.key, error=outcome.error, attempt=outcome.attempt)
        if outcome.final:
            self.failures[task.key] = TaskFailure(task.key, task.settings, task.seed, outcome.error)
        again = "given up" if outcome.final else "tried once more"
        self._tell(f"task {task.key} {dumps(dict(task.settings))} failed and is {again}: {outcome.error}")

    def _write(self) -> StudyResult:
        rows: list[Row] = []
        for task in self.tasks:
            for row in self.rows.get(task.key, ()):
                rows.append({**row, "task": task.key, "seed": task.seed})
        table = Table.of(rows)
        summary = self.study.summarise(table) if rows else table
        verdicts = self.study.judge(table)
        failures = tuple(self.failures[task.key] for task in self.tasks if task.key in self.failures)
        provenance = {**self.store.provenance, "tasks": len(self.tasks), "missing": [f.to_dict() for f in failures]}
        self.store.write("table.csv", table.csv())
        self.store.write("table.json", {"provenance": provenance, **table.to_dict()})
        self.store.write("summary.csv", summary.csv())
        self.store.write("verdicts.json", {"provenance": provenance, "verdicts": [v.to_dict() for v in verdicts]})
        return StudyResult(
            self.study.name,
            self.scale,
            self.store.folder,
            provenance,
            table,
            summary,
            verdicts,
            failures,
            tuple(self.recomputed),
            self.clock.computed,
            self.reused,
            time.perf_counter() - self.begin,
        )

    def _note(self, event: str, **details: Any) -> None:
        self.log.append({"event": event, "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"), **details})

    def _tell(self, message: str = "") -> None:
        done, failed = len(self.rows), len(self.failures)
        left = self.clock.left(len(self.tasks) - done - failed)
        self.watch(Status(self.study.name, done, len(self.tasks), failed, left, message))
