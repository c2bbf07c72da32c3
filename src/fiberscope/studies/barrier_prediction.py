"""Is the barrier between two trainings known early? From gaps, coherence and swap costs after few epochs.

The outlook of the paper on neuron identifiability (section 6) asks whether its quantities could be used during
training. Here the grid of Q1 is trained: standard networks, W-asymmetric ones over the authors' scales ``sigma_F``, and
static noise (``syre``) with ``D = 1`` as in their code. At a few early epochs three numbers are taken from every
hidden layer, and their means over layers and both runs predict the barrier of the *finished* pair, as trained:

- the gap ``gamma_out``, relative to the size of the functions that the neurons compute;
- the coherence of the layer's inputs;
- the median swap cost, relative to the squared size of the functions.

The first and the last have no upper end and are written as ``x / (1 + x)``. Prediction is least squares on all pairs of
the other settings (architecture and scale), so no setting is predicted from itself; the error of ``R^2`` is its
deviation over random choices of the settings, with replacement. A harder question is *transfer*: from W-asymmetric
networks to static noise and back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from torch import nn

from fiberscope.connectivity.barrier import barrier
from fiberscope.errors import InputError
from fiberscope.modules.recording import record_inputs
from fiberscope.neurons.classes import NeuronClasses, neuron_classes
from fiberscope.numerics.floats import FloatArray
from fiberscope.studies._asymmetric_runs import PAPER, Recipe, model, task_data, train_modules
from fiberscope.studies.lab.study import Claim, Finding, Picture, Study, Task
from fiberscope.studies.lab.table import Table

SIGMAS = (0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
"""The authors' grid of ``sigma_F``."""

SIZES: dict[str, dict[str, Any]] = {
    "quick": {"data": "digits", "pairs": 3, "epochs": 10, "width": 64, "sigmas": list(SIGMAS), "moments": [0, 1, 3]},
    "paper": {"data": "mnist", "pairs": 5, "epochs": 25, "width": 512, "sigmas": list(SIGMAS), "moments": [0, 1, 5]},
}
HIDDEN = 3
QUANTITIES = ("gap", "coherence", "swap")
SETS: dict[str, tuple[str, ...]] = {name: (name,) for name in (*QUANTITIES, "scale")} | {"all three": QUANTITIES}
"""What predicts; the scale ``sigma_F`` alone, as ``x / (1 + x)``, is what the others are compared with."""

DRAWS = 1000
"""Random choices of the settings, for the error of ``R^2``."""


