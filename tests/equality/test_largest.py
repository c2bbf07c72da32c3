"""The largest difference: its ends hold a dense grid of one input between them, and a copy needs no search."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import fiberscope as fs


@pytest.mark.parametrize("seed", range(4))
def test_the_ends_hold_what_a_grid_finds(seed: int) -> None:
    a, b = (fs.Network.random((1, 5, 4, 2), seed=seed + 10 * k) for k in (0, 1))
    known = fs.largest_difference(a, b, fs.Box([-1.0], [2.0]), time_limit=30)
    x = np.linspace(-1, 2, 30_001)[:, None]
    seen = float(np.abs(a(x) - b(x)).max())
    slope = sum(float(np.prod([np.linalg.norm(W, 2) for W in net.weights])) for net in (a, b))
    assert seen <= known.high <= 1.01 * (seen + slope * 1e-4) + 1e-12
    assert seen - 1e-12 <= known.low * 1.01 and known.low <= known.high
    assert float(np.abs(a(known.x[None]) - b(known.x[None])).max()) == pytest.approx(known.low)


def test_of_a_copy_with_other_numbers_layers_bound_it_without_a_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search over boxes of 36 inputs reaches nothing: its bound was thousands of times as large."""
    torch.manual_seed(0)
    layers = [nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16, 12)]
    module = nn.Sequential(*layers, nn.ReLU(), nn.Linear(12, 3)).eval()
    a = fs.load(module, (1, 6, 6))
    with torch.no_grad():
        module[-1].weight[1, 2] += 1e-3
    b = fs.load(module, (1, 6, 6))
    box = fs.Box.cube(36, 0, 1)
    known = fs.largest_difference(a, b, box, time_limit=0.3)
    X = box.sample(2000, 0)
    seen = float(np.abs(a(X) - b(X)).max())
    assert 0 < seen <= known.high < 20 * seen
    same = fs.largest_difference(a, a, box)
    assert (same.low, same.high) == (0.0, 0.0)

    def late(*_: object) -> None:
        raise fs.OutOfTimeError("the time is up")

    monkeypatch.setattr("fiberscope.equality.largest.best_pairing", late)  # the clock may run out anywhere
    assert fs.largest_difference(a, b, box).high == pytest.approx(known.high)
