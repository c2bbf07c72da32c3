"""Run the benchmarks: ``python benchmarks/run.py [--all] [--quick] [--only TEXT] [--peer NAME] [--json FILE]``.

Collects the modules ``benchmarks/bench_*.py``, each with a function ``cases()`` that returns a list of
:class:`harness.Case`, and prints a row as soon as it is measured. Without ``--all``, ``--quick`` or ``--only`` the core
cases are run. Exit code 0, or 1 if an answer was wrong or the memory was above the limit.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import importlib.util
import json
import os
import platform
import resource
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from time import perf_counter

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))  # the bench modules and this one import `harness` by its plain name

from harness import Case, Row, measure  # noqa: E402  (found through the line above)

MOST_MEMORY = 4.0
"""GB that the core rows may take."""

THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "NUMBA_NUM_THREADS",
)


def arguments(given: Sequence[str] | None) -> argparse.Namespace:
    """The parsed command line."""
    parser = argparse.ArgumentParser(description="ratios against references and peers, measured in one run")
    parser.add_argument("--all", action="store_true", help="every case, not only the core rows; takes an hour")
    parser.add_argument("--quick", action="store_true", help="small cases, few rounds: does everything still run?")
    parser.add_argument("--only", default="", metavar="TEXT", help="only cases whose method or network contains TEXT")
    parser.add_argument(
        "--peer",
        action="append",
        metavar="NAME",
        help="only this peer, may be repeated (default: all that are installed)",
    )
    parser.add_argument(
        "--seconds", type=float, default=8.0, metavar="S", help="begin no round of a case behind this (default 8)"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the rows and the machine to FILE")
    parser.add_argument("--threads", type=int, default=1, metavar="N", help="threads of every library (default 1)")
    return parser.parse_args(given)


def set_threads(count: int) -> None:
    """Tell every numerical library how many threads to use; only works before they are imported."""
    for variable in THREAD_VARIABLES:
        os.environ[variable] = str(count)


def collect(folder: Path) -> list[Case]:
    """The cases of all ``bench_*.py`` in a folder, in the order of the files."""
    found: list[Case] = []
    for file in sorted(folder.glob("bench_*.py")):
        spec = importlib.util.spec_from_file_location(file.stem, file)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        found += module.cases()
    return found


def chosen(cases: Sequence[Case], options: argparse.Namespace) -> list[Case]:
    """The cases that the options leave, with the peers that they leave."""
    every = options.all or options.quick or options.only
    kept = [
        case
        for case in cases
        if (case.core or every)
        and (case.quick or not options.quick)
        and options.only.lower() in f"{case.method} {case.network}".lower()
    ]
    if options.peer is None:
        return kept
    return [
        replace(case, peers={name: case.peers[name] for name in options.peer if name in case.peers}) for case in kept
    ]


def human(seconds: float | None) -> str:
    """A time with three digits and a unit."""
    if seconds is None:
        return ""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"


def times(ratio: float | None) -> str:
    """A ratio with two digits after the point, or none when it is large."""
    return "" if ratio is None else f"{ratio:.2f}" if ratio < 100 else f"{ratio:.0f}"


def told(row: Row) -> str:
    """A row in one line."""
    time_or_status = human(row.seconds) if row.status == "ok" else row.status
    if row.ratio is None or row.contestant == "ours":
        return f"    {row.contestant:<14}{time_or_status:>10}"
    return (
        f"    {row.contestant:<14}{time_or_status:>10}   {times(row.ratio)} times ours "
        f"({times(row.low)} to {times(row.high)}, {row.rounds} rounds)"
    )


def peak() -> float:
    """The most memory that this process had so far, in GB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**30 if sys.platform == "darwin" else 2**20)


def write_json(rows: Sequence[Row], file: Path, threads: int, seconds: float) -> None:
    """The rows and what is needed to read them."""
    machine = {"python": platform.python_version(), "machine": platform.machine(), "cores": os.cpu_count()}
    content = {
        "date": datetime.date.today().isoformat(),
        "version": importlib.metadata.version("fiberscope"),
        "machine": machine,
        "load": round(os.getloadavg()[0], 1),
        "threads": threads,
        "seconds": round(seconds, 1),
        "memory": round(peak(), 2),
        "rows": [row.to_dict() for row in rows],
    }
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def main(given: Sequence[str] | None = None, folder: Path = HERE) -> int:
    """Collect, measure, show; the exit code."""
    options = arguments(given)
    set_threads(options.threads)
    start = perf_counter()
    cases = chosen(collect(folder), options)
    if not cases:
        print(f"no case: expected bench_*.py in {folder} with a method or network matching {options.only!r}")
        return 2
    rounds, least = (3, 0.002) if options.quick else (9, 0.05)
    rows: list[Row] = []
    print("time per call, and over ours (above 1: ours is faster), medians of interleaved rounds")
    for case in cases:
        print(f"{case.method}, {case.network}" + (" (on the wall)" if case.wall else ""), flush=True)
        found = measure(case, rounds, least, options.seconds)
        print("\n".join(map(told, found)), flush=True)
        rows += found
    seconds = perf_counter() - start
    print(f"{len(cases)} cases in {seconds:.0f} s; at most {peak():.1f} GB of memory")
    missing = sorted({row.contestant for row in rows if row.status == "not installed"})
    if missing:
        print(f"not compared, for they are not installed: {', '.join(missing)}")
    if options.json:
        write_json(rows, options.json, options.threads, seconds)
    wrong = [row for row in rows if row.failed]
    for row in wrong:
        print(f"wrong: {row.contestant} in {row.method} on {row.network}: {row.status}", file=sys.stderr)
    if not options.all and peak() > MOST_MEMORY:
        print(f"memory: expected at most {MOST_MEMORY} GB, got {peak():.1f}", file=sys.stderr)
        return 1
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
