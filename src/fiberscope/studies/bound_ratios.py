"""How far is the number of boundaries on a manifold below its upper bound, and is there a lower bound?

The paper on data geometry bounds the expected density of boundaries from above (Theorem 2) and says that a lower bound
for the manifold setting remains open. Here the exact density of random networks is divided by the upper bound, on
curves, surfaces, boxes and a surface through a generator, and on segments that move away from the origin.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import log
from typing import Any

import numpy as np

from fiberscope.errors import InputError
from fiberscope.geometry.curves.curve import Circle, Segment, Tractrix
from fiberscope.geometry.domains import Box
from fiberscope.geometry.expectation.ensemble import Ensemble
from fiberscope.geometry.expectation.manifolds import Manifold
from fiberscope.geometry.expectation.theory import region_theory
from fiberscope.geometry.surfaces.generated import GeneratorSurface
from fiberscope.geometry.surfaces.quadrics import Cylinder, Ellipsoid
from fiberscope.geometry.surfaces.shapes import Sphere, Torus
from fiberscope.network.network import Network
from fiberscope.studies.lab.study import Claim, Finding, Picture, Study, Task
from fiberscope.studies.lab.table import Table

SIZES: dict[str, dict[str, Any]] = {
    "quick": {"networks": 30, "hidden": [[8], [8, 8], [8, 8, 8]], "init": "he"},
    "paper": {"networks": 200, "hidden": [[8], [8, 8], [8, 8, 8], [16], [16, 16]], "init": "he"},
}
DISTANCES = (0.5, 2.0, 8.0, 32.0, 128.0)
"""Of the moved segments from the origin."""

ALIKE = 2.0
"""Ratios are alike if the largest is at most so many times the least: ours."""

FALL = 0.5
"""There is no lower bound if the ratio still falls faster than distance to the minus this power at the end: ours."""

LEAST = 0.01
"""What a lower bound near the origin is asked to be: ours."""


def manifolds() -> dict[str, Manifold]:
    """Curves, surfaces and boxes in R^3 around the origin, none of them farther away than two."""
    frame = np.eye(2, 3)
    through = Network.random((2, 8, 3), 1)
    return {
        "circle": Circle(np.zeros(3)),
        "tractrix": Tractrix(np.zeros(3)),
        "segment": Segment(-frame[0], frame[0]),
        "sphere": Sphere(),
        "ellipsoid": Ellipsoid([1.0, 1.5, 0.5]),
        "cylinder": Cylinder([1.0, 1.0, 2.0], [0.0, 0.0, -1.0]),
        "torus": Torus(resolution=2),
        "square": Box([-1.0, -1.0, 0.0], [1.0, 1.0, 0.0]),
        "cube": Box.cube(3),
        "generator": GeneratorSurface(through, [-1.0, -1.0], [1.0, -1.0], [-1.0, 1.0]),
    }


def moved(distance: float) -> Segment:
    """A segment of length 2 across a ray, so far from the origin."""
    return Segment([-1.0, distance, 0.0], [1.0, distance, 0.0])


def plan(scale: str, options: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One task per manifold and architecture, and one per architecture for the moved segments."""
    sizes = {**SIZES[scale], **{name: value for name, value in options.items() if value is not None}}
    if not isinstance(sizes["networks"], int) or sizes["networks"] < 2:
        raise InputError(f"option networks: expected an integer from 2, got {sizes['networks']!r}")
    shapes = sizes["hidden"]
    if not isinstance(shapes, list | tuple) or not all(isinstance(one, list | tuple) and one for one in shapes):
        raise InputError(f"option hidden: expected lists of hidden widths, got {shapes!r}")
    about = {"networks": sizes["networks"], "init": sizes["init"]}
    return [
        {"manifold": name, "hidden": list(hidden), **about}
        for hidden in shapes
        for name in [*manifolds(), "moved segment"]
    ]


def run_task(task: Task) -> list[dict[str, Any]]:
    """Measured density, Theorem 1, the bound of Theorem 2, and their quotients."""
    settings = task.settings
    ensemble = Ensemble.of((3, *settings["hidden"], 1), settings["init"])
    name = settings["manifold"]
    places = [(0.0, manifolds()[name])] if name != "moved segment" else [(d, moved(d)) for d in DISTANCES]
    rows = []
    for distance, manifold in places:
        found = region_theory(ensemble, manifold, networks=settings["networks"], samples=4000, seed=task.seed % 2**32)
        assert found.expected is not None
        rows.append(
            {
                "manifold": name,
                "hidden": "-".join(map(str, settings["hidden"])),
                "distance": distance,
                "density": found.density,
                "error": found.measured.standard_error / found.volume,
                "theorem": found.expected.density,
                "bound": found.bound_density,
                "ratio": found.density / found.bound_density,
                "expected ratio": found.expected.density / found.bound_density,
            }
        )
    return rows


