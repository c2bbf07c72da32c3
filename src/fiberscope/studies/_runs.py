"""What the studies of the functional dimension have in common: their tasks, their training and what is measured.

The table of such a study has several kinds of rows, told apart by the column ``record``:

``run``
    one training run at one recorded epoch;
``start``
    one more initialisation: there are many of these, because a mean over fifteen runs decides little;
``data``, ``function``
    points of a data set and of the function behind it, for the pictures;
``graph``
    the function that a network computes at one epoch, on a grid.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fiberscope.dimension.exact_rank import sample
from fiberscope.dimension.functional import FunctionalDimension, functional_dimension
from fiberscope.dimension.gap import adjacent_layers_bound, position_bound, silent_layers_bound
from fiberscope.errors import InputError, hint
from fiberscope.network.network import Network
from fiberscope.numerics.floats import FloatArray
from fiberscope.studies._verdicts import LAYERS
from fiberscope.studies.lab.study import Task
from fiberscope.training.datasets.loading import load_dataset
from fiberscope.training.datasets.synthetic import target_function
from fiberscope.training.seeds import train_many

UNIVARIATE = ("f1", "f2", "f3")
BIVARIATE = ("g1", "g2", "g3")
ENERGY = ("heating", "cooling")

WIDTH = 10

WEIGHT_DECAY = 1e-4
SUCCESS = 0.9
"""A run is successful if its coefficient of determination on the training data is above this in the end."""

BLOCK = 5
"""Runs per task: few enough to lose little when a run is killed, enough to share the matrix products."""

START_BLOCK = 20


# -- data --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Data:
    """The points ``(m, n_0)`` and targets ``(m, 1)`` of a task; ``dense`` has points and targets without noise."""

    X: FloatArray
    y: FloatArray
    dense: tuple[FloatArray, FloatArray] | None


def family(name: str) -> str:
    """Which of the paper's three experiments a task belongs to."""
    return "univariate" if name in UNIVARIATE else "bivariate" if name in BIVARIATE else "energy"


def load_data(name: str, batch: str = "") -> Data:
    """The data by name. ``batch`` is ``""`` for what the studies take; ``"10 x 10"`` for a coarser grid.

    For the building data: ``"raw"`` features and targets, features in the ``"unit"`` cube with raw targets, or
    standardised features with ``"raw targets"``.
    """
    if name in UNIVARIATE:
        data = load_dataset(name)
        grid = np.linspace(0.0, 1.0, 501)[:, None]
        return Data(data.inputs, data.targets, (grid, target_function(name, grid)))
    if name in BIVARIATE:
        data = load_dataset(name, side=10 if batch == "10 x 10" else 20)
        ticks = np.linspace(0.0, 1.0, 77)
        square = np.stack(np.meshgrid(ticks, ticks, indexing="ij"), axis=-1).reshape(-1, 2)
        return Data(data.inputs, data.targets, (square, target_function(name, square)))
    if name in ENERGY:
        data = load_dataset("energy", target=name, standardise=False)
        low, size = data.inputs.min(axis=0), np.ptp(data.inputs, axis=0)
        X = {"raw": data.inputs, "unit": (data.inputs - low) / size}.get(batch, standardised(data.inputs))
        return Data(X, data.targets if batch else standardised(data.targets), None)
    known = (*UNIVARIATE, *BIVARIATE, *ENERGY)
    raise InputError(f"option datasets: expected some of {', '.join(known)}, got {name!r}{hint(str(name), known)}")


def standardised(values: FloatArray) -> FloatArray:
    """Columns with mean 0 and standard deviation 1 up to 1e-4, by a shift and a factor of 16 bits each.

    The features of the buildings satisfy *surface = wall + 2 roof*. A division by the standard deviation would break
    this in the last digit, and an exact rank would count the rounding errors. Short binary numbers keep it.

    >>> x = np.array([[1.0, 2.0, 5.0], [2.0, 1.0, 4.0], [4.0, 4.0, 12.0], [8.0, 2.5, 13.0]])  # x3 = x1 + 2 x2
    >>> z = standardised(x)
    >>> lifted = np.column_stack([z, np.ones(4)])
    >>> from fiberscope.numerics.rank import exact_rank
    >>> exact_rank(lifted).rank, bool(np.abs(z.std(axis=0) - 1).max() < 1e-4)
    (3, True)
    """
    return (values - _short(values.mean(axis=0))) * _short(1 / values.std(axis=0))


def _short(values: FloatArray) -> FloatArray:
    """Rounded to 16 significant bits."""
    mantissa, exponent = np.frexp(values)
    return np.asarray(np.ldexp(np.round(mantissa * 2**16) / 2**16, exponent))


# -- plans -------------------------------------------------------------------------------------------------------

