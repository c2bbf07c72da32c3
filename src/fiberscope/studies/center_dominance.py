"""Chord deviations and barriers against ``q``, the largest ratio of a neuron's trained part to its fixed part.

First single layers with given ``q``: Gaussian inputs, for which Theorems D.1 and D.2 bound the deviation, and inputs
that show one half of the coordinates at a time, for which they do not. Then pairs of trained networks: the larger the
fixed weights, the smaller ``q``, and the nearer the layers, the outputs and the loss to their chords.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from scipy.stats import spearmanr
from torch import nn

from fiberscope.connectivity.barrier import barrier
from fiberscope.connectivity.chords import chord_deviation
from fiberscope.errors import InputError
from fiberscope.modules.models import mlp
from fiberscope.modules.recording import record_activations
from fiberscope.neurons.asymmetric_models import w_mlp
from fiberscope.neurons.chord import ChordSums, LayerChord, path_points
from fiberscope.neurons.layers import from_arrays
from fiberscope.numerics.cutoffs import ATTAINED
from fiberscope.numerics.floats import FloatArray
from fiberscope.studies._asymmetric_runs import PAPER, Recipe, standardised, train_modules
from fiberscope.studies.lab.study import Claim, Finding, Picture, Study, Task
from fiberscope.studies.lab.table import Table
from fiberscope.training.datasets.dataset import Dataset
from fiberscope.training.datasets.loading import load_dataset

SIZES: dict[str, dict[str, Any]] = {
    "quick": {"pairs": 2, "epochs": 10, "scales": [0.25, 0.5, 1.0, 2.0, 4.0, 8.0]},
    "paper": {"pairs": 5, "epochs": 20, "scales": [0.25, 0.5, 1.0, 2.0, 4.0, 8.0]},
}
RATIOS = (0.01, 0.03, 0.1, 0.3, 0.9)
"""The ``q`` of single layers."""

ACTIVATIONS: dict[str, type[nn.Module]] = {"relu": nn.ReLU, "gelu": nn.GELU}
EXPONENTS = {"relu": 1.5, "gelu": 2.0}
"""Of ``q`` in Theorems D.1 and D.2."""

GROUPS = (
    ("gaussian", "relu", "none"),
    ("gaussian", "gelu", "none"),
    ("gaussian", "relu", "layer"),
    ("digits", "relu", "layer"),
    ("digits", "gelu", "layer"),
)
"""Data, activation and norm of the trained networks."""

NORMS = {"none": "no norm", "layer": "layer norm"}
HIDDEN, INPUTS, CLASSES, POINTS = 128, 32, 5, 3000
CLOSE, SMALL = 0.15, 0.3
"""Difference of exponents that is called close, and the ``q`` up to which they are fitted."""


def plan(scale: str, options: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One task for the layers of each activation, and one per kind of trained network and scale of its fixed part."""
    sizes = SIZES[scale] | {name: value for name, value in options.items() if value is not None}
    for name in ("pairs", "epochs"):
        if not isinstance(sizes[name], int) or sizes[name] < 1:
            raise InputError(f"option {name}: expected a positive integer, got {sizes[name]!r}")
    scales = sizes["scales"]
    if not isinstance(scales, list | tuple) or any(not isinstance(s, int | float) or s <= 0 for s in scales):
        raise InputError(f"option scales: expected a list of positive numbers, got {scales!r}")
    layers = [{"part": "layer", "activation": activation} for activation in ACTIVATIONS]
    common = {"part": "network", "pairs": sizes["pairs"], "epochs": sizes["epochs"]}
    keys = ("data", "activation", "norm")
    return layers + [
        {**common, **dict(zip(keys, group, strict=True)), "scale": float(s)} for group in GROUPS for s in scales
    ]


def run_task(task: Task) -> list[dict[str, Any]]:
    """Rows of single layers, or of pairs of networks and their layers."""
    if task.settings["part"] == "layer":
        activation = task.settings["activation"]
        return [
            {"record": "layer", "case": f"{inputs}, {activation}", "activation": activation, **_shares(found)}
            for inputs in ("gaussian", "halves")
            for q in RATIOS
            for found in [one_layer(inputs, q, activation, np.random.default_rng([task.seed, RATIOS.index(q)]))]
        ]
    return _trained(task.settings)


