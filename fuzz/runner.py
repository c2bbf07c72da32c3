"""Run areas on several processes until a deadline or a number of cases, and collect what came out."""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import queue
import re
import signal
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import fiberscope as fs

from .areas import AREAS
from .case import Area, Disagreement, Skipped, TooSlow, Undecided, case
from .oracle.cells import TooMany
from .shrink import shrunk

CASE_SECONDS = 30.0
"""A case that takes longer is stopped and counted as undecided (too slow)."""

FIRST_SECONDS = 600.0
"""The same for the first case of an area in a process: an alarm in the middle of a compilation can end the process."""

ENOUGH = 5000
"""Cases of every area before the fast ones get more."""

GRACE = 10.0
"""How long a case may go on after Ctrl-C."""

SHRINK_SECONDS = 15.0
CHUNK_SECONDS = 0.5


@dataclass(frozen=True)
class Failure:
    """A disagreement: what was said, how to repeat it, and a smaller case as Python source."""

    area: str
    seed: int
    text: str
    source: str

    @property
    def command(self) -> str:
        return f"make fuzz AREA={self.area} SEED={self.seed} CASES=1"


@dataclass
class Tally:
    """The cases of one area: ``notes`` counts reasons for undecided and skipped ones."""

    cases: int = 0
    undecided: int = 0
    skipped: int = 0
    seconds: float = 0.0
    notes: Counter[str] = field(default_factory=Counter)
    failures: list[Failure] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        self.cases += other.cases
        self.undecided += other.undecided
        self.skipped += other.skipped
        self.seconds += other.seconds
        self.notes += other.notes
        self.failures += other.failures


# -- one case


@contextlib.contextmanager
def _alarm(seconds: float) -> Iterator[None]:
    def stop(_: int, __: Any) -> None:
        raise TooSlow

    old = signal.signal(signal.SIGPROF, stop)  # seconds of work, not of waiting on a busy machine
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, old)


_COMPILED: set[str] = set()
"""Areas whose first case is behind this process."""


def _verdict(area: Area, arguments: tuple[Any, ...]) -> tuple[str, str]:
    """How one case ends: ``("ok" | "undecided" | "skipped" | "wrong", text)``."""
    try:
        with _alarm(CASE_SECONDS if area.name in _COMPILED else FIRST_SECONDS):
            area.check(*arguments)
    except Disagreement as error:
        return "wrong", str(error)
    except Undecided as error:
        return "undecided", str(error)
    except (Skipped, TooMany) as error:
        return "skipped", str(error)
    except fs.FiberscopeError as error:
        return "undecided", re.sub(r"\S*/\S*", "FILE", f"{type(error).__name__}: {error}")[:70]
    except TooSlow:
        return "undecided", "too slow"
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        return "wrong", f"{type(error).__name__}: {error} ({where.filename.rpartition('/')[2]}:{where.lineno})"
    return "ok", ""


def _kind(text: str) -> str:
    return text[:12]


def one(area: Area, seed: int, tally: Tally, shrink: bool = True) -> None:
    """Judge one case and count it."""
    start = time.process_time()
    arguments = case(area, seed)
    outcome, text = _verdict(area, arguments)
    _COMPILED.add(area.name)
    if outcome == "skipped":
        tally.skipped += 1
    else:
        tally.cases += 1
    if outcome == "undecided":
        tally.undecided += 1
    if outcome in ("undecided", "skipped"):
        tally.notes[f"{outcome}: {text}"] += 1
    tally.seconds += time.process_time() - start
    if outcome == "wrong":
        tally.failures.append(_failure(area, seed, arguments, text, shrink))


def _failure(area: Area, seed: int, arguments: tuple[Any, ...], text: str, shrink: bool) -> Failure:
    def fails(candidate: tuple[Any, ...]) -> bool:
        outcome, other = _verdict(area, candidate)
        return outcome == "wrong" and _kind(other) == _kind(text)

    small = shrunk(arguments, fails, SHRINK_SECONDS) if shrink else arguments
    again = _verdict(area, small)[1] if small is not arguments else text
    source = f"AREAS[{area.name!r}].check({', '.join(map(repr, small))})"
    return Failure(area.name, seed, f"{text}" if again == text else f"{text}; made smaller: {again}", source)


