"""The paper's claims about the functional dimension, each tested by a stated rule.

Differences count where they are larger than two standard errors; otherwise the table does not decide. Claims about the
rank are tested twice, with the paper's rank (float32) and with the exact one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from math import sqrt
from typing import Any

import numpy as np

from fiberscope.errors import InputError
from fiberscope.numerics.floats import FloatArray
from fiberscope.studies.lab.study import Claim, Finding
from fiberscope.studies.lab.table import Table

LAYERS = 4
"""Four hidden layers have the parameters that the paper counts (361, 371, 431); its text says five."""

RANKS = {"paper": "the paper's rank", "exact": "the exact rank"}
STRONG = 0.7
"""A correlation above this is called strong."""

Check = Callable[..., Finding]


def both_ranks(name: str, text: str, where: str, check: Check, **settings: Any) -> tuple[Claim, Claim]:
    """A claim about the rank, for both ranks."""
    paper, exact = (
        Claim(f"{name}-{rank}", f"{text} ({words})", where, partial(check, rank=rank, **settings))
        for rank, words in RANKS.items()
    )
    return paper, exact


# -- numbers from tables -----------------------------------------------------------------------------------------


def mean_and_error(values: Sequence[float]) -> tuple[float, float]:
    """Mean and its standard error; at least two numbers."""
    if len(values) < 2:
        raise InputError(f"expected at least two numbers to compare, got {len(values)}")
    array = np.asarray(values, dtype=float)
    return float(array.mean()), float(array.std(ddof=1) / sqrt(len(array)))


def curves(table: Table, column: str, by: str = "dataset", successful: bool = True) -> dict[Any, dict[int, FloatArray]]:
    """For every entry of ``by`` and every run: the column at all recorded epochs. Runs that broke off are left out."""
    found: dict[Any, dict[int, FloatArray]] = {}
    groups = table.where(record="run").groups(by, "run")
    whole = {key: max(len(rows) for (other, _), rows in groups.items() if other == key) for key, _ in groups}
    for (key, run), rows in groups.items():
        if len(rows) == whole[key] and (not successful or all(rows.column("successful"))):
            order = np.argsort(rows.column("epoch"))
            found.setdefault(key, {})[run] = np.asarray(rows.column(column), dtype=float)[order]
    return found


def at_the_end(curve: FloatArray) -> float:
    """Mean over the last tenth of the recorded epochs: one epoch alone is noisy."""
    return float(curve[-max(1, len(curve) // 10) :].mean())


def verdict(signs: Sequence[bool | None]) -> bool | None:
    """Several tests as one: all must hold, and one that fails is enough."""
    if not signs:
        raise InputError("expected at least one group of runs, got none")
    return False if False in signs else None if None in signs else True


def beyond(value: float, error: float) -> bool | None:
    """Whether a number is positive, negative, or too close to zero for its error."""
    return True if value > 2 * error else False if value < -2 * error else None


# -- the start ---------------------------------------------------------------------------------------------------


def _starts(table: Table, **where: Any) -> Table:
    """The initialisations of the paper's shape and batch; without such rows, those of the runs."""
    part = table.where(record="start", layers=LAYERS, batch="", **where) if "batch" in table.columns else Table((), ())
    return part if len(part) > 1 else table.where(record="run", epoch=0, **where)


def deficient_at_start(table: Table, rank: str) -> Finding:
    """Typically: in more than half of the initialisations."""
    part = _starts(table)
    mean, error = mean_and_error(part.column(rank))
    pairs = list(zip(part.column(rank), part.column("full"), strict=True))
    low = sum(value < full for value, full in pairs)
    text = f"{mean:.1f} +- {error:.1f} of {pairs[0][1]}; {low} of {len(part)} initialisations are rank deficient"
    return Finding(2 * low > len(part), text)


