"""``python -m fuzz``: compare the library with the judge on random cases."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from .areas import AREAS
from .runner import Failure, Tally, run

SHOWN = 5
"""Failures shown of every area."""

WRITTEN = 60.0
"""Seconds between two reports to the file."""


def main(arguments: list[str] | None = None) -> int:
    """Exit code 0 if nothing disagreed, 1 if something did, 2 for a bad request."""
    given = _parser().parse_args(arguments)
    names = list(AREAS) if not given.area else given.area.split(",")
    unknown = [name for name in names if name not in AREAS]
    if unknown:
        print(f"area: expected some of {', '.join(AREAS)}, got {unknown[0]}", file=sys.stderr)
        return 2
    seed = int(time.time()) if given.seed is None else given.seed
    print(f"seed {seed}, {len(names)} areas, at most {given.seconds:g} s, {given.processes} processes", flush=True)
    report = _Report(seed, Path(given.json) if given.json else None, sys.stderr.isatty())
    tallies = run(names, seed=seed, seconds=given.seconds, cases=given.cases, processes=given.processes, report=report)
    _show(tallies)
    report.write(tallies)
    return 1 if any(t.failures for t in tallies.values()) else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0, help="stop after so long")
    parser.add_argument("--area", default="", help=f"one or more of {', '.join(AREAS)}, with commas; all by default")
    parser.add_argument("--seed", type=int, default=None, help="of the first case; the clock by default")
    parser.add_argument("--cases", type=int, default=None, help="stop an area after so many cases")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--json", default=None, help="write the report there as well, every minute and at the end")
    return parser


class _Report:
    """What is told while the run goes on: every failure at once, a line of progress, the report so far as JSON."""

    def __init__(self, seed: int, path: Path | None, terminal: bool) -> None:
        self.seed, self.path = seed, path
        self.every = 0.5 if terminal else 30.0
        self.end = "" if terminal else "\n"
        self.told: Counter[str] = Counter()
        self.shown = 0.0
        self.written = 0.0

    def __call__(self, tallies: dict[str, Tally], seconds: float) -> None:
        new = False
        for name, tally in tallies.items():
            for failure in tally.failures[self.told[name] : SHOWN]:
                print(_disagreement(failure), flush=True)
            new |= len(tally.failures) > self.told[name]
            self.told[name] = len(tally.failures)
        if seconds - self.shown >= self.every:
            self.shown = seconds
            _progress(tallies, seconds, self.end)
        if new or seconds - self.written >= WRITTEN:
            self.written = seconds
            self.write(tallies)

    def write(self, tallies: dict[str, Tally]) -> None:
        """The report, whole or not at all: a run that is killed loses a minute, and nothing that it found."""
        if self.path is not None:
            part = self.path.with_name(self.path.name + ".part")
            part.write_text(json.dumps(_plain(tallies, self.seed), indent=1) + "\n")
            part.replace(self.path)


def _progress(tallies: dict[str, Tally], seconds: float, end: str) -> None:
    cases = sum(t.cases for t in tallies.values())
    wrong = sum(len(t.failures) for t in tallies.values())
    start = "" if end else "\r"
    print(f"{start}{seconds:5.0f} s  {cases} cases  {wrong} disagreements ", end=end, file=sys.stderr, flush=True)


def _show(tallies: dict[str, Tally]) -> None:
    print(f"\n{'area':16}{'cases':>9}{'per second':>12}{'undecided':>11}{'skipped':>9}{'disagreements':>15}")
    total = Tally()
    for name, tally in tallies.items():
        print(_line(name, tally))
        total.add(tally)
    print(_line("all", total))
    for name, tally in tallies.items():
        for note, count in tally.notes.most_common(3):
            print(f"  {name}: {count} x {note}")
    for name, tally in tallies.items():
        for failure in tally.failures[:SHOWN]:
            print(_disagreement(failure))
        if len(tally.failures) > SHOWN:
            print(f"\n... and {len(tally.failures) - SHOWN} more in {name}")


def _disagreement(failure: Failure) -> str:
    return f"\nDISAGREEMENT in {failure.area}: {failure.text}\n  repeat: {failure.command}\n  {failure.source}"


def _line(name: str, tally: Tally) -> str:
    share = f"{100 * tally.undecided / tally.cases:.1f} %" if tally.cases else "-"
    speed = f"{tally.cases / tally.seconds:.0f}" if tally.seconds else "-"
    return f"{name:16}{tally.cases:>9}{speed:>12}{share:>11}{tally.skipped:>9}{len(tally.failures):>15}"


def _plain(tallies: dict[str, Tally], seed: int) -> dict[str, Any]:
    return {
        "seed": seed,
        "areas": {
            name: {
                "cases": t.cases,
                "per_second": t.cases / t.seconds if t.seconds else None,
                "undecided": t.undecided,
                "skipped": t.skipped,
                "notes": dict(t.notes.most_common(10)),
                "disagreements": [
                    {"seed": f.seed, "text": f.text, "repeat": f.command, "source": f.source} for f in t.failures
                ],
            }
            for name, t in tallies.items()
        },
    }


if __name__ == "__main__":
    sys.exit(main())
