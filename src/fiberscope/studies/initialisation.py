"""Regions sampled and fixed neurons at initialisation, for several batches, widths and depths.

The paper on the empirical tangent kernel finds its rank low at initialisation and explains it by neurons that do not
switch on the data and by the few linear regions that the data meet. Here both are counted by certified signs, at
He-normal weights and biases, on four batches: equally spaced points of a segment, a grid of the square and points of
the standard normal distribution in eight dimensions (for its standardised building data); and the circle of the paper
on data geometry.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import sqrt
from typing import Any

import numpy as np

from fiberscope.errors import InputError, hint
from fiberscope.network.network import Network
from fiberscope.network.roles import roles
from fiberscope.numerics.floats import FloatArray
from fiberscope.studies.lab.study import Claim, Finding, Picture, Study, Task
from fiberscope.studies.lab.table import Table
from fiberscope.training.datasets.synthetic import circle_points

SIZES: dict[str, dict[str, Any]] = {
    "quick": {"seeds": 20, "widths": [5, 10, 20], "depths": [1, 2, 4]},
    "paper": {"seeds": 200, "widths": [5, 10, 20, 40], "depths": [1, 2, 3, 4, 5, 8]},
}
BLOCK = 20
"""Networks per task: few enough to lose little when a run is killed."""


def _grid() -> FloatArray:
    ticks = np.linspace(0.0, 1.0, 20)
    return np.stack(np.meshgrid(ticks, ticks, indexing="ij"), axis=-1).reshape(-1, 2)


BATCHES: dict[str, Callable[[], FloatArray]] = {
    "segment": lambda: np.linspace(0.0, 1.0, 100)[:, None],
    "square": _grid,
    "circle": lambda: circle_points(np.linspace(-np.pi, np.pi, 1000, endpoint=False)),
    "normal": lambda: np.random.default_rng([8, 0]).standard_normal((768, 8)),
}
"""The points on which every network is seen."""


def plan(scale: str, options: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One task per batch, width, depth and block of networks."""
    sizes = {"batches": list(BATCHES), **SIZES[scale]}
    sizes |= {name: value for name, value in options.items() if value is not None}
    for name in ("widths", "depths"):
        values = sizes[name]
        if not isinstance(values, list | tuple) or any(not isinstance(v, int) or v < 1 for v in values):
            raise InputError(f"option {name}: expected a list of positive integers, got {values!r}")
    for batch in sizes["batches"]:
        if batch not in BATCHES:
            raise InputError(
                f"option batches: expected some of {', '.join(BATCHES)}, got {batch!r}{hint(batch, BATCHES)}"
            )
    if not isinstance(sizes["seeds"], int) or sizes["seeds"] < 1:
        raise InputError(f"option seeds: expected a positive integer, got {sizes['seeds']!r}")
    return [
        {"batch": batch, "width": width, "depth": depth, "first": first, "count": min(BLOCK, sizes["seeds"] - first)}
        for batch in sizes["batches"]
        for width in sizes["widths"]
        for depth in sizes["depths"]
        for first in range(0, sizes["seeds"], BLOCK)
    ]


def run_task(task: Task) -> list[dict[str, Any]]:
    """One row per network."""
    batch, width, depth = (task.settings[name] for name in ("batch", "width", "depth"))
    X = BATCHES[batch]()
    inputs = X.shape[1]
    rows = []
    for index in range(task.settings["count"]):
        net = Network.random((inputs, *([width] * depth), 1), np.random.default_rng([task.seed, index]))
        _, counts = np.unique(net.pattern(X), axis=0, return_counts=True)
        found = roles(net, X)
        rows.append(
            {
                "batch": batch,
                "inputs": inputs,
                "width": width,
                "depth": depth,
                "network": task.settings["first"] + index,
                "points": len(X),
                "parameters": net.num_parameters,
                "neurons": net.num_hidden,
                "regions": len(counts),
                # On one region the rows of the Jacobian are affine in the point: n_0 + 1 of them span the rest.
                "region_bound": int(np.minimum(counts, inputs + 1).sum()),
                "dead": int(found.dead.sum()),
                "linear": int(found.linear.sum()),
                "switching": int(found.switching.sum()),
                "switching_fraction": float(found.switching.mean()),
                "on_boundary": found.on_boundary,
            }
        )
    return rows


def summarise(table: Table) -> Table:
    """Means over the networks of every batch and architecture."""
    rows = []
    for (batch, width, depth), part in table.groups("batch", "width", "depth").items():
        neurons = part.mean("neurons")
        rows.append(
            {
                "batch": batch,
                "width": width,
                "depth": depth,
                "networks": len(part),
                "points": part.column("points")[0],
                "neurons": part.column("neurons")[0],
                "regions": part.mean("regions"),
                "region_bound": part.mean("region_bound"),
                "dead_fraction": part.mean("dead") / neurons,
                "linear_fraction": part.mean("linear") / neurons,
                "switching_fraction": part.mean("switching_fraction"),
            }
        )
    return Table.of(rows)


