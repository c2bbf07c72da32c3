"""Small networks of several kinds with the same inputs and as many units per layer, and a task for all of them."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from fiberscope.geometry.domains import Box
from fiberscope.training.datasets.dataset import Dataset

KINDS = ("chain", "leaky", "residual", "convolutional", "recurrent")
SLOPE = 0.125
KERNEL = 2
POINTS = 400


class Residual(nn.Module):
    """Blocks that add something to the inputs, and a linear output."""

    def __init__(self, inputs: int, layers: int, units: int) -> None:
        super().__init__()
        self.into = nn.ModuleList(nn.Linear(inputs, units) for _ in range(layers))
        self.back = nn.ModuleList(nn.Linear(units, inputs) for _ in range(layers))
        self.out = nn.Linear(inputs, 1)

    def forward(self, x: Tensor) -> Tensor:
        for into, back in zip(self.into, self.back, strict=True):
            x = x + back(torch.relu(into(x)))
        found: Tensor = self.out(x)
        return found


class Recurrent(nn.Module):
    """A state that reads a part of the inputs at every step, with the same weights, and a linear output."""

    def __init__(self, inputs: int, layers: int, units: int) -> None:
        super().__init__()
        self.part = inputs // layers
        self.layers = layers
        self.read = nn.Linear(self.part, units)
        self.keep = nn.Linear(units, units, bias=False)
        self.out = nn.Linear(units, 1)

    def forward(self, x: Tensor) -> Tensor:
        state = torch.relu(self.read(x[:, : self.part]))
        for step in range(1, self.layers):
            state = torch.relu(self.read(x[:, step * self.part : (step + 1) * self.part]) + self.keep(state))
        found: Tensor = self.out(state)
        return found


def build(kind: str, inputs: int, layers: int, units: int, seed: int) -> nn.Module:
    """A network at PyTorch's initialisation; the convolutions go round a circle of inputs, with a kernel of two."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        if kind == "residual":
            return Residual(inputs, layers, units)
        if kind == "recurrent":
            return Recurrent(inputs, layers, units)
        parts: list[nn.Module] = [nn.Unflatten(1, (1, inputs))] if kind == "convolutional" else []
        size = 1 if kind == "convolutional" else inputs
        for _ in range(layers):
            if kind == "convolutional":
                parts += [nn.CircularPad1d((0, KERNEL - 1)), nn.Conv1d(size, units // inputs, KERNEL), nn.ReLU()]
                size = units // inputs
            else:
                parts += [nn.Linear(size, units), nn.LeakyReLU(SLOPE) if kind == "leaky" else nn.ReLU()]
                size = units
        return nn.Sequential(*parts, nn.Flatten(), nn.Linear(units, 1))


def waves(inputs: int) -> Dataset:
    """Points of the cube and a sum of sines of neighbours, with signs that alternate."""
    X = np.random.default_rng(0).uniform(-1, 1, (POINTS, inputs))
    signs = (-1.0) ** np.arange(inputs)
    y = (signs * np.sin(2 * X + np.roll(X, -1, axis=1))).sum(axis=1, keepdims=True)
    return Dataset(f"waves-{inputs}", X, y).astype("float32")


def hiding() -> tuple[nn.Module, Box]:
    """A convolutional network and a box on which it is transparent, and yet hides the kink of the first unit.

    Units of the first layer are ``max(x_p, 0)``, those of the second ``max(h_p + h_{p+1} - 1, 0)``. The third input is
    large, so that the second layer is never off as a whole; the two units that read the first one are.
    """
    module = build("convolutional", 4, 2, 4, 0)
    state = [[[[1.0, 0.0]]], [0.0], [[[1.0, 1.0]]], [-1.0], [[1.0] * 4], [0.0]]
    with torch.no_grad():
        for parameter, value in zip(module.parameters(), state, strict=True):
            parameter.copy_(torch.tensor(value))
    return module, Box(np.array([-0.25, 0.125, 2.0, 0.125]), np.array([0.25, 0.25, 3.0, 0.25]))
