"""Signs by residues are those of exact evaluation, ties of pools included."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fiberscope.dimension import zeros
from fiberscope.dimension.zeros import certified
from fiberscope.network.border import as_network
from fiberscope.network.io import load
from fiberscope.testing import CASES, case


def cnn(seed: int, integer: bool):
    torch.manual_seed(seed)
    layers = torch.nn.Sequential(
        torch.nn.Conv2d(1, 2, 3, padding=1),
        torch.nn.BatchNorm2d(2),
        torch.nn.ReLU(),
        torch.nn.MaxPool2d(2),
        torch.nn.Conv2d(2, 2, 2),
        torch.nn.ReLU(),
        torch.nn.MaxPool2d(2, 1, padding=1),
        torch.nn.Flatten(),
        torch.nn.LazyLinear(3),
        torch.nn.ReLU(),
        torch.nn.Linear(3, 2),
    ).eval()
    layers(torch.zeros(1, 1, 6, 6))
    if integer:
        for value in layers.parameters():
            value.data = torch.randint(-1, 2, value.shape).float()
    return load(layers, input_shape=(1, 6, 6))


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**20), st.booleans(), st.sampled_from(["background", "binary", "noise"]))
def test_images_with_ties(seed, integer, kind):
    net = cnn(seed, integer)
    rng = np.random.default_rng(seed)
    X = rng.random((4, 1, 6, 6))
    if kind == "background":
        X *= rng.random((4, 1, 6, 6)) < 0.3
    elif kind == "binary":
        X = np.round(X)
    X = X.reshape(4, -1)
    assert np.array_equal(certified(net, X), net.signs(X).signs)


@pytest.mark.parametrize("name", sorted(CASES))
def test_every_kind_of_network(name, monkeypatch):
    net = as_network(case(name))
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.integers(-2, 3, (12, net.in_size)) / 2.0, np.zeros((1, net.in_size))])
    monkeypatch.setattr(zeros, "_HELD", 200)
    assert np.array_equal(certified(net, X), net.signs(X).signs)
    monkeypatch.setattr(zeros, "_PRIMES", 0)
    assert np.array_equal(certified(net, X), net.signs(X).signs)
