"""What a study is: a plan of independent tasks, how one task is run, and the paper's claims with their tests."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fiberscope.errors import InputError, hint
from fiberscope.results import Result
from fiberscope.studies.lab.table import Row, Table
from fiberscope.training.records import dumps, plain

SCALES = ("quick", "paper")


@dataclass(frozen=True, slots=True)
class Task(Result):
    """One piece of work that needs nothing from the others.

    ``key`` names its result file; it is a digest of the study, its version, the settings and the seed, so a result is
    used again exactly when all of these are the same.
    """

    key: str
    settings: Mapping[str, Any]
    seed: int


@dataclass(frozen=True, slots=True)
class Finding:
    """What a table says about a claim: it holds, it does not, or the table does not decide; and our numbers."""

    holds: bool | None
    ours: str


@dataclass(frozen=True, slots=True)
class Claim:
    """A sentence of the paper, where it stands, and its test on the study's table."""

    name: str
    text: str
    where: str
    check: Callable[[Table], Finding]


@dataclass(frozen=True, slots=True)
class Verdict(Result):
    """A claim of the paper with ours beside it."""

    claim: str
    text: str
    where: str
    holds: bool | None
    ours: str

    told = ("verdict=word",)

    @property
    def word(self) -> str:
        return {True: "holds", False: "does not hold", None: "undecided"}[self.holds]


@dataclass(frozen=True, slots=True)
class Picture:
    """A figure to be drawn from the study's table: described here, drawn by :mod:`fiberscope.plot.studies`.

    The mean of column ``y`` with its standard deviation over column ``x``; one line for each entry of ``lines`` and one
    panel for each entry of ``panels`` (columns too, or empty for a single one). Several columns in ``y`` are drawn as
    one, whose entries the column ``quantity`` tells apart: name it in ``lines`` or ``panels``.

    ``where`` keeps only the rows with these entries; ``each`` names the column by which single runs are told apart, and
    every run becomes a thin line of its own. ``style`` is ``"mean"``, ``"curve"`` (no spread), ``"share"`` (of true
    entries, with intervals), ``"points"`` (a scatter), ``"surface"`` (colours of the column ``colour`` over ``x`` and
    ``y``) or ``"map"`` (the same over whole numbers, as squares); ``behind`` selects rows that are drawn as grey points
    behind the lines. ``equal`` gives both axes one unit.
    ``words`` replaces names of columns and entries in legends.
    """

    name: str
    title: str
    x: str
    y: str | tuple[str, ...]
    lines: str = ""
    panels: str = ""
    x_label: str = ""
    y_label: str = ""
    log_x: bool = False
    log_y: bool = False
    caption: str = ""
    where: Mapping[str, Any] = field(default_factory=dict)
    each: str = ""
    style: str = "mean"
    behind: Mapping[str, Any] = field(default_factory=dict)
    colour: str = ""
    equal: bool = False
    words: Mapping[str, str] = field(default_factory=dict)


def _unchanged(table: Table) -> Table:
    return table


@dataclass(frozen=True)
class Study:
    """An experiment of a paper.

    Parameters
    ----------
    name, title
        A short name for the command line, and a sentence.
    paper, figure
        What is reproduced: the paper, and its figures or section.
    plan
        ``plan(scale, options)`` gives the settings of every task, one mapping of plain data each, all different. The
        seeds are derived from them.
    run_task
        ``run_task(task)`` computes one task and returns its rows. It must be a function of the task alone.
    claims
        The paper's claims.
    cost
        Rough seconds on one core, by scale.
    options
        What a user may change, with the defaults.
    pictures
        The figures, described by columns of the table.
    summarise
        From the table of all rows to the one that people read; by default the same.
    version
        Count it up when ``run_task`` changes: results of the old version are then computed anew.
    """

    name: str
    title: str
    paper: str
    figure: str
    plan: Callable[[str, Mapping[str, Any]], Sequence[Mapping[str, Any]]]
    run_task: Callable[[Task], Sequence[Row]]
    claims: tuple[Claim, ...]
    cost: Mapping[str, float]
    options: Mapping[str, Any] = field(default_factory=dict)
    pictures: tuple[Picture, ...] = ()
    summarise: Callable[[Table], Table] = _unchanged
    version: int = 1

    def settle(self, scale: str, options: Mapping[str, Any]) -> dict[str, Any]:
        """The options in full; an unknown scale or option is refused with the closest names."""
        if scale not in SCALES:
            raise InputError(f"scale: expected {' or '.join(SCALES)}, got {scale!r}{hint(str(scale), SCALES)}")
        for name, value in options.items():
            if name not in self.options:
                known = ", ".join(self.options) or "none"
                close = hint(name, self.options)
                raise InputError(f"study {self.name}: expected options {known}, got {name!r}{close}")
            default = self.options[name]
            if default is not None and not _alike(value, default):
                kind = type(default).__name__
                raise InputError(f"option {name}: expected {kind} as in {default!r}, got {value!r}")
        return {**self.options, **options}

    def tasks(self, scale: str, options: Mapping[str, Any]) -> list[Task]:
        """The plan with seeds and keys."""
        found = [self._task(settings) for settings in self.plan(scale, self.settle(scale, options))]
        if not found:
            raise InputError(f"study {self.name}: expected a plan of at least one task, got none")
        if len({task.key for task in found}) < len(found):
            raise InputError(f"study {self.name}: expected tasks with different settings, got two alike")
        return found

    def _task(self, settings: Mapping[str, Any]) -> Task:
        data = plain(dict(settings))
        identity = dumps({"study": self.name, "settings": data})
        seed = int.from_bytes(hashlib.sha256(identity.encode()).digest()[:4], "little")
        key = hashlib.sha256(dumps([self.name, self.version, data, seed]).encode()).hexdigest()[:20]
        return Task(key, data, seed)

    def judge(self, table: Table) -> tuple[Verdict, ...]:
        """Every claim with its verdict; a table that lacks what a test needs leaves the claim undecided."""
        found = []
        for claim in self.claims:
            try:
                finding = claim.check(table)
            except (InputError, ZeroDivisionError, KeyError, IndexError) as error:
                finding = Finding(None, f"the table does not have what is needed: {error}")
            found.append(Verdict(claim.name, claim.text, claim.where, finding.holds, finding.ours))
        return tuple(found)


def _alike(value: Any, default: Any) -> bool:
    if isinstance(default, bool) or isinstance(value, bool):
        return isinstance(value, bool) and isinstance(default, bool)
    if isinstance(default, float):
        return isinstance(value, int | float)
    if isinstance(default, list | tuple):
        return isinstance(value, list | tuple)
    return isinstance(value, type(default))
