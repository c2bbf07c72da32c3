"""Can two trainings be joined? The loss along the segment between them, before and after their neurons are matched.

Two networks learn two spirals from different seeds. Half-way between them nothing works; after the neurons of the
second are put in the order of the first, which changes no output, the way is almost free.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import nn

import fiberscope as fs


def spirals(points: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    label = rng.integers(0, 2, points)
    angle = rng.uniform(0.5, 6.0, points)
    turn = angle + np.pi * label
    X = angle[:, None] / 6.0 * np.stack([np.cos(turn), np.sin(turn)], axis=1) + 0.03 * rng.normal(size=(points, 2))
    return X.astype(np.float32), label


def trained(seed: int) -> nn.Module:
    net = fs.mlp((2, 256, 256, 2), seed, activation=nn.ReLU)
    X, y = map(torch.as_tensor, spirals(1000, 0))
    optimizer = torch.optim.Adam(net.parameters(), lr=2e-3)
    source = torch.Generator().manual_seed(seed)
    for _ in range(40):
        for part in torch.randperm(len(X), generator=source).split(100):
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(X[part]), y[part]).backward()
            optimizer.step()
    return net.eval()


def main() -> None:
    a, b = trained(0), trained(1)
    data, held_out = spirals(1000, 0), spirals(1000, 1)
    before = fs.barrier(a, b, "cross_entropy", data, test=held_out)
    print("as trained:", before)

    matching = fs.match(a, b, data=data)
    print(matching)
    aligned = matching.apply(b)
    X = torch.as_tensor(held_out[0])
    print(f"reordering changed the outputs by {float((aligned(X) - b(X)).detach().abs().max()):.1e}")
    after = fs.barrier(a, aligned, "cross_entropy", data, test=held_out)
    print("matched:   ", after)

    middle = fs.interpolate(a, aligned, 0.5)
    right = (middle(X).argmax(dim=1).numpy() == held_out[1]).mean()
    print(f"the model half-way classifies {right:.1%} of new points")
    fs.plot.save_figure(fs.plot.barrier({"as trained": before, "matched": after}), Path("barrier.png"))


if __name__ == "__main__":
    main()