# -- the claims ----------------------------------------------------------------------------------------------------


def _part(table: Table, **where: Any) -> Table:
    part = table.where(**where)
    if len(part) < 2:
        raise InputError(f"expected at least two rows with {where}, got {len(part)}")
    return part


def _mean_and_error(part: Table, name: str) -> tuple[float, float]:
    """Mean of a column and its standard error."""
    values = np.array(part.column(name), dtype=float)
    return float(values.mean()), float(values.std(ddof=1) / sqrt(len(values)))


def low_rank(table: Table) -> Finding:
    """The bound by regions proves a low rank where it is below the number of points."""
    part = _part(table, batch="segment", width=10, depth=4)
    bound, error = _mean_and_error(part, "region_bound")
    points = part.column("points")[0]
    deficient = sum(b < points for b in part.column("region_bound"))
    text = (
        f"regions sampled bound the rank by {bound:.1f} +- {error:.1f} of {points}; "
        f"{deficient} of {len(part)} networks are proven rank deficient"
    )
    return Finding(True if 2 * deficient > len(part) else None, text)


def below_twenty(table: Table) -> Finding:
    """Decided here only if the upper bound is below 20; the rank is for the study of the functional dimension."""
    bound, error = _mean_and_error(_part(table, batch="segment", width=10, depth=4), "region_bound")
    proven = bound + 2 * error < 20
    rest = "" if proven else ": too close to 20, or above it; the rank itself may be lower"
    return Finding(True if proven else None, f"regions sampled bound it by {bound:.1f} +- {error:.1f} on average{rest}")


def fixed_neurons(table: Table) -> Finding:
    """A neuron is fixed if it does not switch on the batch."""
    part = _part(table, batch="segment", width=10, depth=4)
    fraction = 1.0 - part.mean("switching") / part.mean("neurons")
    some = sum(s < n for s, n in zip(part.column("switching"), part.column("neurons"), strict=True))
    text = f"{fraction:.0%} of the neurons do not switch; {some} of {len(part)} networks have at least one such neuron"
    return Finding(2 * some > len(part), text)


def regions_close_to_neurons(table: Table) -> Finding:
    """Sampled counts are lower bounds: a ratio above 2 refutes, one below 1/2 does not decide."""
    groups = _part(table, batch="circle").groups("width", "depth")
    ratios = {key: group.mean("regions") / group.mean("neurons") for key, group in groups.items()}
    low, high = min(ratios.values()), max(ratios.values())
    text = f"regions met by 1000 points, per neuron: {low:.2f} to {high:.2f} over {len(ratios)} widths and depths"
    return Finding(False if high > 2 else True if low >= 0.5 else None, text)


STUDY = Study(
    name="initialisation",
    title="Regions sampled and fixed neurons at initialisation",
    paper="Empirical NTK tracks task complexity",
    figure="figures 2, 5 and 9 at epoch 0",
    plan=plan,
    run_task=run_task,
    claims=(
        Claim(
            "rank-deficient",
            "The empirical NTK is typically rank deficient at initialization.",
            "section 6",
            low_rank,
        ),
        Claim(
            "below-20",
            "For the univariate experiments, at initialization the functional dimension is on average below 20.",
            "section 6",
            below_twenty,
        ),
        Claim(
            "fixed-neurons",
            "A potential explanation are data-dependent hidden equivalences: neurons always active or always inactive "
            "on the data.",
            "abstract, theorem 1",
            fixed_neurons,
        ),
        Claim(
            "close-to-neurons",
            "The number of linear regions on the circle starts off close to the number of neurons.",
            "data geometry paper, section 4.1",
            regions_close_to_neurons,
        ),
    ),
    cost={"quick": 3.0, "paper": 130.0},
    options={"seeds": None, "batches": None, "widths": None, "depths": None},
    pictures=(
        Picture(
            "regions",
            "Regions sampled at initialisation",
            x="depth",
            y="regions",
            lines="width",
            panels="batch",
            x_label="hidden layers",
            y_label="regions sampled",
            log_y=True,
            caption="Mean and standard deviation over networks; certified activation patterns on each batch.",
        ),
        Picture(
            "switching",
            "Neurons that switch at initialisation",
            x="depth",
            y="switching_fraction",
            lines="width",
            panels="batch",
            x_label="hidden layers",
            y_label="fraction of neurons",
            caption="The others are fixed: always active or always inactive on the batch.",
        ),
    ),
    summarise=summarise,
)
