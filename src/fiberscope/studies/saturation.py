"""Rank against batch size: when does a convolutional network with its images have nothing more to say?

On a batch the rank of the Jacobian is at most the number of its rows, and at most the number of parameters minus the
directions that change nothing anywhere: rescalings of channels and neurons, and what batch normalisation takes back.
Two small networks with pools, one of them residual, are ranked exactly on growing batches, before and after training.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from fiberscope.dimension.functional import functional_dimension
from fiberscope.errors import InputError
from fiberscope.studies.lab.study import Claim, Finding, Picture, Study, Task
from fiberscope.studies.lab.table import Table
from fiberscope.training.datasets.loading import load_dataset

SIZES: dict[str, dict[str, Any]] = {
    "quick": {"images": ["digits"], "runs": 3, "largest": 512, "epochs": 5},
    "paper": {"images": ["digits", "mnist"], "runs": 10, "largest": 1024, "epochs": 10},
}
NETWORKS = ("cnn", "resnet")
MOMENTS = ("start", "trained")
TRAINED_ON = 1500
"""Images that a network is trained on; the ones that it is ranked on are the first of them."""


class ResidualBlock(nn.Module):
    """Two convolutions with batch normalisation, added to what came in."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        layers = (nn.Conv2d(channels, channels, 3, padding=1), nn.BatchNorm2d(channels))
        again = (nn.Conv2d(channels, channels, 3, padding=1), nn.BatchNorm2d(channels))
        self.inner = nn.Sequential(*layers, nn.ReLU(), *again)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(x + self.inner(x))


def build(kind: str, side: int) -> nn.Module:
    """A network for images of 8 or 28 pixels a side: 712 or 530 parameters for the small ones."""
    stem = nn.Conv2d(1, 4, 3, padding=1) if side == 8 else nn.Conv2d(1, 4, 5, stride=3)
    front = (stem, nn.BatchNorm2d(4), nn.ReLU())
    if kind == "cnn":
        inner = (nn.MaxPool2d(2), nn.Conv2d(4, 6, 2), nn.BatchNorm2d(6), nn.ReLU())
        return nn.Sequential(*front, *inner, nn.Flatten(), nn.Linear(54, 10))
    return nn.Sequential(*front, ResidualBlock(4), nn.MaxPool2d(4), nn.Flatten(), nn.Linear(16, 10))


def train(module: nn.Module, images: torch.Tensor, labels: torch.Tensor, epochs: int, seed: int) -> None:
    """Adam on minibatches of 64."""
    draws = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(module.parameters(), lr=0.01)
    module.train()
    for _ in range(epochs):
        order = torch.randperm(len(images), generator=draws)
        for start in range(0, len(order), 64):
            part = order[start : start + 64]
            optimizer.zero_grad()
            F.cross_entropy(module(images[part]), labels[part]).backward()  # type: ignore[no-untyped-call]
            optimizer.step()


