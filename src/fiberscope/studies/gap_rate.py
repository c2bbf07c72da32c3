"""How the smallest distance between the projected centres of two neurons falls with the width of the layer.

The paper on neuron identifiability predicts ``gamma_out = sqrt(2) min |v_i - v_j|`` of the order
``sigma_F sqrt(k) m^(-2/k)`` for ``m`` neurons on inputs of intrinsic dimension ``k``. Here centres are drawn as they
are for dense fixed parts and for the masks of the W-asymmetric scheme, on the subspace of Gaussian mixture data. The
theorem speaks of the limit of wide layers: an exponent fitted to finite widths can differ and does not refute it.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np

from fiberscope.errors import InputError
from fiberscope.neurons.classes import NeuronClasses
from fiberscope.neurons.subspace import moments, subspace
from fiberscope.numerics.floats import FloatArray
from fiberscope.studies.lab.study import Claim, Finding, Picture, Study, Task
from fiberscope.studies.lab.table import Table
from fiberscope.training.datasets.loading import load_dataset

SIZES: dict[str, dict[str, Any]] = {
    "quick": {"draws": 10, "widths": [16, 32, 64, 128, 256, 512, 1024], "ranks": [2, 8, 32]},
    "paper": {"draws": 50, "widths": [16, 32, 64, 128, 256, 512, 1024, 2048, 4096], "ranks": [2, 8, 32]},
}
INPUTS, FIXED = 128, 64
"""Ambient dimension, and fixed entries per row of the masked scheme."""

POINTS = 2000
SCHEMES = ("dense", "masked")
CLOSE = 0.25
"""Relative difference of a fitted exponent that is called close to the predicted one."""


def plan(scale: str, options: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One task per scheme, intrinsic dimension and width."""
    sizes = SIZES[scale] | {name: value for name, value in options.items() if value is not None}
    if not isinstance(sizes["draws"], int) or sizes["draws"] < 1:
        raise InputError(f"option draws: expected a positive integer, got {sizes['draws']!r}")
    for name, least in (("widths", 2), ("ranks", 1)):
        values = sizes[name]
        if not isinstance(values, list | tuple) or any(not isinstance(v, int) or v < least for v in values):
            raise InputError(f"option {name}: expected a list of integers from {least}, got {values!r}")
    if max(sizes["ranks"]) > INPUTS:
        raise InputError(f"option ranks: expected at most {INPUTS}, got {max(sizes['ranks'])}")
    return [
        {"scheme": scheme, "rank": k, "width": m, "draws": sizes["draws"]}
        for scheme in SCHEMES
        for k in sizes["ranks"]
        for m in sizes["widths"]
    ]


def run_task(task: Task) -> list[dict[str, Any]]:
    """One row per draw of the fixed parts."""
    scheme, k, m = (task.settings[name] for name in ("scheme", "rank", "width"))
    data = load_dataset("gaussian_mixture", intrinsic=k, dimension=INPUTS, points=POINTS, test_points=1)
    basis = subspace(moments(data.inputs, INPUTS), rank=k).basis
    rows = []
    for draw in range(task.settings["draws"]):
        F, D = fixed_part(scheme, m, np.random.default_rng([task.seed, draw]))
        found = NeuronClasses.from_arrays(F, D, np.zeros_like(F), basis)
        rows.append({"scheme": scheme, "rank": k, "width": m, "draw": draw, "gap": found.gap_out})
    return rows