def never_above(table: Table) -> Finding:
    """The density is not above the bound by more than two standard errors."""
    above = [row for row in table.dicts() if row["density"] - 2 * row["error"] > row["bound"]]
    ratios = table.column("ratio")
    return Finding(
        not above, f"{min(ratios):.2g} to {max(ratios):.2g} of the bound, {len(above)} of {len(table)} above it"
    )


def alike(table: Table) -> Finding:
    """The quotients by Theorem 1, whose errors are small, over the manifolds around the origin."""
    texts, answers = [], []
    for (hidden,), part in table.where(distance=0.0).groups("hidden").items():
        ratios = {row["manifold"]: row["expected ratio"] for row in part.dicts()}
        low, high = min(ratios, key=ratios.__getitem__), max(ratios, key=ratios.__getitem__)
        answers.append(ratios[high] <= ALIKE * ratios[low])
        texts.append(f"{hidden}: {ratios[low]:.3f} ({low}) to {ratios[high]:.3f} ({high})")
    return Finding(all(answers), "; ".join(texts))


def lower_bound(table: Table) -> Finding:
    """Along the moved segments, by Theorem 1: does the quotient fall without end?"""
    texts, answers = [], []
    for (hidden,), part in table.where(manifold="moved segment").groups("hidden").items():
        rows = sorted(part.dicts(), key=lambda row: row["distance"])
        before, last = rows[-2], rows[-1]
        power = -log(last["expected ratio"] / before["expected ratio"]) / log(last["distance"] / before["distance"])
        answers.append(not power > FALL)
        ends = f"{rows[0]['expected ratio']:.2g} at {rows[0]['distance']:g}, {rows[-1]['expected ratio']:.2g}"
        texts.append(f"{hidden}: {ends} at {last['distance']:g}, like its power -{power:.2f}")
    return Finding(all(answers), "; ".join(texts))


def near_the_origin(table: Table) -> Finding:
    """The measured quotients with two standard errors, on the manifolds around the origin."""
    rows = table.where(distance=0.0).dicts()
    low = min(rows, key=lambda row: row["ratio"])
    sure = all((row["density"] - 2 * row["error"]) / row["bound"] > LEAST for row in rows)
    below = any((row["density"] + 2 * row["error"]) / row["bound"] < LEAST for row in rows)
    told = f"the least is {low['ratio']:.3f} ({low['manifold']}, {low['hidden']})"
    return Finding(True if sure else False if below else None, told)


STUDY = Study(
    name="bound-ratios",
    title="How far below its upper bound is the density of boundaries?",
    paper="Effects of Data Geometry in Early Deep Learning",
    figure="none: section 5, an open question",
    plan=plan,
    run_task=run_task,
    claims=(
        Claim(
            "never-above",
            "The density of boundaries is at most the bound, on every manifold.",
            "Theorem 2",
            never_above,
        ),
        Claim(
            "alike", "Around the origin the manifold does not matter: quotients differ by less than two.", "ours", alike
        ),
        Claim(
            "lower-bound",
            "There is a lower bound like the upper one: the density is at least a constant times it on every manifold.",
            "section 5, open question",
            lower_bound,
        ),
        Claim(
            "near-the-origin",
            "Around the origin the density is at least a hundredth of the upper bound.",
            "ours",
            near_the_origin,
        ),
    ),
    cost={"quick": 100.0, "paper": 1500.0},
    options={"networks": None, "hidden": None, "init": None},
    pictures=(
        Picture(
            "ratios",
            "Density of boundaries over the bound of Theorem 2",
            x="hidden",
            y="ratio",
            lines="manifold",
            where={"distance": 0.0},
            style="curve",
            log_y=True,
            x_label="hidden widths",
            y_label="density / bound",
            words={"manifold": ""},
        ),
        Picture(
            "moved",
            "A segment that moves away from the origin",
            x="distance",
            y="expected ratio",
            lines="hidden",
            where={"manifold": "moved segment"},
            style="curve",
            log_x=True,
            log_y=True,
            x_label="distance of the segment from the origin",
            y_label="density by Theorem 1 / bound",
            words={"hidden": ""},
        ),
    ),
)
