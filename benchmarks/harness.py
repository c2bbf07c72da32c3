"""Ratios measured within one run: what a case is, how it is timed, and what comes out.

Times of different runs and machines do not compare; ratios of interleaved repeats do. In every round each
contestant runs once, in rotating order, and the ratio to ours is taken within the round. The median over
rounds is reported. Before anything is timed the answers are compared: a fast wrong answer is an error.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

Runner = Callable[[], Any]

MOST_CALLS = 1 << 20


def same(ours: Any, other: Any) -> bool:
    """The default comparison of answers."""
    return bool(ours == other)


@dataclass(frozen=True)
class Case:
    """One cell of the grid method x network.

    ``ours`` and ``reference`` take no argument and return their answer; ``reference`` is the slow, obvious
    version kept in the tree, None where it would not end. CPU time is measured, or with ``wall`` that of the clock on
    the wall, where several threads or processes work. ``core`` cases are those of ``make bench``. A peer is given by a
    function that imports it and returns its runner, so that one which is not installed raises ``ImportError`` there.
    ``agree(ours, other)`` compares two answers.
    """

    method: str
    network: str
    ours: Runner
    reference: Runner | None
    peers: Mapping[str, Callable[[], Runner]] = field(default_factory=dict)
    agree: Callable[[Any, Any], bool] = same
    quick: bool = True
    core: bool = False
    wall: bool = False


@dataclass(frozen=True)
class Row:
    """What one contestant did in one case; ``ratio`` is its time over ours, above 1 where ours is faster."""

    method: str
    network: str
    contestant: str
    status: str
    seconds: float | None = None
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    rounds: int = 0

    @property
    def failed(self) -> bool:
        """Whether the run as a whole must fail: ours or the reference raised, or two answers differ."""
        return self.status not in {"ok", "not installed"} and not self.status.startswith("peer failed")

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def repeats_for(runner: Runner, least: float, wall: bool = False) -> int:
    """How often to call in one timing so that it lasts at least ``least`` seconds."""
    count = 1
    while True:
        seconds = timed(runner, count, wall)
        if seconds >= least or count == MOST_CALLS:
            return count
        # aim a little above, and never grow by more than a factor of ten on a doubtful measurement
        count = min(10 * count, MOST_CALLS, max(count + 1, int(1.2 * count * least / max(seconds, 1e-9))))


def timed(runner: Runner, count: int, wall: bool = False) -> float:
    """Seconds of ``count`` calls in a row: CPU time, which others on the machine do not change, or time on the wall."""
    clock = time.perf_counter if wall else time.process_time
    start = clock()
    for _ in range(count):
        runner()
    return clock() - start


def interleaved(
    runners: Mapping[str, Runner], rounds: int, least: float, wall: bool = False, budget: float = math.inf
) -> dict[str, list[float]]:
    """Seconds per call of every runner in every round, the order rotating from round to round.

    No round is begun behind ``budget`` seconds, but one.
    """
    start = time.perf_counter()
    counts = {name: repeats_for(runner, least, wall) for name, runner in runners.items()}
    names = list(runners)
    times: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(rounds):
        if turn and time.perf_counter() - start > budget:
            break
        shift = turn % len(names)
        for name in names[shift:] + names[:shift]:
            times[name].append(timed(runners[name], counts[name], wall) / counts[name])
    return times


def contestants(case: Case) -> tuple[dict[str, Runner], dict[str, str]]:
    """The runners that can be timed, ours first, and the status of those that cannot."""
    runners: dict[str, Runner] = {"ours": case.ours}
    if case.reference is not None:
        runners["reference"] = case.reference
    absent: dict[str, str] = {}
    for name, build in case.peers.items():
        try:
            runners[name] = build()
        except ImportError:
            absent[name] = "not installed"
        except Exception as error:  # a peer's trouble, of whatever kind, is shown and never fatal
            absent[name] = f"peer failed: {type(error).__name__}"
    return runners, absent


def agreed(case: Case, runners: Mapping[str, Runner]) -> tuple[dict[str, Runner], dict[str, str]]:
    """The runners whose answer agrees with ours (this call also warms up caches), and what the others did."""
    kept: dict[str, Runner] = {}
    trouble: dict[str, str] = {}
    answer: Any = None
    for name, runner in runners.items():
        try:
            value = runner()
        except Exception as error:  # shown in the table; fatal at the end if it is ours or the reference
            who = "" if name in {"ours", "reference"} else "peer "
            trouble[name] = f"{who}failed: {type(error).__name__}: {error}"
            if name == "ours":
                break
            continue
        if name == "ours":
            answer = value
        if name == "ours" or case.agree(answer, value):
            kept[name] = runner
        else:
            trouble[name] = "answers differ"
    return kept, trouble


def measure(case: Case, rounds: int = 7, least: float = 0.02, budget: float = math.inf) -> list[Row]:
    """One row per contestant of a case."""
    runners, absent = contestants(case)
    kept, trouble = agreed(case, runners)
    rows: list[Row] = []
    if "ours" in kept:
        times = interleaved(kept, rounds, least, case.wall, budget)
        for name, seconds in times.items():
            ratios = sorted(other / own for other, own in zip(seconds, times["ours"], strict=True))
            rows.append(
                Row(
                    case.method,
                    case.network,
                    name,
                    "ok",
                    statistics.median(seconds),
                    statistics.median(ratios),
                    ratios[0],
                    ratios[-1],
                    len(ratios),
                )
            )
    rows += [Row(case.method, case.network, name, status) for name, status in (trouble | absent).items()]
    return rows