def one_layer(inputs: str, q: float, activation: str, rng: np.random.Generator, points: int = 20_000) -> LayerChord:
    """64 neurons with ``|f_i| = 1`` and trained parts ``+r_i`` and ``-r_i`` with ``|r_i| = q``, both in the norm of the
    inputs.

    Opposite trained parts are the worst case in the proof of Theorem D.1. ``halves`` shows half of the coordinates at a
    time; ``f`` lives in the first half and ``r`` in the second, so where a neuron moves its fixed part is silent.
    """
    X = rng.standard_normal((points, INPUTS)) * np.geomspace(1.0, 0.3, INPUTS)
    F, R = rng.standard_normal((2, 64, INPUTS))
    if inputs == "halves":
        first = np.arange(INPUTS) < INPUTS // 2
        X = X * np.where(rng.random((points, 1)) < 0.5, first, ~first)
        F, R = F * first, R * ~first
    F = F / _size(F, X)
    R = R - np.mean((X @ F.T) * (X @ R.T), axis=0)[:, None] * F  # moves along f change no sign
    R = q * R / _size(R, X)
    left, right = (from_arrays(F, np.ones_like(F), sign * R, f"q = {q}") for sign in (1.0, -1.0))
    sums = ChordSums(left, right, activation, path_points(11))
    sums.add(X)
    return sums.result()


def _size(W: FloatArray, X: FloatArray) -> FloatArray:
    return np.asarray(np.sqrt(np.mean((X @ W.T) ** 2, axis=0)))[:, None]


def _shares(found: LayerChord) -> dict[str, float]:
    """Deviation and bounds, all over ``|F Sigma^(1/2)|_F``."""
    size = found.fixed
    return {
        "q": found.q,
        "deviation": found.worst / size,
        "bound": found.bound / size,
        "free": found.any_inputs / size,
    }


def task_data(name: str) -> Dataset:
    """Gaussian inputs with labels of a random network, or digits."""
    if name == "digits":
        return standardised(load_dataset(name))
    X = np.random.default_rng(8).standard_normal((POINTS, INPUTS)) * np.geomspace(1.0, 0.3, INPUTS)
    X = (X / np.sqrt(np.mean(X**2))).astype(np.float32)
    teacher = mlp((INPUTS, HIDDEN, CLASSES), 8, norm="none", bias=False, activation=nn.ReLU)
    with torch.no_grad():
        return Dataset(name, X, teacher(torch.from_numpy(X)).argmax(dim=1).numpy())