OPTIONS: dict[str, Any] = {
    "runs": None,
    "epochs": None,
    "every": None,
    "starts": None,
    "datasets": None,
    "layers": LAYERS,
}
"""What users may change; None: by the scale."""


def settle(sizes: Mapping[str, Any], options: Mapping[str, Any], known: Sequence[str]) -> dict[str, Any]:
    """The sizes of a scale with the user's options in them, checked."""
    found = {**sizes, **{name: value for name, value in options.items() if value is not None}}
    for name in ("runs", "epochs", "every", "layers"):
        if not isinstance(found[name], int) or found[name] < 1:
            raise InputError(f"option {name}: expected a positive integer, got {found[name]!r}")
    if not isinstance(found["starts"], int) or found["starts"] < 0:
        raise InputError(f"option starts: expected an integer of at least 0, got {found['starts']!r}")
    if found["epochs"] % found["every"]:
        raise InputError(f"option every: expected a divisor of {found['epochs']} epochs, got {found['every']}")
    for name in found["datasets"]:
        if name not in known:
            raise InputError(
                f"option datasets: expected some of {', '.join(known)}, got {name!r}{hint(str(name), known)}"
            )
    return found


def plan_runs(sizes: Mapping[str, Any], decays: Sequence[float] = (WEIGHT_DECAY,)) -> list[dict[str, Any]]:
    """Training runs in blocks. Run ``i`` has the seed ``i`` in every task: tasks and decays are compared in pairs."""
    return [
        {
            "record": "run",
            "dataset": name,
            "weight_decay": decay,
            "layers": sizes["layers"],
            "epochs": sizes["epochs"],
            "every": sizes["every"],
            "first": first,
            "count": min(BLOCK, sizes["runs"] - first),
        }
        for name in sizes["datasets"]
        for decay in decays
        for first in range(0, sizes["runs"], BLOCK)
    ]


def plan_starts(name: str, starts: int, batches: Sequence[str] = ("",)) -> list[dict[str, Any]]:
    """Initialisations of four and of five hidden layers on the inputs of a task."""
    return [
        {
            "record": "start",
            "dataset": name,
            "batch": batch,
            "layers": layers,
            "first": first,
            "count": min(START_BLOCK, starts - first),
        }
        for batch in batches
        for layers in (LAYERS, LAYERS + 1)
        for first in range(0, starts, START_BLOCK)
    ]


def plan_data(names: Sequence[str]) -> list[dict[str, Any]]:
    """The points that the pictures of the data sets show."""
    return [{"record": "data", "dataset": name} for name in names]


def run_task(task: Task) -> list[dict[str, Any]]:
    """Rows of whatever the task records."""
    settings = task.settings
    if settings["record"] == "run":
        return training_rows(settings)
    return start_rows(settings) if settings["record"] == "start" else data_rows(settings["dataset"])


# -- rows --------------------------------------------------------------------------------------------------------


def data_rows(name: str) -> list[dict[str, Any]]:
    """The data set and, for one input, the function without noise."""
    data = load_data(name)
    rows: list[dict[str, Any]] = []
    parts = {"data": (data.X, data.y)}
    if data.X.shape[1] == 1 and data.dense is not None:
        parts["function"] = (data.dense[0][::5], data.dense[1][::5])
    for record, (X, y) in parts.items():
        for x, value in zip(X.tolist(), y[:, 0].tolist(), strict=True):
            rows.append({"record": record, "dataset": name, **{f"x{i}": v for i, v in enumerate(x, 1)}, "y": value})
    return rows


