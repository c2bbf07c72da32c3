"""Is approximate equality of functions approximate equality of parameters, modulo symmetry?

Phuong and Lampert (2020) show that some functions determine their parameters up to order and scale of neurons, and
leave open whether a function that is nearly the same has nearly the same parameters (*inverse stability*). Here
students are trained on teachers whose exact dimension on a box is known: full, or with a planted dead neuron, linear
neuron, hidden hyperplane or pair of twins. How far the functions are apart is proven; how far the parameters are apart
is measured up to order and scale, and modulo the fiber of the teacher. Beside that stand moves in known directions, and
teachers that come ever closer to a smaller stratum.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.stats import rankdata

from fiberscope.dimension.decisive import decisive_set
from fiberscope.equality.ladder import equivalent
from fiberscope.equality.verdict import Interval
from fiberscope.errors import InputError
from fiberscope.network.network import Network
from fiberscope.numerics.floats import FloatArray
from fiberscope.studies._near_members import (
    BOX,
    FULL,
    NARROW,
    PATIENCE,
    Directions,
    apart,
    at_levels,
    balanced,
    directions,
    near_member,
    orbit_distance,
    planted,
    scaled,
    teacher,
    vector,
    with_vector,
)
from fiberscope.studies._verdicts import beyond, mean_and_error, verdict
from fiberscope.studies.lab.shares import wilson
from fiberscope.studies.lab.study import Claim, Finding, Picture, Study, Task
from fiberscope.studies.lab.table import Table
from fiberscope.training.seeds import train_many

SIZES: dict[str, dict[str, Any]] = {
    "quick": {"teachers": 3, "students": 2, "levels": [1e-2, 1e-4]},
    "paper": {"teachers": 6, "students": 3, "levels": [1e-2, 1e-3, 1e-4]},
}
WIDE = (2, 6, 4, 1)
KINDS = (FULL, "dead", "linear", "hidden", "twins")
FAMILIES = ("dead", "linear", "twins")
STEPS = (1e-4, 1e-3, 1e-2)
GAPS = (0.1, 0.01, 0.001)
STARTS = {"narrow": (NARROW, 16), "wide": (WIDE, 4)}
"""Widths of students, and from how many random starts the best are taken: most end in a local minimum."""

EPOCHS = 200
"""Of Adam, before least squares take over."""

BEGUN_NEAR = 0.1
"""How far from the teacher some students begin, relative to its norm."""

CLOSE, NEAR = 0.01, 0.1
"""Functions within 1 % of the teacher's range are called close, parameters within 10 % of its norm near."""

MOST = 0.9
"""Near *in general*: for more than so many of those that are close."""

MEMBER = 0.01
"""What is left of the difference of functions at a member that was found, at most."""

SURE = 0.95
RESAMPLED = 300