def plan(scale: str, options: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One task per data set, network and run."""
    sizes = SIZES[scale] | {name: value for name, value in options.items() if value is not None}
    for name in ("runs", "largest", "epochs"):
        if not isinstance(sizes[name], int) or sizes[name] < 1:
            raise InputError(f"option {name}: expected a positive integer, got {sizes[name]!r}")
    for name in sizes["images"]:
        if name not in ("digits", "mnist"):
            raise InputError(f"option images: expected digits or mnist, got {name!r}")
    common = {name: sizes[name] for name in ("largest", "epochs")}
    return [
        {"images": images, "network": kind, "run": run, **common}
        for images in sizes["images"]
        for kind in NETWORKS
        for run in range(sizes["runs"])
    ]


def run_task(task: Task) -> list[dict[str, Any]]:
    """One row per moment and batch size; sizes double."""
    settings = task.settings
    data = load_dataset(settings["images"])
    X = np.array(data.inputs[:TRAINED_ON], dtype=np.float32)
    images, labels = torch.from_numpy(X), torch.as_tensor(np.array(data.targets[:TRAINED_ON])).long()
    with torch.random.fork_rng():
        torch.manual_seed(task.seed)
        module = build(settings["network"], X.shape[-1])
    sizes = [2**k for k in range(int(np.log2(min(settings["largest"], len(X)))) + 1)]
    rows = []
    for moment in MOMENTS:
        if moment == "trained":
            train(module, images, labels, settings["epochs"], task.seed)
        module.eval()
        with torch.no_grad():
            accuracy = float((module(images).argmax(1) == labels).double().mean())
        for points in sizes:
            found = functional_dimension(module, X[:points], ranks="exact", seed=task.seed)
            assert found.exact is not None
            rows.append(
                {
                    "images": settings["images"],
                    "network": settings["network"],
                    "run": settings["run"],
                    "moment": moment,
                    "accuracy": accuracy,
                    "points": points,
                    "on_kinks": len(found.on_boundary),
                    "rows": found.num_points * found.num_outputs,
                    "rank": found.exact,
                    "certified": found.certified,
                    "most": found.bound("rescaling").value,
                    "parameters": found.num_parameters,
                    "regions": found.regions_sampled,
                }
            )
            rows[-1]["share"] = found.exact / rows[-1]["most"]
    return rows


def summarise(table: Table) -> Table:
    """Means over runs."""
    rows = []
    for (images, kind, moment, points), part in table.groups("images", "network", "moment", "points").items():
        row: dict[str, Any] = {"images": images, "network": kind, "moment": moment, "points": points}
        rows.append(row | {name: part.mean(name) for name in ("rank", "most", "parameters", "certified", "accuracy")})
    return Table.of(rows)


def _rows(table: Table) -> list[dict[str, Any]]:
    return [dict(zip(table.columns, row, strict=True)) for row in table.rows]


def _series(table: Table, **wanted: Any) -> list[list[dict[str, Any]]]:
    """The rows of every network at a moment, from the smallest batch to the largest."""
    kept: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in _rows(table.where(**wanted)):
        kept.setdefault((row["images"], row["network"], row["run"], row["moment"]), []).append(row)
    return [sorted(rows, key=lambda row: row["points"]) for rows in kept.values()]


def full_at_first(table: Table) -> Finding:
    """Batches with at most half as many rows as the bound."""
    small = [row for row in _rows(table) if 2 * row["rows"] <= row["most"]]
    if not small:
        return Finding(None, "no batch is that small")
    full = sum(row["rank"] == row["rows"] for row in small)
    return Finding(full == len(small), f"{full} of {len(small)} batches have the rank of their rows")


def stops(table: Table) -> Finding:
    """The last doubling of the batch adds nothing."""
    series = [rows for rows in _series(table) if len(rows) > 1]
    if not series:
        return Finding(None, "one batch size only")
    still = sum(rows[-1]["rank"] == rows[-2]["rank"] for rows in series)
    return Finding(still == len(series), f"for {still} of {len(series)} networks the last doubling adds nothing")


def only_symmetries(table: Table) -> Finding:
    """On the largest batch the rank of a trained network meets the proven bound."""
    series = _series(table, moment="trained")
    if not series:
        return Finding(None, "no trained network")
    met = sum(rows[-1]["rank"] == rows[-1]["most"] for rows in series)
    short = [rows[-1]["most"] - rows[-1]["rank"] for rows in series]
    return Finding(met == len(series), f"{met} of {len(series)} trained networks meet it; {max(short)} short at most")


def training_raises(table: Table) -> Finding:
    """The rank on the largest batch, at the start and trained."""
    ends: dict[str, dict[tuple[Any, ...], float]] = {moment: {} for moment in MOMENTS}
    for *_, last in _series(table):
        ends[last["moment"]][last["images"], last["network"], last["run"]] = last["share"]
    pairs = [(ends["start"][key], share) for key, share in ends["trained"].items() if key in ends["start"]]
    if not pairs:
        return Finding(None, "no network at both moments")
    before, after = np.mean(pairs, axis=0)
    more = sum(b > a for a, b in pairs)
    text = f"{before:.3f} of the bound at the start, {after:.3f} trained; it rises for {more} of {len(pairs)}"
    return Finding(more == len(pairs), text)


ASKED = "asked here"

STUDY = Study(
    name="saturation",
    title="Rank against images: when is a convolutional network exhausted?",
    paper="none: a question of this library",
    figure="none",
    plan=plan,
    run_task=run_task,
    claims=(
        Claim("full-at-first", "On small batches every output of every image adds one.", ASKED, full_at_first),
        Claim("stops", "The rank stops growing with the images.", ASKED, stops),
        Claim(
            "only-symmetries",
            "On enough images the rank of a trained network is the number of its parameters minus rescalings and what "
            "normalisations take back.",
            ASKED,
            only_symmetries,
        ),
        Claim("training-raises", "Training raises the rank on many images.", ASKED, training_raises),
    ),
    cost={"quick": 90.0, "paper": 3000.0},
    options={"images": None, "runs": None, "largest": None, "epochs": None},
    pictures=(
        Picture(
            "ranks",
            "Exact rank against images",
            x="points",
            y=("rank", "most"),
            lines="quantity",
            panels="network",
            x_label="images",
            y_label="dimension",
            log_x=True,
            where={"moment": "trained"},
            words={"rank": "exact rank", "most": "proven bound"},
            caption="Trained networks: the rank grows by one for every output of every image, then meets the bound.",
        ),
        Picture(
            "share",
            "Share of the proven bound",
            x="points",
            y="share",
            lines="moment",
            panels="network",
            x_label="images",
            y_label="rank / bound",
            log_x=True,
            caption="At the start the rank stays below the bound, trained it comes close to it or meets it.",
        ),
    ),
    summarise=summarise,
)
