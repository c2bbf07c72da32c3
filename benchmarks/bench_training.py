"""Training many seeds at once against a Python loop over torch modules, same seeds, same order of visits."""

from __future__ import annotations

import numpy as np

from fiberscope.network.network import Network
from fiberscope.training.datasets.loading import load_dataset
from fiberscope.training.seeds import train_many
from harness import Case


def loop(widths: tuple[int, ...], seeds: range, epochs: int, batch_size: int) -> np.ndarray:
    """One run after the other with torch.optim; the final outputs of all runs on the data."""
    import torch

    data = load_dataset("f2")
    X, T = torch.tensor(data.inputs), torch.tensor(data.targets)
    outputs = []
    for seed in seeds:
        start = Network.random(widths, seed)
        layers: list[torch.nn.Module] = []
        for weight, bias in zip(start.weights, start.biases, strict=True):
            linear = torch.nn.Linear(weight.shape[1], weight.shape[0], dtype=torch.float64)
            with torch.no_grad():
                linear.weight.copy_(torch.tensor(weight))
                linear.bias.copy_(torch.tensor(bias))
            layers += [linear, torch.nn.ReLU()]
        module = torch.nn.Sequential(*layers[:-1])
        optimizer = torch.optim.Adam(module.parameters(), lr=0.01, weight_decay=1e-4)
        loss_of = torch.nn.MSELoss()
        rng = np.random.default_rng([seed, 1])
        for _ in range(epochs):
            for part in torch.from_numpy(rng.permutation(len(X))).split(batch_size):
                optimizer.zero_grad()
                loss_of(module(X[part]), T[part]).backward()
                optimizer.step()
        outputs.append(module(X).detach().numpy())
    return np.stack(outputs)


def together(widths: tuple[int, ...], seeds: range, epochs: int, batch_size: int) -> np.ndarray:
    data = load_dataset("f2")
    runs = train_many(widths, data, seeds, epochs=epochs, batch_size=batch_size, weight_decay=1e-4)
    return np.stack([net(data.inputs) for net in runs.networks])


def case(name: str, widths: tuple[int, ...], runs: int, epochs: int, quick: bool) -> Case:
    settings = (widths, range(runs), epochs, 16)
    return Case(
        method=f"training of {runs} runs, Adam, batch 16, {epochs} epochs",
        network=name,
        ours=lambda: together(*settings),
        reference=lambda: loop(*settings),
        # Rounding grows along a training: few epochs, so that the answers still compare.
        agree=lambda a, b: bool(np.allclose(a, b, atol=1e-6)),
        quick=quick,
    )


def cases() -> list[Case]:
    return [
        case("(1, 10x4 | 1)", (1, 10, 10, 10, 10, 1), 15, 20, quick=True),
        case("(1, 10x4 | 1)", (1, 10, 10, 10, 10, 1), 100, 20, quick=False),
        case("(1, 64x2 | 1)", (1, 64, 64, 1), 15, 20, quick=False),
    ]