def below_at_start(table: Table, rank: str, limit: float, batch: str = "") -> Finding:
    """On average below a number of the paper; other shapes and batches are told beside it."""
    part = _starts(table) if not batch else table.where(record="start", layers=LAYERS, batch=batch)
    mean, error = mean_and_error(part.column(rank))
    others = []
    if "batch" in table.columns:
        for (layers, other), rows in table.where(record="start").groups("layers", "batch").items():
            if (layers, other) != (LAYERS, batch):
                around, about = mean_and_error(rows.column(rank))
                others.append(f"{layers} hidden layers{', ' + other if other else ''}: {around:.1f} +- {about:.1f}")
    beside = f" ({'; '.join(others)})" if others else ""
    return Finding(beyond(limit - mean, error), f"{mean:.1f} +- {error:.1f} over {len(part)} initialisations{beside}")


# -- training ----------------------------------------------------------------------------------------------------


def rises_then_settles(table: Table, rank: str, by: str = "dataset") -> Finding:
    """Rises: higher after a third of the training than at its start. Settles: the last third adds less than half of it.

    A fall in the last third settles too.
    """
    signs, texts = [], []
    for key, runs in curves(table, rank, by).items():
        values = np.stack(list(runs.values()))
        third = (values.shape[1] - 1) / 3
        first = values[:, round(third)] - values[:, 0]
        last = values[:, -1] - values[:, round(2 * third)]
        rise, change = mean_and_error(first.tolist()), mean_and_error(last.tolist())
        settled = mean_and_error((first / 2 - last).tolist())
        signs.append(verdict([beyond(*rise), beyond(*settled)]))
        texts.append(f"{key}: {_signed(rise)} in the first third, {_signed(change)} in the last")
    return Finding(verdict(signs), "; ".join(texts))


def _signed(pair: tuple[float, float]) -> str:
    return f"{pair[0]:+.1f} +- {pair[1]:.1f}"


def ordered(table: Table, rank: str, order: Sequence[Any], by: str = "dataset") -> Finding:
    """Increasing along ``order`` in the end, run by run: successful runs of equal seeds are compared."""
    runs = curves(table, rank, by)
    ends = {key: {run: at_the_end(curve) for run, curve in runs.get(key, {}).items()} for key in order}
    signs, texts = [], []
    for low, high in pairwise(order):
        shared = sorted(set(ends[low]) & set(ends[high]))
        if len(shared) < 2:
            raise InputError(f"expected at least two successful runs of both {low} and {high}, got {len(shared)}")
        difference = mean_and_error([ends[high][run] - ends[low][run] for run in shared])
        signs.append(beyond(*difference))
        texts.append(f"{high} - {low}: {_signed(difference)} ({len(shared)} pairs)")
    if len(order) > 2:  # told, but not part of the rule
        shared = sorted(set(ends[order[0]]) & set(ends[order[-1]]))
        apart = mean_and_error([ends[order[-1]][run] - ends[order[0]][run] for run in shared])
        texts.append(f"{order[-1]} - {order[0]}: {_signed(apart)}")
    means = ", ".join(f"{key}: {np.mean(list(ends[key].values())):.1f}" for key in order)
    return Finding(verdict(signs), f"{means}; {'; '.join(texts)}")


def correlated(table: Table, rank: str, by: str = "dataset") -> Finding:
    """Pearson's correlation of rank and regions over the epochs of a run, averaged over runs; strong above 0.7."""
    regions, ranks = (curves(table, column, by, successful=False) for column in ("regions", rank))
    signs, texts = [], []
    for key, runs in ranks.items():
        pairs = [(regions[key][run], curve) for run, curve in runs.items()]
        values = [float(np.corrcoef(a, b)[0, 1]) for a, b in pairs if a.std() > 0 and b.std() > 0]
        mean, error = mean_and_error(values)
        signs.append(beyond(mean - STRONG, error))
        texts.append(f"{key}: {mean:.2f} +- {error:.2f}")
    return Finding(verdict(signs), "correlation " + "; ".join(texts))


