"""How often is a bottleneck network identifiable, at random and after training?

For widths ``n_1 <= n_0`` the paper on fibers decides by the signs of the second layer whether a generic parameter is
determined by its function. At a random initialisation all sign patterns are equally likely, so the share of
identifiable networks is known exactly. Training moves the signs. Here networks are trained on three kinds of targets,
with and without weight decay, and asked again on the way; where the regions can all be listed, the dimension of the
fiber is compared with the functional dimension, which is found in another way.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy.stats import binomtest

from fiberscope.dimension.decisive import LISTED_INPUTS, decisive_set
from fiberscope.dimension.functional import functional_dimension
from fiberscope.errors import InputError, hint
from fiberscope.fibers.identifiability import identifiable_fraction
from fiberscope.network.network import Network
from fiberscope.numerics.floats import FloatArray
from fiberscope.studies.lab.study import Claim, Finding, Picture, Study, Task
from fiberscope.studies.lab.table import Table
from fiberscope.training.quantities import State, fiber_dimension, identifiable, neuron_kinds
from fiberscope.training.seeds import train_many

SIZES: dict[str, dict[str, Any]] = {
    "quick": {"networks": 40, "widths": [[2, 2, 2, 1], [3, 3, 3, 1], [4, 4, 4, 1]], "epochs": [0, 30, 300]},
    "paper": {
        "networks": 400,
        "widths": [[2, 2, 2, 1], [3, 3, 3, 1], [4, 4, 4, 1], [6, 4, 4, 1], [6, 6, 6, 1]],
        "epochs": [0, 10, 100, 1000, 3000],
    },
}
TARGETS = ("sine", "teacher", "noise")
DECAYS = (0.0, 0.01)
BLOCK = 40
"""Networks per task; they are trained together."""

POINTS = 100
SURE = 0.01
"""A share is called different from what was expected when chance would do that less often."""


def plan(scale: str, options: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One task per widths, targets, weight decay and block of networks."""
    sizes = {"targets": list(TARGETS), **SIZES[scale]}
    sizes |= {name: value for name, value in options.items() if value is not None}
    if not isinstance(sizes["networks"], int) or sizes["networks"] < 1:
        raise InputError(f"option networks: expected a positive integer, got {sizes['networks']!r}")
    if not isinstance(sizes["epochs"], list | tuple) or not all(isinstance(e, int) and e >= 0 for e in sizes["epochs"]):
        raise InputError(f"option epochs: expected a list of numbers of epochs, got {sizes['epochs']!r}")
    for widths in sizes["widths"]:
        if not isinstance(widths, list | tuple) or len(widths) != 4:
            raise InputError(f"option widths: expected lists of four widths, got {widths!r}")
        identifiable_fraction(widths)
    for name in sizes["targets"]:
        if name not in TARGETS:
            raise InputError(f"option targets: expected {', '.join(TARGETS)}, got {name!r}{hint(str(name), TARGETS)}")
    return [
        {
            "widths": list(widths),
            "targets": targets,
            "decay": decay,
            "epochs": sorted({0, *sizes["epochs"]}),
            "first": first,
            "count": min(BLOCK, sizes["networks"] - first),
        }
        for widths in sizes["widths"]
        for targets in sizes["targets"]
        for decay in DECAYS
        for first in range(0, sizes["networks"], BLOCK)
    ]