# -- many cases


def _work(names: list[str], seeds: Any, most: int | None, end: float, out: Any, stop: Any, current: Any) -> None:
    """One process: the area with the fewest cases, and once all have enough, that with the least time, in chunks."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    warnings.simplefilter("ignore")
    if Path("/dev/shm").is_dir():
        tempfile.tempdir = "/dev/shm"  # thousands of small files
    done = dict.fromkeys(names, 0)
    kept = dict.fromkeys(names, 0)
    spent = dict.fromkeys(names, 0.0)
    first, processes = seeds
    while not stop.is_set() and time.time() < end:
        left = [name for name in names if most is None or done[name] < most]
        if not left:
            break
        few = [name for name in left if done[name] * processes < ENOUGH]
        name = min(few, key=done.__getitem__) if few else min(left, key=spent.__getitem__)
        tally = Tally()
        chunk = time.perf_counter()
        while time.perf_counter() - chunk < CHUNK_SECONDS and (most is None or done[name] < most):
            seed = first + processes * done[name]
            current[0], current[1] = names.index(name), seed
            one(AREAS[name], seed, tally, shrink=kept[name] < 3)
            kept[name] += len(tally.failures)
            done[name] += 1
            if tally.failures or time.time() > end or stop.is_set():
                break  # a failure is told at once
        spent[name] += time.perf_counter() - chunk
        out.put((name, tally))
    current[0] = -1
    out.put(None)


def run(
    names: list[str],
    *,
    seed: int,
    seconds: float,
    cases: int | None,
    processes: int,
    report: Callable[[dict[str, Tally], float], None],
) -> dict[str, Tally]:
    """All areas, each process with its own seeds ``seed + k``; Ctrl-C gives what there is."""
    context = multiprocessing.get_context("spawn")
    processes = min(processes, cases) if cases else processes
    out, stop = context.Queue(), context.Event()
    currents = [context.Array("q", [-1, 0]) for _ in range(processes)]
    start = time.time()
    end = start + seconds

    def begin(k: int, first: int) -> Any:
        most = None if cases is None else len(range(k, cases, processes))
        arguments = (names, (first, processes), most, end, out, stop, currents[k])
        worker = context.Process(target=_work, args=arguments, daemon=True)
        worker.start()
        return worker

    workers = [begin(k, seed + k) for k in range(processes)]
    tallies = {name: Tally() for name in names}
    running = set(range(processes))
    asked: list[float] = []
    old = signal.signal(signal.SIGINT, lambda *_: asked.append(time.time()))  # as often as you like, the table comes
    while running and not (asked and time.time() > asked[0] + GRACE):
        if asked:
            stop.set()
        _collect(out, tallies, 0.5)
        for k in list(running):
            if workers[k].is_alive():
                continue
            if _note_crash(workers[k], currents[k], names, tallies) and cases is None and not stop.is_set():
                workers[k] = begin(k, currents[k][1] + processes)  # behind the case that did it
            else:
                running.discard(k)
        report(tallies, time.time() - start)
    _collect(out, tallies, 0.2)
    for worker in workers:
        worker.join(1)
        if worker.is_alive():
            worker.terminate()
    signal.signal(signal.SIGINT, old)
    return tallies


def _collect(out: Any, tallies: dict[str, Tally], wait: float) -> None:
    with contextlib.suppress(queue.Empty):
        for first in itertools.count():
            item = out.get(timeout=wait if first == 0 else 0.02)
            if item is not None:
                tallies[item[0]].add(item[1])


def _note_crash(worker: Any, current: Any, names: list[str], tallies: dict[str, Tally]) -> bool:
    """Whether a process died in the middle of a case; that is a disagreement, too."""
    if current[0] < 0 or not worker.exitcode:
        return False
    name = names[current[0]]
    text = f"the process died with exit code {worker.exitcode}"
    tallies[name].failures.append(Failure(name, current[1], text, ""))
    return True
