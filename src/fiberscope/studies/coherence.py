"""Masks break symmetries only along coordinates that the data see: barriers against the coherence of the inputs.

The paper on neuron identifiability embeds two latent numbers in R^20 so that the coherence of the inputs is ``1/t``,
trains students with masked first layers and no fixed part, and joins pairs of them by a straight line without any
alignment. The midpoint barrier is low where the coherence is high.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy.stats import spearmanr

from fiberscope.errors import InputError
from fiberscope.network.network import Network
from fiberscope.neurons.coherence import coherence as coherence_of
from fiberscope.numerics.floats import FloatArray
from fiberscope.studies.lab.study import Claim, Finding, Picture, Study, Task
from fiberscope.studies.lab.table import Table
from fiberscope.training.datasets.loading import load_dataset
from fiberscope.training.datasets.synthetic import coherence_embedding
from fiberscope.training.plan import Parametrisation
from fiberscope.training.seeds import train_many

SIZES: dict[str, dict[str, Any]] = {
    "quick": {"masks": 2, "pairs": 5, "copies": [1, 2, 4, 7, 10], "epochs": 100},
    "paper": {"masks": 5, "pairs": 10, "copies": list(range(1, 11)), "epochs": 100},
}
EMBEDDINGS = ("copy", "frame")
INPUTS, WIDTH, KEPT = 20, 128, 0.15
"""Ambient dimension, hidden neurons, and the probability that a weight is trained."""


def plan(scale: str, options: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One task per embedding, number of copies and mask."""
    sizes = SIZES[scale] | {name: value for name, value in options.items() if value is not None}
    for name in ("masks", "pairs", "epochs"):
        if not isinstance(sizes[name], int) or sizes[name] < 1:
            raise InputError(f"option {name}: expected a positive integer, got {sizes[name]!r}")
    copies = sizes["copies"]
    if not isinstance(copies, list | tuple) or any(not isinstance(t, int) or not 1 <= t <= 10 for t in copies):
        raise InputError(f"option copies: expected numbers from 1 to 10, got {copies!r}")
    return [
        {"embedding": embedding, "copies": t, "mask": mask, "pairs": sizes["pairs"], "epochs": sizes["epochs"]}
        for embedding in EMBEDDINGS
        for t in copies
        for mask in range(sizes["masks"])
    ]


def run_task(task: Task) -> list[dict[str, Any]]:
    """One row per pair of students."""
    embedding, copies, mask, pairs = (task.settings[name] for name in ("embedding", "copies", "mask", "pairs"))
    data = load_dataset("coherence", embedding=embedding, copies=copies, dimension=INPUTS)
    D = (np.random.default_rng([mask, 4]).random((WIDTH, INPUTS)) < KEPT).astype(float)  # one mask for all levels
    # The outgoing weights are fixed to one, and there is no outgoing bias.
    fixed = Parametrisation([None, np.ones((1, WIDTH))], [D, np.zeros((1, WIDTH))], [None, np.zeros(1)])
    runs = train_many(
        (INPUTS, WIDTH, 1),
        (data.inputs, data.targets),
        seeds=[task.seed + run for run in range(2 * pairs)],
        epochs=task.settings["epochs"],
        optimizer="adamw",
        lr=0.01,
        weight_decay=0.01,
        batch_size=512,
        init=[student(np.random.default_rng([task.seed, run])) for run in range(2 * pairs)],
        parametrisation=fixed,
    )
    nu = coherence_of(coherence_embedding(embedding, copies, INPUTS, 0))
    return [
        {
            "embedding": embedding,
            "copies": copies,
            "coherence": round(nu, 12),
            "mask": mask,
            "pair": pair,
            **along(runs.networks[2 * pair], runs.networks[2 * pair + 1], data.test_inputs, data.test_targets),
        }
        for pair in range(pairs)
        if {2 * pair, 2 * pair + 1} <= set(runs.finished)
    ]


