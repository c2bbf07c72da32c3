"""What the studies of regions on curves have in common: networks that learn ``a sin(nu t)``, counted every epoch.

One task trains a block of runs together; run ``i`` has its own data, its own plane and its own initialisation. After
every recorded epoch the regions along the curve are counted with certificates, and the distance along the curve to
the nearest breakpoint is averaged over equally spaced parameters, as the paper samples them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from fiberscope.errors import InputError
from fiberscope.geometry.curves.curve import Circle, Planar, Tractrix
from fiberscope.geometry.curves.curve_regions import distance_to
from fiberscope.geometry.curves.ensembles import count_along
from fiberscope.network.network import Network
from fiberscope.numerics.floats import FloatArray
from fiberscope.studies._verdicts import mean_and_error
from fiberscope.studies.lab.study import Finding, Task
from fiberscope.studies.lab.table import Table
from fiberscope.training.datasets.dataset import Dataset
from fiberscope.training.datasets.loading import load_dataset
from fiberscope.training.datasets.synthetic import ARCS, random_plane
from fiberscope.training.seeds import train_many

CURVES: dict[str, tuple[str, dict[str, str]]] = {
    "circle": ("circle", {"arc": "whole"}),
    "upper half": ("circle", {"arc": "upper"}),
    "tractrix": ("tractrix", {}),
}
"""Data set and its options. The paper gives the parameters of the whole circle, and speaks of its upper half too."""

READINGS = {"whole": "circle", "upper": "upper half"}
"""What is compared with the tractrix, by the option ``arc``."""

BLOCK = 10
"""Runs per task; they are trained together."""

SETTINGS: dict[str, Any] = {"frequency": 4.0, "amplitude": 1.0, "noise": 0.1, "batch": 32, "rate": 0.01}
"""Ours but for the rate: the paper names no other. In its experiment with images batches have 32."""

OPTIONS: dict[str, Any] = {"runs": None, "epochs": None, "every": None, "init": None, "arc": None, **SETTINGS}
"""What the studies on curves let a user change."""

SAMPLES = 1000
"""Parameters at which the distance is averaged."""


INITS = ("torch", "he")
"""The default of the library that the paper used, and He-normal weights and biases, as in our other studies."""


def curve_of(name: str, plane: FloatArray) -> Planar:
    """The curve in a plane, two rows."""
    return Tractrix(plane=plane) if name == "tractrix" else Circle(plane=plane, interval=ARCS[CURVES[name][1]["arc"]])


def blocks(runs: int) -> list[dict[str, int]]:
    """The runs in blocks of equal size."""
    return [{"first": first, "count": min(BLOCK, runs - first)} for first in range(0, runs, BLOCK)]


def checked(sizes: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Sizes and settings of a plan with a user's options, all of them checked."""
    found = {"arc": list(READINGS), **SETTINGS, **sizes, **{k: v for k, v in options.items() if v is not None}}
    for name in ("runs", "epochs", "every", "batch"):
        if not isinstance(found[name], int) or isinstance(found[name], bool) or found[name] < 1:
            raise InputError(f"option {name}: expected a positive integer, got {found[name]!r}")
    for name, least in (("frequency", ">"), ("amplitude", ">"), ("noise", ">="), ("rate", ">")):
        value = found[name]
        number = isinstance(value, int | float) and not isinstance(value, bool) and np.isfinite(value)
        if not number or not (value > 0 or (value == 0 and least == ">=")):
            raise InputError(f"option {name}: expected a number {least} 0, got {value!r}")
        found[name] = float(value)
    for name, known in (("init", INITS), ("arc", tuple(READINGS))):
        chosen = [found[name]] if isinstance(found[name], str) else found[name]
        if not isinstance(chosen, list | tuple) or not chosen or not set(chosen) <= set(known):
            raise InputError(f"option {name}: expected some of {', '.join(known)}, got {found[name]!r}")
        found[name] = list(chosen)
    return found


def task_settings(sizes: Mapping[str, Any]) -> dict[str, Any]:
    """The part of the sizes that every task needs."""
    return {name: sizes[name] for name in ("epochs", "every", *SETTINGS)}


def curves_of(sizes: Mapping[str, Any]) -> list[str]:
    """The arcs of the circle that were asked for, and the tractrix."""
    return [*(READINGS[arc] for arc in sizes["arc"]), "tractrix"]


def follow(task: Task) -> list[dict[str, Any]]:
    """One row per run and recorded epoch: regions, distances, gradients and the test error."""
    name, hidden, count, epochs = (task.settings[key] for key in ("curve", "hidden", "count", "epochs"))
    dimension = task.settings.get("dimension", 2)
    seeds = [task.seed + index for index in range(count)]
    source, options = CURVES[name]
    options = options | {key: task.settings[key] for key in ("frequency", "amplitude", "noise")}
    data = [load_dataset(source, seed=seed, plane_seed=seed, dimension=dimension, **options) for seed in seeds]
    moments = sorted({0, epochs, *range(0, epochs + 1, task.settings["every"])})
    runs = train_many(
        (dimension, *hidden, 1),
        [(one.inputs, one.targets) for one in data],
        seeds=seeds,
        epochs=epochs,
        lr=task.settings["rate"],
        batch_size=task.settings["batch"],
        init=task.settings["init"],
        checkpoints=moments,
    )
    rows = []
    for index in runs.finished:
        curve = curve_of(name, random_plane(dimension, seeds[index]).T)
        nets = {epoch: net for epoch in moments if (net := runs.checkpoints[epoch][index]) is not None}
        found = count_along(list(nets.values()), curve)
        for (epoch, net), regions, breakpoints in zip(nets.items(), found.counts, found.breakpoints, strict=True):
            rows.append(
                {
                    "curve": name,
                    "hidden": "-".join(map(str, hidden)),
                    "inputs": dimension,
                    "neurons": sum(hidden),
                    "init": task.settings["init"],
                    "run": task.settings["first"] + index,
                    "epoch": epoch,
                    **measure(net, curve, int(regions), breakpoints, data[index]),
                    "certified": found.certified,
                }
            )
    return rows


