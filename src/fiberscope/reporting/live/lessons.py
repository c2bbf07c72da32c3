"""Small trainings to watch: points in the plane with two classes, a chain, and the networks along the way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from fiberscope.extras import import_module
from fiberscope.network.network import Network
from fiberscope.numerics.floats import FloatArray, IntArray
from fiberscope.run import Progress

POINTS = 300
MOST_FRAMES = 48


@dataclass(frozen=True, eq=False)
class Lesson:
    """A training that has ended: its data, the loss after every epoch, and networks at some epochs."""

    X: FloatArray
    labels: IntArray
    losses: list[float]
    epochs: list[int]
    networks: list[Network]


def _moons(t: FloatArray, rng: np.random.Generator) -> FloatArray:
    arc = np.pi * rng.uniform(size=len(t))
    one = np.stack([np.cos(arc) - 0.5, np.sin(arc) - 0.25], axis=1)
    return np.asarray(np.where(t[:, None] > 0, one, -one) + rng.normal(size=one.shape) * 0.1)


def _rings(t: FloatArray, rng: np.random.Generator) -> FloatArray:
    arc = 2 * np.pi * rng.uniform(size=len(t))
    reach = np.where(t > 0, 0.45, 1.15) + rng.normal(size=len(t)) * 0.08
    return np.asarray(reach[:, None] * np.stack([np.cos(arc), np.sin(arc)], axis=1))


def _spirals(t: FloatArray, rng: np.random.Generator) -> FloatArray:
    along = np.sqrt(rng.uniform(0.02, 1, size=len(t)))
    arc = 3.2 * np.pi * along + np.where(t > 0, 0, np.pi)
    around = np.stack([np.cos(arc), np.sin(arc)], axis=1)
    return np.asarray(1.4 * along[:, None] * around + rng.normal(size=(len(t), 2)) * 0.04)


def _squares(t: FloatArray, rng: np.random.Generator) -> FloatArray:
    side = rng.choice([-1.0, 1.0], size=len(t))
    return np.asarray(np.stack([side, side * t], axis=1) * rng.uniform(0.08, 1.3, size=(len(t), 2)))


CLOUDS: dict[str, Callable[[FloatArray, np.random.Generator], FloatArray]] = {
    "moons": _moons,
    "rings": _rings,
    "spirals": _spirals,
    "squares": _squares,
}


def cloud(name: str, seed: int) -> tuple[FloatArray, IntArray]:
    """Points and their classes, 0 and 1.

    >>> X, labels = cloud("moons", 0)
    >>> X.shape, labels.mean()
    ((300, 2), np.float64(0.5))
    """
    labels = np.arange(POINTS) % 2
    return CLOUDS[name]((2 * labels - 1).astype(np.float64), np.random.default_rng(seed)), labels


def train(
    name: str, hidden: tuple[int, ...], epochs: int, lr: float, seed: int, progress: Progress | None = None
) -> Lesson:
    """Train a chain with two outputs on a cloud by Adam, and keep networks along the way."""
    X, labels = cloud(name, seed)
    kept = np.unique(np.round(epochs * np.linspace(0, 1, min(MOST_FRAMES, epochs + 1)) ** 1.5).astype(int)).tolist()
    seeds: Any = import_module("fiberscope.training.seeds", "a training")
    runs = seeds.train_many(
        (2, *hidden, 2),
        (X, labels),
        [seed],
        epochs=epochs,
        lr=lr,
        batch_size=50,
        loss="cross_entropy",
        checkpoints=kept,
        progress=progress,
    )
    return Lesson(X, labels, [float(x) for x in runs.losses[0]], kept, [runs.checkpoints[k][0] for k in kept])
