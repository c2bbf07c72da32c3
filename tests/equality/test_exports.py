"""A model against its own exports, by both exporters, and a ResNet-18 against its folded and permuted copies."""

from __future__ import annotations

import sys
import time
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import fiberscope as fs
from fiberscope.connectivity.structure import permutation_structure

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
from bench_structure import folded, resnet


def small() -> nn.Module:
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(3, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 8, 3), nn.ReLU(),
        nn.Dropout(), nn.Flatten(), nn.Linear(288, 10),
    )  # fmt: skip
    net[1].running_mean.normal_()
    net[1].running_var.uniform_(0.5, 2)
    return net.eval()


MODELS = {"convolutional": (small, (3, 16, 16)), "residual": (lambda: resnet((1, 1), 4), (3, 16, 16))}


@pytest.mark.parametrize("dynamo", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_a_model_and_its_export(name, dynamo, tmp_path):
    make, shape = MODELS[name]
    net, path = make(), tmp_path / "net.onnx"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(net, (torch.zeros(1, *shape),), str(path), dynamo=dynamo, verbose=False)
    a, b = fs.load(net, shape), fs.load(path)
    verdict = fs.equivalent(a, b)
    assert verdict.equal is True and verdict.precision == "float32" and verdict.residual < 4
    box = fs.Box(np.full(a.in_size, 0.4), np.full(a.in_size, 0.5))
    bounded = fs.equivalent(a, b, box)
    x = np.random.default_rng(0).uniform(0.4, 0.5, (50, a.in_size))
    assert np.abs(a(x) - b(x)).max() <= bounded.bound
    for pair in ((net, path), (path, net)):  # the module's inputs have the shape of the file's
        assert fs.equivalent(*pair).equal is True and fs.audit(*pair, data=np.ones((2, *shape))).equal is True
    structure = permutation_structure(net, torch.zeros(1, *shape))
    assert fs.equivalent(structure.apply(net, structure.random(0)), b, example=np.zeros((1, *shape))).equal is True
    assert fs.diff(a, b).same


@pytest.mark.parametrize("side", [32, pytest.param(64, marks=pytest.mark.slow)])
def test_a_resnet_18_takes_seconds(side):
    net, shape = resnet(), (3, side, side)
    structure = permutation_structure(net, torch.zeros(1, *shape))
    a, b = (fs.load(m, shape) for m in (net, folded(structure.apply(net, structure.random(0)))))
    assert a.num_parameters > 11_000_000
    start = time.process_time()
    verdict = fs.equivalent(a, b, time_limit=600)
    assert verdict.equal is True and verdict.residual <= 8
    assert time.process_time() - start < 10