def no_overfit(table: Table) -> Finding:
    """On the function without noise the coefficient of determination is lower by less than 0.05."""
    signs, texts = [], []
    seen, clean = curves(table, "r2"), curves(table, "clean_r2")
    for key, runs in seen.items():
        gain = mean_and_error([at_the_end(clean[key][run]) - at_the_end(curve) for run, curve in runs.items()])
        signs.append(beyond(0.05 + gain[0], gain[1]))
        texts.append(f"{key}: {gain[0]:+.3f} +- {gain[1]:.3f}")
    return Finding(verdict(signs), "r2 on the function without noise, against that on the data: " + "; ".join(texts))


# -- bounds ------------------------------------------------------------------------------------------------------


def _measured(table: Table) -> Table:
    """Every row with ranks, runs and further initialisations of the paper's shape."""
    part = table.where(record="run")
    if "batch" not in table.columns:
        return part
    return Table(table.columns, part.rows + table.where(record="start", layers=LAYERS, batch="").rows)


def _by_run(part: Table, value: Callable[[dict[str, Any]], float]) -> list[float]:
    """Means over the epochs of every run: these are independent, the epochs of one run are not."""
    keys = [name for name in ("record", "dataset", "weight_decay", "run") if name in part.columns]
    return [float(np.mean([value(row) for row in rows.dicts()])) for rows in part.groups(*keys).values()]


def region_bound(table: Table) -> Finding:
    """Proposition 4.6 with certified regions and the exact rank, in every row."""
    part = _measured(table)
    values, ranks = part.column("bound_regions"), part.column("exact")
    broken = sum(v < r for v, r in zip(values, ranks, strict=True))
    vacuous = part.mean("vacuous_regions")
    text = f"{broken} violations in {len(part)} rows; vacuous (not below the size of the Jacobian) in {vacuous:.0%}"
    return Finding(broken == 0 if len(part) else None, text)


REASONS = {
    "level_points": "few points in a region",
    "level_position": "their position",
    "level_silent": "layers that are off",
    "level_fixed": "fixed neurons and rescaling",
    "level_adjacent": "other relations of two adjacent layers",
}


def far_below_regions(table: Table) -> Finding:
    """Well below: less than three quarters of Proposition 4.6's bound on average; above nine tenths it is not."""
    signs, texts = [], []
    for (family,), part in table.where(record="run").groups("family").items():
        mean, error = mean_and_error(_by_run(part, lambda row: row["exact"] / row["bound_regions"]))
        signs.append(True if mean + 2 * error < 0.75 else False if mean - 2 * error > 0.9 else None)
        exact = part.column("exact")
        reached, refined = (
            float(np.mean([a == b for a, b in zip(part.column(name), exact, strict=True)]))
            for name in ("bound_regions", "bound_regions_refined")
        )
        texts.append(
            f"{family}: the exact rank is {mean:.2f} of the bound on average and meets it in {reached:.0%} of the rows "
            f"(the refined bound, which counts the points of a region, in {refined:.0%}); {gap_text(part)}"
        )
    return Finding(verdict(signs), ". ".join(texts))


def gap_text(part: Table) -> str:
    """What the mean distance from the bound by regions to the exact rank is made of."""
    rows = [row for row in part.dicts() if row.get("level_regions") is not None]
    if not rows:
        return "the gap was not taken apart"
    steps = ["level_regions", *REASONS, "exact"]
    means = [float(np.mean([row[name] for row in rows])) for name in steps]
    parts = [f"{words} {a - b:.1f}" for words, a, b in zip(REASONS.values(), means, means[1:], strict=False)]
    return (
        f"gap of {means[0] - means[-1]:.1f} below min(bound, size): {', '.join(parts)}, "
        f"unexplained {means[-2] - means[-1]:.1f}"
    )


def more_regions_than_rank(table: Table, rank: str, family: str = "univariate") -> Finding:
    """Typically: in more than half of the rows of training."""
    part = table.where(record="run", family=family)
    share = float(np.mean([a > b for a, b in zip(part.column("regions"), part.column(rank), strict=True)]))
    text = (
        f"in {share:.0%} of {len(part)} rows; on average {part.mean('regions'):.1f} regions, rank {part.mean(rank):.1f}"
    )
    return Finding(share > 0.5, text)


