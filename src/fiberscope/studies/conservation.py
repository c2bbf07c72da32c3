"""What gradient descent conserves as its step goes to zero, and what it does not.

The paper on fibers proves that the gradient flow of a loss of the outputs conserves a number per neuron and, where
neurons are active on all training inputs, a whole matrix of them (Theorem 6); and that the translation symmetry of
hidden hyperplanes conserves nothing (Proposition 37). Here small networks are trained by full-batch gradient descent
over a fixed time with steps ``h, h/2, h/4, ...``; what the flow conserves drifts by an amount that halves with the
step. Entries of the same matrices outside of the active blocks, and weight decay, are the controls.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import exp
from typing import Any

import numpy as np

from fiberscope.errors import InputError
from fiberscope.fibers.conservation import conservation_drift, drift_order, translation_obstruction
from fiberscope.network.network import Network
from fiberscope.numerics.floats import FloatArray
from fiberscope.studies.lab.study import Claim, Finding, Picture, Study, Task
from fiberscope.studies.lab.table import Table
from fiberscope.training.seeds import train_many

SIZES: dict[str, dict[str, Any]] = {
    "quick": {"networks": 8, "halvings": 4, "widths": [[2, 5, 4, 1]]},
    "paper": {"networks": 40, "halvings": 6, "widths": [[2, 5, 4, 1], [3, 10, 1], [2, 6, 6, 6, 2]]},
}
BLOCK = 20
"""Networks per task; they are trained together."""

FIRST_STEP = 0.02
TIME = 1.0
POINTS = 40
MOMENTS = 20
"""The quantities are looked at so many times between the beginning and the end."""

WEIGHT_DECAY = 0.3


def plan(scale: str, options: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Per widths: blocks of networks without and with weight decay, and networks with a hidden hyperplane."""
    sizes = SIZES[scale] | {name: value for name, value in options.items() if value is not None}
    for name in ("networks", "halvings"):
        if not isinstance(sizes[name], int) or sizes[name] < 1:
            raise InputError(f"option {name}: expected a positive integer, got {sizes[name]!r}")
    widths = sizes["widths"]
    if not isinstance(widths, list | tuple) or not all(_chain(one) for one in widths):
        raise InputError(f"option widths: expected lists of at least three positive integers, got {widths!r}")
    blocks = [(first, min(BLOCK, sizes["networks"] - first)) for first in range(0, sizes["networks"], BLOCK)]
    common = {"halvings": sizes["halvings"]}
    found: list[dict[str, Any]] = [
        {"kind": "descent", "widths": list(one), "decay": decay, "first": first, "count": count, **common}
        for one in widths
        for decay in (0.0, WEIGHT_DECAY)
        for first, count in blocks
    ]
    return [*found, *({"kind": "translation", "first": first, "count": count} for first, count in blocks)]


def _chain(widths: Any) -> bool:
    return isinstance(widths, list | tuple) and len(widths) > 2 and all(isinstance(n, int) and n > 0 for n in widths)


def run_task(task: Task) -> list[dict[str, Any]]:
    """One row per network and step, or one per network with a hidden hyperplane."""
    return _translations(task) if task.settings["kind"] == "translation" else _descents(task)


def problem(widths: list[int], rng: np.random.Generator) -> tuple[Network, FloatArray, FloatArray]:
    """A network, inputs and targets; the biases of two neurons per hidden layer keep them active on the inputs."""
    drawn = Network.random(widths, rng)
    weights, biases = [0.5 * w for w in drawn.weights], [b.copy() for b in drawn.biases]
    for layer, bias in enumerate(biases[:-1], start=1):
        bias[:2] = 2.0 * layer
    X = rng.uniform(-1, 1, (POINTS, widths[0]))
    Y = np.sin(X @ rng.normal(0, 2, (widths[0], widths[-1])))
    biases[-1] = biases[-1] + (Y - Network(weights, biases)(X)).mean(axis=0)
    return Network(weights, biases), X, Y


