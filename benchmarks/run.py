"""Run the benchmarks: ``python benchmarks/run.py [--quick] [--only TEXT] [--json FILE] [--threads N]``.

Collects the modules ``benchmarks/bench_*.py``, each with a function ``cases()`` that returns a list of
:class:`harness.Case`, and prints one table of ratios. Exit code 0, or 1 if an answer was wrong.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import platform
import sys
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))  # the bench modules and this one import `harness` by its plain name

from harness import Case, Row, measure_all  # noqa: E402  (found through the line above)

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
    parser.add_argument("--quick", action="store_true", help="small cases, few rounds: does everything still run?")
    parser.add_argument("--only", default="", metavar="TEXT", help="only cases whose method or network contains TEXT")
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


def chosen(cases: Sequence[Case], quick: bool, only: str) -> list[Case]:
    """The cases that the options leave."""
    return [
        case for case in cases if (case.quick or not quick) and only.lower() in f"{case.method} {case.network}".lower()
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


def show(rows: Sequence[Row]) -> None:
    """Print the table; rich is imported here because thread counts must be set before anything else loads."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title="time over ours, median of interleaved rounds (above 1: ours is faster)")
    for column in ("method", "network", "contestant"):
        table.add_column(column)
    for column in ("time", "ratio", "range"):
        table.add_column(column, justify="right")
    previous: tuple[str, str] | None = None
    for row in rows:
        key = (row.method, row.network)
        if previous not in {None, key}:
            table.add_section()
        first = key != previous
        ratio, spread = "", ""
        if row.ratio is not None and row.contestant != "ours":
            ratio, spread = times(row.ratio), f"{times(row.low)} .. {times(row.high)}"
        time_or_status = human(row.seconds) if row.status == "ok" else row.status
        table.add_row(*(key if first else ("", "")), row.contestant, time_or_status, ratio, spread)
        previous = key
    Console().print(table)


def write_json(rows: Sequence[Row], file: Path, threads: int) -> None:
    """The rows and what is needed to read them."""
    machine = {"python": platform.python_version(), "machine": platform.machine(), "cores": os.cpu_count()}
    content = {"machine": machine, "threads": threads, "rows": [row.to_dict() for row in rows]}
    file.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def main(given: Sequence[str] | None = None, folder: Path = HERE) -> int:
    """Collect, measure, show; the exit code."""
    options = arguments(given)
    set_threads(options.threads)
    cases = chosen(collect(folder), options.quick, options.only)
    if not cases:
        print(f"no case: expected bench_*.py in {folder} with a method or network matching {options.only!r}")
        return 2
    rounds, least = (3, 0.002) if options.quick else (9, 0.05)
    rows = measure_all(
        cases, rounds, least, lambda case: print(f"{case.method} on {case.network} ...", file=sys.stderr)
    )
    show(rows)
    if options.json:
        write_json(rows, options.json, options.threads)
    wrong = [row for row in rows if row.failed]
    for row in wrong:
        print(f"wrong: {row.contestant} in {row.method} on {row.network}: {row.status}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