def theorem_one(table: Table) -> Finding:
    """Undecided where no network meets the assumption; then what its formula would give is told."""
    part = _measured(table)
    met, values = part.column("met_fixed_neurons"), part.column("bound_fixed_neurons")
    ranks = part.column("exact")
    broken = sum(v < r for v, r in zip(values, ranks, strict=True))
    text = (
        f"its assumption (roughly monotonic widths) is met in {sum(met)} of {len(part)} rows; the formula gives "
        f"{np.mean(values):.1f} on average (exact rank {np.mean(ranks):.1f}), is vacuous in "
        f"{part.mean('vacuous_fixed_neurons'):.0%} and below the exact rank in {broken} rows"
    )
    if not any(met):
        return Finding(None, text)
    return Finding(not any(m and v < r for m, v, r in zip(met, values, ranks, strict=True)), text)


def symmetries_explain(table: Table) -> Finding:
    """Holds if the orbit bound, which needs no assumption, proves more than half of the rows rank deficient."""
    part = _measured(table)
    share = 1.0 - part.mean("vacuous_orbit")
    tight = float(np.mean([a == b for a, b in zip(part.column("bound_orbit"), part.column("exact"), strict=True)]))
    text = (
        f"{part.mean('fixed_fraction'):.0%} of the neurons are fixed; with them the orbit bound proves {share:.0%} of "
        f"the rows rank deficient; it is {part.mean('bound_orbit'):.1f} on average against an exact rank of "
        f"{part.mean('exact'):.1f}, and meets it in {tight:.0%}"
    )
    return Finding(share > 0.5, text)


MORE_REGIONS = "The number of intervals sampled is typically greater than the batch functional dimension."

BOUND_CLAIMS = (
    Claim(
        "region-bound",
        "The batch functional dimension is at most (input dimension + 1) times the number of linear regions sampled.",
        "proposition 4.6",
        region_bound,
    ),
    Claim(
        "far-below-regions",
        "The batch functional dimension is well below the upper bound imposed by the number of linear regions.",
        "appendix C, section 1",
        far_below_regions,
    ),
    Claim(
        "theorem-1",
        "With n fixed neurons in a layer the functional dimension is at most D - sum (n_l - n_l^fixed) - "
        "sum (n_l^fixed)^2.",
        "theorem 1",
        theorem_one,
    ),
    Claim(
        "hidden-symmetries",
        "Hidden data-dependent symmetries (neurons always active or always inactive) encourage a rank-deficient NTK.",
        "section 1, 4.2",
        symmetries_explain,
    ),
)

RISES = "In all experiments the functional dimension rises steadily during early training, then plateaus or decreases."
"""Section 6, in the words of section 1."""

DEFICIENT = "The empirical NTK is typically rank deficient at initialization."


# -- what people read --------------------------------------------------------------------------------------------

_MEANS = (
    "r2",
    "paper",
    "numerical",
    "exact",
    "certified",
    "full",
    "regions",
    "bound_regions",
    "bound_regions_refined",
    "bound_position",
    "bound_silent",
    "bound_fixed_neurons",
    "bound_orbit",
    "bound_adjacent",
    "bound_rescaling",
    "vacuous_regions",
    "vacuous_regions_refined",
    "vacuous_fixed_neurons",
    "vacuous_orbit",
    "active",
    "inactive",
    "switching",
)


def summarise(table: Table) -> Table:
    """Means over runs at five epochs, for every task and weight decay; and over the initialisations."""
    rows = []
    keys = [name for name in ("record", "dataset", "weight_decay", "batch", "layers", "epoch") if name in table.columns]
    for values, part in table.groups(*keys).items():
        about = dict(zip(keys, values, strict=True))
        if about["record"] not in ("run", "start") or not any(v is not None for v in part.column("level_regions")):
            continue
        successful = sum(part.column("successful")) if about["record"] == "run" else None
        rows.append({**about, "networks": len(part), "successful": successful, **{n: _mean(part, n) for n in _MEANS}})
    return Table.of(rows)


def _mean(part: Table, name: str) -> float | None:
    return None if set(part.column(name)) == {None} else part.mean(name)
