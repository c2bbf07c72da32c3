"""Can linear regions be concentrated on a data manifold by training?

The paper on data geometry finds fewer regions on the manifold than off it, and calls methods that concentrate them
there a promising direction, which "could lead to increased expressivity for the same number of parameters". The
expected number of boundaries (Theorem 1) is an integral of ``|dz/dt|`` over the places where a neuron vanishes. With
a narrow bump instead of the zero it has derivatives, and goes into the loss:
``loss - weight * sum of mean |z'(t)| bump(z(t))``.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from math import pi, sqrt
from typing import Any

import numpy as np
import torch

from fiberscope.errors import InputError
from fiberscope.geometry.curves.along import regions_along
from fiberscope.geometry.curves.curve import Circle
from fiberscope.geometry.domains import Box
from fiberscope.geometry.expectation.exact import boundary_volume
from fiberscope.network.network import Network
from fiberscope.studies._verdicts import mean_and_error
from fiberscope.studies.lab.study import Claim, Finding, Picture, Study, Task
from fiberscope.studies.lab.table import Table

SIZES: dict[str, dict[str, Any]] = {
    "quick": {"runs": 8, "steps": 600, "weights": [0.0, 0.0003, 0.003], "frequencies": [2, 6]},
    "paper": {
        "runs": 20,
        "steps": 2000,
        "weights": [0.0, 0.0001, 0.0003, 0.001, 0.003, 0.01],
        "frequencies": [2, 4, 6, 8],
    },
}
WIDTHS = (2, 10, 16, 1)
"""Of the paper's networks on curves."""

POINTS, RATE = 500, 0.01
"""Points of the circle in every step of Adam, and its rate."""

BUMP = 0.1
"""Width of the bump that stands for a zero."""

AROUND = 2.0
"""The square around the circle, ``[-2, 2]^2``, in which boundaries are measured as well."""