def measure(net: Network, curve: Planar, regions: int, breakpoints: FloatArray, data: Dataset) -> dict[str, Any]:
    """What is asked of a network at one moment, given its regions (of the parameter) and breakpoints."""
    low, high = curve.interval
    at = distance_to(curve, breakpoints, low + (np.arange(SAMPLES) + 0.5) * (high - low) / SAMPLES)
    distance = float(at.mean()) if len(breakpoints) else None
    gradients = np.abs(tangent_gradients(net, curve))
    return {
        "regions": regions,
        "per_neuron": regions / net.num_hidden,
        "distance": distance,
        "share": None if distance is None else distance / curve.length,
        "projected": float(gradients[:, 0].mean()),
        "gradient": float(gradients[:, 1].mean()),
        "test_error": None if data.test_inputs is None else _error(net, data.test_inputs, data.test_targets),
    }


def tangent_gradients(net: Network, curve: Planar, samples: int = 200) -> FloatArray:
    """Over points of the curve and neurons: the derivative along the unit tangent, and the norm of the gradient.

    The points are equally spaced in the parameter. Neurons with no gradient at a point count as zero.
    """
    low, high = curve.interval
    t = low + (np.arange(samples) + 0.5) * (high - low) / samples
    X, velocity = curve(t), curve.derivative(t)
    tangent = velocity / np.linalg.norm(velocity, axis=1, keepdims=True)
    rows: list[FloatArray] = []
    values = X
    slopes = np.broadcast_to(np.eye(net.in_size), (samples, net.in_size, net.in_size))
    for weight, bias in zip(net.weights[:-1], net.biases[:-1], strict=True):
        z, slopes = values @ weight.T + bias, np.matmul(weight, slopes)
        rows.append(np.stack([np.einsum("snd,sd->sn", slopes, tangent), np.linalg.norm(slopes, axis=2)], axis=-1))
        values = np.maximum(z, 0.0)
        slopes = slopes * (z > 0)[:, :, None]
    return np.concatenate(rows, axis=1).reshape(-1, 2)


def _error(net: Network, inputs: FloatArray, targets: Any) -> float:
    return float(np.mean((net(inputs) - targets) ** 2))


def summarise(*keys: str) -> Any:
    """A function from the table of all rows to means and deviations over runs, by some columns."""

    def means(table: Table) -> Table:
        rows = []
        for key, part in table.groups(*keys).items():
            row: dict[str, Any] = {**dict(zip(keys, key, strict=True)), "runs": len(part)}
            for name in ("regions", "per_neuron", "distance", "share", "projected", "gradient", "test_error"):
                values = [value for value in part.column(name) if value is not None]
                row[name] = float(np.mean(values)) if values else None
                if name in ("regions", "distance"):
                    row[f"{name}_deviation"] = float(np.std(values, ddof=1)) if len(values) > 1 else None
            rows.append({**row, "certified": all(part.column("certified"))})
        return Table.of(rows)

    return means


# -- numbers for claims --------------------------------------------------------------------------------------------


def by_init(check: Callable[[Table], Finding]) -> Callable[[Table], Finding]:
    """A test for each initialisation on its own; where they do not agree the table does not decide."""

    def both(table: Table) -> Finding:
        found = {name: check(part) for (name,), part in table.groups("init").items()}
        answers = {finding.holds for finding in found.values()}
        text = ". ".join(f"Initialised by {name}: {finding.ours}" for name, finding in found.items())
        return Finding(answers.pop() if len(answers) == 1 else None, text)

    return both


def late(table: Table) -> Table:
    """The second half of the training."""
    half = max(table.column("epoch")) / 2
    index = table.columns.index("epoch")
    return Table(table.columns, tuple(row for row in table.rows if row[index] >= half))


def per_run(table: Table, column: str) -> list[float]:
    """The mean of a column in every run."""
    return [part.mean(column) for part in table.groups("run").values()]


def compared(one: Sequence[float], two: Sequence[float]) -> tuple[bool | None, str]:
    """Whether the first mean is larger, by more than two standard errors of the difference; and both in words."""
    (a, da), (b, db) = mean_and_error(one), mean_and_error(two)
    gap, error = a - b, float(np.hypot(da, db))
    answer = None if abs(gap) <= 2 * error else gap > 0
    return answer, f"{a:.3g} +- {da:.2g} against {b:.3g} +- {db:.2g}"


def close_to_neurons(table: Table) -> Finding:
    """Told and not judged: the paper does not say how far from the number of neurons is still close."""
    texts = []
    for (curve,), part in table.groups("curve").items():
        ratios = [rows.mean("per_neuron") for rows in part.groups("hidden", "inputs", "epoch").values()]
        texts.append(f"{curve} {min(ratios):.2f} to {max(ratios):.2f}")
    told = f"mean regions per neuron over all epochs: {', '.join(texts)}"
    return Finding(None, f"not judged, as close has no measure; {told}")


def readings(table: Table) -> list[str]:
    """What the tractrix is compared with in a table."""
    return [name for name in READINGS.values() if name in table.column("curve")]


def against(table: Table, column: str, name: str) -> tuple[bool | None, str]:
    """Whether the tractrix has the larger mean over runs than an arc of the circle, and both in words."""
    answer, text = compared(*(per_run(table.where(curve=one), column) for one in ("tractrix", name)))
    return answer, f"tractrix {text} on the {name if name != 'circle' else 'whole circle'}"