def plan(scale: str, options: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One task for every architecture and scale."""
    sizes = SIZES[scale] | {name: value for name, value in options.items() if value is not None}
    for name in ("pairs", "epochs", "width"):
        if not isinstance(sizes[name], int) or sizes[name] < 1:
            raise InputError(f"option {name}: expected a positive integer, got {sizes[name]!r}")
    sigmas, moments = sizes["sigmas"], sizes["moments"]
    if not isinstance(sigmas, list | tuple) or any(not isinstance(s, int | float) or s < 0 for s in sigmas):
        raise InputError(f"option sigmas: expected numbers from 0, got {sigmas!r}")
    if not isinstance(moments, list | tuple) or any(not isinstance(e, int) or e < 0 for e in moments):
        raise InputError(f"option moments: expected epochs from 0, got {moments!r}")
    common = {name: sizes[name] for name in ("data", "pairs", "epochs", "width")}
    common["moments"] = [epoch for epoch in moments if epoch < sizes["epochs"]]
    kinds = [("standard", 0.0), *(("w", float(s)) for s in sigmas), *(("syre", float(s)) for s in sigmas if s > 0)]
    return [{"architecture": kind, "sigma": sigma, **common} for kind, sigma in kinds]


def run_task(task: Task) -> list[dict[str, Any]]:
    """Rows of every pair at every early epoch, with the barrier at the end."""
    settings = task.settings
    data = task_data(settings["data"])
    X, y = np.array(data.flat_inputs, dtype=np.float32), np.array(data.targets)
    widths = (X.shape[1], *[settings["width"]] * HIDDEN, data.num_outputs)
    seeds = range(2 * settings["pairs"])
    about = {"architecture": settings["architecture"], "sigma": settings["sigma"]}
    # with D = 1, and not drawn around it, as in the authors' code
    noise: dict[str, Any] = {"epsilon": 0.0} if settings["architecture"] == "syre" else {}
    starts = [model(widths=widths, seed=seed, **about, **noise) for seed in seeds]
    kept = train_modules(starts, data, seeds, Recipe(settings["epochs"]), settings["moments"])
    last = kept[settings["epochs"]]
    rows = []
    for pair in range(settings["pairs"]):
        ends = last[2 * pair], last[2 * pair + 1]
        found = barrier(*ends, "cross_entropy", (X, y), 9)
        for epoch in settings["moments"]:
            seen = [early(net, X) for net in kept[epoch][2 * pair : 2 * pair + 2]]
            means = {name: float(np.mean([one[name] for one in seen])) for name in QUANTITIES}
            rows.append({**about, "pair": pair, "epoch": epoch, "barrier": found.barrier, **means})
    return rows


def early(net: nn.Module, X: Any) -> dict[str, float]:
    """Means over the hidden layers."""
    names = [f"linear{i}" for i in range(HIDDEN)]
    inputs = record_inputs(net, names, X)
    layers = [quantities(neuron_classes(net.get_submodule(name), inputs[name], name=name)) for name in names]
    return {key: float(np.mean([layer[key] for layer in layers])) for key in QUANTITIES}


def quantities(classes: NeuronClasses) -> dict[str, float]:
    """Gap and median swap cost, relative to the functions' sizes and brought between 0 and 1; coherence."""
    sizes = np.linalg.norm(classes.coefficients, axis=1)
    size = float(np.sqrt(np.mean(sizes**2)))
    swaps = classes.swap_costs()
    median = float(np.median(swaps[np.triu_indices(len(swaps), 1)]))
    return {
        "gap": bounded(classes.gap_out / size),
        "coherence": classes.coherence,
        "swap": bounded(max(median, 0.0) / size**2),
    }


def bounded(x: float) -> float:
    """``x / (1 + x)``.

    >>> bounded(1.0), bounded(float("inf"))
    (0.5, 1.0)
    """
    return 1.0 if np.isinf(x) else x / (1.0 + x)


def predicted(table: Table, names: Sequence[str]) -> tuple[FloatArray, FloatArray, list[tuple[Any, ...]]]:
    """Barriers, what least squares on the other settings predict of them, and the setting of each."""
    rows = table.dicts()
    settings = [(row["architecture"], row["sigma"]) for row in rows]
    design, truth = _design(rows, names)
    guess = np.empty_like(truth)
    for one in dict.fromkeys(settings):
        mine = np.array([setting == one for setting in settings])
        guess[mine] = design[mine] @ np.linalg.lstsq(design[~mine], truth[~mine], rcond=None)[0]
    return truth, guess, settings


def _design(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> tuple[FloatArray, FloatArray]:
    known = [{**row, "scale": bounded(row["sigma"])} for row in rows]
    return np.array([[1.0, *(row[name] for name in names)] for row in known]), np.array([r["barrier"] for r in rows])


def transferred(table: Table, names: Sequence[str]) -> float:
    """``R^2`` where one of the two architectures predicts the other, the worse way; NaN if one is not there."""
    sides = [table.where(architecture=name).dicts() for name in ("w", "syre")]
    if not all(sides):
        return float("nan")
    values = []
    for known, asked in (sides, sides[::-1]):
        (design, truth), (other, wanted) = (_design(rows, names) for rows in (known, asked))
        values.append(_share(wanted, other @ np.linalg.lstsq(design, truth, rcond=None)[0]))
    return float(min(values))


def explained(table: Table, names: Sequence[str]) -> tuple[float, float]:
    """``R^2`` of the prediction, and its deviation over random choices of the settings."""
    truth, guess, settings = predicted(table, names)
    parts = [np.flatnonzero([s == one for s in settings]) for one in dict.fromkeys(settings)]
    rng = np.random.default_rng(0)
    draws = [np.concatenate([parts[k] for k in rng.integers(0, len(parts), len(parts))]) for _ in range(DRAWS)]
    spread = [value for rows in draws if np.isfinite(value := _share(truth[rows], guess[rows]))]
    return _share(truth, guess), float(np.std(spread)) if spread else float("nan")


def _share(truth: FloatArray, guess: FloatArray) -> float:
    whole = float(np.square(truth - truth.mean()).sum())
    return 1.0 - float(np.square(truth - guess).sum()) / whole if whole > 0 else float("nan")


def summarise(table: Table) -> Table:
    """``R^2`` with its error, by epoch and quantity."""
    rows = []
    for (epoch,), part in table.groups("epoch").items():
        for name, names in SETS.items():
            value, error = explained(part, names)
            row = {"epoch": epoch, "from": name, "R2": value, "error": error}
            rows.append(row | {"transfer": transferred(part, names)})
    return Table.of(rows)


def _at_last(table: Table, name: str) -> tuple[int, float, float]:
    epoch = max(table.column("epoch"))
    return epoch, *explained(table.where(epoch=epoch), SETS[name])


def together(table: Table) -> Finding:
    """All three, at the last of the early epochs: more than half of the variance, by more than two errors."""
    epoch, value, error = _at_last(table, "all three")
    return Finding(value - 2 * error > 0.5, f"epoch {epoch}: R^2 {value:.2f} with error {error:.2f}")


def swaps(table: Table) -> Finding:
    """Swap costs alone, by more than two errors better than nothing."""
    epoch, value, error = _at_last(table, "swap")
    return Finding(value - 2 * error > 0, f"epoch {epoch}: R^2 {value:.2f} with error {error:.2f}")


def transfers(table: Table) -> Finding:
    """Swap costs alone, from W-asymmetric networks to static noise and back: more than half of the variance."""
    part = table.where(epoch=max(table.column("epoch")))
    value, scale = transferred(part, SETS["swap"]), transferred(part, SETS["scale"])
    return Finding(value > 0.5, f"the worse way R^2 {value:.2f}; of the scale alone {scale:.2f}")


def before_training(table: Table) -> Finding:
    """All three at the initialisation: they explain within two errors as much as later."""
    epoch, late, error = _at_last(table, "all three")
    first = min(table.column("epoch"))
    value, other = explained(table.where(epoch=first), QUANTITIES)
    text = f"epoch {first}: R^2 {value:.2f} with error {other:.2f}; epoch {epoch}: {late:.2f} with error {error:.2f}"
    return Finding(value >= late - 2 * max(error, other), text)


STUDY = Study(
    name="barrier-prediction",
    title="The barrier between two trainings, predicted early from gaps, coherence and swap costs",
    paper=PAPER,
    figure="section 6, outlook",
    plan=plan,
    run_task=run_task,
    claims=(
        Claim("together", "The three quantities predict the barrier (ours).", "an open question there", together),
        Claim("swap", "Swap costs alone predict it (ours).", "an open question there", swaps),
        Claim("transfer", "They do so across architectures (ours).", "an open question there", transfers),
        Claim("start", "They do so before training has begun (ours).", "an open question there", before_training),
    ),
    cost={"quick": 60.0, "paper": 100_000.0},
    options={"data": None, "pairs": None, "epochs": None, "width": None, "sigmas": None, "moments": None},
    pictures=(
        Picture(
            "barriers",
            "Barrier of the training loss at the end, and swap costs early",
            x="swap",
            y=("barrier",),
            lines="architecture",
            y_label="barrier",
            style="points",
            words={"architecture": ""},
            caption="One point per pair of runs and early epoch; swap costs relative to the functions, as x / (1 + x).",
        ),
    ),
    summarise=summarise,
)
