"""The pictures that the studies of the functional dimension share."""

from __future__ import annotations

from typing import Any

from fiberscope.studies._verdicts import LAYERS, REASONS
from fiberscope.studies.lab.study import Picture

WORDS = {
    "paper": "paper's rank (float32)",
    "exact": "exact rank",
    "regions": "regions sampled",
    "full": "size of the Jacobian",
    "dataset": "",
    "bound_regions": "regions (Prop. 4.6)",
    "bound_regions_refined": "regions, refined",
    "bound_fixed_neurons": "fixed neurons (Thm. 1)",
    "bound_orbit": "orbit",
    "level_regions": "bound by regions",
    "level_points": "+ points in each region",
    "level_position": "+ their position",
    "level_silent": "+ layers that are off",
    "level_fixed": "+ fixed neurons, rescaling",
    "level_adjacent": "+ adjacent layers",
    "active": "always active",
    "inactive": "always inactive",
    **{f"switching_{k}": f"layer {k}" for k in range(1, 10)},
}


def trajectory_pictures(figure: str, lines: str = "dataset", words: str = "") -> tuple[Picture, Picture]:
    """All runs, and the means over the successful ones, with both ranks."""
    common: dict[str, Any] = {
        "x": "epoch",
        "y": ("paper", "exact"),
        "lines": lines,
        "panels": "quantity",
        "x_label": "epochs",
        "y_label": "functional dimension",
        "words": {**WORDS, lines: words},
    }
    return (
        Picture(
            "trajectories",
            f"Functional dimension through training ({figure}, left)",
            where={"record": "run"},
            each="run",
            caption="Every line is one run.",
            **common,
        ),
        Picture(
            "means",
            f"Averages over successful runs ({figure}, right)",
            where={"record": "run", "successful": True},
            caption="Mean and standard deviation over the runs that end with a coefficient of determination above 0.9.",
            **common,
        ),
    )


def bound_pictures(panels: str = "dataset", words: str = "") -> tuple[Picture, ...]:
    """Every bound, the gap below the bound by regions, and what the neurons do."""
    common: dict[str, Any] = {
        "x": "epoch",
        "panels": panels,
        "lines": "quantity",
        "x_label": "epochs",
        "where": {"record": "run"},
        "words": {**WORDS, panels: words},
    }
    return (
        Picture(
            "bounds",
            "Every bound beside the exact rank",
            y=("full", "bound_fixed_neurons", "bound_orbit", "bound_regions", "bound_regions_refined", "exact"),
            y_label="dimension",
            log_y=True,
            style="curve",
            caption="Theorem 1's formula is drawn although its assumption is not met by these widths. "
            "A bound above the size of the Jacobian is vacuous.",
            **common,
        ),
        Picture(
            "gap",
            "What explains the gap below the bound by regions",
            y=("level_regions", *REASONS, "exact"),
            y_label="smallest bound so far",
            style="curve",
            caption="Each line adds one reason to the one above it; what remains above the exact rank is unexplained.",
            **common,
        ),
        Picture(
            "neurons",
            "Fixed neurons through training",
            y=("active", "inactive", "switching"),
            y_label="neurons",
            caption="Always active, always inactive and switching neurons on the data, all layers together.",
            **common,
        ),
        Picture(
            "switching-by-layer",
            "Switching neurons of each layer",
            y=tuple(f"switching_{k}" for k in range(1, LAYERS + 1)),
            y_label="switching neurons",
            style="curve",
            caption="Of ten in every layer.",
            **common,
        ),
    )