def _descents(task: Task) -> list[dict[str, Any]]:
    widths, decay, count = (task.settings[name] for name in ("widths", "decay", "count"))
    problems = [problem(widths, np.random.default_rng([task.seed, index])) for index in range(count)]
    rows = []
    for halving in range(task.settings["halvings"] + 1):
        step = FIRST_STEP / 2**halving
        epochs = round(TIME / step)
        runs = train_many(
            widths,
            [(X, Y) for _, X, Y in problems],
            seeds=list(range(count)),
            epochs=epochs,
            optimizer="sgd",
            lr=step,
            weight_decay=decay,
            init=[net for net, _, _ in problems],
            checkpoints=sorted({round(epochs * k / MOMENTS) for k in range(MOMENTS + 1)}),
        )
        for index in runs.finished:
            rows.append({"kind": "descent", "widths": "-".join(map(str, widths)), "decay": decay, "step": step})
            nets = [kept[index] for kept in runs.checkpoints.values()]
            drift = conservation_drift([net for net in nets if net is not None], problems[index][1])
            rows[-1] |= {
                "network": task.settings["first"] + index,
                "drift_neurons": drift.neurons,
                "drift_blocks": drift.blocks,
                "drift_off_diagonal": drift.off_diagonal,
                "drift_others": drift.others,
                "moved": drift.moved,
                "final": drift.final,
                "active": sum(drift.active),
                "loss_start": float(runs.losses[index, 0]),
                "loss_end": float(runs.losses[index, -1]),
            }
    return rows


def _translations(task: Task) -> list[dict[str, Any]]:
    rows = []
    for index in range(task.settings["count"]):
        rng = np.random.default_rng([task.seed, index])
        second = -rng.uniform(0.2, 1.0, (2, 3))
        second[:, 0] *= -1.0
        biases = [rng.normal(size=3), -rng.uniform(0.1, 0.5, 2), rng.normal(size=1)]
        net = Network([rng.normal(size=(3, 3)), second, rng.normal(size=(1, 2))], biases)
        # Inputs by their first-layer values: the second layer is on only where the first of them outweighs the others.
        values = np.abs(rng.normal(0, 2, (POINTS, 3))) * [1, 1, -1]
        values[:, 1] = rng.normal(0, 0.2, POINTS)
        found = translation_obstruction(net, 0, np.linalg.solve(net.weights[0], (values - net.biases[0]).T).T)
        rows.append(
            {
                "kind": "translation",
                "widths": "3-3-2-1",
                "network": task.settings["first"] + index,
                "along": found.along,
                "curl": found.curl,
            }
        )
    return rows


def summarise(table: Table) -> Table:
    """Means over networks for every shape, decay and step."""
    names = ("drift_neurons", "drift_blocks", "drift_off_diagonal", "drift_others", "moved", "final", "active")
    rows = []
    for (widths, decay, step), part in table.where(kind="descent").groups("widths", "decay", "step").items():
        means = {name: part.mean(name) if any(x is not None for x in part.column(name)) else None for name in names}
        rows.append({"widths": widths, "decay": decay, "step": step, "networks": len(part), **means})
    return Table.of(rows)


# -- the claims ----------------------------------------------------------------------------------------------------


def _runs(table: Table, column: str, decay: float) -> list[tuple[dict[float, float], Table]]:
    """Per network the values of a column by step, and its rows; networks that lack some are left out."""
    found = []
    for part in table.where(kind="descent", decay=decay).groups("widths", "network").values():
        values = dict(zip(part.column("step"), part.column(column), strict=True))
        if len(values) > 1 and all(value is not None for value in values.values()):
            found.append((values, part))
    if not found:
        raise InputError(f"expected networks with {column} at two steps, got none")
    return found


def _linear(table: Table, column: str) -> Finding:
    """Holds if the drift halves with the last halving of the step for nearly all networks, and is small by then."""
    slopes, sizes = [], []
    for values, part in _runs(table, column, 0.0):
        if min(values.values()) <= 0:
            continue
        slopes.append(drift_order(values).local[-1])
        sizes.append(values[min(values)] / part.mean("moved"))
    good = sum(abs(slope - 1) < 0.1 for slope in slopes)
    text = (
        f"between the last two steps the drift goes with the power {np.median(slopes):.3f} of the step (median; "
        f"{good} of {len(slopes)} networks within 0.1 of 1); it is {np.median(sizes):.1e} of what its parts moved"
    )
    return Finding(10 * good >= 9 * len(slopes) and float(np.median(sizes)) < 0.01, text)