def anchored(activation: str, norm: str, widths: tuple[int, ...], scale: float, seed: int) -> nn.Module:
    """Half of each row is fixed; at scale 1 the fixed part alone has the size of a He initialisation. No biases."""
    return w_mlp(
        widths,
        seed,
        sigma=[scale * float(np.sqrt(4 / n)) for n in widths[:-1]],
        fixed=[n // 2 for n in widths[:-1]],
        norm=norm,
        bias=False,
        activation=ACTIVATIONS[activation],
    )


def _trained(settings: Mapping[str, Any]) -> list[dict[str, Any]]:
    keys = ("data", "activation", "norm")
    name, activation, norm = (settings[key] for key in keys)
    data = task_data(name)
    widths = (data.flat_inputs.shape[1], HIDDEN, HIDDEN, data.num_outputs)
    seeds = range(2 * settings["pairs"])
    starts = [anchored(activation, norm, widths, settings["scale"], seed) for seed in seeds]
    nets = train_modules(starts, data, seeds, Recipe(settings["epochs"]))[settings["epochs"]]
    pairs = (np.array(data.flat_inputs, dtype=np.float32), np.array(data.targets))
    rows = []
    for pair in range(settings["pairs"]):
        common = {key: settings[key] for key in (*keys, "scale")} | {"pair": pair}
        common["case"] = f"{name}, {activation}, {NORMS[norm]}"
        rows += [common | row for row in along(nets[2 * pair], nets[2 * pair + 1], pairs, activation)]
    return rows


def along(a: nn.Module, b: nn.Module, data: tuple[Any, Any], activation: str) -> list[dict[str, Any]]:
    """One row for each hidden layer and one for the network: its ``q`` is the largest of the hidden layers'."""
    found = chord_deviation(a, b, data, activation=activation, loss="cross_entropy")
    path = barrier(a, b, "cross_entropy", data, points=3)
    last = found.layers[-1].name.removeprefix("layer ")
    outputs = float(np.sqrt(np.trace(record_activations(a, [last], data[0])[last].second_moment)))
    hidden = found.layers[:-1]
    rows: list[dict[str, Any]] = [
        {"record": "inner", "layer": index, **_shares(layer)} for index, layer in enumerate(hidden)
    ]
    assert found.excess is not None and found.loss_bounds is not None and path.accuracy is not None
    return [
        *rows,
        {
            "record": "network",
            "q": max(layer.q for layer in hidden),
            "deviation": found.worst / outputs,
            "barrier": float(found.excess.max()),
            "loss_bound": float(found.loss_bounds.max()),
            "loss": float(path.loss.values[0, [0, -1]].mean()),
            "accuracy": float(path.accuracy.values[0, [0, -1]].mean()),
            "middle": float(path.accuracy.values[0, 1]),
        },
    ]


def summarise(table: Table) -> Table:
    """Trained networks: means over pairs."""
    rows = []
    for (case, scale), part in table.where(record="network").groups("case", "scale").items():
        row = {"case": case, "scale": scale}
        names = ("q", "deviation", "barrier", "loss_bound", "loss", "accuracy", "middle")
        rows.append(row | {name: part.mean(name) for name in names})
    return Table.of(rows)


def _ratios(rows: list[dict[str, Any]], bound: str) -> list[float]:
    """Deviations over bounds, where there is a bound."""
    found = [row["deviation"] / row[bound] for row in rows if np.isfinite(row[bound]) and row[bound] > 0]
    if not found:
        raise InputError("expected layers with q below 1, got none")
    return found


def gaussian_bound(table: Table) -> Finding:
    """Single layers and first layers of networks trained on Gaussian inputs: no deviation above its bound."""
    texts, worst = [], 0.0
    for activation, theorem in (("relu", "D.1"), ("gelu", "D.2")):
        rows = table.where(record="layer", case=f"gaussian, {activation}").dicts()
        rows += table.where(record="inner", data="gaussian", activation=activation, layer=0).dicts()
        ratios = _ratios(rows, "bound")
        worst = max(worst, *ratios)
        texts.append(f"{theorem}: at most {max(ratios):.3f} of the bound in {len(ratios)} layers")
    return Finding(worst <= 1, "; ".join(texts))


def exponent(table: Table) -> Finding:
    """Least squares on logarithms for single layers with ``q`` up to 0.3: within 0.15 of the theorems' exponents."""
    texts, fits = [], True
    for activation, predicted in EXPONENTS.items():
        rows = table.where(record="layer", case=f"gaussian, {activation}").dicts()
        used = [row for row in rows if row["q"] <= SMALL * 1.01]
        if len(used) < 2:
            raise InputError("expected at least two layers with small q, got fewer")
        x, y = (np.log([row[name] for row in used]) for name in ("q", "deviation"))
        slope = float(np.polyfit(x, y, 1)[0])
        fits = fits and abs(slope - predicted) <= CLOSE
        texts.append(f"{activation}: exponent {slope:.3f}, predicted {predicted:g}")
    return Finding(fits, "; ".join(texts))


def free_bound(table: Table) -> Finding:
    """All layers, whatever their inputs. Equality can be attained, so rounding gets its due."""
    rows = table.where(record="layer").dicts() + table.where(record="inner").dicts()
    ratios = _ratios(rows, "free")
    return Finding(max(ratios) <= 1 + ATTAINED, f"at most {max(ratios):.3f} of the bound in {len(ratios)} layers")


def only_gaussian(table: Table) -> Finding:
    """Some layer with inputs that are not Gaussian must exceed the bound of Theorem D.1."""
    rows = table.where(record="layer", case="halves, relu").dicts()
    worst = max(rows, key=lambda row: row["deviation"] / row["bound"])
    text = f"{worst['deviation'] / worst['bound']:.2f} times the bound at q = {worst['q']:.2g}"
    return Finding(worst["deviation"] > worst["bound"], text)


def loss_bound(table: Table) -> Finding:
    """Every pair's largest loss above the chord against the Lipschitz constant times its largest deviation."""
    part = table.where(record="network")
    ratios = [x / y for x, y in zip(part.column("barrier"), part.column("loss_bound"), strict=True)]
    return Finding(max(ratios) <= 1, f"at most {max(ratios):.3f} of the bound in {len(ratios)} pairs")


def _falls(table: Table, column: str) -> Finding:
    """In every group: rank correlation with ``q`` of means over pairs above 0.8, less than half from end to end."""
    texts, fits = [], True
    for (case,), part in table.groups("case").items():
        cells = [(rows.mean("q"), rows.mean(column)) for rows in part.groups("scale").values()]
        if len(cells) < 3:
            raise InputError(f"expected at least three scales, got {len(cells)}")
        q, values = zip(*sorted(cells), strict=True)
        correlation = float(spearmanr(q, values).statistic)
        fits = fits and correlation > 0.8 and values[0] < values[-1] / 2
        texts.append(f"{case}: {values[-1]:.3g} at q = {q[-1]:.2g}, {values[0]:.2g} at {q[0]:.2g} ({correlation:.2f})")
    return Finding(fits, "; ".join(texts))


def deviation_falls(table: Table) -> Finding:
    """Deviation of the outputs over their size."""
    return _falls(table.where(record="network"), "deviation")


def barrier_falls(table: Table) -> Finding:
    """Largest training loss above the chord; with layer norms, as in the paper."""
    return _falls(table.where(record="network", norm="layer"), "barrier")


def barrier_without_norms(table: Table) -> Finding:
    """Without norms the outputs grow with the fixed parts, and the loss with them."""
    return _falls(table.where(record="network", norm="none"), "barrier")


def harder(table: Table) -> Finding:
    """In every group the training loss at the ends is larger for the largest than for the smallest fixed weights."""
    texts, fits = [], True
    for (case,), part in table.where(record="network").groups("case").items():
        ends = [part.where(scale=pick(part.column("scale"))) for pick in (min, max)]
        low, high = (rows.mean("loss") for rows in ends)
        fits = fits and high > low
        accuracies = " to ".join(f"{rows.mean('accuracy'):.3f}" for rows in ends)
        texts.append(f"{case}: {low:.3g} to {high:.3g}, accuracy {accuracies}")
    return Finding(fits, "; ".join(texts))


STUDY = Study(
    name="center-dominance",
    title="Chord deviation, loss barrier and difficulty of training against the ratio of trained to fixed weights",
    paper=PAPER,
    figure="section 4, equation 16, theorems D.1 and D.2, proposition D.3",
    plan=plan,
    run_task=run_task,
    claims=(
        Claim(
            "bound",
            "For Gaussian inputs the chord deviation is within the bounds.",
            "theorems D.1, D.2",
            gaussian_bound,
        ),
        Claim("exponent", "It is of the order q^(3/2) for ReLU, q^2 for smooth ones.", "theorems D.1, D.2", exponent),
        Claim(
            "free", "Bounds by the change of preactivations hold for all inputs (ours).", "not in the paper", free_bound
        ),
        Claim(
            "assumption",
            "Other than Gaussian inputs exceed the bound of D.1 (ours).",
            "not in the paper",
            only_gaussian,
        ),
        Claim("loss", "The loss exceeds its chord by at most Lipschitz constant times deviation.", "D.3", loss_bound),
        Claim(
            "deviation",
            "The chord deviation goes to zero as the fixed parts dominate.",
            "equation 16",
            deviation_falls,
        ),
        Claim("barrier", "The loss barrier falls with it (layer norms, as in the paper).", "section 4", barrier_falls),
        Claim("barrier-no-norms", "Also without norms (ours).", "not in the paper", barrier_without_norms),
        Claim("harder", "Larger fixed weights make training more difficult.", "appendix H.4, for transformers", harder),
    ),
    cost={"quick": 100.0, "paper": 300.0},
    options={"pairs": None, "epochs": None, "scales": None},
    pictures=(
        Picture(
            "layers",
            "Single layers: deviation and bounds, over the size of the fixed part",
            x="q",
            y=("deviation", "bound", "free"),
            lines="quantity",
            panels="case",
            where={"record": "layer"},
            x_label="q",
            y_label="over |F Sigma^(1/2)|",
            log_x=True,
            log_y=True,
            style="curve",
            words={"bound": "Theorem D.1 or D.2", "free": "any inputs", "case": ""},
            caption="Halves: the inputs show half of the coordinates at a time.",
        ),
        Picture(
            "networks",
            "Trained networks",
            x="q",
            y=("deviation", "barrier", "loss"),
            lines="case",
            panels="quantity",
            where={"record": "network"},
            x_label="q",
            log_x=True,
            log_y=True,
            style="points",
            words={"deviation": "deviation over size of outputs", "loss": "training loss", "case": ""},
            caption="One point per pair of runs.",
        ),
    ),
    summarise=summarise,
)