def student(rng: np.random.Generator) -> Network:
    """A student at its initialisation: small normal weights, no biases."""
    weights = [rng.normal(0, 0.05, (WIDTH, INPUTS)), np.ones((1, WIDTH))]
    return Network(weights, [np.zeros(WIDTH), np.zeros(1)])


def along(a: Network, b: Network, X: Any, Y: Any) -> dict[str, float]:
    """Test errors at the ends and in the middle, and the middle's excess over the mean of the ends."""
    middle = Network(
        [(v + w) / 2 for v, w in zip(a.weights, b.weights, strict=True)],
        [(v + w) / 2 for v, w in zip(a.biases, b.biases, strict=True)],
    )
    errors: FloatArray = np.array([np.mean((net(X) - Y) ** 2) for net in (a, b, middle)])
    ends = float(errors[:2].mean())
    return {"error": ends, "middle": float(errors[2]), "barrier": float(errors[2]) - ends}


def summarise(table: Table) -> Table:
    """Means and deviations over pairs."""
    rows = []
    for (embedding, copies), part in table.groups("embedding", "copies").items():
        barriers = part.column("barrier")
        rows.append({"embedding": embedding, "copies": copies, "coherence": part.column("coherence")[0]})
        rows[-1] |= {"pairs": len(part), "error": part.mean("error"), "barrier": float(np.mean(barriers))}
        rows[-1]["deviation"] = float(np.std(barriers))
    return Table.of(rows)


def _falls(table: Table, embedding: str) -> Finding:
    """The mean barrier falls with coherence (rank correlation below -0.8), to less than half from lowest to highest."""
    means = {nu: part.mean("barrier") for (nu,), part in table.where(embedding=embedding).groups("coherence").items()}
    if len(means) < 3:
        raise InputError(f"expected at least three levels of coherence, got {len(means)}")
    order = sorted(means)
    correlation = float(spearmanr(order, [means[nu] for nu in order]).statistic)
    listed = ", ".join(f"{nu:.2g}: {means[nu]:.3g}" for nu in order)
    fits = correlation < -0.8 and means[order[-1]] < means[order[0]] / 2
    return Finding(fits, f"mean midpoint barrier by coherence {listed}; rank correlation {correlation:.2f}")


def copied(table: Table) -> Finding:
    """Every latent number is copied to some coordinates."""
    return _falls(table, "copy")


def framed(table: Table) -> Finding:
    """Pairs of coordinates see the latent plane turned by random angles."""
    return _falls(table, "frame")


def fitted(table: Table) -> Finding:
    """All students learn the task, so that barriers compare like with like: errors below a tenth of the variance."""
    worst = max(part.mean("error") for part in table.groups("embedding", "copies").values())
    variance = float(np.var(load_dataset("coherence").targets))
    return Finding(worst < 0.1 * variance, f"largest mean error of a level {worst:.2g}, variance {variance:.2g}")


STUDY = Study(
    name="coherence",
    title="Midpoint barriers of masked students against the coherence of their inputs",
    paper="Beyond Structural Symmetries: Linear Mode Connectivity via Neuron Identifiability",
    figure="figure 4, question 4, appendix G.5",
    plan=plan,
    run_task=run_task,
    claims=(
        Claim("copy", "Low barriers at high coherence and high barriers at low coherence.", "figure 4", copied),
        Claim("frame", "Also under a random-frame variant.", "figure 4", framed),
        Claim("fitted", "The students fit the teacher at all levels (a control of ours).", "not in the paper", fitted),
    ),
    cost={"quick": 20.0, "paper": 120.0},
    options={"masks": None, "pairs": None, "copies": None, "epochs": None},
    pictures=(
        Picture(
            "barriers",
            "Midpoint barrier without alignment",
            x="coherence",
            y="barrier",
            lines="embedding",
            x_label="coherence of the inputs",
            y_label="excess of the test error",
            words={"embedding": "", "copy": "copied coordinates", "frame": "random frames"},
            caption="Means over masks and pairs, with standard deviations.",
        ),
    ),
    summarise=summarise,
)