def plan(scale: str, options: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One task per weight of the surrogate and frequency of the target; the same initialisations for all."""
    sizes = {**SIZES[scale], **{name: value for name, value in options.items() if value is not None}}
    for name in ("runs", "steps"):
        if not isinstance(sizes[name], int) or sizes[name] < 1:
            raise InputError(f"option {name}: expected a positive integer, got {sizes[name]!r}")
    if 0.0 not in sizes["weights"] or not all(weight >= 0 for weight in sizes["weights"]):
        raise InputError(f"option weights: expected numbers from 0 on, 0 among them, got {sizes['weights']!r}")
    return [
        {"weight": float(weight), "frequency": frequency, "runs": sizes["runs"], "steps": sizes["steps"]}
        for frequency in sizes["frequencies"]
        for weight in sizes["weights"]
    ]


def run_task(task: Task) -> list[dict[str, Any]]:
    """One row per run: error, boundaries on the circle and in the square, and how concentrated they are."""
    settings = task.settings
    rows = []
    for run in range(settings["runs"]):
        net, error = trained(run, settings["frequency"], settings["weight"], settings["steps"])
        kinks = float(regions_along(net, Circle()).visible.sum())
        length = boundary_volume(net, Box.cube(2, -AROUND, AROUND))
        rows.append(
            {
                "run": run,
                "weight": settings["weight"],
                "frequency": settings["frequency"],
                "error": error,
                "kinks": kinks,
                "length": length,
                "concentration": concentration(kinks, length),
            }
        )
    return rows


def concentration(kinks: float, length: float) -> float:
    """Kinks per length of the circle over those that boundaries spread evenly in the square would make.

    By Crofton's formula curves of length L per area meet a curve ``2 L / pi`` times per length, if they lie any way.
    """
    evenly = 2 / pi * length / (2 * AROUND) ** 2
    return kinks / (2 * pi) / evenly if evenly > 0 else float("nan")


def trained(run: int, frequency: float, weight: float, steps: int) -> tuple[Network, float]:
    """A network on the circle with the surrogate in its loss, and its mean squared error there."""
    rng = np.random.default_rng([run, 0])
    t = torch.from_numpy(np.sort(rng.uniform(-pi, pi, POINTS)))
    x, way = torch.stack([t.cos(), t.sin()], dim=1), torch.stack([-t.sin(), t.cos()], dim=1)
    y = torch.sin(frequency * t)[:, None]
    layers = []
    for m, n in pairwise(WIDTHS):  # torch's initialisation
        W, b = (torch.from_numpy(rng.uniform(-1, 1, size) / sqrt(m)) for size in ((n, m), (n,)))
        layers.append((W.requires_grad_(), b.requires_grad_()))
    parameters = [p for layer in layers for p in layer]
    adam = torch.optim.Adam(parameters, RATE)
    for _ in range(steps):
        adam.zero_grad()
        out, crossings = forward(layers, x, way)
        (torch.mean((out - y) ** 2) - weight * crossings).backward()
        adam.step()
    with torch.no_grad():
        error = float(torch.mean((forward(layers, x, way)[0] - y) ** 2))
    arrays = [(W.detach().numpy(), b.detach().numpy()) for W, b in layers]
    return Network([W for W, _ in arrays], [b for _, b in arrays]), error


def forward(layers: list[tuple[Any, Any]], x: Any, way: Any) -> tuple[Any, Any]:
    """Outputs, and the surrogate of the number of kinks along the circle."""
    crossings = torch.zeros((), dtype=x.dtype)
    for W, b in layers[:-1]:
        z, slope = x @ W.T + b, way @ W.T
        bump = torch.exp(-0.5 * (z / BUMP) ** 2) / (BUMP * sqrt(2 * pi))
        crossings = crossings + 2 * pi * (bump * slope.abs()).mean(dim=0).sum()
        x, way = torch.relu(z), slope * (z > 0)
    W, b = layers[-1]
    return x @ W.T + b, crossings


def compared(column: str, larger: bool) -> Any:
    """Whether the column is larger (or smaller) with the surrogate than without, run by run, for every frequency."""

    def check(table: Table) -> Finding:
        answers, texts = [], []
        for (frequency,), part in table.groups("frequency").items():
            plain = {row["run"]: row[column] for row in part.where(weight=0.0).dicts()}
            for (weight,), rows in part.groups("weight").items():
                if weight == 0:
                    continue
                gains = [(row[column] - plain[row["run"]]) * (1 if larger else -1) for row in rows.dicts()]
                mean, error = mean_and_error(gains)
                answers.append(True if mean > 2 * error else False if mean < -2 * error else None)
                ours = float(np.mean(rows.column(column)))
                base = float(np.mean(list(plain.values())))
                texts.append(f"frequency {frequency}, weight {weight:g}: {ours:.3g} against {base:.3g}")
        verdict = True if all(answers) else False if False in answers else None
        return Finding(verdict, "; ".join(texts))

    return check


STUDY = Study(
    name="concentrating-regions",
    title="Can regions be concentrated on a data manifold by training?",
    paper="Effects of Data Geometry in Early Deep Learning",
    figure="none: section 4.3, a direction of research",
    plan=plan,
    run_task=run_task,
    claims=(
        Claim(
            "more",
            "A differentiable surrogate in the loss makes more regions on the manifold.",
            "section 4.3",
            compared("kinks", True),
        ),
        Claim(
            "concentrated",
            "Regions are concentrated there: more of them than boundaries spread evenly in the square would make.",
            "section 4.3",
            compared("concentration", True),
        ),
        Claim(
            "expressive",
            "That leads to increased expressivity for the same number of parameters (read: a smaller training error).",
            "section 4.3",
            compared("error", False),
        ),
    ),
    cost={"quick": 90.0, "paper": 2400.0},
    options={"runs": None, "steps": None, "weights": None, "frequencies": None},
    pictures=(
        Picture(
            "concentration",
            "Boundaries drawn to the circle",
            x="weight",
            y="concentration",
            lines="frequency",
            x_label="weight of the surrogate",
            y_label="kinks per length / evenly spread",
            words={"frequency": "frequency"},
        ),
        Picture(
            "error",
            "Training error",
            x="weight",
            y="error",
            lines="frequency",
            log_y=True,
            x_label="weight of the surrogate",
            y_label="mean squared error",
            words={"frequency": "frequency"},
        ),
    ),
)