def plan(scale: str, options: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One task per teacher, with its students and moves, and one per family of near degenerate ones."""
    sizes = {**SIZES[scale], **{name: value for name, value in options.items() if value is not None}}
    for name in ("teachers", "students"):
        if not isinstance(sizes[name], int) or sizes[name] < 1:
            raise InputError(f"option {name}: expected a positive integer, got {sizes[name]!r}")
    levels = sizes["levels"]
    if not isinstance(levels, list | tuple) or not levels or not all(0 < level < 1 for level in levels):
        raise InputError(f"option levels: expected a list of numbers between 0 and 1, got {levels!r}")
    about = {"students": sizes["students"], "levels": sorted({float(x) for x in levels}, reverse=True)}
    taught = [{"record": "student", "kind": kind, **about} for kind in KINDS]
    taught += [{"record": "strata", "kind": kind} for kind in FAMILIES]
    return [{**task, "teacher": teacher} for task in taught for teacher in range(sizes["teachers"])]


# -- rows ----------------------------------------------------------------------------------------------------------


def run_task(task: Task) -> list[dict[str, Any]]:
    """Rows of one teacher: ``student``, ``pair`` and ``move``; or ``strata``."""
    settings = task.settings
    kind, number = settings["kind"], settings["teacher"]
    if settings["record"] == "strata":
        return [{"record": "strata", "kind": kind, "teacher": number, **row} for row in strata_rows(kind, number)]
    net, X, found = teacher(kind, number)
    about = {"kind": kind, "teacher": number, "rank": found.rank, "least": found.smallest}
    rows = [*move_rows(net, X, found, number), *student_rows(net, X, settings)]
    return [{**row, **about} for row in rows]


def move_rows(net: Network, X: FloatArray, found: Directions, seed: int) -> Iterable[dict[str, Any]]:
    """Steps along the kernel, at random, and where the values change least."""
    rng = np.random.default_rng([seed, 1])
    here = vector(net)
    along = {"kernel": rng.normal(size=len(found.kernel)) @ found.kernel, "random": rng.normal(size=len(here))}
    for name, way in {**along, "least": found.least}.items():
        for step in STEPS:
            moved = with_vector(net, here + step * np.linalg.norm(here) * way / np.linalg.norm(way))
            between = apart(net, moved, BOX)
            yield {"record": "move", "direction": name, "step": step, **_ends(between), "ratio": _over(step, between)}


def strata_rows(kind: str, number: int) -> Iterable[dict[str, Any]]:
    """A full teacher, brought close to a smaller stratum; a step of a tenth of what is left, where it changes least."""
    base, X, _ = teacher(FULL, number)
    for gap in GAPS:
        net = scaled(planted(base, kind, gap), X)
        everywhere = np.concatenate([X, decisive_set(net, BOX).X])  # small regions, that no point of X meets, too
        found = directions(net, BOX, everywhere)
        step = gap / 10
        here = vector(net)
        between = apart(net, with_vector(net, here + step * np.linalg.norm(here) * found.least), BOX)
        yield {"gap": gap, "rank": found.rank, "least": found.smallest, "step": step, **_ends(between),
               "ratio": _over(step, between)}  # fmt: skip


def student_rows(net: Network, X: FloatArray, settings: Mapping[str, Any]) -> Iterable[dict[str, Any]]:
    """Students of three sorts at all levels of error, and pairs of the narrow ones."""
    levels = settings["levels"]
    for sort, starts in begun(net, X, settings["teacher"], settings["students"]).items():
        stages = [at_levels(net, start, X, levels) for start in starts]
        for index, stage in enumerate(stages):
            for level, student in stage.items():
                about = {"record": "student", "sort": sort, "level": level, "student": index}
                yield {**about, **compared(net, balanced(student), X)}
        if sort == "narrow":
            for one, two in pairwise(balanced(list(stage.values())[-1]) for stage in stages):
                far = _relative(orbit_distance(one, two), net)
                yield {"record": "pair", **_ends(apart(one, two, BOX)), "orbit": far}


def begun(net: Network, X: FloatArray, seed: int, count: int) -> dict[str, list[Network]]:
    """Where students begin: after a short training from random starts, the most promising ones; or near the teacher."""
    found = {}
    for sort, (widths, tries) in STARTS.items():
        seeds = [1000 * seed + k for k in range(max(tries, count))]
        trained = train_many(widths, (X, net(X)), seeds, epochs=EPOCHS, lr=0.01).networks
        found[sort] = sorted(trained, key=lambda start: near_member(net, start, X)[0])[:count]
    here = vector(net)
    around = np.random.default_rng([seed, 2]).normal(size=(count, len(here)))
    sizes = BEGUN_NEAR * np.linalg.norm(here) / np.linalg.norm(around, axis=1, keepdims=True)
    return {**found, "near": [with_vector(net, here + step) for step in sizes * around]}


def compared(net: Network, student: Network, X: FloatArray) -> dict[str, Any]:
    """Distances of functions and of parameters, relative to the teacher's range and norm.

    ``fiber`` is the least distance that was found: to a parameter reached from the student whose function is the
    teacher's up to a hundredth of the difference before, or to the teacher itself; None without either.
    """
    between = apart(net, student, BOX)
    _, member = near_member(net, student, X)
    same = equivalent(net, member, BOX, MEMBER * between.low, PATIENCE).equal is True
    reached = _relative(float(np.linalg.norm(vector(member) - vector(student))), net) if same else None
    orbit = _relative(orbit_distance(net, student), net) if student.widths == net.widths else None
    found = [x for x in (reached, orbit) if x is not None]
    nearest = min(found, default=None)
    return {**_ends(between), "orbit": orbit, "member": same, "fiber": nearest,
            "ratio": None if nearest is None else _over(nearest, between)}  # fmt: skip


def _ends(between: Interval) -> dict[str, float]:
    return {"found": between.low, "proven": between.high}


def _over(distance: float, between: Interval) -> float | None:
    return distance / between.low if between.low > 0 else None


def _relative(distance: float, net: Network) -> float:
    return distance / float(np.linalg.norm(vector(net)))


# -- what people read ----------------------------------------------------------------------------------------------


def summarise(table: Table) -> Table:
    """Medians over teachers and students of every group."""
    rows = []
    for record, keys in (("student", ("kind", "sort", "level")), ("move", ("kind", "direction", "step")),
                         ("strata", ("kind", "gap")), ("pair", ("kind",))):  # fmt: skip
        for values, part in table.where(record=record).groups(*keys).items():
            names = ("found", "proven", "orbit", "fiber", "ratio", "least")
            about = {"record": record, **dict(zip(keys, values, strict=True)), "rows": len(part)}
            members = part.mean("member") if record == "student" else None
            rows.append({**about, "members": members, **{name: _median(part, name) for name in names}})
    return Table.of(rows)


def _median(part: Table, name: str) -> float | None:
    values = [value for value in part.column(name) if value is not None]
    return float(np.median(values)) if values else None


# -- the claims ----------------------------------------------------------------------------------------------------


def _students(table: Table, sorts: Sequence[str], full: bool | None, close: bool = True) -> list[dict[str, Any]]:
    """Students of some sorts, of full teachers or of the others; those alone that are proven to be close."""
    rows = table.where(record="student").dicts()
    return [
        row
        for row in rows
        if row["sort"] in sorts
        and (full is None or (row["kind"] == FULL) == full)
        and (not close or row["proven"] <= CLOSE)
    ]


def _often(rows: Sequence[Mapping[str, Any]], yes: Callable[[Mapping[str, Any]], bool], limit: float) -> Finding:
    """A share above or below a limit with Wilson's interval, or undecided."""
    count, n = sum(map(yes, rows)), len(rows)
    low, high = wilson(count, n, SURE)
    text = f"{count} of {n} ({low:.0%} to {high:.0%})"
    return Finding(True if low > limit else False if high < limit else None, text)


def _near_in_general(table: Table, sort: str) -> Finding:
    rows = _students(table, [sort], full=True)
    found = _often(rows, lambda row: row["orbit"] <= NEAR, MOST)
    whole = len(_students(table, [sort], full=True, close=False))
    if not rows:
        return Finding(None, f"none of {whole} students are within 1 % of the range")
    far = max(row["orbit"] for row in rows)
    text = f"{len(rows)} of {whole} students are within 1 % of the range; of these {found.ours} are within 10 % of the "
    return Finding(found.holds, f"{text}norm, the farthest {far:.2f} of it")


def stable(table: Table) -> Finding:
    """Students from a random start."""
    pairs = [row for row in table.where(record="pair", kind=FULL).dicts() if row["proven"] <= CLOSE]
    found = _near_in_general(table, "narrow")
    near = sum(row["orbit"] <= NEAR for row in pairs)
    return Finding(found.holds, f"{found.ours}; of {len(pairs)} pairs of students that are so close {near} are near")


def stable_nearby(table: Table) -> Finding:
    """Students that begin near the teacher."""
    return _near_in_general(table, "near")


def fiber_explains(table: Table) -> Finding:
    """Modulo the fiber less than half of the distance is left, for most close students of the other teachers."""
    texts, signs = [], []
    rows = _students(table, ["narrow", "near"], full=False)
    for kind in KINDS[1:]:
        part = [row for row in rows if row["kind"] == kind]
        found = _often(part, lambda row: row["fiber"] <= row["orbit"] / 2, 0.5)
        signs.append(found.holds)
        texts.append(f"{kind}: {found.ours}")
    other = _often(_students(table, ["narrow", "near"], full=True), lambda row: row["fiber"] <= row["orbit"] / 2, 0.5)
    return Finding(verdict(signs), f"{'; '.join(texts)} (full teachers, for comparison: {other.ours})")


def resampled(groups: Sequence[Sequence[tuple[float, float]]]) -> tuple[float, float, float]:
    """Spearman's correlation of all pairs, with its interval over draws of whole groups, which alone are independent.

    >>> [round(x, 6) for x in resampled([[(1.0, 2.0), (2.0, 3.0)], [(3.0, 4.0)], [(4.0, 8.0)]])]
    [1.0, 1.0, 1.0]
    """
    if len(groups) < 3:
        raise InputError(f"expected at least three teachers, got {len(groups)}")
    rng = np.random.default_rng(0)

    def correlation(chosen: Iterable[int]) -> float:
        x, y = np.array([pair for k in chosen for pair in groups[k]]).T
        return float(np.corrcoef(rankdata(x), rankdata(y))[0, 1]) if np.ptp(x) > 0 and np.ptp(y) > 0 else np.nan

    values = [correlation(rng.integers(len(groups), size=len(groups))) for _ in range(RESAMPLED)]
    low, high = np.nanquantile(values, [(1 - SURE) / 2, (1 + SURE) / 2])
    return correlation(range(len(groups))), float(low), float(high)


def _grouped(rows: Iterable[Mapping[str, Any]], x: str, y: str) -> list[list[tuple[float, float]]]:
    """Pairs of two columns by teachers; rows that lack one are left out."""
    found: dict[Any, list[tuple[float, float]]] = {}
    for row in rows:
        if row[x] is not None and row[y] is not None:
            found.setdefault((row["kind"], row["teacher"]), []).append((row[x], row[y]))
    return list(found.values())


def _told(value: tuple[float, float, float]) -> str:
    return f"{value[0]:.2f} ({value[1]:.2f} to {value[2]:.2f})"


def follows(table: Table) -> Finding:
    """Spearman's correlation of the differences of functions with the distances of parameters, narrow students."""
    rows = _students(table, ["narrow", "near"], full=None, close=False)
    orbit, fiber = (resampled(_grouped(rows, "found", name)) for name in ("orbit", "fiber"))
    holds = True if fiber[1] > 0 else False if fiber[2] < 0 else None
    return Finding(holds, f"correlation {_told(fiber)} modulo the fiber, {_told(orbit)} up to order and scale")


def wide_are_nearer(table: Table) -> Finding:
    """Distance to the fiber over difference of functions, wide against narrow, teacher by teacher in logarithms."""
    gains = []
    for (kind, number), part in table.where(record="student").groups("kind", "teacher").items():
        del kind, number
        ratios = {sort: [r for r in part.where(sort=sort).column("ratio") if r] for sort in ("narrow", "wide")}
        if all(ratios.values()):
            gains.append(float(np.mean(np.log10(ratios["narrow"])) - np.mean(np.log10(ratios["wide"]))))
    mean, error = mean_and_error(gains)
    wide, narrow = (table.where(record="student", sort=sort) for sort in ("wide", "narrow"))
    text = (
        f"wide students are nearer by a factor of 10^({mean:.2f} +- {error:.2f}), over {len(gains)} teachers; a member "
        f"is found from {wide.mean('member'):.0%} of the wide and {narrow.mean('member'):.0%} of the narrow ones"
    )
    return Finding(beyond(mean, error), text)


def flat(table: Table) -> Finding:
    """By how many decades the difference grows with ten times the step: one is first order, two second; every kind."""
    orders: dict[tuple[str, str], list[float]] = {}
    for (kind, _, name), part in table.where(record="move").groups("kind", "teacher", "direction").items():
        sizes = [size for _, size in sorted(zip(part.column("step"), part.column("found"), strict=True))]
        # a step that changes nothing at all is flat to any order, and has no logarithm
        order = float(np.mean(np.diff(np.log10(sizes)))) if min(sizes) > 0 else 2.0
        orders.setdefault((kind, name), []).append(order)
    kernels = {kind: values for (kind, name), values in orders.items() if name == "kernel"}
    signs = [beyond(mean - 1.5, error) for mean, error in map(mean_and_error, kernels.values())]
    text = ", ".join(f"{kind} {np.mean(values):.2f}" for kind, values in kernels.items())
    others = [x for (_, name), values in orders.items() if name != "kernel" for x in values]
    return Finding(verdict(signs), f"order of growth along the kernel: {text}; elsewhere {np.mean(others):.2f}")


def where_it_is(table: Table) -> Finding:
    """Step over difference along the least singular direction against 1 / its singular value, and against random."""
    step = min(table.where(record="move").column("step"))
    rows = table.where(record="move", step=step, direction="least").dicts()
    value = resampled(_grouped([{**row, "steep": 1 / row["least"]} for row in rows], "steep", "ratio"))
    others = {(r["kind"], r["teacher"]): r["ratio"] for r in table.where(step=step, direction="random").dicts()}
    factors = [row["ratio"] / others[row["kind"], row["teacher"]] for row in rows if row["ratio"]]
    text = (
        f"correlation {_told(value)}; {np.median(factors):.0f} times as unstable as at random in the median, at least "
    )
    return Finding(True if value[1] > 0 else False if value[2] < 0 else None, f"{text}{min(factors):.1f} times")


def where_students_are(table: Table) -> Finding:
    """Distance modulo the fiber over difference of functions, students begun near, against 1 / the singular value."""
    rows = [{**row, "steep": 1 / row["least"]} for row in _students(table, ["near"], full=None, close=False)]
    value = resampled(_grouped(rows, "steep", "ratio"))
    return Finding(True if value[1] > 0 else False if value[2] < 0 else None, f"correlation {_told(value)}")


def strata(table: Table) -> Finding:
    """Step over difference, from the farthest to the closest, teacher by teacher in logarithms."""
    texts, signs = [], []
    for (kind,), part in table.where(record="strata").groups("kind").items():
        gaps = sorted(set(part.column("gap")), reverse=True)
        ratios = {gap: part.where(gap=gap).column("ratio") for gap in gaps}
        growth = np.log10(ratios[gaps[-1]]) - np.log10(ratios[gaps[0]])
        mean, error = mean_and_error(growth.tolist())
        signs.append(beyond(mean, error))
        told = ", ".join(f"{np.median(ratios[gap]):.3g} at {gap:g}" for gap in gaps)
        texts.append(f"{kind}: {told}, growth 10^({mean:.2f} +- {error:.2f})")
    return Finding(verdict(signs), "; ".join(texts))


WORDS = {"kind": "", "direction": "", "orbit": "up to order and scale", "fiber": "modulo the fiber"}
SCATTER: dict[str, Any] = {
    "x": "found", "lines": "kind", "panels": "quantity", "x_label": "max |f - g| found", "log_x": True, "log_y": True,
    "y_label": "distance of parameters", "style": "points", "words": WORDS,
}  # fmt: skip
OPEN = "section 7, the first open question"
OURS = "not in the paper"

STUDY = Study(
    name="approximate-fibers",
    title="Do nearly equal functions have nearly equal parameters, modulo symmetry?",
    paper="Functional vs. parametric equivalence of ReLU networks",
    figure="section 7, the first open question",
    plan=plan,
    run_task=run_task,
    claims=(
        Claim("stable", "Of teachers determined by their function among neighbours: a student with nearly the function "
              "has nearly the parameters, up to order and scale.", OPEN, stable),
        Claim("stable-nearby", "The same for students that begin near the teacher.", OPEN, stable_nearby),
        Claim("fiber", "Of the other teachers: what keeps students away is mostly the fiber.", OURS, fiber_explains),
        Claim("follows", "The closer the functions, the closer the parameters modulo the fiber.", OURS, follows),
        Claim("wide", "Wide students are nearer to the fiber of the teacher in their architecture than narrow ones to "
              "theirs.", OURS, wide_are_nearer),
        Claim("flat", "Along the kernel of the Jacobian the function changes to second order only.",
              "functional dimension", flat),
        Claim("where", "The inverse is least stable where the smallest singular value of the Jacobian says.", OURS,
              where_it_is),
        Claim("where-students", "So it is for students.", OURS, where_students_are),
        Claim("strata", "It becomes less stable towards nearly dead, nearly linear and nearly equal neurons.", OURS,
              strata),
    ),
    cost={"quick": 300.0, "paper": 1000.0},
    options={"teachers": None, "students": None, "levels": None},
    pictures=(
        Picture("near", "Students that begin near the teacher", y=("orbit", "fiber"), where={"record": "student",
                "sort": "near"}, caption="Relative to range and norm of the teacher.", **SCATTER),
        Picture("narrow", "Students from random starts", y=("orbit", "fiber"), where={"record": "student",
                "sort": "narrow"}, caption="The best of sixteen starts.", **SCATTER),
        Picture("moves", "Steps in known directions", x="step", y="found", lines="direction", panels="kind",
                x_label="step", y_label="max |f - g| found", log_x=True, log_y=True, where={"record": "move"},
                style="points", words=WORDS, caption="Relative to norm and range. Two is the order along the kernel."),
        Picture("strata", "Towards smaller strata", x="gap", y="ratio", lines="kind",
                x_label="what is left to the stratum", y_label="step over difference", log_x=True, log_y=True,
                where={"record": "strata"}, style="points", words=WORDS,
                caption="How many times farther the parameters are apart than the functions, in the worst direction."),
    ),
    summarise=summarise,
)  # fmt: skip