def start_rows(settings: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One row per initialisation."""
    data = load_data(settings["dataset"], settings["batch"])
    widths = (data.X.shape[1], *[WIDTH] * settings["layers"], 1)
    rows = []
    for seed in range(settings["first"], settings["first"] + settings["count"]):
        about = {
            "record": "start",
            "family": family(settings["dataset"]),
            "dataset": settings["dataset"],
            "batch": settings["batch"],
            "layers": settings["layers"],
            "run": seed,
            "epoch": 0,
        }
        rows.append({**about, **measure(Network.random(widths, seed), data, seed, gap=seed < BLOCK)})
    return rows


def training_rows(settings: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Train a block of runs; one row per run and recorded epoch, and graphs where the settings ask for them."""
    data = load_data(settings["dataset"], settings.get("batch", ""))
    epochs = list(range(0, settings["epochs"] + 1, settings["every"]))
    seeds = range(settings["first"], settings["first"] + settings["count"])
    runs = train_many(
        (data.X.shape[1], *[WIDTH] * settings["layers"], 1),
        (data.X, data.y),
        seeds,
        epochs=settings["epochs"],
        lr=0.01,
        weight_decay=settings["weight_decay"],
        batch_size=16,
        checkpoints=epochs,
        dtype="float32",  # as the paper: torch's default
    )
    rows = []
    for index, seed in enumerate(seeds):
        reached = fit(runs.networks[index], data)["r2"]
        about = {
            "record": "run",
            "family": family(settings["dataset"]),
            "dataset": settings["dataset"],
            "weight_decay": settings["weight_decay"],
            "layers": settings["layers"],
            "run": seed,
            "successful": index in runs.finished and reached > SUCCESS,
        }
        for epoch in epochs:
            net = runs.checkpoints[epoch][index] if epoch in runs.checkpoints else None
            if net is not None:
                gap = epoch in gap_epochs(epochs)
                rows.append({**about, "epoch": epoch, **measure(net, data, seed, gap)})
                if epoch in settings.get("graphs", ()) and seed == 0:
                    rows += graph_rows(net, settings["dataset"], epoch)
    return rows


def gap_epochs(epochs: Sequence[int]) -> set[int]:
    """Five of the recorded epochs, the first and the last among them: the bounds of the gap cost more than the rest."""
    return {epochs[round(k * (len(epochs) - 1) / 4)] for k in range(5)}


def graph_rows(net: Network, name: str, epoch: int) -> list[dict[str, Any]]:
    """The function of a network with one input on a grid."""
    x = np.linspace(0.0, 1.0, 201)
    values = net(x[:, None])[:, 0]
    return [
        {"record": "graph", "dataset": name, "epoch": epoch, "x1": a, "y": b}
        for a, b in zip(x.tolist(), values.tolist(), strict=True)
    ]


# -- measuring ---------------------------------------------------------------------------------------------------


def fit(net: Network, data: Data) -> dict[str, float]:
    """Loss and coefficients of determination: on the data, and on the noiseless function."""
    error = float(np.mean((net(data.X) - data.y) ** 2))
    found = {"loss": error, "r2": 1.0 - error / float(np.var(data.y))}
    if data.dense is not None:
        X, y = data.dense
        found["clean_r2"] = 1.0 - float(np.mean((net(X) - y) ** 2)) / float(np.var(y))
    return found


def measure(net: Network, data: Data, seed: int, gap: bool) -> dict[str, Any]:
    """The three ranks, the regions, all bounds and the neurons of every layer on the batch."""
    found = functional_dimension(net, data.X, exact=True, seed=seed)
    full = found.bound("outputs").value
    row: dict[str, Any] = {
        **fit(net, data),
        "points": len(data.X),
        "parameters": net.num_parameters,
        "full": full,
        "paper": found.paper,
        "numerical": found.numerical,
        "exact": found.exact,
        "lower": found.lower,
        "certified": found.certified,
        "failure_probability": found.failure_probability,
        "spectral_gap": found.gap,
        "regions": found.regions_sampled,
        "on_boundary": len(found.on_boundary),
    }
    for bound in found.bounds:
        name = bound.name.replace(" ", "_")
        row |= {f"bound_{name}": bound.value, f"met_{name}": bound.holds, f"vacuous_{name}": bound.value >= full}
    return {**row, **_neurons(found), **(_levels(net, data.X, found) if gap else {})}


def _neurons(found: FunctionalDimension) -> dict[str, Any]:
    symmetry = found.symmetry
    assert symmetry is not None  # our networks are chains
    kinds = ("active", "inactive", "switching")
    row: dict[str, Any] = {f"{kind}_{layer.layer}": getattr(layer, kind) for layer in symmetry.layers for kind in kinds}
    row |= {kind: sum(getattr(layer, kind) for layer in symmetry.layers) for kind in kinds}
    row["fixed_fraction"] = 1.0 - row["switching"] / sum(layer.width for layer in symmetry.layers)
    names = ("dimension", "orbit", "stabiliser", "directions")
    return {**row, **{f"symmetry_{name}": getattr(symmetry, name) for name in names}}


def _levels(net: Network, X: FloatArray, found: FunctionalDimension) -> dict[str, Any]:
    """From the bound by regions down to the rank: the smallest bound so far, with one reason more at each step."""
    sampled = sample(net, X)
    position, silent = position_bound(sampled), silent_layers_bound(net, sampled)
    adjacent = adjacent_layers_bound(net, sampled)
    steps = {
        "level_regions": min(found.bound("regions").value, found.bound("outputs").value),
        "level_points": found.bound("regions refined").value,
        "level_position": position,
        "level_silent": silent,
        "level_fixed": found.bound("orbit").value,
        "level_adjacent": adjacent.value,
    }
    row: dict[str, Any] = {"bound_position": position, "bound_silent": silent, "bound_adjacent": adjacent.value}
    row["failure_adjacent"] = adjacent.failure_probability
    best = found.num_parameters
    for name, value in steps.items():
        best = min(best, value)
        row[name] = best
    return row