def fixed_part(scheme: str, m: int, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
    """``F`` and ``D``: normal entries everywhere, or at 64 random places of every row."""
    F = rng.standard_normal((m, INPUTS))
    if scheme == "dense":
        return F, np.ones_like(F)
    places = rng.permuted(np.broadcast_to(np.arange(INPUTS), F.shape), axis=1)[:, :FIXED]
    mask = np.zeros_like(F)
    np.put_along_axis(mask, places, 1.0, axis=1)
    return F * mask, 1.0 - mask


def summarise(table: Table) -> Table:
    """Means over draws, and the predicted rate anchored at the smallest width as in the paper's figure."""
    rows = []
    for (scheme, k), part in table.groups("scheme", "rank").items():
        by_width = {m: rows_of.column("gap") for (m,), rows_of in part.groups("width").items()}
        first = min(by_width)
        anchor = float(np.mean(by_width[first])) * first ** (2 / k)
        for m, gaps in by_width.items():
            row = {"scheme": scheme, "rank": k, "width": m, "gap": float(np.mean(gaps))}
            rows.append(row | {"deviation": float(np.std(gaps)), "anchored_rate": anchor * m ** (-2 / k)})
    return Table.of(rows)


def exponents(table: Table, scheme: str) -> dict[int, tuple[float, float]]:
    """Per intrinsic dimension: the fitted exponent of the width, and its standard error."""
    found = {}
    for (k,), part in table.where(scheme=scheme).groups("rank").items():
        x, y = np.log(part.column("width")), np.log(part.column("gap"))
        if len(set(x.tolist())) < 2:
            raise InputError("expected at least two widths, got one")
        slope, offset = np.polyfit(x, y, 1)
        spread = float(np.sum((y - slope * x - offset) ** 2) / max(len(x) - 2, 1))
        found[k] = float(slope), float(np.sqrt(spread / np.sum((x - x.mean()) ** 2)))
    return found


def _rate(table: Table, scheme: str) -> Finding:
    """Fitted exponents against -2/k: within a quarter of it, or within two standard errors."""
    texts, fits = [], True
    for k, (slope, error) in exponents(table, scheme).items():
        gap = abs(slope + 2 / k)
        fits = fits and gap <= max(CLOSE * 2 / k, 2 * error)
        texts.append(f"k = {k}: {slope:.3f} +- {error:.3f}, predicted {-2 / k:.3f}")
    return Finding(fits, "; ".join(texts))


def dense_rate(table: Table) -> Finding:
    """Normal entries everywhere, which is what the theorem assumes."""
    return _rate(table, "dense")


def masked_rate(table: Table) -> Finding:
    """The masks of the W-asymmetric scheme."""
    return _rate(table, "masked")


def slower_for_more_dimensions(table: Table) -> Finding:
    """Exponents must be ordered by the intrinsic dimension."""
    texts, fits = [], True
    for scheme in SCHEMES:
        found = exponents(table, scheme)
        slopes = [found[k][0] for k in sorted(found)]
        fits = fits and all(a < b for a, b in pairwise(slopes))
        texts.append(f"{scheme}: {', '.join(f'{s:.3f}' for s in slopes)}")
    return Finding(fits, "; ".join(texts))


STUDY = Study(
    name="gap-rate",
    title="The smallest distance of projected centres against the width of the layer",
    paper="Beyond Structural Symmetries: Linear Mode Connectivity via Neuron Identifiability",
    figure="figure 12, appendix H.2",
    plan=plan,
    run_task=run_task,
    claims=(
        Claim("rate", "Over the widths drawn, gamma_out falls as m^(-2/k).", "figure 12, after C.12", dense_rate),
        Claim("rate-masked", "The same with the masks of the W-asymmetric scheme.", "figure 12", masked_rate),
        Claim(
            "low-dimension",
            "Close centres become likely mainly for small intrinsic dimension.",
            "appendix H.2",
            slower_for_more_dimensions,
        ),
    ),
    cost={"quick": 20.0, "paper": 240.0},
    options={"draws": None, "widths": None, "ranks": None},
    pictures=(
        Picture(
            "gaps",
            "Smallest distance of projected centres",
            x="width",
            y="gap",
            lines="rank",
            panels="scheme",
            x_label="width m",
            y_label="gamma_out",
            log_x=True,
            log_y=True,
            words={"rank": "k =", "scheme": "", "dense": "dense fixed part", "masked": "64 fixed entries per row"},
            caption="Means over draws. The predicted slopes are -1, -1/4 and -1/16.",
        ),
    ),
    summarise=summarise,
)
