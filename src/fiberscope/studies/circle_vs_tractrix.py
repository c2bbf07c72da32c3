"""Regions along a circle and a tractrix while a network learns on them.

The paper on data geometry trains networks 2-10-16-1 to ``a sin(nu t)`` on both curves and counts linear regions along
the curve by local optimisation. It says that a constant ``C_M`` is larger for the tractrix and that this is reflected
in the results. That constant is the norm of an orthogonal projection, hence one for both curves. The paper gives the
parameters of the whole circle, but speaks of its upper half too, so the tractrix is compared with both; it names
neither frequency, amplitude, noise nor batch size, so these are options. Here the counts are certified, and beside them
stand the length of the curve and the mean size of the neurons' gradients along its tangents.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from fiberscope.studies._curve_runs import (
    INITS,
    OPTIONS,
    against,
    blocks,
    by_init,
    checked,
    close_to_neurons,
    curve_of,
    curves_of,
    follow,
    late,
    readings,
    summarise,
    task_settings,
)
from fiberscope.studies.lab.study import Claim, Finding, Picture, Study
from fiberscope.studies.lab.table import Table

SIZES: dict[str, dict[str, Any]] = {
    "quick": {"runs": 10, "epochs": 60, "every": 1, "init": INITS},
    "paper": {"runs": 20, "epochs": 300, "every": 1, "init": INITS},
}
HIDDEN = [10, 16]


def plan(scale: str, options: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Blocks of runs on all curves."""
    sizes = checked(SIZES[scale], options)
    common = {"hidden": HIDDEN, **task_settings(sizes)}
    return [
        {"curve": curve, "init": init, **common, **block}
        for init in sizes["init"]
        for curve in curves_of(sizes)
        for block in blocks(sizes["runs"])
    ]


def more_on_tractrix(name: str, start: bool) -> Callable[[Table], Finding]:
    """Against one arc of the circle, at initialisation or in the second half of the training, over runs."""

    def check(table: Table) -> Finding:
        answer, text = against(table.where(epoch=0) if start else late(table), "regions", name)
        return Finding(answer, f"{text} ({'epoch 0' if start else 'second half of the training'})")

    return check


def gradients_explain(table: Table) -> Finding:
    """Length times mean projected gradient must stand in the order of the counts, at the start, for both arcs."""
    start = table.where(epoch=0)
    answers, texts = set(), []
    about = {name: start.where(curve=name) for name in (*readings(table), "tractrix")}
    sizes = {name: curve_of(name, np.eye(2)).length * part.mean("projected") for name, part in about.items()}
    counts = {name: part.mean("regions") - 1 for name, part in about.items()}
    for name in readings(table):
        ratio, expected = counts[name] / counts["tractrix"], sizes[name] / sizes["tractrix"]
        answers.add((ratio > 1) == (expected > 1))
        texts.append(
            f"breakpoints on {name} / tractrix: {ratio:.2f}; length times mean projected gradient: {expected:.2f}"
        )
    shrink = ", ".join(f"{name} {part.mean('projected') / part.mean('gradient'):.3f}" for name, part in about.items())
    texts.append(f"gradients shrink to {shrink} of their norm")
    return Finding(bool(answers.pop()) if len(answers) == 1 else None, "; ".join(texts))


def slower_on_tractrix(table: Table) -> Finding:
    """The test error, mean over all epochs; undecided where the two readings of the circle do not agree."""
    found = [against(table, "test_error", name) for name in readings(table)]
    answers = {answer for answer, _ in found}
    text = "; ".join(text for _, text in found)
    return Finding(answers.pop() if len(answers) == 1 else None, f"mean test error over the training: {text}")


def comparable_errors(table: Table) -> Finding:
    """Told and not judged: the paper does not say what it calls comparable."""
    end = table.where(epoch=max(table.column("epoch")))
    names = [*readings(table), "tractrix"]
    listed = ", ".join(f"{name} {end.where(curve=name).mean('test_error'):.3g}" for name in names)
    return Finding(None, f"not judged, as comparable has no measure; test error at the end: {listed}")


REFLECTED = "The tractrix has a higher value of C_M and that is reflected in the results"

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
        *(
            Claim(
                f"more-than-{short}{'-at-start' if start else ''}",
                f"{REFLECTED} (read: more regions than on the {words}{', at initialisation' if start else ''}).",
                "section 4.1, figure 4",
                by_init(more_on_tractrix(name, start)),
            )
            for short, name, words in (
                ("whole", "circle", "whole circle"),
                ("half", "upper half", "upper half of the circle"),
            )
            for start in (False, True)
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
    cost={"quick": 30.0, "paper": 180.0},
    options=OPTIONS,
    version=2,
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
                "Along the curve, averaged over parameters, over its length (ours; the paper divides by the largest "
                "distance on the range).",
            ),
            (
                "errors",
                "Test error",
                "test_error",
                "mean squared error",
                "With the noise of the targets, whose square it cannot go below.",
            ),
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