def problem(widths: list[int], targets: str, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
    """Standard normal inputs; sines of random projections, a random network of the same widths, or normal noise."""
    X = rng.normal(size=(POINTS, widths[0]))
    if targets == "sine":
        return X, np.sin(2 * X @ rng.normal(0, 1 / np.sqrt(widths[0]), (widths[0], widths[-1])))
    if targets == "teacher":
        return X, Network.random(widths, rng)(X)
    return X, rng.normal(size=(POINTS, widths[-1]))


def run_task(task: Task) -> list[dict[str, Any]]:
    """One row per network and moment."""
    widths, targets, decay, count = (task.settings[name] for name in ("widths", "targets", "decay", "count"))
    data = [problem(widths, targets, np.random.default_rng([task.seed, index])) for index in range(count)]
    epochs = task.settings["epochs"]
    runs = train_many(
        widths,
        data,
        seeds=[task.seed + index for index in range(count)],
        epochs=max(*epochs, 1),
        lr=0.01,
        weight_decay=decay,
        checkpoints=epochs,
    )
    rows = []
    for index in runs.finished:
        start = runs.checkpoints[0][index]
        for epoch in epochs:
            net = runs.checkpoints[epoch][index]
            if net is None or start is None:
                continue
            state = State(epoch, index, net, data[index][0], data[index][1], start)
            rows.append(
                {
                    "widths": "-".join(map(str, widths)),
                    "targets": targets,
                    "decay": decay,
                    "network": task.settings["first"] + index,
                    "epoch": epoch,
                    "identifiable": identifiable(state),
                    "fiber_dimension": fiber_dimension(state),
                    "free_directions": free_directions(net),
                    **neuron_kinds(state),
                    "loss": float(np.mean((state.outputs - data[index][1]) ** 2)),
                }
            )
    return rows


def free_directions(net: Network) -> int | None:
    """``D - N - dim``, from the rank of the Jacobian in every region; None where not all regions can be listed."""
    if net.in_size > LISTED_INPUTS:
        return None
    points = decisive_set(net)
    if not points.complete:
        return None
    exact = functional_dimension(net, points.X).exact
    return None if exact is None else net.num_parameters - net.num_hidden - exact


def summarise(table: Table) -> Table:
    """Shares and means over networks, with the exact share at a random initialisation."""
    rows = []
    for (widths, targets, decay, epoch), part in table.groups("widths", "targets", "decay", "epoch").items():
        answers = part.column("identifiable")
        rows.append(
            {
                "widths": widths,
                "targets": targets,
                "decay": decay,
                "epoch": epoch,
                "networks": len(part),
                "identifiable": sum(a is True for a in answers) / len(part),
                "undecided": sum(a is None for a in answers) / len(part),
                "expected": float(identifiable_fraction(_shape(widths))),
                **{
                    name: _mean(part, name) for name in ("fiber_dimension", "dead", "linear", "hidden", "rigid", "loss")
                },
            }
        )
    return Table.of(rows)


def _shape(text: str) -> list[int]:
    return [int(n) for n in text.split("-")]


def _mean(part: Table, name: str) -> float | None:
    values = [value for value in part.column(name) if value is not None]
    return float(np.mean(values)) if values else None


# -- the claims ----------------------------------------------------------------------------------------------------


def _share(part: Table) -> tuple[int, int]:
    """Identifiable networks, and all that are decided."""
    answers = [a for a in part.column("identifiable") if a is not None]
    if not answers:
        raise InputError("expected networks with a verdict, got none")
    return sum(answers), len(answers)


def at_random(table: Table) -> Finding:
    """All initialisations of one shape are alike, whatever they are trained on afterwards."""
    texts, fits = [], True
    for (widths,), part in table.where(epoch=0).groups("widths").items():
        yes, count = _share(part)
        exact = float(identifiable_fraction(_shape(widths)))
        fits = fits and bool(binomtest(yes, count, exact).pvalue > SURE)
        texts.append(f"{widths}: {yes / count:.3f} of {count}, exactly {exact:.4f}")
    return Finding(fits, "; ".join(texts))


def in_bounds(table: Table) -> Finding:
    """The measured share with its interval at level 1 - SURE must meet the paper's."""
    texts, fits = [], True
    for (widths,), part in table.where(epoch=0).groups("widths").items():
        known = identifiable_fraction(_shape(widths))
        yes, count = _share(part)
        interval = binomtest(yes, count).proportion_ci(1 - SURE)
        fits = fits and bool(interval.high >= float(known.lower) and interval.low <= float(known.upper))
        texts.append(f"{widths}: {yes / count:.3f} in [{float(known.lower):.3f}, {float(known.upper):.3f}]")
    return Finding(fits, "; ".join(texts))


def _changes(table: Table, decay: float) -> dict[tuple[str, str], tuple[int, int, int]]:
    """Per widths and targets: networks that became identifiable, that ceased to be, and all, from first to last."""
    last = max(table.column("epoch"))
    if last == 0:
        raise InputError("expected networks after training, got only initialisations")
    found = {}
    for (widths, targets), part in table.where(decay=decay).groups("widths", "targets").items():
        first, end = (
            dict(zip(rows.column("network"), rows.column("identifiable"), strict=True))
            for rows in (part.where(epoch=0), part.where(epoch=last))
        )
        pairs = [(first[k], end[k]) for k in end if first.get(k) is not None and end[k] is not None]
        gained, lost = sum(b and not a for a, b in pairs), sum(a and not b for a, b in pairs)
        found[widths, targets] = gained, lost, len(pairs)
    return found


def _unchanged(table: Table, decay: float) -> Finding:
    """Among networks whose verdict changed, both directions must be as likely, in every group (McNemar's test)."""
    groups = _changes(table, decay)
    texts, fits = [], True
    for (widths, targets), (gained, lost, count) in groups.items():
        level = SURE / len(groups)
        fits = fits and (gained + lost == 0 or bool(binomtest(gained, gained + lost).pvalue > level))
        texts.append(f"{widths} {targets}: +{gained} -{lost} of {count}")
    return Finding(fits, "became and ceased to be identifiable: " + "; ".join(texts))


def kept_by_training(table: Table) -> Finding:
    """Without weight decay."""
    return _unchanged(table, 0.0)


def kept_by_decay(table: Table) -> Finding:
    """With weight decay."""
    return _unchanged(table, DECAYS[1])


def dimensions_agree(table: Table) -> Finding:
    """The fiber's dimension by the theorem against that of the kernel of the Jacobian, before and after training."""
    pairs = [
        (a, b)
        for a, b in zip(table.column("fiber_dimension"), table.column("free_directions"), strict=True)
        if a is not None and b is not None
    ]
    if not pairs:
        raise InputError(f"expected networks with at most {LISTED_INPUTS} inputs, got none")
    equal = sum(a == b for a, b in pairs)
    text = f"equal for {equal} of {len(pairs)} networks all of whose regions have points that floats can name"
    return Finding(equal == len(pairs), text)


STUDY = Study(
    name="identifiability-in-training",
    title="How often a bottleneck network is identifiable, at random and after training",
    paper="The symmetries of three-layer ReLU networks",
    figure="sections 5 and 6, the volume of identifiable parameters",
    plan=plan,
    run_task=run_task,
    claims=(
        Claim(
            "exact-share",
            "At a random initialisation the share of identifiable networks is "
            "(1 - 2^-n_1)^n_2 - n_1 2^-((n_1 + 1) n_2) (ours; the paper has bounds).",
            "not in the paper",
            at_random,
        ),
        Claim(
            "bounds",
            "The share lies between 1 - 2 n_2 2^-(n_1 + 1) - n_1 2^-((n_1 + 1) n_2) and (1 - 2^-(n_1 + 1))^n_2.",
            "the volume of identifiable parameters",
            in_bounds,
        ),
        Claim(
            "training",
            "Training does not change how often networks are identifiable (a question of ours).",
            "not in the paper",
            kept_by_training,
        ),
        Claim(
            "weight-decay",
            "Nor does training with weight decay (a question of ours).",
            "not in the paper",
            kept_by_decay,
        ),
        Claim(
            "dimension",
            "The fiber has the dimension D - N - functional dimension, of trained networks too.",
            "theorem on the bottleneck, with ranks of the Jacobian",
            dimensions_agree,
        ),
    ),
    cost={"quick": 60.0, "paper": 2400.0},
    options={"networks": None, "widths": None, "epochs": None, "targets": None},
    pictures=tuple(
        Picture(
            f"{name}{'-decay' if decay else ''}",
            title + (f", weight decay {decay}" if decay else ""),
            x="epoch",
            y=y,
            lines="targets" if y == "identifiable" else "quantity",
            panels="widths",
            x_label="epochs",
            y_label=label,
            where={"decay": decay},
            style="curve",
            caption=caption,
        )
        for decay in DECAYS
        for name, title, y, label, caption in (
            (
                "share",
                "Share of identifiable networks",
                "identifiable",
                "identifiable",
                "Epoch 0 is the random initialisation, whose share is known exactly.",
            ),
            (
                "kinds",
                "What makes the others not identifiable",
                ("dead", "linear", "hidden"),
                "share of neurons",
                "Dead and linear among all hidden neurons, hidden among those of the first layer.",
            ),
        )
    ),
    summarise=summarise,
)
