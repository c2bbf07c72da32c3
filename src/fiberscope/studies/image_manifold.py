"""MetFaces and StyleGAN cannot be had here: photographs of CIFAR-10, enlarged, and a convolutional generator stand in.

The paper on data geometry takes curves of images from a generator, trains a 256-64 network on random labels, and finds
that the density of regions falls while the network memorises, and is lower on the manifold than on "a straight line off
the manifold", without saying which; two kinds of lines are followed here. As in the paper, images have 128 x 128 pixels
in three colours, are mirrored at random and normalised, and a curve goes through 100 images. The generator is trained
here from a seed; any other one can be followed with :class:`fiberscope.GeneratorCurve`. The quick scale takes small
digits.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from fiberscope.errors import InputError
from fiberscope.geometry.curves.along import regions_along
from fiberscope.geometry.curves.curve import Polyline
from fiberscope.network.network import Network
from fiberscope.numerics.floats import FloatArray
from fiberscope.studies._verdicts import mean_and_error
from fiberscope.studies.lab.study import Claim, Finding, Picture, Study, Task
from fiberscope.studies.lab.table import Table
from fiberscope.training.augment import enlarged, random_flips
from fiberscope.training.datasets.loading import load_dataset
from fiberscope.training.generators import TrainedGenerator, train_generator
from fiberscope.training.seeds import train_many

SIZES: dict[str, dict[str, Any]] = {
    "quick": {"images": "digits", "count": 300, "runs": 4, "curves": 6, "epochs": 200, "moments": 8, "flips": False},
    "paper": {"images": "cifar", "count": 500, "runs": 10, "curves": 10, "epochs": 100, "moments": 10, "flips": True},
}
GENERATORS: dict[str, dict[str, Any]] = {
    "digits": {"latent": 4, "widths": (32, 64), "epochs": 30},
    "mnist": {"latent": 8, "widths": (128, 256), "epochs": 10},
    "cifar": {
        "latent": 32,
        "channels": (128, 64, 32, 16, 16),
        "epochs": 25,
        "beta": 8.0,
        "lr": 2e-3,
        "batch_size": 32,
    },
}
SIDE, SEEN = 128, 2000
"""Of photographs: pixels along a side, and how many of them the generator is trained on."""

TRAINING: dict[str, Any] = {"lr": 0.01, "momentum": 0.5, "batch_size": 32, "init": "torch", "hidden": (256, 64)}
"""The classifier's, from the paper's appendix; the initialisation is torch's, the paper names none."""

POINTS = 100
"""Images per curve."""

LINES = ("manifold", "chord", "noise")
"""A curve of images, the straight line between its ends, and a straight line between two images of noise."""


