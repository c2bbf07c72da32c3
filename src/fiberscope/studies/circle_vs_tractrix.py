"""Regions along a circle and a tractrix while a network learns on them.

The paper on data geometry trains networks 2-10-16-1 to ``a sin(nu t)`` on both curves, counts linear regions along the
curve by local optimisation and finds more of them on the tractrix, which it explains by a constant ``C_M``. That
constant is the norm of an orthogonal projection, hence one for both curves. Here the counts are certified, and beside
them stand the length of the curve and the mean size of the neurons' gradients along its tangents.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fiberscope.studies._curve_runs import (
    CURVES,
    INITS,
    blocks,
    by_init,
    checked,
    close_to_neurons,
    compared,
    follow,
    late,
    per_run,
    summarise,
)
from fiberscope.studies.lab.study import Claim, Finding, Picture, Study
from fiberscope.studies.lab.table import Table

SIZES: dict[str, dict[str, Any]] = {
    "quick": {"runs": 10, "epochs": 60, "every": 1},
    "paper": {"runs": 20, "epochs": 300, "every": 1},
}
HIDDEN = [10, 16]


def plan(scale: str, options: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Blocks of runs on both curves."""
    sizes = checked(
        {"init": INITS} | SIZES[scale] | {name: value for name, value in options.items() if value is not None}
    )
    common = {"hidden": HIDDEN, "epochs": sizes["epochs"], "every": sizes["every"]}
    return [
        {"curve": curve, "init": init, **common, **block}
        for init in sizes["init"]
        for curve in CURVES
        for block in blocks(sizes["runs"])
    ]


def more_on_tractrix(table: Table) -> Finding:
    """In the second half of the training, over runs."""
    tractrix, circle = (per_run(late(table.where(curve=name)), "regions") for name in ("tractrix", "circle"))
    answer, text = compared(tractrix, circle)
    return Finding(answer, f"tractrix {text} on the circle (second half of the training)")


def more_at_start(table: Table) -> Finding:
    """At initialisation."""
    start = table.where(epoch=0)
    answer, text = compared(*(per_run(start.where(curve=name), "regions") for name in ("tractrix", "circle")))
    return Finding(answer, f"tractrix {text} on the circle (epoch 0)")


def nearer_on_tractrix(table: Table) -> Finding:
    """Distances over the length of the curve, in the second half of the training."""
    circle, tractrix = (per_run(late(table.where(curve=name)), "share") for name in ("circle", "tractrix"))
    answer, text = compared(circle, tractrix)
    return Finding(answer, f"mean distance over length: circle {text} on the tractrix (second half)")


def gradients_explain(table: Table) -> Finding:
    """Length times mean projected gradient, of the two curves, must stand in the order of the counts, at the start."""
    start = table.where(epoch=0)
    lengths = {name: curve().length for name, curve in CURVES.items()}
    sizes = {name: lengths[name] * start.where(curve=name).mean("projected") for name in CURVES}
    counts = {name: start.where(curve=name).mean("regions") - 1 for name in CURVES}
    shrink = {
        name: start.where(curve=name).mean("projected") / start.where(curve=name).mean("gradient") for name in CURVES
    }
    ratio, expected = counts["circle"] / counts["tractrix"], sizes["circle"] / sizes["tractrix"]
    text = (
        f"breakpoints on circle / tractrix: {ratio:.2f}; length times mean projected gradient: {expected:.2f}; "
        f"gradients shrink to {shrink['circle']:.3f} and {shrink['tractrix']:.3f} of their norm"
    )
    return Finding(bool((ratio > 1) == (expected > 1)), text)


def slower_on_tractrix(table: Table) -> Finding:
    """The test error, mean over all epochs."""
    answer, text = compared(*(per_run(table.where(curve=name), "test_error") for name in ("tractrix", "circle")))
    return Finding(answer, f"mean test error over the training: tractrix {text} on the circle")


def comparable_errors(table: Table) -> Finding:
    """At the end, within a factor of two of the larger noise-free part."""
    end = table.where(epoch=max(table.column("epoch")))
    errors = {name: end.where(curve=name).mean("test_error") for name in CURVES}
    ratio = max(errors.values()) / min(errors.values())
    listed = ", ".join(f"{name} {error:.3g}" for name, error in errors.items())
    return Finding(ratio < 2, f"test error at the end: {listed}")


STUDY = Study(
    name="circle-vs-tractrix",
    title="Linear regions along a circle and a tractrix during training",
    paper="Effects of Data Geometry in Early Deep Learning",
    figure="figures 4, 5 and 12",
    plan=plan,
    run_task=follow,
    claims=(
        Claim(
            "close-to-neurons",
            "The number of linear regions starts off close to #neurons and remains close throughout the training.",
            "section 4.1",
            by_init(close_to_neurons),
        ),
        Claim(
            "more-on-tractrix",
            "The tractrix has a higher value of C_M, and that is reflected in the results: it has more regions.",
            "section 4.1, figure 4",
            by_init(more_on_tractrix),
        ),
        Claim("more-at-start", "The same, at initialisation.", "figure 4", by_init(more_at_start)),
        Claim(
            "nearer-on-tractrix",
            "Distances to the boundary, normalised, are smaller on the tractrix.",
            "section 4.1, figure 5",
            by_init(nearer_on_tractrix),
        ),
        Claim(
            "projected-gradients",
            "At initialisation the curves stand in the order of length times mean projected gradient (ours).",
            "not in the paper",
            by_init(gradients_explain),
        ),
        Claim("slower", "The tractrix converges slower.", "figure 12", by_init(slower_on_tractrix)),
        Claim("comparable", "The magnitude of the errors remains comparable.", "figure 12", by_init(comparable_errors)),
    ),
    cost={"quick": 20.0, "paper": 120.0},
    options={"runs": None, "epochs": None, "every": None, "init": None},
    pictures=tuple(
        Picture(
            name,
            title,
            x="epoch",
            y=column,
            lines="curve",
            panels="init",
            x_label="epoch",
            y_label=label,
            caption=caption,
            words={"curve": "", "init": "initialised by"},
        )
        for name, title, column, label, caption in (
            ("regions", "Regions along the curve", "regions", "regions", "Certified counts; 26 neurons."),
            (
                "distance",
                "Distance to the next boundary",
                "share",
                "mean distance / length",
                "Along the curve, averaged over parameters, over the length of the curve.",
            ),
            ("errors", "Test error", "test_error", "mean squared error", "With the noise of the targets (0.01)."),
            (
                "gradients",
                "Gradients of neurons along the curve",
                "projected",
                "mean size",
                "The derivative of a neuron along the unit tangent, mean over neurons and points.",
            ),
        )
    ),
    summarise=summarise("init", "curve", "epoch"),
)
