"""A smooth function of any number of inputs, which several studies train on."""

from __future__ import annotations

import numpy as np

from fiberscope.training.datasets.dataset import Dataset

POINTS = 400


def smooth(inputs: int) -> Dataset:
    """Points of a normal distribution and a sum of two ridges and a product of sines there, the same in every run."""
    rng = np.random.default_rng(inputs)
    X = rng.normal(size=(POINTS, inputs))
    u, v = rng.normal(size=(2, inputs)) / np.sqrt(inputs)
    y = np.sin(2 * X @ u) + np.abs(X @ v) + np.sin(X[:, 0]) * np.sin(X[:, -1])
    return Dataset("smooth", X, y[:, None], provenance={"inputs": inputs})