def plan(scale: str, options: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One task per run."""
    sizes = dict(options) | {key: value for key, value in SIZES[scale].items() if options.get(key) is None}
    if sizes["images"] not in GENERATORS:
        raise InputError(f"option images: expected {' or '.join(GENERATORS)}, got {sizes['images']!r}")
    for name in ("count", "runs", "curves", "epochs", "moments", "points", "batch_size"):
        if not isinstance(sizes[name], int) or sizes[name] < 1 + (name == "points"):
            raise InputError(f"option {name}: expected a positive integer, got {sizes[name]!r}")
    runs = sizes.pop("runs")
    known = GENERATORS[sizes["images"]]
    for name in ("latent", "generator_epochs"):
        if sizes[name] is None:
            sizes[name] = known[name.removeprefix("generator_")]
    return [{**sizes, "run": run} for run in range(runs)]


def run_task(task: Task) -> list[dict[str, Any]]:
    """One row per moment and kind of line."""
    chosen = task.settings
    name, epochs = chosen["images"], chosen["epochs"]
    rng = np.random.default_rng(task.seed)
    images = photographs(name)
    generator = manifold(name, chosen["latent"], chosen["generator_epochs"], chosen["generator_seed"])
    shape = images.shape[1:]
    images = images[rng.choice(len(images), min(chosen["count"], len(images)), replace=False)]
    images = images.reshape(len(images), -1)
    mean, scale = float(images.mean()), float(images.std())
    images = (images - mean) / scale
    labels = rng.integers(2, size=len(images))
    moments = sorted({0, epochs, *np.geomspace(1, epochs, chosen["moments"]).astype(int).tolist()})
    runs = train_many(
        (images.shape[1], *chosen["hidden"], 2),
        (images, labels),
        seeds=[task.seed],
        epochs=epochs,
        optimizer="sgd",
        loss="cross_entropy",
        checkpoints=moments,
        dtype="float32",
        augment=random_flips(shape) if chosen["flips"] else None,
        **{key: chosen[key] for key in TRAINING if key != "hidden"},
    )
    lines = draw_lines(generator, chosen["curves"], mean, scale, rng, chosen["points"])
    rows = []
    for epoch in moments:
        net = runs.checkpoints[epoch][0]
        if net is None:
            continue
        accuracy = float(np.mean(net(images).argmax(axis=1) == labels))
        for kind, curves in lines.items():
            rows.append({"images": name, "run": chosen["run"], "epoch": epoch, "line": kind})
            rows[-1] |= {"accuracy": accuracy, **density(net, curves)}
    return rows


@lru_cache(maxsize=1)
def photographs(name: str) -> FloatArray:
    """The images, ``(count, colours, height, width)``, pixels from 0 to 1."""
    if name == "cifar":
        return enlarged(load_dataset("cifar10_subset", limit=SEEN).inputs, SIDE)
    return np.asarray(load_dataset(name).inputs)


@lru_cache(maxsize=1)
def manifold(name: str, latent: int, epochs: int, seed: int) -> TrainedGenerator:
    """The generator of all runs: trained once in a process, with the same bits in every one."""
    settings = GENERATORS[name] | {"latent": latent, "epochs": epochs}
    return train_generator(photographs(name), seed=seed, **settings)


def draw_lines(
    generator: TrainedGenerator,
    count: int,
    mean: float,
    scale: float,
    rng: np.random.Generator,
    points: int = POINTS,
) -> dict[str, list[Polyline]]:
    """Curves between images of random latent points, their chords, and lines through noise of the same spread."""
    found: dict[str, list[Polyline]] = {kind: [] for kind in LINES}
    for _ in range(count):
        z0, z1 = rng.standard_normal((2, generator.latent))
        s = np.linspace(0, 1, points)[:, None]
        images: FloatArray = (generator((1 - s) * z0 + s * z1) - mean) / scale
        found["manifold"].append(Polyline(images))
        found["chord"].append(Polyline(images[[0, -1]]))
        found["noise"].append(Polyline(rng.standard_normal((2, images.shape[1]))))
    return found


def density(net: Network, curves: list[Polyline]) -> dict[str, float]:
    """Boundaries per length along lines, and the logarithm of regions per length, means over the lines."""
    found = [regions_along(net, curve) for curve in curves]
    regions = np.array([one.num_regions for one in found])
    lengths = np.array([curve.length for curve in curves])
    return {
        "regions": float(regions.mean()),
        "length": float(lengths.mean()),
        "log_density": float(np.log(regions / lengths).mean()),
        "certified": all(one.certified for one in found),
    }


def summarise(table: Table) -> Table:
    """Means over runs."""
    rows = []
    for (line, epoch), part in table.groups("line", "epoch").items():
        row: dict[str, Any] = {"line": line, "epoch": epoch, "runs": len(part)}
        rows.append(row | {name: part.mean(name) for name in ("regions", "length", "log_density", "accuracy")})
    return Table.of(rows)


# -- the claims ----------------------------------------------------------------------------------------------------


def _ends(table: Table, line: str) -> tuple[dict[int, float], dict[int, float]]:
    """Log density of every run at the first and the last moment."""
    part = table.where(line=line)
    first, last = (
        dict(zip(rows.column("run"), rows.column("log_density"), strict=True))
        for rows in (part.where(epoch=0), part.where(epoch=max(part.column("epoch"))))
    )
    return first, last


def _decided(changes: list[float], text: str) -> Finding:
    """Whether differences, paired by run, are negative by more than two standard errors."""
    mean, error = mean_and_error(changes)
    answer = None if abs(mean) <= 2 * error else mean < 0
    return Finding(answer, f"{text} {mean:+.3f} +- {error:.3f} (natural logarithm)")


def falls(table: Table) -> Finding:
    """On the manifold, from the first to the last moment."""
    first, last = _ends(table, "manifold")
    return _decided(
        [last[run] - first[run] for run in last], "from the first to the last epoch the log density changes by"
    )


def _below(table: Table, line: str) -> Finding:
    inside, outside = _ends(table, "manifold")[1], _ends(table, line)[1]
    words = {"chord": "the straight line between the ends of the curve", "noise": "lines through noise"}
    text = f"in the end the log density on the manifold less that on {words[line]} is"
    return _decided([inside[run] - outside[run] for run in inside], text)


def below_chord(table: Table) -> Finding:
    """Against straight lines between the same images."""
    return _below(table, "chord")


def below_noise(table: Table) -> Finding:
    """Against straight lines far away from the manifold."""
    return _below(table, "noise")


def memorised(table: Table) -> Finding:
    """All runs know nearly all labels in the end."""
    last = table.where(epoch=max(table.column("epoch")))
    worst = min(last.column("accuracy"))
    return Finding(worst > 0.95, f"smallest accuracy on the random labels in the end: {worst:.3f}")


STUDY = Study(
    name="image-manifold",
    title="Density of regions on and off a learned manifold of images during memorisation",
    paper="Effects of Data Geometry in Early Deep Learning",
    figure="figure 9, section 4.3",
    plan=plan,
    run_task=run_task,
    claims=(
        Claim("falls", "The density of regions decreases as the network memorises.", "section 4.3, figure 9", falls),
        Claim(
            "below-chord",
            "It is significantly lower on the manifold than off it (read: than on the line between the same images).",
            "section 4.3, figure 9",
            below_chord,
        ),
        Claim("below-noise", "The same (read: than on lines through noise).", "section 4.3, figure 9", below_noise),
        Claim("memorised", "The network memorises the random labels (a control).", "section 4.3", memorised),
    ),
    cost={"quick": 60.0, "paper": 3000.0},
    options={
        **dict.fromkeys(SIZES["quick"]),
        **TRAINING,
        "points": POINTS,
        "latent": None,
        "generator_epochs": None,
        "generator_seed": 0,
    },
    version=2,
    pictures=(
        Picture(
            "density",
            "Log density of regions",
            x="epoch",
            y="log_density",
            lines="line",
            x_label="epoch",
            y_label="log(regions / length)",
            words={"line": "", "manifold": "on the manifold", "chord": "straight, same ends", "noise": "through noise"},
            caption="Means over runs and lines. Inputs are scaled to variance one.",
        ),
        Picture(
            "accuracy",
            "Accuracy on the random labels",
            x="epoch",
            y="accuracy",
            lines="images",
            x_label="epoch",
            y_label="accuracy",
            where={"line": "manifold"},
            words={"images": ""},
        ),
    ),
    summarise=summarise,
)
