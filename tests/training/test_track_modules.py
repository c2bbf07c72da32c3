"""Tracking modules that are no piecewise linear networks: kernels, numerical ranks with warnings, refusals in words."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import fiberscope as fs
from fiberscope.errors import UnsupportedModelError
from fiberscope.training.quantities import OF_MODULES, list_quantities

X = np.random.default_rng(0).normal(size=(12, 2))


def smooth() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(2, 5), nn.Tanh(), nn.Linear(5, 1)).double()


def test_every_quantity_of_modules_against_the_questions_themselves() -> None:
    module, y = smooth(), X[:, :1] ** 2
    names = sorted(OF_MODULES - {"accuracy"})
    values = fs.track(module, (X, y), quantities=names).record(0).values
    assert not [name for name, value in values.items() if isinstance(value, dict) and "error" in value]
    K = np.asarray(fs.ntk(module, X))
    assert np.isclose(values["effective_rank"], fs.effective_rank(K))
    assert np.isclose(values["kernel_alignment"], fs.kernel_alignment(K, y))
    assert np.isclose(sum(values["kernel_layers"].values()), 1)
    found = fs.functional_dimension(module, X)
    assert values["functional_dimensions"]["numerical"] == found.numerical
    assert values["functional_dimensions"]["exact"] is None
    assert np.isclose(values["loss"], np.mean((module(torch.from_numpy(X)).detach().numpy() - y) ** 2))
    assert values["distance_from_start"] == 0


def test_it_follows_the_training_and_a_file_goes_on(tmp_path: Path) -> None:
    module = smooth()
    file = tmp_path / "run.jsonl"
    names = ["distance_from_start", "effective_rank"]
    with fs.track(module, X, quantities=names, file=file) as tracker:
        tracker(0)
        with torch.no_grad():
            module[0].weight += 1.0
        tracker(1)
    assert np.isclose(tracker.series("distance_from_start")[1][1], np.sqrt(10))
    with fs.track(module, X, quantities=names, file=file) as again:
        again(2)
    assert np.isclose(again.series("distance_from_start")[1][2], np.sqrt(10))


def test_what_needs_a_network_is_refused_at_once() -> None:
    assert set(list_quantities()) > OF_MODULES
    with pytest.raises(UnsupportedModelError, match="quantity regions_sampled: expected a piecewise linear network"):
        fs.track(smooth(), X, quantities=["loss", "regions_sampled"])


def test_tokens() -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Embedding(7, 3), nn.Flatten(), nn.GELU(), nn.Linear(12, 2))
    tokens = np.random.default_rng(0).integers(0, 7, (6, 4))
    values = fs.track(module, tokens, quantities=["functional_dimensions", "effective_rank"]).record(0).values
    assert values["functional_dimensions"]["numerical"] == 12
    assert 0 < values["effective_rank"] <= 12