def per_neuron(table: Table) -> Finding:
    """Every neuron, always."""
    return _linear(table, "drift_neurons")


def per_block(table: Table) -> Finding:
    """Off the diagonal, which the first claim does not cover."""
    return _linear(table, "drift_off_diagonal")


def only_there(table: Table) -> Finding:
    """The control, by the same measure: entries of no block must not fall with the step.

    The largest step is no yardstick here: for some deep networks descent is not stable with it, and everything moves.
    """
    slopes = [drift_order(values).local[-1] for values, _ in _runs(table, "drift_others", 0.0)]
    flat = sum(abs(slope) < 0.1 for slope in slopes)
    text = f"between the last two steps their drift goes with the power {np.median(slopes):.3f} of the step (median; "
    return Finding(10 * flat >= 9 * len(slopes), f"{text}{flat} of {len(slopes)} networks within 0.1 of 0)")


def decays(table: Table) -> Finding:
    """With weight decay d the quantities shrink by exp(-2 d t)."""
    found = [values[min(values)] for values, _ in _runs(table, "final", WEIGHT_DECAY)]
    expected = exp(-2 * WEIGHT_DECAY * TIME)
    text = f"decay {WEIGHT_DECAY}: after time {TIME:g} they are {np.median(found):.4f} of what they were (median)"
    holds = bool(abs(np.median(found) - expected) < 0.01)
    return Finding(holds, f"{text}; exp(-2 d t) is {expected:.4f}")


def translation(table: Table) -> Finding:
    """A symmetry at every network, with a direction that is no gradient."""
    part = table.where(kind="translation")
    if not len(part):
        raise InputError("expected rows of translations, got none")
    along, curl = max(part.column("along")), min(part.column("curl"))
    text = f"{len(part)} networks: gradients are orthogonal to it up to {along:.0e}; its curl is at least {curl:.2g}"
    return Finding(bool(along < 1e-12 and curl > 1e-6), text)


STUDY = Study(
    name="conservation",
    title="What gradient descent conserves as its step goes to zero",
    paper="The symmetries of three-layer ReLU networks",
    figure="section 7, appendices F.2 and F.3",
    plan=plan,
    run_task=run_task,
    claims=(
        Claim(
            "per-neuron",
            "Matrix product symmetries preserve imbalance quantities: for every neuron the squared norm of what comes "
            "in less that of what goes out.",
            "section 1.2",
            per_neuron,
        ),
        Claim(
            "linear-blocks",
            "On an orthant of parameter space where the neurons are linear, the whole matrix is a conserved quantity.",
            "theorem 6",
            per_block,
        ),
        Claim(
            "only-there",
            "Locally conserved: the other entries of these matrices are not (a control of ours).",
            "section 7",
            only_there,
        ),
        Claim(
            "weight-decay",
            "With weight decay nothing of this is conserved: the quantities shrink at twice its rate (ours).",
            "not in the paper",
            decays,
        ),
        Claim(
            "translation",
            "The continuous symmetry of hidden hyperplanes does not induce a conserved quantity of gradient flow.",
            "proposition 37",
            translation,
        ),
    ),
    cost={"quick": 6.0, "paper": 120.0},
    options={"networks": None, "halvings": None, "widths": None},
    pictures=(
        Picture(
            "drift",
            "Drift of the quantities over a fixed time",
            x="step",
            y=("drift_neurons", "drift_off_diagonal", "drift_others"),
            lines="quantity",
            panels="widths",
            x_label="step size",
            y_label="largest change",
            log_x=True,
            log_y=True,
            where={"kind": "descent", "decay": 0.0},
            words={
                "drift_neurons": "neurons",
                "drift_off_diagonal": "active blocks, off the diagonal",
                "drift_others": "other entries",
            },
            caption="A line of slope one means that the flow conserves the quantity; a flat one that it does not.",
        ),
        Picture(
            "decay",
            "The quantities at the end over those at the beginning",
            x="step",
            y="final",
            lines="decay",
            panels="widths",
            x_label="step size",
            y_label="median ratio",
            log_x=True,
            where={"kind": "descent"},
            words={"decay": "weight decay"},
            caption="Without weight decay the ratio tends to one, with decay d to exp(-2 d t).",
        ),
    ),
    summarise=summarise,
)
